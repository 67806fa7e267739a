"""SyncGroup: the leader sends the assignment, members fetch theirs."""

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import SyncGroup
from muster.coordinator.group.duels import note_if_fenced
from muster.coordinator.group.identity import validate_member
from muster.coordinator.group.membership_timeouts import rebalance_if_registration_complete
from muster.coordinator.group.outcomes import SyncGroupOutcome
from muster.coordinator.group.rebalance import fail_parked_syncs, prepare_rebalance
from muster.coordinator.group.roles import EMPTY_ASSIGNMENT
from muster.coordinator.group.standby_members import activate_called
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.events import GroupStabilized, MemberAssigned
from muster.events.ids import MemberId
from muster.events.state import Group, GroupState, MemberRole


def sync_error(group: Group, command: SyncGroup) -> ErrorCode:
    """Return the error that answers a sync (SG2 to SG7), checked in Kafka's order."""
    image = group.image
    if image.state is GroupState.EMPTY:
        return ErrorCode.unknown_member_id
    error = validate_member(group, command.member_id, command.group_instance_id)
    if error is not ErrorCode.none:
        return error
    if command.generation_id != image.generation_id:
        return ErrorCode.illegal_generation
    if _differs(command.protocol_type, image.protocol_type) or _differs(command.protocol_name, image.protocol_name):
        return ErrorCode.inconsistent_group_protocol
    if image.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def _differs(given: str | None, ours: str | None) -> bool:
    """Return whether both are known and differ (SG5)."""
    return given is not None and ours is not None and given != ours


def sync_group(turn: Turn, command: SyncGroup) -> None:
    """Process a sync in a group that exists."""
    error = sync_error(turn.group, command)
    if error is not ErrorCode.none:
        note_if_fenced(turn, error, command.caller, command.member_id, command.group_instance_id)
        turn.reply(command.caller, SyncGroupOutcome(error=error))
        return
    turn.note_seen(command.member_id, command.caller)
    _synced(turn, command.member_id)
    if turn.image.state is GroupState.STABLE:
        member = turn.group.members[command.member_id]
        if member.role is MemberRole.CALLED:
            activate_called(turn, member)
        turn.reply(command.caller, sync_outcome(turn.group, command.member_id))
        return
    turn.soft.parked_syncs[command.member_id] = command.caller
    if command.member_id == turn.image.leader_id:
        _store_assignments(turn, command)


def _synced(turn: Turn, member_id: MemberId) -> None:
    turn.soft.pending_syncs.discard(member_id)
    turn.soft.member_sync_deadlines.pop(member_id, None)
    if not turn.soft.pending_syncs:
        turn.soft.sync_deadline_ms = None


def _store_assignments(turn: Turn, command: SyncGroup) -> None:
    """Store the leader's assignments and enter Stable (SG9); members left out get no bytes, unknown ids are ignored."""
    turn.caused_by(Cause.ASSIGNMENT_RECEIVED, command.caller, command.member_id, command.group_instance_id)
    turn.followed_by(Cause.ASSIGNMENT_RECEIVED, parked=turn.soft.parked_syncs)
    assignments = dict(command.assignments)
    generation_id, syncs = turn.image.generation_id, turn.soft.parked_syncs
    for member_id, member in list(turn.group.members.items()):
        assignment = EMPTY_ASSIGNMENT if member.is_inactive else assignments.get(member_id, b"")
        turn.record_member(
            MemberAssigned,
            msgspec.structs.replace(member, assignment=assignment, assigned_generation_id=generation_id),
            counts_anew=False,
            is_armed=member_id in syncs,
        )
    turn.enter(GroupState.STABLE, assigned_generation_id=generation_id)
    turn.record(GroupStabilized)
    for member_id, caller in syncs.items():
        turn.reply(caller, sync_outcome(turn.group, member_id))
    syncs.clear()
    rebalance_if_registration_complete(turn)


def sync_outcome(group: Group, member_id: MemberId) -> SyncGroupOutcome:
    """Return the SyncGroup response to a member: its assignment, and the group's protocol (W15)."""
    return SyncGroupOutcome(
        protocol_type=group.image.protocol_type,
        protocol_name=group.image.protocol_name,
        assignment=group.assignment_of(group.members[member_id]),
    )


def reject_assignment(turn: Turn, command: SyncGroup, error: ErrorCode) -> None:
    """Fail all parked syncs and rebalance, since the assignment cannot be stored (SG13)."""
    turn.caused_by(Cause.ASSIGNMENT_NOT_STORED, command.caller, command.member_id, command.group_instance_id)
    turn.reply(command.caller, SyncGroupOutcome(error=error))
    if sync_error(turn.group, command) is not ErrorCode.none or turn.image.state is not GroupState.COMPLETING_REBALANCE:
        return
    fail_parked_syncs(turn, error)
    prepare_rebalance(turn)
