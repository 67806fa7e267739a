"""The answer of `whatif` as one value: counts of all verdicts, and a list of the latest."""

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

from muster.events.ids import GroupId
from muster.replay.history.window import Bounds
from muster.replay.text.grammar import plural
from muster.replay.whatif.alterations import Alterations
from muster.replay.whatif.verdict import Additional, Line, Replayed, Standstill, Verdict, WhatIf

MATTERS_MS: Final = 1_000
MATTERS_SHARE: Final = 0.05
"""Two costs (partition time, or time not Stable) differ if the difference is larger than both limits."""
LISTED_MAX: Final = 1_000
"""Maximum rebalances listed in a table or a document; JSON lines have all of them."""


class Counted:
    """Counts and sums the verdicts as they arrive."""

    def __init__(self) -> None:
        self._counts: Counter[Verdict] = Counter()
        self._avoided_ms = 0
        self._recorded = Standstill()
        self._played = Standstill()
        self._undecided = Standstill()
        self._besides: Counter[Verdict] = Counter()
        self._replayed: deque[Replayed] = deque(maxlen=LISTED_MAX)
        self._additional: deque[Additional] = deque(maxlen=LISTED_MAX)

    def take(self, line: Line) -> None:
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
            advice=advice(self._recorded, self._played, unknown),
            window=window,
        )


def advice(recorded: Standstill, played: Standstill, unknown: int = 0) -> str:
    """Return a sentence that says which settings cost less, regardless of the number of rebalances; empty if the
    difference is negligible.

    `unknown`: how many have no verdict. They might reverse the comparison, so it is then not worded as advice.
    """
    more = _more(recorded, played)
    if more and unknown:
        way = "more" if more > 0 else "less"
        return (
            f"{plural(unknown, 'rebalance')} cannot be told; the others would have cost {way} with these settings"
            f" ({played}) than they did ({recorded})"
        )
    if more > 0:
        return f"keep the recorded settings: with these it would have cost more ({played}) than it did ({recorded})"
    return f"with these settings it would have cost less ({played}) than it did ({recorded})" if more < 0 else ""


def _more(recorded: Standstill, played: Standstill) -> int:
    """Return whether playing costs more (1), less (-1) or the same (0), by partition time, else by time not Stable.

    Partition times are compared relative to the time with members, since days without members would hide every
    difference. If the time without members differs, the time not Stable is not compared: one has only replaced the
    other.
    """
    partition_ms = recorded.partition_ms - recorded.empty_partition_ms
    if _differs(played.partition_ms - recorded.partition_ms, partition_ms):
        return 1 if played.partition_ms > recorded.partition_ms else -1
    if _differs(played.empty_partition_ms - recorded.empty_partition_ms, partition_ms):
        return 0
    if _differs(played.not_stable_ms - recorded.not_stable_ms, recorded.not_stable_ms):
        return 1 if played.not_stable_ms > recorded.not_stable_ms else -1
    return 0


def _differs(by_ms: int, of_ms: int) -> bool:
    return abs(by_ms) > max(MATTERS_MS, of_ms * MATTERS_SHARE)
