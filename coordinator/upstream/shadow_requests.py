"""A shadow's actions as Kafka's requests.

What belongs here: what a shadow tells upstream in each. What it must not know: when a request is due, and what its
answer changes.
"""

from typing import Final

from muster.coordinator.upstream.group_requests import AsMember, GroupRequest, heartbeat, join, leave, sync
from muster.coordinator.upstream.shadow import PROTOCOL_TYPE, Action, Join, Leave, ShadowHeartbeat, ShadowName, Sync

_COORDINATED: Final = "Muster coordinates this group"
_EMPTY: Final = "nobody is left in this group"


def shadow_request(group_id: str, action: Action, name: ShadowName, *, session_timeout_ms: int) -> GroupRequest:
    """Build an action's request."""
    who = AsMember(
        group_id=group_id,
        group_instance_id=name.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=name.protocol_name,
    )
    match action:
        case Join():
            return join(who, action.member_id, metadata=b"", session_timeout_ms=session_timeout_ms, reason=_COORDINATED)
        case Sync():
            member_id = action.identity.member_id
            return sync(who, member_id, action.identity.generation_id, {member_id: b""})
        case ShadowHeartbeat():
            return heartbeat(who, action.identity.member_id, action.identity.generation_id)
        case Leave():
            return leave(who, action.member_id, reason=_EMPTY)
