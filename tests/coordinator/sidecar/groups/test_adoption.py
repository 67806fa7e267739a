"""An adoption's knowledge of the group's upstream members, and its error if there is no list."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.configs import MUSTER
from muster.coordinator.sidecar.groups.adoption import Adoption
from muster.coordinator.sidecar.groups.move import FormerMember, Move
from muster.coordinator.upstream.shadow import ShadowName
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.kafka.errors import TryAgain
from tests.coordinator.sidecar.scripted_broker import ALL_OPERATIONS, DESCRIBE_GROUPS, response

GROUP = GroupId("orders")


class Cluster(UpstreamLink):
    """A cluster that responds with `answer`."""

    def __init__(self, answer: Callable[[], Awaitable[Any]]) -> None:
        super().__init__("127.0.0.1:1", give_up=lambda _: None)
        self.answer = answer

    async def ask_coordinator(self, *_request: Any, **_how: Any) -> Any:
        return await self.answer()


async def empty() -> Any:
    described = {"group_state": "Empty", "protocol_type": "", "protocol_data": "", "members": ()}
    named = {"error_code": ErrorCode.none, "group_id": GROUP, "authorized_operations": ALL_OPERATIONS}
    return response(DESCRIBE_GROUPS, 5, groups=[{**described, **named}])


async def hung() -> Any:
    raise TryAgain("127.0.0.1:59039 did not answer within 10 s")


async def silent() -> Any:
    await asyncio.Event().wait()


def adoption(answer: Callable[[], Awaitable[Any]]) -> tuple[Cluster, Move, Adoption]:
    member = FormerMember(
        member_id=MemberId("m"), group_instance_id=GroupInstanceId("own-1"), client_id="c", client_host="/10.0.0.1"
    )
    cluster, move = Cluster(answer), Move(MUSTER, [member], now_ms=0, deadline_ms=60_000)
    return cluster, move, Adoption(cluster, ShadowName.of("log"), GROUP, move)


async def test_a_member_that_left_the_list_without_notice_was_dropped() -> None:
    """It has not left: no process has reported that it revoked its partitions."""
    _, move, upstream = adoption(empty)
    await upstream.list_members(0, within_ms=60_000)
    assert (upstream.still_upstream, move.waits_for(0)) == ([], [])
    assert (move.members[MemberId("m")].was_dropped, move.members[MemberId("m")].has_left) == (True, False)


@pytest.mark.parametrize(
    ("answer", "why"),
    [(hung, "127.0.0.1:59039 did not answer within 10 s"), (silent, "did not respond within 0 s")],
    ids=["a failure", "beyond the deadline"],
)
async def test_a_cluster_that_does_not_answer_is_to_blame_and_no_member(
    answer: Callable[[], Awaitable[Any]], why: str
) -> None:
    """None of them could be removed; the request is limited by the move's time."""
    _, _, upstream = adoption(answer)
    await upstream.list_members(1_000, within_ms=1)
    reported = upstream.reason(21_000)
    assert reported.startswith(
        "no member could be removed upstream for the last 20 s: the upstream cluster did not respond"
    )
    assert why in reported
    assert reported.endswith("; still there: own-1 at 10.0.0.1")
    assert "joined again in time" not in reported


async def test_members_that_did_not_come_while_the_cluster_answered_are_to_blame() -> None:
    """An earlier failure does not count once there was a list."""
    cluster, move, upstream = adoption(hung)
    await upstream.list_members(0, within_ms=60_000)
    cluster.answer = empty
    await upstream.list_members(1_000, within_ms=60_000)
    move.members[MemberId("m")].was_dropped = False
    assert upstream.reason(60_000) == "these members have not rejoined in time: own-1 at 10.0.0.1"
