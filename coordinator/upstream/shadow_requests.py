"""A shadow's actions as Kafka's requests, and the errors of their answers.

What belongs here: the fields. What it must not know: when a request is due, and what its answer changes.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

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
from kio.schema.types import GroupId as KafkaGroupId
from kio.static.primitive import i32, i32Timedelta

from muster.coordinator.upstream.shadow import PROTOCOL_TYPE, Action, Heartbeat, Join, Leave, ShadowName, Sync

_REASON: Final = "Muster coordinates this group"


class ShadowRequest(msgspec.Struct, frozen=True):
    """A request, its response class, and how to read that response's error."""

    request: Any
    response: type[Any]
    error_of: Callable[[Any], ErrorCode]


def shadow_request(group_id: str, action: Action, name: ShadowName, *, session_timeout_ms: int) -> ShadowRequest:
    """Build an action's request. The session timeout is the rebalance timeout too: no member may be faster."""
    group = KafkaGroupId(group_id)
    match action:
        case Join():
            return ShadowRequest(_join(group, action, name, session_timeout_ms), JoinGroupResponse, _error_of)
        case Sync():
            return ShadowRequest(_sync(group, action, name), SyncGroupResponse, _error_of)
        case Heartbeat():
            heartbeat = HeartbeatRequest(
                group_id=group,
                generation_id=i32(action.identity.generation_id),
                member_id=action.identity.member_id,
                group_instance_id=name.group_instance_id,
            )
            return ShadowRequest(heartbeat, HeartbeatResponse, _error_of)
        case Leave():
            member = MemberIdentity(
                member_id=action.member_id,
                group_instance_id=name.group_instance_id,
                reason="nobody is left in this group",
            )
            return ShadowRequest(
                LeaveGroupRequest(group_id=group, members=(member,)), LeaveGroupResponse, _leave_error_of
            )


def _join(group: KafkaGroupId, action: Join, name: ShadowName, session_timeout_ms: int) -> JoinGroupRequest:
    timeout = i32Timedelta.parse(timedelta(milliseconds=session_timeout_ms))
    return JoinGroupRequest(
        group_id=group,
        session_timeout=timeout,
        rebalance_timeout=timeout,
        member_id=action.member_id,
        group_instance_id=name.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=(JoinGroupRequestProtocol(name=name.protocol_name, metadata=b""),),
        reason=_REASON,
    )


def _sync(group: KafkaGroupId, action: Sync, name: ShadowName) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=i32(action.identity.generation_id),
        member_id=action.identity.member_id,
        group_instance_id=name.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=name.protocol_name,
        assignments=(SyncGroupRequestAssignment(member_id=action.identity.member_id, assignment=b""),),
    )


def _error_of(answer: Any) -> ErrorCode:  # noqa: ANN401 -- any of kio's responses with an error of its own
    error: ErrorCode = answer.error_code
    return error


def _leave_error_of(answer: LeaveGroupResponse) -> ErrorCode:
    if answer.error_code is not ErrorCode.none or not answer.members:
        return answer.error_code
    return answer.members[0].error_code
