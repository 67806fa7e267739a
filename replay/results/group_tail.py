"""The last records of a group, kept undecoded while a log is skimmed; they show the latest incident.

They begin in the quiet time before the group's last rebalance, so that the last incident is complete. If a group has
too many, they begin right before the last rebalance, which is enough to describe how it began and ended. If all groups
together have too many, the records within the rebalance are dropped, too.
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
"""The number of records kept for one group, unless its last rebalance alone has more."""

TAILS_MAX: Final = 60_000
"""The number of records kept for all groups, unless their last rebalances alone have more."""

TAIL_BYTES: Final = 1_000_000
TAILS_BYTES: Final = 30_000_000
"""The same limits in bytes of the values: a member's ids and metadata may have 32 KB each."""

COORDINATED_KEPT: Final = 1_000
"""The number of coordinator events kept for each partition."""


class LastIncident(msgspec.Struct, frozen=True, kw_only=True):
    """The last incident of a group, as `why --last` shows it."""

    kind: str
    grade: Grade
    headline: Sentence
    started_at: Instant
    ended_at: Instant | None


class Partition:
    """The events of a partition, which concern all its groups. `at_most`: how many are kept; None: all.

    `unreadable`: collects the records whose group is unknown, except those that were repaired. `until_ms`: later
    coordinator events are ignored.
    """

    def __init__(
        self, unreadable: list[Broken], *, at_most: int | None = COORDINATED_KEPT, until_ms: int | None = None
    ) -> None:
        self.prelude = Prelude()
        self.coordinated: deque[Coordinated] = deque(maxlen=at_most)
        self._unreadable = unreadable
        self._until_ms = until_ms

    def note(self, record: StoredRecord) -> None:
        """Process a record that concerns the whole partition, or whose group is unknown."""
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
        """Return whether a coordinator was elected, paused or stopped in the window."""
        cut = Cut(window)
        return any(cut.is_within(each.at_ms) for each in self.coordinated)

    def merged(self, reads: Iterator[Told], begin: Checkpoint) -> Iterator[Told]:
        """Merge a group's records from a checkpoint on with the events of its partition since then."""
        coordinated = [each for each in self.coordinated if each.position.offset >= begin.offset]
        if not coordinated:
            return reads
        return merge(reads, coordinated, key=lambda read: read.position.offset)


class Kept:
    """The number of records that are kept for all groups, and their bytes."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0

    @property
    def is_full(self) -> bool:
        """True if groups should keep only the records that they need."""
        return self.records >= TAILS_MAX or self.bytes >= TAILS_BYTES


class Tail:
    """The last records of one group. `skim` has processed each record before it is kept here."""

    def __init__(self, group_id: GroupId, skim: Skim, home: Partition, kept: Kept) -> None:
        self.group_id = group_id
        self._skim = skim
        self._home = home
        self._kept = kept
        self._begin = BEGINNING
        self._is_quiet = True  # at `_begin`
        self._records = GroupRecords()
        self._bytes = 0  # of the records
        self._looked: Checkpoint | None = None  # the checkpoint before the last rebalance at the last trim
        self._trimmed = 0  # the number of records after the last trim
        self._is_brief = False  # True if records in between were dropped
        self._last: Rebalance | None = None  # before `_begin`

    def is_touched(self, window: Window) -> bool:
        """Return whether the partition has events in the window."""
        return self._home.has_events_since(window)

    def keep(self, records: Sequence[StoredRecord]) -> None:
        """Keep the next records."""
        self._count(*self._records.add(records))

    def trim(self) -> None:
        """Drop records that are no longer needed, at the end of a transition."""
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
        """Keep only the last record of a transition within a rebalance: its begin and end can be described without the
        rest.
        """
        dropped, size = self._records.drop(self._trimmed, -1)
        self._count(-dropped, -size)
        self._is_brief = self._is_brief or dropped > 0
        self._trimmed = len(self._records)

    def _begin_at(self, begin: Checkpoint, *, is_quiet: bool) -> None:
        """Keep only the records from this checkpoint on."""
        dropped, size = self._records.drop(0, bisect_left(self._records.offsets, begin.offset))
        self._count(-dropped, -size)
        self._begin, self._is_quiet, self._is_brief = begin, is_quiet, False

    def _count(self, records: int, size: int) -> None:
        self._bytes += size
        self._kept.records += records
        self._kept.bytes += size

    def _items(self) -> Iterator[Item]:
        """Yield the items since `_begin`."""
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
        """Return the last incident and the last rebalance, as far as the records since `_begin` show them."""
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
