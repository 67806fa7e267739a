"""Members are gone from a group that has an assignment: who takes their place, or is it a rebalance?

In this order, for each of them: one that was held is missed by nobody; a standby is called; one that retires is
waited for together with the others that do; else the group rebalances, once for all of them.
"""

from collections.abc import Sequence

from coordinator.group.rebalance import prepare_rebalance
from coordinator.group.roles import active_members
from coordinator.group.standbys import call_standby
from coordinator.group.turn import Turn
from events.causes import Cause
from events.ids import MemberId
from events.state import Group, GroupState, Member


def retiring_members(group: Group) -> list[Member]:
    """Those who were told to go, and are still here."""
    return [member for member in group.members.values() if member.retiring]


def after_departures(turn: Turn, departed: Sequence[Member], led_before: MemberId | None) -> None:
    """The departed are removed; `led_before` was the leader then. In Stable and CompletingRebalance."""
    stable = turn.image.state is GroupState.STABLE
    missed = [member for member in departed if not member.is_held]
    if not missed and active_members(turn.group):
        return
    if stable:
        missed = [each for each in missed if not call_standby(turn, each, led=each.member_id == led_before)]
        if not missed:
            return
        if all(member.retiring for member in missed) and active_members(turn.group):
            if retiring_members(turn.group):
                return
            turn.and_so(Cause.RETIREMENT_COMPLETE)
    prepare_rebalance(turn)


def end_retirement(turn: Turn) -> None:
    """Those who were to go by themselves and did not are removed, and the group rebalances."""
    deadline_ms = turn.soft.retirement_deadline_ms
    if deadline_ms is None or deadline_ms > turn.now_ms:
        return
    for member in retiring_members(turn.group):
        turn.because_time_passed(Cause.RETIREMENT_TIMED_OUT, deadline_ms, member)
        turn.remove(member)
    turn.because_time_passed(Cause.RETIREMENT_TIMED_OUT, deadline_ms)
    prepare_rebalance(turn)
