"""Lists the members of a group upstream, and removes members: for the adoption of a group with live members."""

from typing import Any

import msgspec
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse
from kio.schema.types import GroupId as KafkaGroupId

from muster.coordinator.upstream.group_probe import LANE, ForeignShadow, Vacant, probe_group, verdict_of
from muster.coordinator.upstream.shadow import ShadowName
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.coordinator.wire.authorized_operations import READ
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.kafka.errors import AnswerLost

REASON = "the group is adopted by Muster"


class NotAdoptable(Exception):
    """The group cannot be adopted; the message says why."""


class UpstreamMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member upstream."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    client_id: str
    client_host: str


async def upstream_members(link: UpstreamLink, group_id: GroupId, name: ShadowName) -> tuple[UpstreamMember, ...]:
    """List the members of a classic group upstream, except our own shadow. Raises NotAdoptable, LinkError."""
    verdict = await probe_group(link, group_id, name)
    if isinstance(verdict, Vacant):
        return ()
    request = DescribeGroupsRequest(groups=(KafkaGroupId(group_id),), include_authorized_operations=True)
    answer = await link.ask_coordinator(group_id, request, DescribeGroupsResponse, error_of=_described_error, lane=LANE)
    (described,) = answer.groups
    now = verdict_of(described, name, link.asked_at)
    is_somebody = not isinstance(now, Vacant | ForeignShadow)  # the members have left, or it is another Muster's
    if not is_somebody or not described.members or not _may_read(described):
        raise NotAdoptable(verdict.reason)
    return tuple(
        UpstreamMember(
            member_id=MemberId(each.member_id),
            group_instance_id=None if each.group_instance_id is None else GroupInstanceId(each.group_instance_id),
            client_id=each.client_id,
            client_host=each.client_host,
        )
        for each in described.members
    )


async def remove_member(
    link: UpstreamLink, group_id: GroupId, member_id: MemberId, group_instance_id: GroupInstanceId | None
) -> ErrorCode:
    """Remove a member (LeaveGroup); return UNKNOWN_MEMBER_ID if it is not there. Raises LinkError."""
    identity = MemberIdentity(member_id=member_id, group_instance_id=group_instance_id, reason=REASON)
    request = LeaveGroupRequest(group_id=KafkaGroupId(group_id), members=(identity,))

    async def ask() -> LeaveGroupResponse:
        return await link.ask_coordinator(group_id, request, LeaveGroupResponse, error_of=_left_error, lane=LANE)

    try:
        answer = await ask()
    except AnswerLost:
        answer = await ask()  # a repetition is harmless: the member is just gone then
    return _left_error(answer)


def _may_read(described: Any) -> bool:  # noqa: ANN401 -- kio's DescribedGroup
    """Return whether Muster has READ on the group, if the broker says so."""
    operations = described.authorized_operations
    return operations < 0 or bool(operations & READ)


def _described_error(answer: DescribeGroupsResponse) -> ErrorCode:
    return answer.groups[0].error_code


def _left_error(answer: LeaveGroupResponse) -> ErrorCode:
    if answer.error_code is not ErrorCode.none or not answer.members:
        return answer.error_code
    return answer.members[0].error_code
