"""The requests that Muster sends as a member of a consumer group upstream, and where the error is in each response."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import msgspec
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.sync_group.v5.response import SyncGroupResponse
from kio.schema.types import GroupId
from kio.static.primitive import i32, i32Timedelta


class AsMember(msgspec.Struct, frozen=True, kw_only=True):
    """The group, and the member in it, with its only protocol; a dynamic member has no instance id."""

    group_id: str
    group_instance_id: str | None
    protocol_type: str
    protocol_name: str


class GroupRequest(msgspec.Struct, frozen=True):
    """A request, its response class, and a function that returns that response's error."""

    request: Any
    response: type[Any]
    error_of: Callable[[Any], ErrorCode]


def join(who: AsMember, member_id: str, *, metadata: bytes, session_timeout_ms: int, reason: str) -> GroupRequest:
    """Build JoinGroup v9. The session timeout is also the rebalance timeout: no member needs a shorter one."""
    timeout = i32Timedelta.parse(timedelta(milliseconds=session_timeout_ms))
    request = JoinGroupRequest(
        group_id=GroupId(who.group_id),
        session_timeout=timeout,
        rebalance_timeout=timeout,
        member_id=member_id,
        group_instance_id=who.group_instance_id,
        protocol_type=who.protocol_type,
        protocols=(JoinGroupRequestProtocol(name=who.protocol_name, metadata=metadata),),
        reason=reason,
    )
    return GroupRequest(request, JoinGroupResponse, _error_of)


def sync(who: AsMember, member_id: str, generation_id: int, assignments: Mapping[str, bytes]) -> GroupRequest:
    """Build SyncGroup v5; `assignments`: by member id; only the leader sends any."""
    request = SyncGroupRequest(
        group_id=GroupId(who.group_id),
        generation_id=i32(generation_id),
        member_id=member_id,
        group_instance_id=who.group_instance_id,
        protocol_type=who.protocol_type,
        protocol_name=who.protocol_name,
        assignments=tuple(SyncGroupRequestAssignment(member_id=each, assignment=a) for each, a in assignments.items()),
    )
    return GroupRequest(request, SyncGroupResponse, _error_of)


def heartbeat(who: AsMember, member_id: str, generation_id: int) -> GroupRequest:
    """Build Heartbeat v4."""
    request = HeartbeatRequest(
        group_id=GroupId(who.group_id),
        generation_id=i32(generation_id),
        member_id=member_id,
        group_instance_id=who.group_instance_id,
    )
    return GroupRequest(request, HeartbeatResponse, _error_of)


def leave(who: AsMember, member_id: str, *, reason: str) -> GroupRequest:
    """Build LeaveGroup v5; with an empty member id it removes the current member with the instance id."""
    member = MemberIdentity(member_id=member_id, group_instance_id=who.group_instance_id, reason=reason)
    request = LeaveGroupRequest(group_id=GroupId(who.group_id), members=(member,))
    return GroupRequest(request, LeaveGroupResponse, _leave_error_of)


def _error_of(answer: Any) -> ErrorCode:  # noqa: ANN401 -- any of kio's responses with an error of its own
    error: ErrorCode = answer.error_code
    return error


def _leave_error_of(answer: LeaveGroupResponse) -> ErrorCode:
    if answer.error_code is not ErrorCode.none or not answer.members:
        return answer.error_code
    return answer.members[0].error_code
