"""`muster replay groups`: one line for each group of a log.

Records are skimmed, not decoded (`skim.py`), and the last records of each group are kept to show what happened last
(`group_tail.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum, unique
from typing import Any, Final

import msgspec

from muster.coordinator.group.configs import MUSTER, UPSTREAM
from muster.events.avro.codec import event_type_of
from muster.events.causes import Cause
from muster.events.events import MemberJoined
from muster.events.ids import GroupId
from muster.events.records import StoredRecord
from muster.events.state import Group, GroupState
from muster.replay.form import Sort
from muster.replay.history.items import Broken
from muster.replay.history.skim import Checkpoint, Skim
from muster.replay.history.window import AtTime, Bounds, Window
from muster.replay.history.wording import missing_text
from muster.replay.history.wrong_times import AS_RECORDED, Times
from muster.replay.incidents.windows import QUIET_MS
from muster.replay.logs.reading import Reading
from muster.replay.rebalances.rebalance import Outcome
from muster.replay.results.by_group import ByGroup
from muster.replay.results.extent import Extent
from muster.replay.results.group_tail import Kept, LastIncident, Partition, Tail
from muster.replay.text.times import Instant, instant, wall_ms_of


@unique
class Owner(StrEnum):
    """The current coordinator of a group. MOVING: the group was released, but Muster still has members of it."""

    MUSTER = "muster"
    UPSTREAM = "upstream"
    MOVING = "moving"


class GroupLine(msgspec.Struct, frozen=True, kw_only=True):
    """One group. The numbers are as of the last event; `rebalances` counts those that the log still has.

    `state` is None when no event of the group can be read. `quarantined`: why a coordinator would not serve the group.
    `coordinator`: `upstream` once the group was released, or lost to the cluster behind a sidecar; else `muster`; for a
    group that is moving, where it moves to. `last_incident` is also None if it is longer than the records that are
    kept.
    """

    group_id: GroupId
    partition: int
    state: GroupState | None
    generation_id: int | None
    members: int
    static_members: int
    rebalances: int
    last_rebalance_at: Instant | None
    last_cause: Cause | None
    last_text: str | None
    last_outcome: Outcome | None
    last_event_at: Instant | None
    events: int
    missing_events: int
    """Events that compaction removed: the true numbers of `rebalances` and `events` may be higher."""
    unknown_events: int
    """Events of types that a newer version wrote; not counted in `events`."""
    quarantined: tuple[str, ...]
    coordinator: str
    owner: Owner
    last_incident: LastIncident | None = None

    @property
    def last_at(self) -> Instant | None:
        """The start of the last incident, or of the last rebalance if only that is known."""
        return self.last_incident.started_at if self.last_incident is not None else self.last_rebalance_at


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """`unreadable_keys`: records whose group is unknown, except those that were repaired."""

    log: str
    groups: tuple[GroupLine, ...]
    unreadable_keys: tuple[str, ...]
    window: Bounds | None = None
    first_at: Instant | None = None
    last_at: Instant | None = None
    """`first_at`, `last_at`: the first and the last event of these groups, if none has an event in the window."""


SORTS: Final[dict[Sort, Callable[["GroupLine"], Any]]] = {
    Sort.NAME: lambda line: line.group_id,
    Sort.STATE: lambda line: line.state or "",
    Sort.MEMBERS: lambda line: -line.members,
    Sort.REBALANCES: lambda line: -line.rebalances,
    Sort.LAST: lambda line: -(wall_ms_of(line.last_at) if line.last_at is not None else -1),
    Sort.EVENTS: lambda line: -line.events,
}
"""The sort keys: names and states ascending, everything else with the highest or latest first."""


class Overview:
    """Processes the records of a log, one partition after another; one object per command.

    `wanted`: a glob pattern for group ids. The lines of a partition's groups are made as soon as it was read, so that
    only the records of one partition are kept.
    """

    def __init__(
        self,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        wanted: str | None = None,
        times: Mapping[GroupId, Times] | None = None,
    ) -> None:
        self._times = times or {}
        self._span = (since_ms, until_ms)
        self._window = Window(
            since=None if since_ms is None else AtTime(since_ms), until=None if until_ms is None else AtTime(until_ms)
        )
        self._by_group = ByGroup(wanted, self._made, self._note)
        self._partition = -1
        self._kept = Kept()
        self._names: set[GroupId] = set()
        self._lines: list[GroupLine] = []
        self._extent = Extent()
        self._broken: list[Broken] = []
        self.unreadable: list[Broken] = []
        """Records whose group is unknown, except those that were repaired."""
        self._home = self._of_partition()

    def _of_partition(self) -> Partition:
        return Partition(self.unreadable, until_ms=self._span[1])

    def take(self, records: Sequence[StoredRecord]) -> None:
        """Process the next records, all of one partition."""
        if records and records[0].partition != self._partition:
            self._end_partition()
            self._partition = records[0].partition
        self._by_group.take(records)

    def _end_partition(self) -> None:
        """Make the lines of the partition's groups: it has no further records."""
        for group in self._by_group.end():
            self._names.add(group.group_id)
            line = group.line()
            self._lines += [] if line is None else [line]
            self._extent.note(group.skim)
            self._broken += group.broken
        self._home, self._kept = self._of_partition(), Kept()

    def result(
        self, log: str, window: Bounds | None = None, sort: Callable[[GroupLine], Any] = SORTS[Sort.NAME]
    ) -> Groups:
        """Return the groups to which anything happened in the window."""
        self._end_partition()
        lines = sorted(self._lines, key=SORTS[Sort.NAME])
        return Groups(
            log=log,
            groups=tuple(sorted(lines, key=sort)),
            unreadable_keys=tuple(map(missing_text, self.unreadable)),
            window=window,
            first_at=None if lines else self._extent.first_at,
            last_at=None if lines else self._extent.last_at,
        )

    def broken(self) -> Iterator[Broken]:
        """Yield the unreadable records that affect the lines; complete once there is a result."""
        yield from self.unreadable
        yield from self._broken

    @property
    def names(self) -> list[GroupId]:
        """All groups that match."""
        self._end_partition()
        return sorted(self._names)

    def _made(self, group_id: GroupId, partition: int) -> "_Group":
        since_ms, until_ms = self._span
        home = self._home
        times = self._times.get(group_id, AS_RECORDED)
        skim = Skim(home.prelude, quiet_ms=QUIET_MS, since_ms=since_ms, until_ms=until_ms, times=times)
        return _Group(partition, skim, Tail(group_id, skim, home, self._kept), self._window)

    def _note(self, record: StoredRecord) -> None:
        self._home.note(record)


class _Group:
    """The counts for one group while its records are skimmed."""

    def __init__(self, partition: int, skim: Skim, tail: Tail, window: Window) -> None:
        self.partition = partition
        self.group_id = tail.group_id
        self.skim = skim
        self._tail = tail
        self._window = window
        self._was_released = False
        self.waiting: list[StoredRecord] = []
        """The next records, which have not been processed yet."""
        self.broken: Sequence[Broken] = ()
        """The unreadable records; set by `line`."""

    def take_waiting(self) -> None:
        """Process the waiting records."""
        records, self.waiting = self.waiting, []
        kept = 0
        for taken, ended in self.skim.transitions(records):
            self._keep(records[kept:taken])
            kept = taken
            if ended.why.cause is Cause.GROUP_RELEASED:
                self._was_released = True
            self._tail.trim()
        if not self.skim.is_over:
            self._keep(records[kept:])

    def _keep(self, records: Sequence[StoredRecord]) -> None:
        if self._was_released:
            values = (record.value for record in records)
            self._was_released = not any(value and event_type_of(value) is MemberJoined for value in values)
        self._tail.keep(records)

    def _is_upstream(self, group: Group | None) -> bool:
        """Return whether the group was released by a config that is still set, or was lost and has had no members
        since.
        """
        if group is None:
            return False
        return group.config.coordinator == UPSTREAM or (self._was_released and not group.members)

    def _owner(self, group: Group | None) -> Owner:
        if not self._is_upstream(group):
            return Owner.MUSTER
        return Owner.MOVING if group is not None and group.members else Owner.UPSTREAM

    def _broken_by(self, now: Checkpoint) -> Sequence[Broken]:
        self.broken = sorted((*self.skim.broken, *now.broken()), key=lambda each: each.position.offset)
        return self.broken

    def line(self) -> GroupLine | None:
        """Return the group's line; None if nothing happened to the group in the window.

        An incident can lie in the window without any event of the group: it began earlier, or the coordinator was
        unreachable.
        """
        skim = self.skim
        self.broken = skim.broken
        if skim.last is None and (skim.is_over or not skim.has_begun):
            return None
        if not (skim.has_begun or skim.is_unsettled or self._tail.is_touched(self._window)):
            return None
        now = skim.now()
        group = now.group(self.group_id)
        incident, last = self._tail.told()
        if not skim.has_begun and (incident is None or not _reaches(incident, self._window)):
            return None
        last = last if skim.rebalances and skim.has_begun else None
        return GroupLine(
            group_id=self.group_id,
            partition=self.partition,
            state=group.state if group is not None else None,
            generation_id=group.generation_id if group is not None else None,
            members=len(group.members) if group is not None else 0,
            static_members=len(group.instances) if group is not None else 0,
            rebalances=skim.rebalances if skim.has_begun else 0,
            last_rebalance_at=last.started_at if last is not None else None,
            last_cause=last.trigger.cause if last is not None else None,
            last_text=last.trigger.text if last is not None else None,
            last_outcome=last.outcome if last is not None else None,
            last_event_at=instant(skim.last_ms) if skim.last is not None else None,
            events=skim.events if skim.has_begun else 0,
            missing_events=skim.missing if skim.has_begun else 0,
            unknown_events=skim.unknown_types,
            quarantined=tuple(map(missing_text, self._broken_by(now))),
            coordinator=UPSTREAM if self._is_upstream(group) else MUSTER,
            owner=self._owner(group),
            last_incident=incident,
        )


def _reaches(incident: LastIncident, window: Window) -> bool:
    """Return whether an incident that began before the window continues in it."""
    if incident.ended_at is None or not isinstance(window.since, AtTime):
        return True
    return wall_ms_of(incident.ended_at) >= window.since.wall_ms


async def read_overview(reading: Reading, overview: Overview) -> None:
    """Feed the whole log to an overview. Raises LogTooNew, and what the log raises."""
    async for chunk in reading.chunks(range(reading.log.partitions)):
        overview.take(chunk)


async def read_names(reading: Reading) -> tuple[list[GroupId], list[Broken]]:
    """Return the names of all groups, and the records whose group is unknown. Raises as `read_overview` does."""
    unreadable: list[Broken] = []
    home = Partition(unreadable)
    by_group = ByGroup(None, lambda group_id, _: _Named(group_id), home.note)
    async for chunk in reading.chunks(range(reading.log.partitions)):
        by_group.take(chunk)
    return sorted(by_group.groups), unreadable


class _Named:
    """A group of which only the name is needed."""

    def __init__(self, group_id: GroupId) -> None:
        self.group_id = group_id
        self.waiting: list[StoredRecord] = []

    def take_waiting(self) -> None:
        """Drop the waiting records."""
        self.waiting.clear()
