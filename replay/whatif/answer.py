"""The answer of `whatif` as one value: all verdicts counted, and the last of them listed."""

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

from muster.events.ids import GroupId
from muster.replay.history.window import Bounds
from muster.replay.whatif.alterations import Alterations
from muster.replay.whatif.verdict import Additional, Line, Replayed, Verdict, WhatIf

LISTED_MAX: Final = 1_000
"""The rebalances that a table or a document lists; JSON lines have all."""


class Counted:
    """Takes the verdicts as they come."""

    def __init__(self) -> None:
        self._counts: Counter[Verdict] = Counter()
        self._avoided_ms = 0
        self._besides: Counter[Verdict] = Counter()
        self._replayed: deque[Replayed] = deque(maxlen=LISTED_MAX)
        self._additional: deque[Additional] = deque(maxlen=LISTED_MAX)

    def take(self, line: Line) -> None:
        """Take in the next verdict."""
        if isinstance(line, Additional):
            self._besides[line.verdict] += 1
            self._additional.append(line)
            return
        self._counts[line.verdict] += 1
        if line.verdict is Verdict.WOULD_NOT:
            self._avoided_ms += line.duration_ms or 0
        self._replayed.append(line)

    def result(
        self,
        group_id: GroupId,
        log: str,
        alterations: Alterations,
        notes: Iterable[str],
        window: Bounds | None = None,
    ) -> WhatIf:
        """The answer, once every verdict was taken."""
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
            window=window,
        )
