"""The answer of `whatif` as one value: counts of all verdicts, and a list of the latest."""

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

from muster.events.ids import GroupId
from muster.replay.history.window import Bounds
from muster.replay.text.grammar import plural
from muster.replay.text.times import duration
from muster.replay.whatif.alterations import Alterations
from muster.replay.whatif.verdict import Additional, Line, Replayed, Standstill, Verdict, WhatIf

MATTERS_MS: Final = 1_000
MATTERS_SHARE: Final = 0.05
"""Two costs (partition time, or time not Stable) differ if the difference is larger than both limits."""
LISTED_MAX: Final = 1_000
"""Maximum rebalances listed in a table or a document; JSON lines have all of them."""


class Counted:
    """Counts the verdicts and adds up their costs as they arrive."""

    def __init__(self) -> None:
        self._counts: Counter[Verdict] = Counter()
        self._avoided_ms = 0
        self._recorded = Standstill()
        self._played = Standstill()
        self._undecided = Standstill()
        self._not_over = 0
        self._besides: Counter[Verdict] = Counter()
        self._replayed: deque[Replayed] = deque(maxlen=LISTED_MAX)
        self._additional: deque[Additional] = deque(maxlen=LISTED_MAX)

    def take(self, line: Line) -> None:
        self._not_over += not line.is_cost_final and line.verdict is not Verdict.CANNOT_TELL
        if isinstance(line, Additional):
            self._besides[line.verdict] += 1
            self._additional.append(line)
            if line.played is not None:
                self._played += line.played
            return
        self._counts[line.verdict] += 1
        if line.verdict is Verdict.WOULD_NOT:
            self._avoided_ms += line.duration_ms or 0
        self._replayed.append(line)
        if line.recorded is not None and line.played is not None:
            self._recorded += line.recorded
            self._played += line.played
        elif line.recorded is not None:
            self._undecided += line.recorded

    def result(
        self,
        group_id: GroupId,
        log: str,
        alterations: Alterations,
        notes: Iterable[str],
        window: Bounds | None = None,
    ) -> WhatIf:
        """Return the answer after all verdicts."""
        unknown = self._counts[Verdict.CANNOT_TELL] + self._besides[Verdict.CANNOT_TELL]
        return WhatIf(
            group_id=group_id,
            log=log,
            settings=alterations.told,
            would_not=self._counts[Verdict.WOULD_NOT],
            would=self._counts[Verdict.WOULD],
            cannot_tell=self._counts[Verdict.CANNOT_TELL],
            avoided_ms=self._avoided_ms,
            besides=self._besides[Verdict.WOULD],
            besides_unknown=self._besides[Verdict.CANNOT_TELL],
            left_out=(self._counts + self._besides).total() - len(self._replayed) - len(self._additional),
            rebalances=tuple(self._replayed),
            additional=tuple(sorted(self._additional, key=lambda each: (each.until, each.seq))),
            notes=tuple(notes),
            recorded=self._recorded,
            played=self._played,
            undecided=self._undecided,
            not_over=self._not_over,
            advice=advice(self._recorded, self._played, unknown, self._not_over),
            window=window,
        )


def advice(recorded: Standstill, played: Standstill, unknown: int = 0, not_over: int = 0) -> str:
    """Return a sentence that says which settings cost less, whatever the number of rebalances; empty if the difference
    is negligible.

    `unknown`: how many have no verdict; `not_over`: how many have no final cost. These might reverse the comparison, so
    it is then not worded as advice. Nor is it if partition time and time not Stable disagree, or if a number of
    partitions is not known.
    """
    left_out = [f"{plural(unknown, 'rebalance')} cannot be decided"] if unknown else []
    if not_over:
        left_out.append(f"the cost of {plural(not_over, 'rebalance')} is not known, since the log ends first")
    by_partitions, by_state = _compared(recorded, played)
    more = by_partitions or by_state
    which = "the others" if left_out else "with these settings it"
    if not more:
        compared = ""
    elif recorded.partition_ms is None or played.partition_ms is None:
        compared = f"{which} {_by_state(recorded, played)}; the number of partitions without a consumer is not known"
    elif by_partitions * by_state < 0:
        fewer = "fewer" if by_partitions < 0 else "more"
        compared = (
            f"{which} {_by_state(recorded, played)}, but with {fewer} partition-seconds without a consumer"
            f" ({played.partition_ms / 1_000:.1f} instead of {recorded.partition_ms / 1_000:.1f})"
        )
    elif left_out:
        way = "more" if more > 0 else "less"
        compared = f"the others would have cost {way} with these settings ({played}) than they did ({recorded})"
    elif more > 0:
        return f"keep the recorded settings: with these it would have cost more ({played}) than it did ({recorded})"
    else:
        compared = f"with these settings it would have cost less ({played}) than it did ({recorded})"
    if not compared and not not_over:
        return ""
    return "; ".join([*left_out, compared] if compared else left_out)


def _by_state(recorded: Standstill, played: Standstill) -> str:
    longer = "longer" if played.not_stable_ms > recorded.not_stable_ms else "less long"
    return (
        f"would have been not Stable for {longer} ({duration(played.not_stable_ms)} instead of"
        f" {duration(recorded.not_stable_ms)})"
    )


def _compared(recorded: Standstill, played: Standstill) -> tuple[int, int]:
    """Return whether the play costs more (1), less (-1) or the same (0), by partition time and by time not Stable.

    Partition times are compared relative to the time with members, since days without members would hide every
    difference. If the times without members differ, times not Stable are not compared, since the one may only have
    replaced the other. If a number of partitions is not known, only times not Stable are compared, and not even these
    if the group may have been without members instead.
    """
    if recorded.empty_partition_ms is None or played.empty_partition_ms is None:
        return 0, 0
    by_state = _sign(played.not_stable_ms - recorded.not_stable_ms, recorded.not_stable_ms)
    if recorded.partition_ms is None or played.partition_ms is None:
        return 0, by_state
    partition_ms = recorded.partition_ms - recorded.empty_partition_ms
    by_partitions = _sign(played.partition_ms - recorded.partition_ms, partition_ms)
    is_instead = _sign(played.empty_partition_ms - recorded.empty_partition_ms, partition_ms) and not by_partitions
    return by_partitions, 0 if is_instead else by_state


def _sign(by_ms: int, of_ms: int) -> int:
    """Return 1 or -1 if the difference matters, else 0."""
    if abs(by_ms) <= max(MATTERS_MS, of_ms * MATTERS_SHARE):
        return 0
    return 1 if by_ms > 0 else -1
