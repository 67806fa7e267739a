"""Gives a member of a simulated group another member id: it was removed in the log, but not in the simulation."""

import msgspec

from muster.coordinator.group.soft_state import SoftState
from muster.events.ids import MemberId
from muster.events.state import Group


def renamed(group: Group, soft: SoftState, old: MemberId, new: MemberId, now_ms: int) -> tuple[Group, SoftState]:
    """Return the group as if the member had always had its new id; the member's session restarts now."""
    group, soft = group.copy(), soft.copy()
    member = msgspec.structs.replace(group.members.pop(old), member_id=new)
    group.members[new] = member
    if member.group_instance_id is not None:
        group.instances[member.group_instance_id] = new
    if group.leader_id == old:
        group.image = msgspec.structs.replace(group.image, leader_id=new)
    session = msgspec.structs.replace(soft.sessions.pop(old))
    session.refresh(now_ms, None)
    soft.sessions[new] = session
    for table in (soft.parked_joins, soft.parked_syncs):
        if old in table:
            table[new] = table.pop(old)
    if old in soft.member_sync_deadlines:
        soft.member_sync_deadlines[new] = soft.member_sync_deadlines.pop(old)
    if old in soft.pending_syncs:
        soft.pending_syncs.discard(old)
        soft.pending_syncs.add(new)
    return group, soft
