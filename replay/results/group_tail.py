"""The last of a group's records, which are kept undecoded while a log is skimmed: they say what happened last.

They begin in the time of quiet before the group's last rebalance, so that the last incident is told whole. Where these
are too many, they begin right before the last rebalance, and say how that began and ended; where those of all groups
are, what happened within it is dropped, too.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain
from typing import Final

import msgspec

from muster.events.ids import GroupId
from muster.events.records import StoredRecord
from muster.replay.history.items import Broken, Coordinated, Item, PassedOver, Prelude, SeqGaps, Told, still_broken
from muster.replay.history.skim import BEGINNING, Checkpoint, Skim
from muster.replay.history.transitions import Transitions
from muster.replay.history.window import Cut, Window
from muster.replay.incidents.grade import Grade
from muster.replay.logs.sources import read_record
from muster.replay.rebalances.rebalance import Rebalance
from muster.replay.rebalances.timeline import Timeline
from muster.replay.results.kept_records import GroupRecords
from muster.replay.results.why import WhyFold
from muster.replay.text.times import Instant, Sentence

TAIL_MAX: Final = 2_000
"""Records that are kept of one group, but for those of a rebalance that is longer."""

TAILS_MAX: Final = 60_000
"""Records that are kept of all groups, but for those since their last rebalances."""

TAIL_BYTES: Final = 1_000_000
TAILS_BYTES: Final = 30_000_000
"""The same in bytes of their values: a member's ids and metadata may have 32 KB each."""

COORDINATED_KEPT: Final = 1_000
"""Events that are kept of each partition."""


class LastIncident(msgspec.Struct, frozen=True, kw_only=True):
    """The last incident of a group, as `why --last` tells it."""

    kind: str
    grade: Grade
    headline: Sentence
    started_at: Instant
    ended_at: Instant | None


class Partition:
    """The events of a partition, which concern all its groups. `at_most`: how many are kept; None: all.

    `unreadable`: takes the records of which not even the group is known, and that were not passed over by a repair.
    `until_ms`: owners after that are not taken in.
    """

    def __init__(
        self, unreadable: list[Broken], *, at_most: int | None = COORDINATED_KEPT, until_ms: int | None = None
    ) -> None:
        self.prelude = Prelude()
        self.coordinated: deque[Coordinated] = deque(maxlen=at_most)
        self._unreadable = unreadable
        self._until_ms = until_ms

    def note(self, record: StoredRecord) -> None:
        """Take in a record that concerns the whole partition, or is of no known group."""
        found = read_record(record)
        if found is None:
            return
        _, read = found
        if isinstance(read, Coordinated):
            if self._until_ms is not None and read.at_ms > self._until_ms:
                return
            self.coordinated.append(read)
        elif isinstance(read, PassedOver):
            self._unreadable[:] = still_broken(self._unreadable, read)
        elif isinstance(read, Broken):
            self._unreadable.append(read)
        self.prelude.note(read)

    def has_events_since(self, window: Window) -> bool:
        """Whether an owner came, stood still or went in a window of times."""
        cut = Cut(window)
        return any(cut.is_within(each.at_ms) for each in self.coordinated)

    def merged(self, reads: Iterator[Told], begin: Checkpoint) -> Iterator[Told]:
        """Give what is told of a group, from a checkpoint of it on, and the events of the partition since then."""
        coordinated = [each for each in self.coordinated if each.position.offset >= begin.offset]
        if not coordinated:
            return reads
        return merge(reads, coordinated, key=lambda read: read.position.offset)


class Kept:
    """The number of records that are kept of all groups, and of their bytes."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether there are so many that groups are to keep no more than they must."""
        return self.records >= TAILS_MAX or self.bytes >= TAILS_BYTES


class Tail:
    """The records of one group. `skim` has taken in each before it is kept."""

    def __init__(self, group_id: GroupId, skim: Skim, home: Partition, kept: Kept) -> None:
        self.group_id = group_id
        self._skim = skim
        self._home = home
        self._kept = kept
        self._begin = BEGINNING
        self._is_quiet = True  # at `_begin`
        self._records = GroupRecords()
        self._bytes = 0  # of them
        self._looked: Checkpoint | None = None  # the place before the last rebalance, when this was last trimmed
        self._trimmed = 0  # how many records there were then
        self._is_brief = False  # whether some between them were dropped
        self._last: Rebalance | None = None  # before `_begin`

    def is_touched(self, window: Window) -> bool:
        """Whether the partition has events in the window."""
        return self._home.has_events_since(window)

    def keep(self, records: Sequence[StoredRecord]) -> None:
        """The next records."""
        self._count(*self._records.add(records))

    def trim(self) -> None:
        """Drop, at the end of a transition, what is no longer needed."""
        skim = self._skim
        is_long = len(self._records) >= TAIL_MAX or self._bytes >= TAIL_BYTES
        if skim.before_last is self._looked and not is_long:
            if not self._kept.is_full:
                self._trimmed = len(self._records)
                return
            if not self._is_quiet:
                self._drop_parts()
                return
        self._looked = skim.before_last
        begin = skim.before_rebalances[-1] if skim.before_rebalances else BEGINNING
        if begin.offset > self._begin.offset:
            self._begin_at(begin, is_quiet=True)
        elif not self._is_quiet and skim.before_last.offset > self._begin.offset:
            self._begin_at(skim.before_last, is_quiet=False)
        is_long = len(self._records) >= TAIL_MAX or self._bytes >= TAIL_BYTES
        if is_long or (self._is_quiet and self._kept.is_full):
            if skim.before_last.offset > self._begin.offset:
                self._begin_at(skim.before_last, is_quiet=False)
            elif is_long and skim.is_at_rest:
                self._last = self._last_rebalance()
                skim.cut()
                self._begin_at(skim.checkpoint, is_quiet=False)
        self._trimmed = len(self._records)

    def _drop_parts(self) -> None:
        """Keep, of a transition within a rebalance, its end alone: how that began and ended can be told without."""
        dropped, size = self._records.drop(self._trimmed, -1)
        self._count(-dropped, -size)
        self._is_brief = self._is_brief or dropped > 0
        self._trimmed = len(self._records)

    def _begin_at(self, begin: Checkpoint, *, is_quiet: bool) -> None:
        """Keep what follows upon this place alone."""
        dropped, size = self._records.drop(0, bisect_left(self._records.offsets, begin.offset))
        self._count(-dropped, -size)
        self._begin, self._is_quiet, self._is_brief = begin, is_quiet, False

    def _count(self, records: int, size: int) -> None:
        self._bytes += size
        self._kept.records += records
        self._kept.bytes += size

    def _items(self) -> Iterator[Item]:
        """The items since `_begin`."""
        begin = self._begin
        yield from begin.prelude
        gaps = SeqGaps(incarnation=begin.incarnation, seq=begin.seq)
        for read in self._home.merged(self._records.reads(), begin):
            gap = gaps.before(read)
            if gap is not None and not self._is_brief:
                yield gap
            yield read

    def _last_rebalance(self) -> Rebalance | None:
        group = self._begin.group(self.group_id)
        transitions = Transitions(self.group_id, group, self._begin.clock)
        timeline, last = Timeline(group), self._last
        for step in transitions.steps(self._items()):
            last = timeline.feed(step) or last
        return timeline.running() or last

    def told(self) -> tuple[LastIncident | None, Rebalance | None]:
        """The last incident, and the last rebalance, as far as they can be told from `_begin` on."""
        if not self._is_quiet:
            return None, self._last_rebalance()
        begin, last, rebalance = self._begin, None, self._last
        fold = WhyFold(self.group_id, begin)
        for incident in chain(chain.from_iterable(map(fold.feed, self._items())), fold.end()):
            last = incident
            rebalances = (*incident.rebalances, *(() if rebalance is None else (rebalance,)))
            rebalance = max(rebalances, key=lambda each: (each.incarnation, each.first_seq), default=None)
        if last is None:
            return None, rebalance
        told = LastIncident(
            kind=last.kind,
            grade=last.grade,
            headline=last.headline,
            started_at=last.started_at,
            ended_at=last.ended_at,
        )
        return told, rebalance
