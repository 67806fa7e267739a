"""The recorded rebalances in the window, in log order, each with its verdict once that is known."""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec

from muster.events.causes import Cause
from muster.events.events import RebalanceStarted
from muster.events.ids import GroupId, MemberId
from muster.events.state import Group
from muster.replay.history.clock import BEGIN, ClockReading
from muster.replay.history.items import Item
from muster.replay.history.transitions import Transition, Transitions
from muster.replay.incidents.cost import partition_ms
from muster.replay.incidents.grade import Grade
from muster.replay.rebalances.rebalance import Rebalance
from muster.replay.rebalances.timeline import Timeline
from muster.replay.rebalances.wording import headline
from muster.replay.text.times import instant
from muster.replay.whatif.played import Started
from muster.replay.whatif.verdict import Replayed, Standstill, Verdict

SAME_MS: Final = 1_000
"""The control reproduces a rebalance if it begins within this of the recorded time, and takes as long within this."""

NOT_REPRODUCED: Final = (
    "played with the recorded settings, it does not come out as recorded: something that is not in the log mattered"
)


_LOSSES: Final = frozenset(
    {Cause.SESSION_EXPIRED, Cause.SYNC_TIMED_OUT, Cause.MEMBER_LEFT, Cause.MEMBER_REMOVED_BY_ADMIN}
)
"""The causes of rebalances that begin because a member is lost."""


class Open(msgspec.Struct, kw_only=True):
    """A recorded rebalance that is being played. `subjects`: the members that started it; `grade`: how certain that is.

    `lost`: the subjects that were removed. `perhaps_back`: silent members whose processes may be those that joined,
    restarted or not. `folded`: members that joined, or were lost (True), while it ran. `begun`: the rebalance of the
    play that corresponds to it. `doubt`: why there is no verdict, whatever the play shows; empty: no doubt.
    """

    started: RebalanceStarted
    subjects: frozenset[MemberId]
    grade: Grade
    lost: frozenset[MemberId] = frozenset()
    perhaps_back: frozenset[MemberId] = frozenset()
    folded: set[tuple[MemberId | None, bool]] = set()
    doubt: str = ""
    doubt_ms: int = 0
    begins_ms: int | None = None
    begun: Started | None = None
    standstill: Standstill | None = None
    follows: "Open | None" = None
    """The rebalance of which this is the second round (cooperative assignors)."""
    is_cost_known: bool = True
    is_over: bool = True
    """False: the log ends before it is over, or before the end of the rebalance that it would have been part of."""

    def take_doubt(self, reason: str, at_ms: int) -> None:
        """Doubt the verdict from this time on, unless the reason is empty. The first reason is reported."""
        if reason:
            self.doubt_ms = min(self.doubt_ms, at_ms) if self.doubt else at_ms
            self.doubt = self.doubt or reason


def recorded_as(begun: Started, opened: Sequence[Open]) -> Open | None:
    """Return the recorded rebalance that this one of the play corresponds to, among those that have not begun in the
    play.
    """
    waiting = [one for one in opened if one.begins_ms is None and one.follows is None]
    of_subject = [one for one in waiting if begun.member_id in one.subjects]
    same = next((one for one in of_subject if one.started.why.cause is begun.cause), None)
    # A member may have joined and later fallen silent: those are two rebalances.
    is_loss = begun.cause in _LOSSES
    alike = next((one for one in of_subject if (begun.member_id in one.lost) is is_loss), None)
    # Delayed joins are admitted by any rebalance.
    admitted = next((one for one in waiting if (one.subjects - one.lost) & begun.admitted), None)
    # Without its first cause, one of the folded causes would have started it.
    folded = next((one for one in waiting if (begun.member_id, is_loss) in one.folded), None)
    return same or alike or admitted or folded


class VerdictTeller(Protocol):
    """Receives the verdicts on recorded rebalances."""

    def would_not(self, one: Open, reason: str) -> None: ...

    def would(self, one: Open, reason: str) -> None: ...

    def cannot_tell(self, started: RebalanceStarted, reason: str) -> None: ...


class _Asked(msgspec.Struct, kw_only=True):
    """A rebalance in the window, with what is known about it so far."""

    started: RebalanceStarted
    recorded: Rebalance | None = None
    is_over: bool = False
    verdict: Verdict | None = None
    grade: Grade = Grade.UNKNOWN
    reason: str = ""
    begins_ms: int | None = None
    recorded_cost: Standstill | None = None
    played_cost: Standstill | None = None
    are_costs_final: bool = True
    """False: the log ends before both costs are final."""
    control: bool | None = None
    """True if the control reproduced the recorded rebalance; None: not decided yet."""

    @property
    def is_reproduced(self) -> bool:
        """Whether the control reproduced it, and took as long as the log has it, as far as both are known."""
        cost, duration_ms = self.recorded_cost, self.recorded.duration_ms if self.recorded is not None else None
        is_as_long = cost is None or duration_ms is None or abs(cost.not_stable_ms - duration_ms) <= SAME_MS
        return bool(self.control) and is_as_long


class Control:
    """Receives the verdicts of the control: it reproduced the recorded rebalance, or not."""

    def __init__(self, asked: dict[tuple[int, int], _Asked]) -> None:
        self._asked = asked

    def would_not(self, one: Open, _reason: str) -> None:
        self._add(one.started, gives_it=bool(one.doubt), one=one)

    def would(self, one: Open, _reason: str) -> None:
        recorded_ms = one.started.why.decided_ms
        gives_it = one.begins_ms is None or abs(one.begins_ms - recorded_ms) < SAME_MS
        self._add(one.started, gives_it=gives_it, one=one)

    def cannot_tell(self, started: RebalanceStarted, _reason: str) -> None:
        self._add(started, gives_it=True)

    def _add(self, started: RebalanceStarted, *, gives_it: bool, one: Open | None = None) -> None:
        asked = self._asked.get((started.incarnation, started.seq))
        if asked is not None:
            asked.control = gives_it
            asked.recorded_cost = None if one is None else one.standstill
            asked.are_costs_final = asked.are_costs_final and (one is None or one.is_over)


class Verdicts:
    """Matches the items, which are read ahead, with the verdicts. `group`, `clock`: as before the first item."""

    def __init__(self, group_id: GroupId, group: Group | None = None, clock: ClockReading = BEGIN) -> None:
        self._transitions = Transitions(group_id, group, clock)
        self._timeline = Timeline(group)
        self._asked: dict[tuple[int, int], _Asked] = {}  # by incarnation and seq
        self.control = Control(self._asked)

    def feed(self, item: Item, *, is_within: bool) -> None:
        """Process the next item. `is_within`: whether a rebalance that begins with it is in the window."""
        step = self._transitions.feed(item)
        finished = self._timeline.feed(step) if step is not None else None
        if finished is not None:
            self._finished(finished)
        if is_within and isinstance(step, Transition) and isinstance(step.event, RebalanceStarted):
            self._asked[step.event.incarnation, step.event.seq] = _Asked(started=step.event)

    @property
    def has_open(self) -> bool:
        """True if a rebalance of the window has not been yielded yet."""
        return bool(self._asked)

    def end(self) -> None:
        """End the history, in which a rebalance may still be running."""
        running = self._timeline.running()
        if running is not None:
            self._finished(running)
        for each in self._asked.values():
            each.is_over = True

    def would_not(self, one: Open, reason: str) -> None:
        self._note_cost(one)
        self._add(one.started, Verdict.CANNOT_TELL if one.doubt else Verdict.WOULD_NOT, one.doubt or reason, one.grade)

    def would(self, one: Open, reason: str) -> None:
        self._note_cost(one)
        if one.doubt:
            self.cannot_tell(one.started, one.doubt)
        else:
            self._add(one.started, Verdict.WOULD, reason, one.grade, one.begins_ms)

    def cannot_tell(self, started: RebalanceStarted, reason: str) -> None:
        self._add(started, Verdict.CANNOT_TELL, reason, Grade.UNKNOWN)

    def ready(self) -> Iterator[Replayed]:
        """Yield the next rebalances whose verdict, control and end are known."""
        while self._asked:
            key, asked = next(iter(self._asked.items()))
            if asked.verdict is None or asked.control is None or not asked.is_over:
                return
            if not asked.is_reproduced and asked.verdict is not Verdict.CANNOT_TELL:
                asked.verdict, asked.reason = Verdict.CANNOT_TELL, NOT_REPRODUCED
            del self._asked[key]
            yield _replayed(asked, asked.verdict)

    def _add(
        self, started: RebalanceStarted, verdict: Verdict, reason: str, grade: Grade, begins_ms: int | None = None
    ) -> None:
        asked = self._asked.get((started.incarnation, started.seq))
        if asked is not None:
            asked.verdict, asked.reason, asked.grade, asked.begins_ms = verdict, reason, grade, begins_ms

    def _note_cost(self, one: Open) -> None:
        asked = self._asked.get((one.started.incarnation, one.started.seq))
        if asked is not None:
            asked.played_cost = one.standstill if one.is_cost_known else None
            asked.are_costs_final = asked.are_costs_final and one.is_over

    def _finished(self, recorded: Rebalance) -> None:
        """Note the end of a rebalance; all that began earlier have ended, too."""
        for (incarnation, seq), asked in self._asked.items():
            if (incarnation, seq) > (recorded.incarnation, recorded.last_seq):
                return
            if incarnation == recorded.incarnation and seq >= recorded.first_seq:
                asked.recorded = recorded
            asked.is_over = True


def _replayed(asked: _Asked, verdict: Verdict) -> Replayed:
    recorded, started = asked.recorded, asked.started
    begins_ms = asked.begins_ms if verdict is Verdict.WOULD else None
    is_known = verdict is not Verdict.CANNOT_TELL
    return Replayed(
        incarnation=started.incarnation,
        seq=started.seq,
        generation_id=started.group.generation_id + 1,
        started_at=instant(started.why.decided_ms),
        duration_ms=recorded.duration_ms if recorded is not None else None,
        headline=headline(recorded) if recorded is not None else started.why.cause.value,
        verdict=verdict,
        grade=Grade.UNKNOWN if verdict is Verdict.CANNOT_TELL else asked.grade,
        reason=asked.reason,
        would_begin_at=instant(begins_ms) if begins_ms is not None else None,
        recorded=asked.recorded_cost if asked.is_reproduced else _cost_in_log(recorded),
        played=asked.played_cost if is_known and asked.are_costs_final else None,
        is_cost_final=asked.are_costs_final and asked.is_reproduced,
    )


def _cost_in_log(recorded: Rebalance | None) -> Standstill | None:
    """Return the cost of a rebalance itself, for one that the control does not reproduce."""
    if recorded is None or recorded.duration_ms is None:
        return None
    return Standstill(not_stable_ms=recorded.duration_ms, partition_ms=partition_ms(recorded) or 0)
