"""LeaveGroup: members go of their own accord, or are removed by an administrator (KIP-345)."""

from kio.schema.errors import ErrorCode

from coordinator.group.commands import LeaveGroup, LeavingMember
from coordinator.group.identity import note_if_fenced, validate_member
from coordinator.group.outcomes import LeaveGroupOutcome, LeftMember
from coordinator.group.rebalance import complete_join_phase_if_all_joined, prepare_rebalance
from coordinator.group.turn import Turn
from events.causes import Cause
from events.ids import UNKNOWN_MEMBER_ID, MemberId
from events.state import GroupState


def leave_unknown_group(command: LeaveGroup) -> LeaveGroupOutcome:
    """G29: nobody is a member of a group that does not exist."""
    return LeaveGroupOutcome(members=tuple(_left(entry, ErrorCode.unknown_member_id) for entry in command.members))


def leave_group(turn: Turn, command: LeaveGroup) -> None:
    """Entries in order, each for itself (L2); then one rebalance for all of them (L9)."""
    trigger = None
    left = []
    for entry in command.members:
        error = _leave(turn, command, entry)
        left.append(_left(entry, error))
        if error is ErrorCode.none and trigger is None:
            trigger = turn.why
    if trigger is not None:
        turn.why = trigger
        if turn.image.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            prepare_rebalance(turn)
        else:
            complete_join_phase_if_all_joined(turn)
    turn.reply(command.caller, LeaveGroupOutcome(members=tuple(left)))


def _leave(turn: Turn, command: LeaveGroup, entry: LeavingMember) -> ErrorCode:
    """L3 to L7."""
    member_id, cause = entry.member_id, Cause.MEMBER_LEFT
    if member_id == UNKNOWN_MEMBER_ID:
        if entry.group_instance_id is None or entry.group_instance_id not in turn.group.instances:
            return ErrorCode.unknown_member_id
        member_id, cause = turn.group.instances[entry.group_instance_id], Cause.MEMBER_REMOVED_BY_ADMIN
    elif member_id in turn.soft.pending:
        del turn.soft.pending[member_id]
        turn.because(Cause.PENDING_MEMBER_LEFT, command.caller, member_id, None, entry.reason)
        return ErrorCode.none
    else:
        error = validate_member(turn.group, member_id, entry.group_instance_id)
        if error is not ErrorCode.none:
            note_if_fenced(turn, error, command.caller, member_id, entry.group_instance_id)
            return error
    _remove(turn, command, entry, member_id, cause)
    return ErrorCode.none


def _remove(turn: Turn, command: LeaveGroup, entry: LeavingMember, member_id: MemberId, cause: Cause) -> None:
    member = turn.group.members[member_id]
    turn.because(cause, command.caller, member_id, member.group_instance_id, entry.reason)
    turn.remove(member)


def _left(entry: LeavingMember, error: ErrorCode) -> LeftMember:
    return LeftMember(member_id=entry.member_id, group_instance_id=entry.group_instance_id, error=error)
