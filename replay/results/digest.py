"""`muster replay digest`: what mattered in a window, over all groups; and how many groups were quiet.

Each group is skimmed up to the window, and told from the time of quiet before it on. Of the incidents the heaviest are
kept, by what they cost. Some are one *storm* over several groups, which this command alone sees, since it needs them
all: the coordinator was away, or the processes of one host were in trouble at the same moment.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum, unique
from heapq import heappushpop, nlargest
from itertools import count
from typing import Final

import msgspec

from muster.events.ids import GroupId
from muster.events.records import StoredRecord
from muster.replay.history.items import Broken, Coordinated, Item, PassedOver, SeqGaps, still_broken
from muster.replay.history.skim import BEGINNING, Skim
from muster.replay.history.window import AtTime, Bounds, Window
from muster.replay.incidents.incident import Incident
from muster.replay.incidents.runs import runs
from muster.replay.incidents.windows import QUIET_MS, STORM_GROUPS_MIN, STORM_NEXT_MS
from muster.replay.logs.sources import read_record
from muster.replay.rebalances.wording import host
from muster.replay.results.by_group import ByGroup
from muster.replay.results.group_tail import TAIL_MAX, Partition, reads_of
from muster.replay.results.why import WhyFold
from muster.replay.times import Instant, instant, wall_ms_of

SHOWN: Final = 20
"""How many incidents are told: those that cost most."""

HEAVIEST_KEPT: Final = 200
BRIEFS_MAX: Final = 100_000
"""How many incidents are looked at for storms."""

OUTAGES: Final = frozenset({"coordinator-outage", "coordinator-change"})
OF_PROCESSES: Final = frozenset({"crash", "crash-loop", "network-cut", "restart", "slow-member", "poll-timeout"})
NOWHERE: Final = ("127.", "::1", "0:0:0:0:0:0:0:1")
"""The hosts of clients behind a sidecar on their own machine say nothing."""


@unique
class StormKind(StrEnum):
    COORDINATOR = "coordinator"
    HOST = "host"


class Storm(msgspec.Struct, frozen=True, kw_only=True):
    """Incidents of several groups that are one. `client_host`: theirs, if it is the processes of one host."""

    kind: StormKind
    started_at: Instant
    groups: tuple[GroupId, ...]
    incidents: int
    rebalances: int
    client_host: str | None = None


class Digest(msgspec.Struct, frozen=True, kw_only=True):
    """`told`: all incidents of the window; `incidents`: those that cost most, but for those that are in storms."""

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
    """The other incidents that have a rebalance, and are in no storm."""


class _Brief(msgspec.Struct, frozen=True, kw_only=True):
    """An incident as far as it is needed to find storms."""

    id: tuple[GroupId, str]
    kind: str
    started_ms: int
    rebalances: int
    hosts: frozenset[str]


class DigestFold:
    """Takes in the records of a log, partition by partition. `wanted`: a pattern of group ids, as for files."""

    def __init__(self, window: Window, wanted: str | None = None) -> None:
        self._window = window
        self._by_group = ByGroup(wanted, self._made, self._note)
        self._by_partition: defaultdict[int, list[_Group]] = defaultdict(list)
        self._partitions: defaultdict[int, Partition] = defaultdict(Partition)
        self._collected = _Collected()
        self.unreadable: list[Broken] = []
        """The records that cannot be read, as far as the digest stands on them."""

    def take(self, records: Iterable[StoredRecord]) -> None:
        """The next records."""
        self._by_group.take(records)

    def _made(self, group_id: GroupId, partition: int) -> "_Group":
        group = _Group(group_id, self._partitions[partition], self._window, self.unreadable, self._collected)
        self._by_partition[partition].append(group)
        return group

    def _note(self, record: StoredRecord) -> None:
        found = read_record(record)
        if found is None:
            return
        read = found[1]
        self._partitions[record.partition].note(read)
        if isinstance(read, PassedOver):
            self.unreadable[:] = still_broken(self.unreadable, read)
        elif isinstance(read, Broken):
            self.unreadable.append(read)
        elif isinstance(read, Coordinated):
            for group in self._by_partition[record.partition]:
                self._collected.add(group.note(read))

    def result(self, log: str, window: Bounds | None) -> Digest:
        """The digest of everything that was taken in."""
        for group in self._by_group.groups.values():
            self._collected.add(group.end())
        there = sum(group.is_there for group in self._by_group.groups.values())
        return self._collected.result(log, window, there)


class _Group:
    """One group: skimmed up to the window, then told."""

    def __init__(
        self, group_id: GroupId, home: Partition, window: Window, unreadable: list[Broken], collected: "_Collected"
    ) -> None:
        since, until = window.since, window.until
        self._since_ms = since.wall_ms if isinstance(since, AtTime) else 0
        self._until_ms = until.wall_ms if isinstance(until, AtTime) else None
        self._group_id = group_id
        self._home = home
        self._unreadable = unreadable
        self._collected = collected
        self._window = window
        self._skim = Skim(home.prelude, quiet_ms=QUIET_MS, since_ms=self._since_ms)
        self.waiting: list[StoredRecord] = []
        """The next records, which are not taken in yet."""
        self._records: list[StoredRecord] = []
        self._begin = BEGINNING
        self._fold: WhyFold | None = None
        self._gaps = SeqGaps()

    @property
    def is_there(self) -> bool:
        """Whether the group existed by the end of the window."""
        first = self._skim.first
        return first is not None and (self._until_ms is None or first.why.decided_ms <= self._until_ms)

    def take_waiting(self) -> None:
        """Take in the next records, and the incidents that they end."""
        records, self.waiting = self.waiting, []
        self._collected.add(self._take(records))

    def _take(self, records: list[StoredRecord]) -> Iterator[Incident]:
        taken = 0
        if self._fold is None:
            taken = self._skimmed(records)
            if not self._skim.has_begun:
                return
            yield from self._start()
        for read in reads_of(records[taken:]):
            yield from self._feed(read)

    def _skimmed(self, records: list[StoredRecord]) -> int:
        """Skim the records up to the window; returns how many these were."""
        skim, kept = self._skim, 0
        for taken, _ in skim.transitions(records):
            self._records += records[kept:taken]
            kept = taken
            if len(self._records) > TAIL_MAX and skim.is_at_rest and not skim.has_begun:
                skim.cut()
            if skim.checkpoint.offset > self._begin.offset:
                self._begin = skim.checkpoint
                self._records = [each for each in self._records if each.offset >= self._begin.offset]
            if skim.has_begun:
                return taken
        self._records += records[kept:]
        return len(records)

    def _start(self) -> Iterator[Incident]:
        """Tell from the begin on; what is kept until here is told first."""
        begin = self._begin
        self._fold = WhyFold(self._group_id, begin, window=self._window)
        self._unreadable += (*self._skim.broken, *begin.broken())
        self._gaps = SeqGaps(incarnation=begin.incarnation, seq=begin.seq)
        for earlier in begin.prelude:
            yield from self._fold.feed(earlier)
        for read in self._home.merged(reads_of(self._records), begin):
            yield from self._feed(read)
        self._records = []

    def note(self, coordinated: Coordinated) -> Iterator[Incident]:
        """An event of the partition."""
        if self._fold is not None:
            yield from self._feed(coordinated)

    def _feed(self, read: Item) -> Iterator[Incident]:
        assert self._fold is not None
        if self._fold.is_over:
            return
        if isinstance(read, Broken):
            self._unreadable.append(read)
        gap = self._gaps.before(read)  # type: ignore[arg-type]  # a gap is not read
        if gap is not None:
            yield from self._fold.feed(gap)
        yield from self._fold.feed(read)

    def end(self) -> Iterator[Incident]:
        """The incidents that are left."""
        if self._fold is not None:
            yield from self._fold.end()
            return
        broken = self._skim.broken
        self._unreadable += (each for each in broken if each.position.timestamp_ms >= self._since_ms)


class _Collected:
    """The incidents of all groups: the heaviest, and a brief of each."""

    def __init__(self) -> None:
        self._heaviest: list[tuple[tuple[int, int, int], int, Incident]] = []
        self._number = count()
        self._briefs: list[_Brief] = []
        self._kinds: Counter[str] = Counter()
        self._groups: set[GroupId] = set()
        self._without_rebalance = 0

    def add(self, incidents: Iterable[Incident]) -> None:
        """Take in what a group tells."""
        for incident in incidents:
            self._kinds[incident.kind] += 1
            self._groups.add(incident.group_id)
            self._without_rebalance += not incident.rebalances
            if len(self._briefs) < BRIEFS_MAX:
                self._briefs.append(_brief(incident))
            if incident.rebalances:
                entry = (weight(incident), -next(self._number), incident)
                if len(self._heaviest) < HEAVIEST_KEPT:
                    self._heaviest.append(entry)
                    self._heaviest.sort()
                else:
                    heappushpop(self._heaviest, entry)

    def result(self, log: str, window: Bounds | None, groups: int) -> Digest:
        """The digest; `groups`: how many there were."""
        found = list(_storms(self._briefs))
        stormy = {brief.id for _, briefs in found for brief in briefs}
        alone = [entry for entry in self._heaviest if (entry[2].group_id, entry[2].id) not in stormy]
        shown = tuple(incident for _, _, incident in nlargest(SHOWN, alone))
        told = self._kinds.total()
        in_storms = sum(bool(brief.rebalances) for brief in self._briefs if brief.id in stormy)
        return Digest(
            log=log,
            window=window,
            groups=groups,
            quiet=groups - len(self._groups),
            told=told,
            without_rebalance=self._without_rebalance,
            kinds=dict(self._kinds.most_common()),
            storms=tuple(storm for storm, _ in found),
            incidents=shown,
            more=told - self._without_rebalance - in_storms - len(shown),
        )


def weight(incident: Incident) -> tuple[int, int, int]:
    """The measure by which incidents are compared: partitions without a consumer, time not Stable, rebalances."""
    cost = incident.cost
    return (cost.partition_ms or 0, cost.rebalancing_ms or 0, cost.rebalances)


def _brief(incident: Incident) -> _Brief:
    hosts = {host(each.client_host) for each in incident.culprits}
    return _Brief(
        id=(incident.group_id, incident.id),
        kind=incident.kind,
        started_ms=wall_ms_of(incident.started_at),
        rebalances=len(incident.rebalances),
        hosts=frozenset(each for each in hosts if each and not each.startswith(NOWHERE)),
    )


def _storms(briefs: list[_Brief]) -> Iterator[tuple[Storm, list[_Brief]]]:
    """The storms, and what each consists of; an incident is in one at most."""
    outages = [brief for brief in briefs if brief.kind in OUTAGES]
    yield from _storms_of(outages, StormKind.COORDINATOR, None)
    by_host: defaultdict[str, list[_Brief]] = defaultdict(list)
    for brief in briefs:
        if brief.kind in OF_PROCESSES and len(brief.hosts) == 1:
            by_host[next(iter(brief.hosts))].append(brief)
    for client_host in sorted(by_host):
        yield from _storms_of(by_host[client_host], StormKind.HOST, client_host)


def _storms_of(briefs: list[_Brief], kind: StormKind, client_host: str | None) -> Iterator[tuple[Storm, list[_Brief]]]:
    """Incidents of several groups that began soon after each other."""
    in_order = sorted(briefs, key=lambda each: each.started_ms)
    for run in runs(in_order, lambda run, brief: brief.started_ms - run[-1].started_ms <= STORM_NEXT_MS):
        groups = sorted({each.id[0] for each in run})
        if len(groups) >= STORM_GROUPS_MIN:
            storm = Storm(
                kind=kind,
                started_at=instant(run[0].started_ms),
                groups=tuple(groups),
                incidents=len(run),
                rebalances=sum(each.rebalances for each in run),
                client_host=client_host,
            )
            yield storm, run
