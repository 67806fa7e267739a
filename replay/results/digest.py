"""`muster replay digest`: what mattered in a window, over all groups; and how many groups were quiet.

Each group is skimmed up to the window, and its records are kept from the time of quiet before it on. When all of a
partition are there, its groups are told, one after another: what is in memory then is one episode of one group, however
many groups never rest. Of the incidents the heaviest are kept, by what they cost: the first are shown whole, the
others in a line each, and what does not fit is counted. Some are one *storm* over several groups, which this command
alone sees, since it needs them all: the coordinator was away, or the processes of one host were in trouble at the same
moment.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum, unique
from heapq import heappush, heappushpop, heapreplace, nlargest
from itertools import count
from operator import attrgetter
from typing import Final

import msgspec

from muster.events.ids import GroupId
from muster.events.records import StoredRecord
from muster.replay.history.items import Broken, Item, SeqGaps
from muster.replay.history.skim import Checkpoint, Skim
from muster.replay.history.window import AtTime, Bounds, Window
from muster.replay.history.wrong_times import Times
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Incident
from muster.replay.incidents.runs import runs
from muster.replay.incidents.windows import QUIET_MS, STORM_GROUPS_MIN, STORM_NEXT_MS
from muster.replay.packed import Packed
from muster.replay.rebalances.wording import host
from muster.replay.results.by_group import ByGroup
from muster.replay.results.extent import Extent
from muster.replay.results.group_tail import TAIL_MAX, Partition
from muster.replay.results.kept_records import KeptRecords
from muster.replay.results.why import WhyFold
from muster.replay.text.times import Instant, instant, wall_ms_of

SHOWN: Final = 20
"""The incidents that are shown whole: those that cost most."""

LISTED: Final = 100
"""Those that have a line each: the next ones."""

HEAVIEST_KEPT: Final = 200
BRIEFS_MAX: Final = 100_000
"""How many incidents are looked at for storms."""

OUTAGES: Final = frozenset({"coordinator-outage", "coordinator-change"})
UNSERVED: Final = frozenset({"refused", "unassigned-topic", "capacity"})
"""The kinds of consumers, or topics, that are left without partitions; if it had a rebalance, it counts by its cost."""

OF_PROCESSES: Final = frozenset(
    {"crash", "crash-loop", "network-cut", "restart", "slow-member", "poll-timeout", "stopped"}
)
NOWHERE: Final = ("127.", "::1", "0:0:0:0:0:0:0:1")
"""The hosts of clients behind a sidecar on their own machine say nothing."""


@unique
class StormKind(StrEnum):
    COORDINATOR = "coordinator"
    HOST = "host"


class Storm(msgspec.Struct, frozen=True, kw_only=True):
    """Incidents of several groups that are one. `client_host`: theirs, if it is the processes of one host.

    `ended_at`: None while one goes on. `times`: how often a group was touched at most: so often the coordinator was
    away.
    """

    kind: StormKind
    started_at: Instant
    ended_at: Instant | None
    times: int
    groups: tuple[GroupId, ...]
    incidents: int
    rebalances: int
    client_host: str | None = None


class ListedIncident(msgspec.Struct, frozen=True, kw_only=True):
    """An incident in a line."""

    group_id: GroupId
    id: str
    kind: str
    grade: Grade
    started_at: Instant
    headline: str


class Digest(msgspec.Struct, frozen=True, kw_only=True):
    """`told`: all incidents of the window; `incidents`: those that cost most, but for those that are in storms.

    Each incident is in one of `storms`, `incidents`, `unserved`, `listed`, or among `more`.
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
    """How many others there are."""
    listed: tuple[ListedIncident, ...] = ()
    """The next ones, oldest first: those that cost less, or nothing."""
    unserved: tuple[Incident, ...] = ()
    """Consumers that were refused, and topics that nobody reads: these cost no rebalance. The newest, newest first."""
    ended_at: Instant | None = None
    """The last event of the groups, if that was before the window."""


class _Brief(msgspec.Struct, frozen=True, kw_only=True):
    """An incident as far as it is needed to find storms."""

    id: tuple[GroupId, str]
    started_ms: int
    ended_ms: int | None
    rebalances: int
    client_host: str | None
    """The host whose processes were in trouble; None: it was the coordinator."""


class DigestFold:
    """Takes in the records of a log, one partition after another. `wanted`: a pattern of group ids, as for files."""

    def __init__(self, window: Window, wanted: str | None = None) -> None:
        self._window = window
        self._wanted = wanted
        self._partition: tuple[int, _PartitionFold] | None = None
        self._collected = _Collected()
        self._groups = 0
        self._extent = Extent()
        self._reaches_window = False
        self.unreadable: list[Broken] = []
        """The records that cannot be read, as far as the digest stands on them."""
        self.wrong_times: dict[GroupId, Times] = {}
        """The groups some of whose times cannot be right, once there is a result."""

    def take(self, records: Sequence[StoredRecord]) -> None:
        """The next records, which are of one partition. Raises LogTooNew, NoRoomToKeep."""
        if not records:
            return
        number = records[0].partition
        if self._partition is None or self._partition[0] != number:
            self._end_partition()
            fold = _PartitionFold(self._window, self._wanted, self.unreadable, self._extent, self.wrong_times)
            self._partition = number, fold
        self._partition[1].take(records)

    def _end_partition(self) -> None:
        """Tell the groups of the partition that was read: nothing of them comes later."""
        if self._partition is not None:
            fold = self._partition[1]
            self._collected.add(fold.told())
            self._groups += fold.groups
            self._reaches_window |= fold.reaches_window
            self._partition = None

    def result(self, log: str, window: Bounds | None) -> Digest:
        """The digest of everything that was taken in."""
        self._end_partition()
        ended_at = None if self._reaches_window else self._extent.last_at
        return self._collected.result(log, window, self._groups, ended_at)

    @property
    def first_at(self) -> Instant | None:
        """The first event of the groups, once there is a result."""
        return self._extent.first_at


class _PartitionFold:
    """The groups of one partition: their records are kept, and told one group after another when all are there."""

    def __init__(
        self,
        window: Window,
        wanted: str | None,
        unreadable: list[Broken],
        extent: Extent,
        wrong_times: dict[GroupId, Times],
    ) -> None:
        self._wrong_times = wrong_times
        self._window = window
        self._home = Partition(unreadable, at_most=None)
        self._by_group = ByGroup(wanted, self._made, self._home.note)
        self._kept = KeptRecords()
        self._unreadable = unreadable
        self._extent = extent
        self.groups = 0
        """How many there were by the end of the window, once they are told."""
        self.reaches_window = False
        """Whether one of them has an event in the window, or after it, once they are told."""

    def take(self, records: Iterable[StoredRecord]) -> None:
        """The next records."""
        self._by_group.take(records)

    def _made(self, group_id: GroupId, _partition: int) -> "_Group":
        number = len(self._by_group.groups)
        return _Group(group_id, number, self._home, self._kept, window=self._window, unreadable=self._unreadable)

    def told(self) -> Iterator[Incident]:
        """The incidents of all its groups. Nothing is kept of them."""
        is_touched = self._home.has_events_since(self._window)
        for group in self._by_group.end():
            if group.times.wrong:
                self._wrong_times[group.group_id] = group.times
            self.groups += group.is_there
            self._extent.note(group.skim)
            self.reaches_window |= group.skim.has_begun
            for incident in group.told(is_touched=is_touched):
                self.reaches_window = True
                yield incident
        self._kept.close()


class _Group:
    """One group: skimmed up to the window; from the begin before it on its records are kept."""

    def __init__(
        self,
        group_id: GroupId,
        number: int,
        home: Partition,
        kept: KeptRecords,
        *,
        window: Window,
        unreadable: list[Broken],
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
        self.skim = Skim(home.prelude, quiet_ms=QUIET_MS, since_ms=self._since_ms)
        self.waiting: list[StoredRecord] = []
        """The next records, which are not taken in yet."""
        self._begin: Checkpoint | None = None

    @property
    def is_there(self) -> bool:
        """Whether the group existed by the end of the window."""
        first = self.skim.first
        return first is not None and (self._until_ms is None or first.why.decided_ms <= self._until_ms)

    @property
    def times(self) -> Times:
        """The times by which its events are found, once all records are there."""
        return self.skim.survey.times()

    def take_waiting(self) -> None:
        """Take in the next records."""
        records, self.waiting = self.waiting, []
        begin = self._begin or Checkpoint(offset=records[0].offset, prelude=self._home.prelude.reads)
        if not self.skim.has_begun:
            self._skim_up_to_window(records)
            if self.skim.checkpoint.offset > begin.offset:
                begin = self.skim.checkpoint
                self._kept.drop(self._number, begin.offset)
                records = records[bisect_left(records, begin.offset, key=attrgetter("offset")) :]
        if self.skim.has_begun:  # the skim has ended there
            self.skim.survey.take(each for each in records if each.offset >= self.skim.next_offset)
        self._begin = begin
        self._kept.add(self._number, records)

    def _skim_up_to_window(self, records: list[StoredRecord]) -> None:
        """Look for where to begin. Of a group that is never quiet a part is dropped."""
        skim, is_long = self.skim, self._kept.count(self._number) > TAIL_MAX
        for _ in skim.transitions(records):
            if skim.has_begun:
                return
            if is_long and skim.is_at_rest:
                skim.cut()
                is_long = False

    def told(self, *, is_touched: bool) -> Iterator[Incident]:
        """The incidents of the window, once all records are there.

        A group without an event in it may have one all the same: it is rebalancing still, or was empty all the time;
        or its coordinator was away. `is_touched`: the partition has events in the window.
        """
        skim, begin = self.skim, self._begin
        if begin is None or not (skim.has_begun or is_touched or skim.is_unsettled):
            self._unreadable += (each for each in skim.broken if each.position.timestamp_ms >= self._since_ms)
            return
        self._unreadable += (*skim.broken, *begin.broken())
        fold = WhyFold(self.group_id, begin, window=self._window, times=self.times)
        for item in self._items(begin):
            yield from fold.feed(item)
            if fold.is_over:
                break
        yield from fold.end()

    def _items(self, begin: Checkpoint) -> Iterator[Item]:
        """The items from the begin on."""
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
    """The incidents of all groups: the heaviest, and a brief of each."""

    def __init__(self) -> None:
        self._heaviest: list[tuple[tuple[int, int, int], int, tuple[GroupId, str], Packed[Incident]]] = []
        self._number = count()
        self._briefs: list[_Brief] = []
        self._kinds: Counter[str] = Counter()
        self._groups: set[GroupId] = set()
        self._without_rebalance = 0
        self._unserved: list[tuple[Instant, int, Packed[Incident]]] = []

    def add(self, incidents: Iterable[Incident]) -> None:
        """Take in what a group tells."""
        for incident in incidents:
            self._kinds[incident.kind] += 1
            self._groups.add(incident.group_id)
            self._without_rebalance += not incident.rebalances
            if incident.kind in UNSERVED and not incident.rebalances:
                entry = (incident.started_at, next(self._number), Packed(incident))
                (heappush if len(self._unserved) < SHOWN else heappushpop)(self._unserved, entry)
            if len(self._briefs) < BRIEFS_MAX:
                self._briefs += _briefs(incident)
            place = (incident.cost.weight, -next(self._number))
            if len(self._heaviest) < HEAVIEST_KEPT:
                heappush(self._heaviest, (*place, _id_of(incident), Packed(incident)))
            elif place > self._heaviest[0]:
                heapreplace(self._heaviest, (*place, _id_of(incident), Packed(incident)))

    def result(self, log: str, window: Bounds | None, groups: int, ended_at: Instant | None) -> Digest:
        """The digest; `groups`: how many there were."""
        found = list(_storms(self._briefs))
        stormy = {brief.id for _, briefs in found for brief in briefs}
        unserved = tuple(packed.value for *_, packed in sorted(self._unserved, reverse=True))
        elsewhere = stormy | {_id_of(each) for each in unserved}
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


def _id_of(incident: Incident) -> tuple[GroupId, str]:
    return incident.group_id, incident.id


def _listed(incident: Incident) -> ListedIncident:
    return ListedIncident(
        group_id=incident.group_id,
        id=incident.id,
        kind=incident.kind,
        grade=incident.grade,
        started_at=incident.started_at,
        headline=incident.headline,
    )


def _briefs(incident: Incident) -> Iterator[_Brief]:
    """The incident, if it can be in a storm: of a coordinator, or of the processes of one host that says something."""
    client_host = None
    if incident.kind in OF_PROCESSES:
        hosts = {host(each.client_host) for each in incident.culprits}
        told = [each for each in hosts if each and not each.startswith(NOWHERE)]
        if len(told) != 1:
            return
        client_host = told[0]
    elif incident.kind not in OUTAGES:
        return
    yield _Brief(
        id=_id_of(incident),
        started_ms=wall_ms_of(incident.started_at),
        ended_ms=None if incident.ended_at is None else wall_ms_of(incident.ended_at),
        rebalances=len(incident.rebalances),
        client_host=client_host,
    )


def _storms(briefs: list[_Brief]) -> Iterator[tuple[Storm, list[_Brief]]]:
    """The storms, and what each consists of; an incident is in one at most."""
    yield from _storms_of([brief for brief in briefs if brief.client_host is None], StormKind.COORDINATOR, None)
    by_host: defaultdict[str, list[_Brief]] = defaultdict(list)
    for brief in briefs:
        if brief.client_host is not None:
            by_host[brief.client_host].append(brief)
    for client_host in sorted(by_host):
        yield from _storms_of(by_host[client_host], StormKind.HOST, client_host)


def _storms_of(briefs: list[_Brief], kind: StormKind, client_host: str | None) -> Iterator[tuple[Storm, list[_Brief]]]:
    """Incidents of several groups that began soon after each other."""
    in_order = sorted(briefs, key=lambda each: each.started_ms)
    for run in runs(in_order, lambda run, brief: brief.started_ms - run[-1].started_ms <= STORM_NEXT_MS):
        times = Counter(each.id[0] for each in run)
        groups = sorted(times)
        ends = [each.ended_ms for each in run]
        if len(groups) >= STORM_GROUPS_MIN:
            storm = Storm(
                kind=kind,
                started_at=instant(run[0].started_ms),
                ended_at=None if None in ends else instant(max(each for each in ends if each is not None)),
                times=max(times.values()),
                groups=tuple(groups),
                incidents=len(run),
                rebalances=sum(each.rebalances for each in run),
                client_host=client_host,
            )
            yield storm, run
