"""The recorded rebalances, each with its verdict as it is found."""

from bisect import bisect
from collections.abc import Iterator

import msgspec

from muster.events.events import RebalanceStarted
from muster.events.ids import MemberId
from muster.replay.history import History
from muster.replay.incidents.grade import Grade
from muster.replay.rebalances.rebalance import Rebalance
from muster.replay.rebalances.timeline import rebalances
from muster.replay.rebalances.wording import headline
from muster.replay.times import instant
from muster.replay.whatif.verdict import Replayed, Verdict


class Open(msgspec.Struct, kw_only=True):
    """A recorded rebalance that is being played. `subjects`: the members that started it; `grade`: how they are known.

    `doubt`: why nothing can be told, whatever the play says; empty: there is none.
    """

    started: RebalanceStarted
    subjects: frozenset[MemberId]
    grade: Grade
    is_arrival: bool = False
    doubt: str = ""
    begins_ms: int | None = None
    follows: "Open | None" = None
    """The rebalance whose second round it is."""


class Verdicts:
    """The verdicts on the rebalances of one history, in order."""

    def __init__(self, history: History) -> None:
        self._told = rebalances(history.group_id, history.items)
        self._first = [(each.incarnation, each.first_seq) for each in self._told]
        self.replayed: list[Replayed] = []

    def would_not(self, one: Open, reason: str) -> None:
        self._add(one.started, Verdict.CANNOT_TELL if one.doubt else Verdict.WOULD_NOT, one.doubt or reason, one.grade)

    def would(self, one: Open, reason: str) -> None:
        if one.doubt:
            self.cannot_tell(one.started, one.doubt)
        else:
            self._add(one.started, Verdict.WOULD, reason, one.grade, one.begins_ms)

    def cannot_tell(self, started: RebalanceStarted, reason: str) -> None:
        self._add(started, Verdict.CANNOT_TELL, reason, Grade.UNKNOWN)

    def _add(
        self, started: RebalanceStarted, verdict: Verdict, reason: str, grade: Grade, begins_ms: int | None = None
    ) -> None:
        rebalance = self._of(started)
        self.replayed.append(
            Replayed(
                incarnation=started.incarnation,
                seq=started.seq,
                started_at=instant(started.why.decided_ms),
                duration_ms=rebalance.duration_ms if rebalance is not None else None,
                headline=headline(rebalance) if rebalance is not None else started.why.cause.value,
                verdict=verdict,
                grade=Grade.UNKNOWN if verdict is Verdict.CANNOT_TELL else grade,
                reason=reason,
                would_begin_at=instant(begins_ms) if begins_ms is not None and verdict is Verdict.WOULD else None,
            )
        )

    def _of(self, started: RebalanceStarted) -> Rebalance | None:
        position = bisect(self._first, (started.incarnation, started.seq)) - 1
        found = self._told[position] if position >= 0 else None
        return found if found is not None and started.seq <= found.last_seq else None

    def in_order(self) -> Iterator[Replayed]:
        """The verdicts by their place in the log."""
        return iter(sorted(self.replayed, key=lambda each: (each.incarnation, each.seq)))
