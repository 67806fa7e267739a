"""Members have left a group that has an assignment: replace them, or rebalance.

For each of them, in this order: an inactive member needs no replacement; a standby is called; a retiring member's
partitions wait for the other retiring members to leave; otherwise the group rebalances, once for all of them.
"""

from collections.abc import Sequence

from muster.coordinator.group.rebalance import complete_join_phase_if_all_joined, prepare_rebalance
from muster.coordinator.group.standby_members import call_standbys
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.ids import MemberId
from muster.events.state import Group, GroupState, Member


def retiring_members(group: Group) -> list[Member]:
    """List the members that were asked to leave and are still here (`members.retired`)."""
    return [member for member in group.members.values() if member.retiring]


def handle_departures(turn: Turn, departed: Sequence[Member], previous_leader_id: MemberId | None) -> None:
    """Replace the departed members, or rebalance with the turn's `why`. Only in Stable and CompletingRebalance.

    `previous_leader_id`: the leader before they were removed.
    """
    missed = [member for member in departed if not member.is_inactive]
    if turn.image.state is GroupState.STABLE:
        missed = call_standbys(turn, missed, previous_leader_id)
    if missed and all(each.retiring for each in missed) and turn.image.state is GroupState.STABLE:
        turn.change(departures_gathered=True)
        missed = []
    if missed or not turn.census.active:
        prepare_rebalance(turn)
    else:
        rebalance_if_retirement_complete(turn)


def rebalance_if_retirement_complete(turn: Turn) -> None:
    """Rebalance for the gathered departures once the last retiring member has left, or is to stay."""
    if turn.image.departures_gathered and not turn.census.retiring:
        if turn.why.cause not in (Cause.RETIREMENT_TIMED_OUT, Cause.RETIREMENT_WITHDRAWN):
            turn.followed_by(Cause.RETIREMENT_COMPLETE)
        prepare_rebalance(turn)


def end_retirement(turn: Turn) -> None:
    """Remove retiring members still present at the timeout; the group rebalances unless they had no partitions."""
    deadline_ms = turn.soft.retirement_deadline_ms
    if deadline_ms is None or deadline_ms > turn.now_ms:
        return
    removed, previous_leader_id = retiring_members(turn.group), turn.image.leader_id
    for member in removed:
        turn.caused_by_deadline(Cause.RETIREMENT_TIMED_OUT, deadline_ms, member)
        turn.remove(member)
    turn.caused_by_deadline(Cause.RETIREMENT_TIMED_OUT, deadline_ms)
    if turn.image.state is GroupState.PREPARING_REBALANCE:
        complete_join_phase_if_all_joined(turn)
    else:
        handle_departures(turn, removed, previous_leader_id)
