"""Verdicts on a group by its descriptions, as tables."""

from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.describe_groups.v3.response import DescribedGroup as DescribedWithoutInstances
from kio.schema.describe_groups.v5.response import DescribedGroup
from kio.schema.errors import ErrorCode

from muster.coordinator.upstream.errors import UpstreamRefused
from muster.coordinator.upstream.group_probe import (
    ForeignShadow,
    KeptUpstream,
    NotPermitted,
    Vacant,
    has_shadow,
    probe_group,
    verdict_of,
)
from muster.coordinator.upstream.shadow import UNNAMED, ShadowName
from muster.coordinator.wire.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED, DESCRIBE, READ
from tests.coordinator.kio_client import filled

OURS, ANOTHER = ShadowName.of("cluster.topic"), ShadowName.of("cluster.another")
MEMBER = {"member_id": "m", "client_id": "app", "client_host": "/10.0.0.7"} | dict.fromkeys(
    ("member_metadata", "member_assignment"), b""
)


def described(protocol_type: str, *instance_ids: str | None, **changed: Any) -> DescribedGroup:
    """A group with these members, by their instance ids."""
    members = [{**MEMBER, "group_instance_id": each} for each in instance_ids]
    fields = {
        "error_code": ErrorCode.none,
        "group_id": "orders",
        "group_state": "Stable" if members else "Empty",
        "protocol_type": protocol_type,
        "protocol_data": "",
        "members": members,
        "authorized_operations": READ | DESCRIBE,
    }
    group: DescribedGroup = filled(DescribedGroup, fields | changed)
    return group


IN_IT_THERE = "upstream it has 1 member (type consumer), client app at /10.0.0.7"
MANY = "upstream it has 2 members (type consumer), for example client app at /10.0.0.7"


@pytest.mark.parametrize(
    ("group", "verdict"),
    [
        (described(""), Vacant(has_shadow=False)),
        (described("consumer"), Vacant(has_shadow=False)),
        (described("muster", OURS.group_instance_id), Vacant(has_shadow=True)),
        (
            described("muster", OURS.group_instance_id, authorized_operations=AUTHORIZED_OPERATIONS_OMITTED),
            Vacant(has_shadow=True),
        ),
        (described("consumer", None), KeptUpstream(IN_IT_THERE)),
        (described("consumer", OURS.group_instance_id), KeptUpstream(IN_IT_THERE)),
        (described("consumer", "a", "b"), KeptUpstream(MANY)),
        (described("", authorized_operations=DESCRIBE), "Muster's own principal lacks the ACL Allow READ"),
        (described("", error_code=ErrorCode.group_authorization_failed), "lacks the ACL Allow READ"),
        (described("", error_code=ErrorCode.group_id_not_found), "another type"),
        (described("muster", ANOTHER.group_instance_id), False),
        (described("muster", OURS.group_instance_id, ANOTHER.group_instance_id), False),
        (described("muster", None), False),
        (described("muster", UNNAMED.group_instance_id), True),
    ],
)
def test_whose_it_is(group: DescribedGroup, verdict: Vacant | KeptUpstream | str | bool) -> None:
    """A bool: another Muster's, and whether of an earlier version. A str: upstream's, for a reason that contains it."""
    reported = verdict_of(group, OURS, "kafka:9092")
    match verdict:
        case bool():
            assert isinstance(reported, ForeignShadow)
            assert reported.is_unnamed is verdict
        case str():
            assert isinstance(reported, KeptUpstream)
            assert isinstance(reported, NotPermitted) == ("ACL" in verdict)
            assert verdict in reported.reason
        case _:
            assert reported == verdict


def test_another_musters_group_is_named_with_the_way_out() -> None:
    """Both identities, as far as they are known, where the other one is, and what to do."""
    reported = verdict_of(described("muster", ANOTHER.group_instance_id), OURS, "kafka-1:9092,kafka-2:9092")
    assert reported == ForeignShadow(
        "another Muster coordinates it (which has another event log, or a leftover of this Muster from before its"
        " event topic was recreated): upstream it has the shadow muster-cluster.another, client app at /10.0.0.7, and"
        " this Muster's would be muster-cluster.topic. Connect its clients to that Muster. If that no longer exists,"
        " its shadow leaves within 30 minutes, or at once with: muster members remove orders muster-cluster.another"
        " --bootstrap kafka-1:9092,kafka-2:9092",
        is_unnamed=False,
    )


@pytest.mark.parametrize(
    ("protocol_data", "is_there"), [(OURS.protocol_name, True), ("", True), (ANOTHER.protocol_name, False)]
)
def test_a_shadow_is_recognized_by_its_protocol_if_instance_ids_are_missing(protocol_data: str, is_there: bool) -> None:
    """DescribeGroups below v4 lacks instance ids; a rebalancing group has no protocol."""
    fields = {"protocol_type": "muster", "protocol_data": protocol_data, "members": [MEMBER]}
    group = {"error_code": ErrorCode.none, "group_id": "orders", "group_state": "Stable"}
    assert has_shadow(filled(DescribedWithoutInstances, group | fields), OURS) is is_there


class Describing:
    """A link to a cluster with no classic group of that id; `newer`: its results by request."""

    asked_at = "kafka:9092"

    def __init__(self, **newer: SimpleNamespace) -> None:
        self.asked: list[str] = []
        self._newer = newer

    def offers(self, api_key: int, version: int) -> bool:
        return (api_key, version) in {(69, 0), (77, 1)}  # consumer and share groups

    async def ask_coordinator(self, _group_id: str, request: Any, *_: Any, error_of: Any, **__: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        self.asked.append(name)
        group = described("", group_state="Dead") if name == "DescribeGroups" else self._newer[name]
        answer = SimpleNamespace(groups=[group])
        assert error_of(answer) is group.error_code
        return answer


NOT_THERE = SimpleNamespace(error_code=ErrorCode.group_id_not_found, members=())
EMPTY = SimpleNamespace(error_code=ErrorCode.none, members=())
INHABITED = SimpleNamespace(
    error_code=ErrorCode.none, members=[SimpleNamespace(client_id="app", client_host="/10.0.0.7")]
)


@pytest.mark.parametrize(
    ("consumer", "share", "verdict"),
    [
        (NOT_THERE, NOT_THERE, Vacant(has_shadow=False)),
        (EMPTY, NOT_THERE, Vacant(has_shadow=False)),
        (INHABITED, NOT_THERE, KeptUpstream(IN_IT_THERE)),
        (NOT_THERE, EMPTY, KeptUpstream("upstream it is a group of type share")),
        (NOT_THERE, INHABITED, KeptUpstream("upstream it has 1 member (type share), client app at /10.0.0.7")),
    ],
)
async def test_a_group_of_a_newer_type_is_found_where_the_cluster_has_such(
    consumer: SimpleNamespace, share: SimpleNamespace, verdict: Vacant | KeptUpstream
) -> None:
    """DescribeGroups does not show them; classic members can join an empty consumer group."""
    link: Any = Describing(ConsumerGroupDescribe=consumer, ShareGroupDescribe=share)
    assert await probe_group(link, "orders", OURS) == verdict
    assert link.asked == ["DescribeGroups", "ConsumerGroupDescribe", "ShareGroupDescribe"]


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (ErrorCode.group_authorization_failed, NotPermitted),
        (ErrorCode.invalid_group_id, KeptUpstream),
        (None, None),
    ],
)
async def test_an_error_keeps_the_group(error: ErrorCode | None, verdict: type | None) -> None:
    """If the refusal is Kafka's; otherwise nothing is known of the group."""

    async def refuse(*_: Any, **__: Any) -> Any:
        raise UpstreamRefused("no", error)

    link: Any = SimpleNamespace(asked_at="kafka:9092", ask_coordinator=refuse)
    if verdict is None:
        with pytest.raises(UpstreamRefused):
            await probe_group(link, "orders", OURS)
    else:
        assert type(await probe_group(link, "orders", OURS)) is verdict
