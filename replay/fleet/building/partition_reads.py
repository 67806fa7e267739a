"""The reads that concern all groups of a partition, as each group sees them: its coordinators, records of unknown
groups.

A partition may have thousands of groups, and any number of unreadable records. So they are indexed once, and a group
asks for those between two of its own records: of consecutive unreadable records it gets the first few, and the number
of the others and where they end, from which the fold computes the same result as from all of them (`UNREADABLE_NAMED`).
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from muster.events.events import CoordinatorElected
from muster.replay.history.items import (
    UNREADABLE_NAMED,
    Broken,
    Coordinated,
    PassedOver,
    Prelude,
    Read,
    Told,
    Unreadable,
    place_of,
)
from muster.replay.incidents.windows import QUIET_MS

END: Final = 2**63


class PartitionReads:
    """The reads of a partition since the previous build, in order. `prelude`: the state of the partition before
    them."""

    def __init__(self, reads: Iterable[Read], prelude: Prelude | None = None) -> None:
        reads = list(reads)
        told = [read for read in reads if not isinstance(read, PassedOver)]
        self._told = _Rows(told)
        self._owners = _Owners([*(prelude.owner if prelude else ()), *(r for r in told if isinstance(r, Coordinated))])
        self._unreadable = _UnknownGroups([*(prelude.broken if prelude else ()), *reads])

    def index(self, offset: int) -> int:
        """The number of reads before an offset."""
        return bisect_left(self._told.offsets, offset)

    def offset(self, index: int) -> int:
        """The offset of a read; END after the last one."""
        return self._told.offsets[index] if index < len(self._told.offsets) else END

    def told(self, start: int, stop: int | None = None) -> Iterator[Told]:
        """The reads from one index up to another (exclusive), as an existing group sees them."""
        return self._told.told(start, len(self._told.offsets) if stop is None else stop)

    def before(self, offset: int) -> Iterator[Told]:
        """The state of the partition just before an offset, as a group that begins there sees it."""
        yield from self._unreadable.before(offset)
        yield from self._owners.before(offset)


class _Rows:
    """Reads in order. A *row* is a run of unreadable records less than QUIET_MS apart, with no other read in between.

    Of a row only the first few are passed on one by one.
    """

    def __init__(self, reads: Sequence[Told]) -> None:
        self._reads = reads
        self.offsets = [read.position.offset for read in reads]
        self._row_ends = list(range(1, len(reads) + 1))
        for at in range(len(reads) - 2, -1, -1):
            if _is_followed_by(reads[at], reads[at + 1]):
                self._row_ends[at] = self._row_ends[at + 1]

    def told(self, start: int, stop: int) -> Iterator[Told]:
        while start < stop:
            end = min(self._row_ends[start], stop)
            named = min(end, start + UNREADABLE_NAMED) - 1
            yield from self._reads[start:named]
            yield _joined(self._reads[named], self._reads[end - 1], end - 1 - named)
            start = end


def _is_followed_by(read: Told, following: Told) -> bool:
    if not isinstance(read, Broken) or not isinstance(following, Broken):
        return False
    return 0 <= following.position.timestamp_ms - read.position.timestamp_ms <= QUIET_MS


def _joined(read: Told, last: Told, more: int) -> Told:
    if not more:
        return read
    assert isinstance(read, Broken)
    return msgspec.structs.replace(read, more=more, last=last.position)


class _Owners:
    """The owners' events; a new group gets the last election and the last event."""

    def __init__(self, events: Sequence[Coordinated]) -> None:
        self._events = events
        self._offsets = [each.position.offset for each in events]
        self._elections: list[Coordinated | None] = []
        election: Coordinated | None = None
        for each in events:
            election = each if isinstance(each.event, CoordinatorElected) else election
            self._elections.append(election)

    def before(self, offset: int) -> Iterator[Coordinated]:
        count = bisect_left(self._offsets, offset)
        if not count:
            return
        election, last = self._elections[count - 1], self._events[count - 1]
        if election is not None and election is not last:
            yield election
        yield last


class _UnknownGroups:
    """Broken records whose group is unknown, each with the offset at which its partition's reader skipped it."""

    def __init__(self, reads: Iterable[Read]) -> None:
        self._broken: list[Broken] = []
        self._gone_at: list[int] = []
        """The offset at which each of them was skipped."""
        self._passed_over: list[int] = []
        """The same offsets, in order."""
        self._there: dict[tuple[int, int], tuple[Told, ...]] = {}
        places: dict[tuple[int, bytes], list[int]] = {}
        for read in reads:
            if isinstance(read, Broken) and read.kind is Unreadable.UNDECODABLE_KEY:
                places.setdefault(place_of(read), []).append(len(self._broken))
                self._broken.append(read)
                self._gone_at.append(END)
            elif isinstance(read, PassedOver) and (gone := places.pop(place_of(read), None)):
                self._passed_over.append(read.position.offset)
                for at in gone:
                    self._gone_at[at] = read.position.offset
        self._rows = _Rows(self._broken)

    def before(self, offset: int) -> Iterable[Told]:
        count = bisect_left(self._rows.offsets, offset)
        passed_over = bisect_left(self._passed_over, offset)
        if not passed_over:  # as in most logs
            return self._rows.told(0, count)
        if (count, passed_over) not in self._there:
            there = [self._broken[at] for at in range(count) if self._gone_at[at] >= offset]
            self._there[count, passed_over] = tuple(_Rows(there).told(0, len(there)))
        return self._there[count, passed_over]
