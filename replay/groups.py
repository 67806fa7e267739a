"""`muster replay groups`: every group of a log in a line. Of each group only its state is kept while reading."""

from collections import defaultdict

import msgspec

from muster.coordinator.group.configs import MUSTER, UPSTREAM
from muster.events.causes import Cause
from muster.events.events import MemberJoined
from muster.events.ids import GroupId
from muster.events.state import Group, GroupState
from muster.replay.history import Broken, Gap, Happened, Item, PassedOver, Prelude, Read, SeqGaps, Told, still_broken
from muster.replay.rebalances.rebalance import Outcome, Rebalance
from muster.replay.rebalances.timeline import Timeline
from muster.replay.rebalances.wording import missing_text
from muster.replay.times import Instant, instant
from muster.replay.transitions import Transitions


class GroupLine(msgspec.Struct, frozen=True, kw_only=True):
    """One group. Numbers are those of the last event; `rebalances` counts what the log still tells of.

    `state` is None when no event of the group can be read. `quarantined` says why a coordinator would not serve it.
    `coordinator`: `upstream` once the group was released to the cluster behind a sidecar, or lost to it, else `muster`;
    of one that moves, where it goes.
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
    missing_events: int  # compacted away
    quarantined: tuple[str, ...]
    coordinator: str


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """`unreadable_keys`: records of which not even the group is known, and that were not passed over by a repair."""

    log: str
    groups: tuple[GroupLine, ...]
    unreadable_keys: tuple[str, ...]


class Overview:
    """Takes in what a log yields; one object per command."""

    def __init__(self) -> None:
        self._groups: dict[GroupId, _Group] = {}
        self._preludes: defaultdict[int, Prelude] = defaultdict(Prelude)
        self._unreadable: list[Broken] = []

    def take(self, group_id: GroupId | None, read: Read) -> None:
        """The next read; without a group it concerns all groups of its partition."""
        partition = read.position.partition
        if group_id is None:
            self._preludes[partition].note(read)
            if isinstance(read, PassedOver):
                self._unreadable = still_broken(self._unreadable, read)
                return
            if isinstance(read, Broken):
                self._unreadable.append(read)
            for group in self._groups.values():
                if group.partition == partition:
                    group.take(read)
            return
        assert not isinstance(read, PassedOver)  # it has no group
        known = self._groups.get(group_id)
        if known is None:
            known = self._groups[group_id] = _Group(group_id, partition)
            for earlier in self._preludes[partition].reads:
                known.take(earlier)
        known.take(read)

    def result(self, log: str) -> Groups:
        """The groups by name."""
        lines = [self._groups[group_id].line() for group_id in sorted(self._groups)]
        return Groups(log=log, groups=tuple(lines), unreadable_keys=tuple(map(missing_text, self._unreadable)))


class _Group:
    """The figures of one group while its events are folded."""

    def __init__(self, group_id: GroupId, partition: int) -> None:
        self.partition = partition
        self._group_id = group_id
        self._gaps = SeqGaps()
        self._transitions = Transitions(group_id)
        self._timeline = Timeline()
        self._last: Rebalance | None = None
        self._last_event_ms: int | None = None
        self._rebalances = 0
        self._events = 0
        self._was_released = False
        self._missing = 0
        self._quarantined: list[str] = []

    def take(self, read: Told) -> None:
        gap = self._gaps.before(read)
        if gap is not None:
            self._missing += gap.missing
            self._feed(gap)
        if isinstance(read, Happened):
            self._events += 1
            if isinstance(read.event, MemberJoined):
                self._was_released = False
            elif read.event.why.cause is Cause.GROUP_RELEASED:
                self._was_released = True
            if read.event.why.cause is Cause.GROUP_REPAIRED:
                self._quarantined.clear()
            self._last_event_ms = read.at_ms
        elif isinstance(read, Broken) and read.kind.quarantines:
            self._quarantined.append(missing_text(read))
        self._feed(read)

    def _feed(self, item: Item | Gap) -> None:
        step = self._transitions.feed(item)
        finished = self._timeline.feed(step) if step is not None else None
        if finished is not None:
            self._last = finished
            self._rebalances += 1

    def _is_upstream(self, group: Group | None) -> bool:
        """Released by a setting, until that is set back; or the last that happened is that it was lost."""
        if group is None:
            return False
        return group.config.coordinator == UPSTREAM or (self._was_released and not group.members)

    def line(self) -> GroupLine:
        group = self._transitions.group
        running = self._timeline.running()
        last = running or self._last
        return GroupLine(
            group_id=self._group_id,
            partition=self.partition,
            state=group.state if group is not None else None,
            generation_id=group.generation_id if group is not None else None,
            members=len(group.members) if group is not None else 0,
            static_members=len(group.instances) if group is not None else 0,
            rebalances=self._rebalances + (running is not None),
            last_rebalance_at=last.started_at if last is not None else None,
            last_cause=last.trigger.cause if last is not None else None,
            last_text=last.trigger.text if last is not None else None,
            last_outcome=last.outcome if last is not None else None,
            last_event_at=instant(self._last_event_ms) if self._last_event_ms is not None else None,
            events=self._events,
            missing_events=self._missing,
            quarantined=tuple(self._quarantined),
            coordinator=UPSTREAM if self._is_upstream(group) else MUSTER,
        )
