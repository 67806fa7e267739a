"""`muster replay digest`: the most important incidents of all groups in a window, and how many groups were quiet.

Each group is skimmed up to the window; its records are kept from the quiet time before the window on. Once all records
of a partition have been read, its groups are processed one after another, so that memory holds only one episode of one
group, even if many groups never stop rebalancing. The incidents with the highest cost are kept: the first are shown in
full, the next ones in a line each, and the rest are counted. Storms across several groups (`storms.py`) are found only
here, since no other command reads all groups.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappush, heappushpop, heapreplace, nlargest
from itertools import count
from operator import attrgetter
from types import MappingProxyType
from typing import Final

import msgspec

from muster.events.ids import GroupId
from muster.events.records import StoredRecord
from muster.replay.history.items import Broken, Item, SeqGaps
from muster.replay.history.skim import Checkpoint, Skim
from muster.replay.history.window import AtTime, Bounds, Window
from muster.replay.history.wrong_times import AS_RECORDED, Times
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Incident
from muster.replay.incidents.windows import QUIET_MS
from muster.replay.packed import Packed
from muster.replay.results.by_group import ByGroup
from muster.replay.results.extent import Extent
from muster.replay.results.group_tail import Partition
from muster.replay.results.kept_records import KeptRecords
from muster.replay.results.storms import IncidentBrief, Storm, briefs_of, id_of, storms_in
from muster.replay.results.why import WhyFold
from muster.replay.text.times import Instant

SHOWN: Final = 20
"""The number of incidents that are shown in full: those with the highest cost."""

LISTED: Final = 100
"""The number of incidents that get one line each: those with the next highest cost."""

HEAVIEST_KEPT: Final = 200
BRIEFS_MAX: Final = 100_000
"""The maximum number of incidents that are searched for storms."""

UNSERVED: Final = frozenset({"refused", "unassigned-topic", "capacity"})
"""The kinds of incident in which consumers or topics are left without partitions. Such an incident is listed apart only
if it has no rebalance; otherwise it competes by its cost.
"""


class ListedIncident(msgspec.Struct, frozen=True, kw_only=True):
    """An incident as one line."""

    group_id: GroupId
    id: str
    kind: str
    grade: Grade
    started_at: Instant
    headline: str


class Digest(msgspec.Struct, frozen=True, kw_only=True):
    """`told`: the number of incidents in the window. `incidents`: those with the highest cost that are not part of a
    storm.

    Each incident is in one of `storms`, `incidents`, `unserved`, `listed`, or is counted in `more`.
    """

    log: str
    window: Bounds | None
    groups: int
    quiet: int
    told: int
    without_rebalance: int
    kinds: dict[str, int]
    storms: tuple[Storm, ...]
    incidents: tuple[Incident, ...]
    more: int
    """The number of all other incidents."""
    listed: tuple[ListedIncident, ...] = ()
    """The incidents with the next highest cost, sorted by their start, oldest first."""
    unserved: tuple[Incident, ...] = ()
    """The most recent incidents without a rebalance in which consumers were refused or a topic was assigned to no
    member; newest first.
    """
    ended_at: Instant | None = None
    """The last event of all groups, if that was before the window."""


class DigestFold:
    """Processes the records of a log, one partition after another. `wanted`: a glob pattern for group ids. `times`: the
    corrected event times, by which the window is found.
    """

    def __init__(
        self, window: Window, wanted: str | None = None, times: Mapping[GroupId, Times] = MappingProxyType({})
    ) -> None:
        self._window = window
        self._wanted = wanted
        self._times = times
        self._partition: tuple[int, _PartitionFold] | None = None
        self._collected = _Collected()
        self._groups = 0
        self._extent = Extent()
        self._reaches_window = False
        self.unreadable: list[Broken] = []
        """The unreadable records that affect the digest."""

    def take(self, records: Sequence[StoredRecord]) -> None:
        """Process the next records, all of one partition. Raises LogTooNew, NoRoomToKeep."""
        if not records:
            return
        number = records[0].partition
        if self._partition is None or self._partition[0] != number:
            self._end_partition()
            fold = _PartitionFold(self._window, self._wanted, self.unreadable, self._extent, self._times)
            self._partition = number, fold
        self._partition[1].take(records)

    def _end_partition(self) -> None:
        """Collect the incidents of the partition's groups: it has no further records."""
        if self._partition is not None:
            fold = self._partition[1]
            self._collected.add(fold.told())
            self._groups += fold.groups
            self._reaches_window |= fold.reaches_window
            self._partition = None

    def result(self, log: str, window: Bounds | None) -> Digest:
        """Return the digest of all records so far."""
        self._end_partition()
        ended_at = None if self._reaches_window else self._extent.last_at
        return self._collected.result(log, window, self._groups, ended_at)

    @property
    def first_at(self) -> Instant | None:
        """The first event of all groups; set once there is a result."""
        return self._extent.first_at


class _PartitionFold:
    """The groups of one partition: their records are kept, and processed group by group once all are there."""

    def __init__(
        self,
        window: Window,
        wanted: str | None,
        unreadable: list[Broken],
        extent: Extent,
        times: Mapping[GroupId, Times],
    ) -> None:
        self._times = times
        self._window = window
        self._home = Partition(unreadable, at_most=None)
        self._by_group = ByGroup(wanted, self._made, self._home.note)
        self._kept = KeptRecords()
        self._unreadable = unreadable
        self._extent = extent
        self.groups = 0
        """The number of groups that existed by the end of the window; set by `told`."""
        self.reaches_window = False
        """True if a group has an event in the window, or after it; set by `told`."""

    def take(self, records: Iterable[StoredRecord]) -> None:
        """Process the next records."""
        self._by_group.take(records)

    def _made(self, group_id: GroupId, _partition: int) -> "_Group":
        return _Group(
            group_id,
            len(self._by_group.groups),
            self._home,
            self._kept,
            window=self._window,
            unreadable=self._unreadable,
            times=self._times.get(group_id, AS_RECORDED),
        )

    def told(self) -> Iterator[Incident]:
        """Yield the incidents of all its groups, and drop the groups."""
        is_touched = self._home.has_events_since(self._window)
        for group in self._by_group.end():
            self.groups += group.is_there
            self._extent.note(group.skim)
            self.reaches_window |= group.skim.has_begun
            for incident in group.told(is_touched=is_touched):
                self.reaches_window = True
                yield incident
        self._kept.close()


class _Group:
    """One group: skimmed up to the window; from the checkpoint before the window on its records are kept."""

    def __init__(
        self,
        group_id: GroupId,
        number: int,
        home: Partition,
        kept: KeptRecords,
        *,
        window: Window,
        unreadable: list[Broken],
        times: Times,
    ) -> None:
        since, until = window.since, window.until
        self._since_ms = since.wall_ms if isinstance(since, AtTime) else 0
        self._until_ms = until.wall_ms if isinstance(until, AtTime) else None
        self.group_id = group_id
        self._number = number
        self._home = home
        self._kept = kept
        self._unreadable = unreadable
        self._window = window
        self._times = times
        self.skim = Skim(home.prelude, quiet_ms=QUIET_MS, since_ms=self._since_ms, times=times)
        self.waiting: list[StoredRecord] = []
        """The next records, which have not been processed yet."""
        self._begin: Checkpoint | None = None

    @property
    def is_there(self) -> bool:
        """True if the group existed by the end of the window."""
        first_ms = self.skim.earliest_ms
        return first_ms is not None and (self._until_ms is None or first_ms <= self._until_ms)

    def take_waiting(self) -> None:
        """Process the waiting records."""
        records, self.waiting = self.waiting, []
        begin = self._begin or Checkpoint(offset=records[0].offset, prelude=self._home.prelude.reads)
        if not self.skim.has_begun:
            any(self.skim.has_begun for _ in self.skim.transitions(records))
            if self.skim.checkpoint.offset > begin.offset:
                begin = self.skim.checkpoint
                self._kept.drop(self._number, begin.offset)
                records = records[bisect_left(records, begin.offset, key=attrgetter("offset")) :]
        self._begin = begin
        self._kept.add(self._number, records)

    def told(self, *, is_touched: bool) -> Iterator[Incident]:
        """Yield the incidents of the window, once all records are there.

        There may be one even if the group has no event in the window: the group is still rebalancing, or was empty all
        the time, or its coordinator was unreachable. `is_touched`: the partition has events in the window.
        """
        skim, begin = self.skim, self._begin
        if begin is None or not (skim.has_begun or is_touched or skim.is_unsettled):
            self._unreadable += (each for each in skim.broken if each.position.timestamp_ms >= self._since_ms)
            return
        self._unreadable += (*skim.broken, *begin.broken())
        fold = WhyFold(self.group_id, begin, window=self._window, times=self._times)
        for item in self._items(begin):
            yield from fold.feed(item)
            if fold.is_over:
                break
        yield from fold.end()

    def _items(self, begin: Checkpoint) -> Iterator[Item]:
        """Yield the group's items since the checkpoint."""
        gaps = SeqGaps(incarnation=begin.incarnation, seq=begin.seq)
        yield from begin.prelude
        own = (read for read in self._kept.take(self._number) if read.position.offset >= begin.offset)
        for read in self._home.merged(own, begin):
            if isinstance(read, Broken):
                self._unreadable.append(read)
            gap = gaps.before(read)
            if gap is not None:
                yield gap
            yield read


class _Collected:
    """The incidents of all groups: the ones with the highest cost in full, and a brief of each."""

    def __init__(self) -> None:
        self._heaviest: list[tuple[tuple[int, int, int], int, tuple[GroupId, str], Packed[Incident]]] = []
        self._number = count()
        self._briefs: list[IncidentBrief] = []
        self._kinds: Counter[str] = Counter()
        self._groups: set[GroupId] = set()
        self._without_rebalance = 0
        self._unserved: list[tuple[Instant, int, Packed[Incident]]] = []

    def add(self, incidents: Iterable[Incident]) -> None:
        """Add the incidents of a group."""
        for incident in incidents:
            self._kinds[incident.kind] += 1
            self._groups.add(incident.group_id)
            self._without_rebalance += not incident.rebalances
            if incident.kind in UNSERVED and not incident.rebalances:
                entry = (incident.started_at, next(self._number), Packed(incident))
                (heappush if len(self._unserved) < SHOWN else heappushpop)(self._unserved, entry)
            if len(self._briefs) < BRIEFS_MAX:
                self._briefs += briefs_of(incident)
            place = (incident.cost.weight, -next(self._number))
            if len(self._heaviest) < HEAVIEST_KEPT:
                heappush(self._heaviest, (*place, id_of(incident), Packed(incident)))
            elif place > self._heaviest[0]:
                heapreplace(self._heaviest, (*place, id_of(incident), Packed(incident)))

    def result(self, log: str, window: Bounds | None, groups: int, ended_at: Instant | None) -> Digest:
        """Return the digest; `groups`: the total number of groups."""
        found = list(storms_in(self._briefs))
        stormy = {brief.id for _, briefs in found for brief in briefs}
        unserved = tuple(packed.value for *_, packed in sorted(self._unserved, reverse=True))
        elsewhere = stormy | {id_of(each) for each in unserved}
        alone = [entry for entry in self._heaviest if entry[2] not in elsewhere]
        heaviest = [packed.value for *_, packed in nlargest(SHOWN + LISTED, alone)]
        shown, rest = tuple(heaviest[:SHOWN]), sorted(heaviest[SHOWN:], key=lambda each: each.started_at)
        told = self._kinds.total()
        return Digest(
            log=log,
            window=window,
            groups=groups,
            quiet=groups - len(self._groups),
            told=told,
            without_rebalance=self._without_rebalance,
            kinds=dict(sorted(self._kinds.items(), key=lambda each: (-each[1], each[0]))),
            storms=tuple(storm for storm, _ in found),
            incidents=shown,
            listed=tuple(map(_listed, rest)),
            more=told - len(elsewhere) - len(heaviest),
            unserved=unserved,
            ended_at=ended_at,
        )


def _listed(incident: Incident) -> ListedIncident:
    return ListedIncident(
        group_id=incident.group_id,
        id=incident.id,
        kind=incident.kind,
        grade=incident.grade,
        started_at=incident.started_at,
        headline=incident.headline,
    )
