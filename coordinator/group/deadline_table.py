"""A table by member id whose entries have deadlines; finds those that have passed without scanning it at each change.

It is used for members, held joins and pending members. The deadlines of the whole group are plain fields of
`SoftState`.

How it works: the table knows the earliest time at which any entry can be due. When that time has come, it scans all
entries once, and keeps those that may be due within `LOOK_AHEAD_MS` in order, and the earliest time of the others. A
heartbeat moves its session's deadline in place, which is noticed only when the entry comes up. So a quiet group is
scanned once per session timeout, and one whose members expire one after another once a second.

The drawback: `next_ms` may be too early, and nothing is due then. It is never too late: a refreshed session may end
sooner than before (ST8), and `earliest_ms` allows for that.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from operator import itemgetter
from typing import Self, TypeVar

from muster.events.ids import MemberId
from muster.events.tables import Table

LOOK_AHEAD_MS = 1_000

V = TypeVar("V")


class DeadlineTable(Table[MemberId, V]):
    """Entries by member id, each with a deadline in monotonic ms."""

    __slots__ = ("_others_ms", "_soon")

    def __init__(self, entries: Mapping[MemberId, V] | Iterable[tuple[MemberId, V]] = ()) -> None:
        super().__init__(entries)
        self._soon: tuple[tuple[float, MemberId], ...] = ()
        self._others_ms = min(map(self.earliest_ms, self._all.values()), default=inf) if self._all else inf

    @staticmethod
    @abstractmethod
    def deadline_ms(value: V) -> float:
        """Return the entry's current deadline."""

    @staticmethod
    @abstractmethod
    def earliest_ms(value: V, last_seen_ms: float = -inf) -> float:
        """Return the earliest time at which it may be due, if its member is seen at `last_seen_ms` or later."""

    def copy(self) -> Self:
        twin = super().copy()
        twin._soon, twin._others_ms = self._soon, self._others_ms  # noqa: SLF001 -- of the same class
        return twin

    def __setitem__(self, key: MemberId, value: V) -> None:
        super().__setitem__(key, value)
        self._others_ms = min(self._others_ms, self.earliest_ms(value))

    def clear(self) -> None:
        super().clear()
        self._soon, self._others_ms = (), inf

    def next_ms(self) -> float:
        """Return the time before which nothing is due; inf without entries."""
        return min(self._others_ms, self._soon[0][0]) if self._soon else self._others_ms

    def due(self, now_ms: int) -> Iterator[tuple[int, MemberId]]:
        """Return the due entries, and since when they are due; an entry stays due until it is changed or deleted."""
        if self._others_ms <= now_ms:
            self._check_all(now_ms)
        come = [key for at_ms, key in self._soon if at_ms <= now_ms]
        still = []
        for key in come:
            value = self.get(key)
            if value is None:
                continue
            deadline_ms = self.deadline_ms(value)
            if deadline_ms <= now_ms:
                still.append((deadline_ms, key))
            else:
                self._others_ms = min(self._others_ms, self.earliest_ms(value, now_ms))
        still.sort(key=itemgetter(0))
        self._soon = (*still, *self._soon[len(come) :])
        return ((int(deadline_ms), key) for deadline_ms, key in still)

    def _check_all(self, now_ms: int) -> None:
        earliest = [(self.earliest_ms(value, now_ms), key) for key, value in self.items()]
        until_ms = now_ms + LOOK_AHEAD_MS
        self._soon = tuple(sorted((each for each in earliest if each[0] <= until_ms), key=itemgetter(0)))
        self._others_ms = min((at_ms for at_ms, _ in earliest if at_ms > until_ms), default=inf)
