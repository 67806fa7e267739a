"""The requests that members send in a play."""

from muster.coordinator.group.commands import Caller, JoinGroup, SyncGroup
from muster.events.ids import UNKNOWN_MEMBER_ID, MemberId
from muster.events.state import Group, Member
from muster.replay.rerun.situation import PHANTOM

_JOIN_GROUP, _SYNC_GROUP = 11, 14
_LATEST = 9


def join_of(group: Group, member: Member, member_id: MemberId, now_ms: int) -> JoinGroup:
    """Return a JoinGroup of the member with this member id in the request."""
    return JoinGroup(
        group_id=group.group_id,
        caller=_caller(_JOIN_GROUP, member, now_ms),
        member_id=member_id,
        group_instance_id=member.group_instance_id,
        # With the member's own id it would be a repeated request, which leads to no event.
        proposed_member_id=member.member_id if member_id == UNKNOWN_MEMBER_ID else PHANTOM,
        protocol_type=group.image.protocol_type or "consumer",
        protocols=member.protocols,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        reason=None,
        requires_known_member_id=False,
        supports_skip_assignment=True,
    )


def sync_of(group: Group, member_id: MemberId, now_ms: int) -> SyncGroup:
    """Return a SyncGroup of a member; the leader's has an assignment for every member."""
    member = group.members[member_id]
    return SyncGroup(
        group_id=group.group_id,
        caller=_caller(_SYNC_GROUP, member, now_ms),
        member_id=member_id,
        group_instance_id=member.group_instance_id,
        generation_id=group.generation_id,
        protocol_type=None,
        protocol_name=None,
        assignments=tuple((each, b"") for each in group.members) if member_id == group.leader_id else (),
    )


def _caller(api_key: int, member: Member, now_ms: int) -> Caller:
    return Caller(
        request_id=0,
        client_id=member.client_id,
        client_host=member.client_host,
        principal=member.principal,
        api_key=api_key,
        api_version=_LATEST,
        arrived_ms=now_ms,
        arrived_wall_ms=now_ms,
    )
