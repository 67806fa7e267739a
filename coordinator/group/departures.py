"""Members are gone from a group that has an assignment: who takes their place, or is it a rebalance?

In this order, for each of them: one that was held is missed by nobody; a standby is called; one that retires is
waited for together with the others that do; else the group rebalances, once for all of them.
"""

from collections.abc import Sequence

from muster.coordinator.group.rebalance import complete_join_phase_if_all_joined, prepare_rebalance
from muster.coordinator.group.standbys import call_standbys
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.ids import MemberId
from muster.events.state import Group, GroupState, Member


def retiring_members(group: Group) -> list[Member]:
    """Those who were told to go, and are still here."""
    return [member for member in group.members.values() if member.retiring]


def after_departures(turn: Turn, departed: Sequence[Member], led_before: MemberId | None) -> None:
    """The departed are removed, because of what the turn's `why` says; `led_before` was the leader then.

    In Stable and CompletingRebalance.
    """
    missed = [member for member in departed if not member.is_held]
    if turn.image.state is GroupState.STABLE:
        missed = call_standbys(turn, missed, led_before)
    if missed and all(each.retiring for each in missed) and turn.image.state is GroupState.STABLE:
        turn.change(departures_gathered=True)
        missed = []
    if missed or not turn.census.active:
        prepare_rebalance(turn)
    else:
        rebalance_if_all_gone(turn)


def rebalance_if_all_gone(turn: Turn) -> None:
    """Nobody who retires is here any more: the departures that were gathered make their rebalance."""
    if turn.image.departures_gathered and not turn.census.retiring:
        if turn.why.cause not in (Cause.RETIREMENT_TIMED_OUT, Cause.RETIREMENT_WITHDRAWN):
            turn.and_so(Cause.RETIREMENT_COMPLETE)
        prepare_rebalance(turn)


def end_retirement(turn: Turn) -> None:
    """Those who were to go by themselves and did not are removed, and the group rebalances if anybody misses them."""
    deadline_ms = turn.soft.retirement_deadline_ms
    if deadline_ms is None or deadline_ms > turn.now_ms:
        return
    removed, led_before = retiring_members(turn.group), turn.image.leader_id
    for member in removed:
        turn.because_time_passed(Cause.RETIREMENT_TIMED_OUT, deadline_ms, member)
        turn.remove(member)
    turn.because_time_passed(Cause.RETIREMENT_TIMED_OUT, deadline_ms)
    if turn.image.state is GroupState.PREPARING_REBALANCE:
        complete_join_phase_if_all_joined(turn)
    else:
        after_departures(turn, removed, led_before)
