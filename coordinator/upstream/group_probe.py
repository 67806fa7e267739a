"""Asks upstream whether a group is vacant, i.e. whether it has no members except perhaps our own shadow.

The shadow of another service counts like any other member. So does the shadow of an older version: all of its shadows
had the same name, so it may be another service's. It is ours only if our own log says so, which the shadow's driver
knows.

A member that joins between the probe and the shadow's join makes that join fail (23, INCONSISTENT_GROUP_PROTOCOL).

DescribeGroups v5 describes classic groups, with the operations that we are allowed (v6 omits these for a group that
does not exist). It returns groups of the newer types as Dead, so these are described with their own requests.
"""

import asyncio
import shlex
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec
from kio.schema.consumer_group_describe.v0.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v0.response import ConsumerGroupDescribeResponse
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribedGroup, DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.list_groups.v4.response import ListGroupsResponse
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import ShareGroupDescribeResponse
from kio.schema.streams_group_describe.v0.request import StreamsGroupDescribeRequest
from kio.schema.streams_group_describe.v0.response import StreamsGroupDescribeResponse
from kio.schema.types import GroupId as KafkaGroupId

from muster.coordinator.upstream.errors import UpstreamRefused
from muster.coordinator.upstream.shadow import NAME_NOT_KNOWN_YET, PROTOCOL_TYPE, UNNAMED, ShadowName, reason_of
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.coordinator.wire.authorized_operations import READ
from muster.events.ids import GroupId
from muster.events.kafka.errors import TryAgain

LANE: Final = "probe"


class KeptUpstream(msgspec.Struct, frozen=True):
    """The group stays upstream's. `reason` is text for log lines and commands."""

    reason: str


class NotPermitted(KeptUpstream, frozen=True):
    """Muster's principal lacks READ on the group."""


class ForeignShadow(KeptUpstream, frozen=True):
    """The group has the shadow of a Muster with another event log, or of an older version (`is_unnamed`)."""

    is_unnamed: bool


class Vacant(msgspec.Struct, frozen=True):
    """The group has no clients upstream. `has_shadow`: a previous process of ours left its shadow there."""

    has_shadow: bool


class _Member(Protocol):
    @property
    def client_id(self) -> str: ...

    @property
    def client_host(self) -> str: ...


class _NewerType(msgspec.Struct, frozen=True):
    name: str
    request: type[Any]
    response: type[Any]
    is_taken_when_empty: bool
    """A classic member may join such a group when it has no members."""


_NEWER_TYPES: Final = (
    _NewerType("consumer", ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, is_taken_when_empty=True),
    _NewerType("share", ShareGroupDescribeRequest, ShareGroupDescribeResponse, is_taken_when_empty=False),
    _NewerType("streams", StreamsGroupDescribeRequest, StreamsGroupDescribeResponse, is_taken_when_empty=True),
)


async def probe_group(link: UpstreamLink, group_id: str, name: ShadowName) -> Vacant | KeptUpstream:
    """Describe the group upstream; `name` is our shadows' name. Raises LinkError."""
    request = DescribeGroupsRequest(groups=(KafkaGroupId(group_id),), include_authorized_operations=True)
    try:
        answer = await link.ask_coordinator(group_id, request, DescribeGroupsResponse, error_of=_first_error, lane=LANE)
        verdict = verdict_of(answer.groups[0], name, link.asked_at)
        if isinstance(verdict, Vacant) and answer.groups[0].group_state == "Dead":
            return await _newer_type(link, group_id) or verdict
    except UpstreamRefused as refusal:
        if refusal.error is None:
            raise
        return _refused(refusal.error)
    return verdict


async def groups_with_shadow(link: UpstreamLink) -> list[GroupId]:
    """List the groups upstream that have a shadow, ours or another service's. Raises LinkError."""
    request = ListGroupsRequest(states_filter=())
    asked = (link.ask(node_id, request, ListGroupsResponse, lane=LANE) for node_id in link.brokers())
    answers = await asyncio.gather(*asked)
    for answer in answers:
        if answer.error_code is not ErrorCode.none:
            raise TryAgain(f"a broker does not list its groups: {answer.error_code.name.upper()}")
    listed = [group for answer in answers for group in answer.groups]
    return [GroupId(group.group_id) for group in listed if group.protocol_type == PROTOCOL_TYPE]


def verdict_of(described: DescribedGroup, name: ShadowName, asked_at: str) -> Vacant | KeptUpstream:
    """Evaluate a DescribeGroups response; a group that does not exist is vacant. `asked_at`: addresses of brokers."""
    if described.error_code is not ErrorCode.none:
        return _refused(described.error_code)
    if described.authorized_operations >= 0 and not described.authorized_operations & READ:
        return _refused(ErrorCode.group_authorization_failed)
    if not described.members:
        return Vacant(has_shadow=False)
    if has_shadow(described, name):
        return Vacant(has_shadow=True)
    if described.protocol_type == PROTOCOL_TYPE:
        return _foreign(described, name, asked_at)
    return KeptUpstream(_inhabited(described.protocol_type or "classic", described.members))


def has_shadow(described: Any, name: ShadowName) -> bool:  # noqa: ANN401 -- kio's DescribedGroup of any version
    """Return whether the shadow with this name is the group's only member."""
    if described.protocol_type != PROTOCOL_TYPE or len(described.members) != 1:
        return False
    (member,) = described.members
    if name == NAME_NOT_KNOWN_YET:
        return True
    if hasattr(member, "group_instance_id"):
        return bool(member.group_instance_id == name.group_instance_id)
    return described.protocol_data in {"", name.protocol_name}  # below v4; empty while a group rebalances


def _refused(error: ErrorCode) -> KeptUpstream:
    is_right_missing = error is ErrorCode.group_authorization_failed
    return (NotPermitted if is_right_missing else KeptUpstream)(reason_of(error))


def _foreign(described: DescribedGroup, name: ShadowName, asked_at: str) -> ForeignShadow:
    shadow = described.members[0]
    instance_id = shadow.group_instance_id
    is_unnamed = instance_id == UNNAMED.group_instance_id
    whose = (
        "one of an earlier version, or its leftover"
        if is_unnamed
        else "which has another event log, or a leftover of this Muster from before its event topic was recreated"
    )
    return ForeignShadow(
        f"another Muster coordinates it ({whose}): upstream it has the shadow {instance_id}, client "
        f"{shadow.client_id} at {shadow.client_host}, and this Muster's would be {name.group_instance_id}. Connect "
        "its clients to that Muster. If that no longer exists, its shadow leaves within 30 minutes, or at once "
        f"with: muster members remove {shlex.quote(described.group_id)} {instance_id} --bootstrap {asked_at}",
        is_unnamed=is_unnamed,
    )


async def _newer_type(link: UpstreamLink, group_id: str) -> KeptUpstream | None:
    offered = [each for each in _NEWER_TYPES if link.offers(each.request.__api_key__, each.request.__version__)]
    found = await asyncio.gather(*(_described(link, group_id, each) for each in offered))
    return next((theirs for theirs in found if theirs is not None), None)


async def _described(link: UpstreamLink, group_id: str, newer: _NewerType) -> KeptUpstream | None:
    request = newer.request(group_ids=(KafkaGroupId(group_id),), include_authorized_operations=False)
    answer = await link.ask_coordinator(group_id, request, newer.response, error_of=_first_error, lane=LANE)
    described = answer.groups[0]
    if described.error_code is not ErrorCode.none:
        return None  # no group of this type, or a type that this cluster does not support
    if described.members:
        return KeptUpstream(_inhabited(newer.name, described.members))
    return None if newer.is_taken_when_empty else KeptUpstream(f"upstream it is a group of type {newer.name}")


def _inhabited(type_name: str, members: Sequence[_Member]) -> str:
    some = members[0]
    count = "1 member" if len(members) == 1 else f"{len(members)} members"
    such_as = "" if len(members) == 1 else "for example "
    return f"upstream it has {count} (type {type_name}), {such_as}client {some.client_id} at {some.client_host}"


def _first_error(answer: Any) -> ErrorCode:  # noqa: ANN401 -- any answer about groups
    error: ErrorCode = answer.groups[0].error_code
    return error
