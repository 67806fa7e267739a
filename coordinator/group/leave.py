"""LeaveGroup: members go of their own accord, or are removed by an administrator (KIP-345)."""

from kio.schema.errors import ErrorCode

from muster.coordinator.group.arrivals import arrival_error, arrival_of, give_up
from muster.coordinator.group.commands import LeaveGroup, LeavingMember
from muster.coordinator.group.departures import after_departures
from muster.coordinator.group.duels import note_if_fenced
from muster.coordinator.group.identity import validate_member
from muster.coordinator.group.outcomes import LeaveGroupOutcome, LeftMember
from muster.coordinator.group.rebalance import complete_join_phase_if_all_joined, prepare_rebalance
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.ids import UNKNOWN_MEMBER_ID
from muster.events.state import GroupState, Member


def leave_unknown_group(command: LeaveGroup) -> LeaveGroupOutcome:
    """G29: nobody is a member of a group that does not exist."""
    return LeaveGroupOutcome(members=tuple(_left(entry, ErrorCode.unknown_member_id) for entry in command.members))


def leave_group(turn: Turn, command: LeaveGroup) -> None:
    """Entries in order, each for itself (L2); then one rebalance for all of them (L9)."""
    trigger, left = None, []
    departed: list[Member] = []
    led_before = turn.image.leader_id
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
            after_departures(turn, departed, led_before)
        elif trigger.cause is Cause.PENDING_MEMBER_LEFT:
            prepare_rebalance(turn)  # as Kafka does (P6)
    turn.reply(command.caller, LeaveGroupOutcome(members=tuple(left)))


def _leave(turn: Turn, command: LeaveGroup, entry: LeavingMember, departed: list[Member]) -> ErrorCode:
    """L3 to L7. Who was a member is added to `departed`."""
    member_id, cause = entry.member_id, Cause.MEMBER_LEFT
    arrival = member_id or arrival_of(turn.soft, entry.group_instance_id)
    if (
        arrival is not None and arrival in turn.soft.arrivals
    ):  # no member yet, so that its going means nothing to anybody
        error = arrival_error(turn, arrival, entry.group_instance_id)
        if error is ErrorCode.none:
            give_up(turn, arrival)
        return error
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
    member = turn.group.members[member_id]
    turn.because(cause, command.caller, member_id, member.group_instance_id, entry.reason)
    turn.remove(member)
    departed.append(member)
    return ErrorCode.none


def _left(entry: LeavingMember, error: ErrorCode) -> LeftMember:
    return LeftMember(member_id=entry.member_id, group_instance_id=entry.group_instance_id, error=error)
