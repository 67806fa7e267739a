"""LeaveGroup: members leave, or an administrator removes static ones (KIP-345)."""

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import LeaveGroup, LeavingMember
from muster.coordinator.group.departures import handle_departures
from muster.coordinator.group.duels import note_if_fenced
from muster.coordinator.group.handed_out import settle
from muster.coordinator.group.held_joins import held_join_error, held_join_of, reject_held_join
from muster.coordinator.group.identity import validate_member
from muster.coordinator.group.outcomes import LeaveGroupOutcome, LeftMember
from muster.coordinator.group.rebalance import complete_join_phase_if_all_joined, prepare_rebalance
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.ids import UNKNOWN_MEMBER_ID
from muster.events.state import GroupState, HandedOutIdOutcome, Member


def leave_unknown_group(command: LeaveGroup) -> LeaveGroupOutcome:
    """Answer each entry with UNKNOWN_MEMBER_ID if the group does not exist (G29)."""
    return LeaveGroupOutcome(members=tuple(_left(entry, ErrorCode.unknown_member_id) for entry in command.members))


def leave_group(turn: Turn, command: LeaveGroup) -> None:
    """Process the entries in order, each on its own (L2); then rebalance once for all of them (L9)."""
    trigger, left = None, []
    departed: list[Member] = []
    previous_leader_id = turn.image.leader_id
    for entry in command.members:
        why = turn.why
        error = _leave(turn, command, entry, departed)
        left.append(_left(entry, error))
        if error is ErrorCode.none and turn.why is not why and trigger is None:
            trigger = turn.why
    if trigger is not None:
        turn.why = trigger
        if turn.image.state not in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            complete_join_phase_if_all_joined(turn)
        elif departed:
            handle_departures(turn, departed, previous_leader_id)
        elif trigger.cause is Cause.PENDING_MEMBER_LEFT:
            prepare_rebalance(turn)  # as Kafka does (P6)
    turn.reply(command.caller, LeaveGroupOutcome(members=tuple(left)))


def _leave(turn: Turn, command: LeaveGroup, entry: LeavingMember, departed: list[Member]) -> ErrorCode:
    """Process one entry (L3 to L7); a member that leaves is added to `departed`."""
    member_id, cause = entry.member_id, Cause.MEMBER_LEFT
    held_id = member_id or held_join_of(turn.soft, entry.group_instance_id)
    if held_id is not None and held_id in turn.soft.held_joins:
        # It is not a member yet, so nothing else changes.
        error = held_join_error(turn, held_id, entry.group_instance_id)
        if error is ErrorCode.none:
            reject_held_join(turn, held_id)
        return error
    if member_id == UNKNOWN_MEMBER_ID:
        if entry.group_instance_id is None or entry.group_instance_id not in turn.group.instances:
            return ErrorCode.unknown_member_id
        member_id, cause = turn.group.instances[entry.group_instance_id], Cause.MEMBER_REMOVED_BY_ADMIN
    elif member_id in turn.soft.pending_members:
        settle(turn, member_id, HandedOutIdOutcome.LEFT)
        turn.caused_by(Cause.PENDING_MEMBER_LEFT, command.caller, member_id, None, entry.reason)
        return ErrorCode.none
    else:
        error = validate_member(turn.group, member_id, entry.group_instance_id)
        if error is not ErrorCode.none:
            note_if_fenced(turn, error, command.caller, member_id, entry.group_instance_id)
            return error
    member = turn.group.members[member_id]
    turn.caused_by(cause, command.caller, member_id, member.group_instance_id, entry.reason)
    turn.remove(member)
    departed.append(member)
    return ErrorCode.none


def _left(entry: LeavingMember, error: ErrorCode) -> LeftMember:
    return LeftMember(member_id=entry.member_id, group_instance_id=entry.group_instance_id, error=error)
