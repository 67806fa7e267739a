"""Reads a group's history without decoding most of it, and makes checkpoints to start a full read from.

The last record of each key is enough to rebuild the group (compaction relies on this too), so no other record is kept.
Records on the group's own key, which end transitions, are partially decoded; the others are only counted. A
*checkpoint* is an offset to read from, with the records that make up the group at that offset. Checkpoints are made
while no rebalance is running, so that each rebalance is read as a whole.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

import msgspec

from muster.events.avro.codec import decode, decode_partially, event_type_of
from muster.events.avro.partial import PartialEvent, PartialGroupEvent
from muster.events.causes import Cause
from muster.events.events import (
    EVENT_TYPES,
    AnyEvent,
    GroupCreated,
    GroupDeleted,
    GroupEmptied,
    GroupEvent,
    GroupStabilized,
    PartitionEvent,
    RebalanceStarted,
)
from muster.events.evolve import evolve
from muster.events.ids import GroupId
from muster.events.records import BrokenRecord, StoredRecord, UnknownEventType
from muster.events.state import Group, GroupState, new_group
from muster.replay.history.clock import BEGIN, ClockReading
from muster.replay.history.items import (
    NOTHING_MISSING,
    UNREADABLE_NAMED,
    Broken,
    Gap,
    LogPosition,
    MissingParts,
    Prelude,
    Told,
    Unreadable,
)
from muster.replay.history.wrong_times import AS_RECORDED, Times

_ON_THE_GROUPS_KEY = frozenset(each for each in EVENT_TYPES if issubclass(each, GroupEvent))
_TELLS_WHO_HAS_WHAT = frozenset({GroupStabilized, GroupEmptied, GroupCreated, GroupDeleted})
_AT_REST = frozenset({GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD})


BUSY_EVENTS: Final = 10_000
"""A group that is never quiet gets a checkpoint at least this many events back."""

MISSING_KEPT: Final = 100
"""How many of the missing parts since a group's last rebalance are kept."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A position in the group's partition, right after a transition.

    `seq` and `at_ms` (wall clock without jumps) are those of the last event before it, and `records` make up the group.
    `prelude`: the partition's records that a history from here on begins with. `missing`: the parts of the group's
    history that are missing since its last rebalance.
    """

    offset: int = 0
    incarnation: int = -1
    seq: int = 0
    at_ms: int = 0
    records: tuple[StoredRecord, ...] = ()
    prelude: tuple[Told, ...] = ()
    missing: MissingParts = NOTHING_MISSING
    clock: ClockReading = BEGIN

    def group(self, group_id: GroupId) -> Group | None:
        """Return the group at the checkpoint, without unreadable records; None before its first event."""
        events = [told for told in self._told() if not isinstance(told, Broken)]
        if not events:
            return None
        return evolve(new_group(group_id, incarnation=events[0].incarnation, wall_ms=0), events)

    def broken(self) -> list[Broken]:
        """Return the records that cannot be read."""
        return [told for told in self._told() if isinstance(told, Broken)]

    def _told(self) -> Iterator[AnyEvent | Broken]:
        for record in sorted(self.records, key=attrgetter("offset")):
            try:
                event = decode(record.value or b"")
            except BrokenRecord as error:
                yield _broken(record, Unreadable.BROKEN, error.reason)
            else:
                assert not isinstance(event, PartitionEvent)  # those have other keys
                yield event


BEGINNING = Checkpoint()


class Skim:
    """Reads the records of one group, in the order of its partition.

    `quiet_ms`: a checkpoint is made only where no event happened for longer than that; at 0, once after each rebalance.
    A group that is never quiet gets one after `BUSY_EVENTS` events. `rebalances_kept`: how many checkpoints before
    rebalances are kept (several rebalances may share one); 0 for callers that only need the group's current state.
    Counts include only events decided from `since_ms` on; reading stops after `until_ms`. `times`: corrections to event
    times, from a survey of the whole history.
    """

    def __init__(
        self,
        prelude: Prelude,
        *,
        quiet_ms: int = 0,
        rebalances_kept: int = 1,
        since_ms: int | None = None,
        until_ms: int | None = None,
        times: Times = AS_RECORDED,
    ) -> None:
        self.checkpoint = BEGINNING
        """The latest checkpoint."""
        self.before_rebalances: deque[Checkpoint] = deque(maxlen=rebalances_kept)
        """The checkpoints before the last rebalances, without duplicates."""
        self.before_last = BEGINNING
        """The position right before the last rebalance, even if the group was not quiet then."""
        self.first: PartialGroupEvent | None = None
        self.last: PartialGroupEvent | None = None
        """The events that end the first and the last transition."""
        self.earliest_ms: int | None = None
        self.latest_ms: int | None = None
        """The earliest and the latest time of a transition: not the first and last ones if the clock went back."""
        self.rebalances = 0
        self.events = 0
        self.missing = 0
        """Events that are not in the log, according to gaps in `seq`."""
        self.broken: deque[Broken] = deque(maxlen=UNREADABLE_NAMED)
        """The latest unreadable records since the group was repaired; they keep it from being served."""
        self.unknown_types = 0
        """Events of unknown types, which a newer version wrote."""
        self._prelude = prelude
        self._quiet_ms = quiet_ms
        self.has_begun = since_ms is None
        self.is_over = False
        """True once the window is over; `has_begun`: once it has begun."""
        self._since_ms = since_ms
        self._until_ms = until_ms
        self._makes_checkpoints = rebalances_kept > 0
        self._is_due = self._makes_checkpoints
        self._busy: tuple[int, Checkpoint] = (0, BEGINNING)
        self.is_at_rest = True
        """True if no rebalance is running."""
        self.next_offset = 0
        self._clock = BEGIN
        self._times = times
        self._known_times = times.known
        self._stood: tuple[Told, ...] = ()
        """The prelude right after the last transition."""
        self._records: dict[bytes, StoredRecord] = {}
        self._parts: list[StoredRecord] = []
        self._unreadable = 0
        self._broken: list[Broken] = []  # since the last transition; the last entry counts those beyond the limit
        self._missing: deque[Gap | Broken] = deque(maxlen=MISSING_KEPT)  # since the last rebalance
        self._is_assigned = True  # since the last missing part

    def transitions(self, records: Iterable[StoredRecord]) -> Iterator[tuple[int, PartialGroupEvent]]:
        """Read the next records; yields the event that ends each transition, and how many records were read by then.

        Records after it are read when the next value is requested. `checkpoint` is one before that transition.
        """
        if self.is_over:
            return
        parts = self._parts
        for taken, record in enumerate(records, 1):
            value = record.value
            if value is None:
                parts.append(record)
                continue
            kind = event_type_of(value)
            if kind not in _ON_THE_GROUPS_KEY:
                if kind is None:
                    self._note_broken(record)
                else:
                    self.events += 1
                    parts.append(record)
                continue
            try:
                ended = decode_partially(value)
            except BrokenRecord:
                self._note_broken(record)
                continue
            assert isinstance(ended, PartialGroupEvent)
            if self._until_ms is not None and self._found_at(record.offset, ended) > self._until_ms:
                self.is_over = True
                self.events -= sum(part.value is not None for part in parts)
                parts.clear()
                return
            self.events += 1
            if self._transition(record, ended, kind):
                yield taken, ended

    @property
    def is_unsettled(self) -> bool:
        """True if the last incident may not be over: the group is neither Stable nor deleted."""
        return self.last is not None and self.last.group.state not in (GroupState.STABLE, GroupState.DEAD)

    def now(self) -> Checkpoint:
        """Return a checkpoint after all records read so far."""
        records = dict(self._records)
        for part in self._parts:
            if part.value is not None:
                records[part.key] = part
        return self._made(records, self._prelude.reads)

    def cut(self) -> None:
        """Make a checkpoint here, quiet or not."""
        self.checkpoint = self.now()

    def _transition(self, record: StoredRecord, ended: PartialGroupEvent, kind: object) -> bool:
        """Take the event that ends a transition; returns False for a leftover of an earlier incarnation."""
        parts = self._parts.copy()
        self._parts.clear()
        last = self.last
        if last is not None and ended.incarnation < last.incarnation:
            return False
        clock = self._clock.after(ended.owner_epoch, ended.why.decided_ms, ended.why.uptime_ms)
        if self._is_due and last is not None and self.is_at_rest:
            self._checkpoint(ended.why.decided_ms - clock.jumped_ms)
        since_ms = self._since_ms
        if not self.has_begun and since_ms is not None and self._found_at(record.offset, ended) >= since_ms:
            self.has_begun = True
            self.events, self.missing, self.rebalances = 1 + sum(part.value is not None for part in parts), 0, 0
        if kind is RebalanceStarted:
            self._note_rebalance()
        if last is None or ended.incarnation > last.incarnation:
            parts = [part for part in parts if part.value is None or _incarnation(part.value) == ended.incarnation]
            self._records = {}
        records, numbered = self._records, 1
        for part in parts:
            if part.value is not None:
                records[part.key] = part
                numbered += 1
            elif part.key != record.key:  # on the group's own key the last record is its `GroupDeleted`
                records.pop(part.key, None)
        self._note_missing(parts, record, ended, numbered)
        if kind is RebalanceStarted:  # the rebalance has a note about the missing parts
            self._missing.clear()
        self._is_assigned = self._is_assigned or not self._missing or kind in _TELLS_WHO_HAS_WHAT
        if kind is GroupDeleted:
            records.clear()
        records[record.key] = record
        self._clock = clock.when_empty() if kind is GroupEmptied else clock
        self.next_offset, self._stood = record.offset + 1, self._prelude.reads
        self._note_last(ended, ended.why.decided_ms - self._known_times.ahead_ms(record.offset, ended.owner_epoch))
        self.is_at_rest = ended.group.state in _AT_REST
        if not self.is_at_rest:
            self._is_due = self._makes_checkpoints
        return True

    def _found_at(self, offset: int, ended: PartialGroupEvent) -> int:
        """Return the time by which a transition is placed in a window."""
        return ended.why.decided_ms - self._times.ahead_ms(offset, ended.owner_epoch)

    def _note_last(self, ended: PartialGroupEvent, at_ms: int) -> None:
        if self.first is None or self.earliest_ms is None or self.latest_ms is None:
            self.first, self.earliest_ms, self.latest_ms = ended, at_ms, at_ms
        elif at_ms < self.earliest_ms:
            self.earliest_ms = at_ms
        elif at_ms > self.latest_ms:
            self.latest_ms = at_ms
        self.last = ended

    def _note_rebalance(self) -> None:
        self.rebalances += 1
        if not self.before_rebalances or self.before_rebalances[-1] is not self.checkpoint:
            self.before_rebalances.append(self.checkpoint)
        if self.is_at_rest and self._makes_checkpoints:
            self.before_last = self._made(self._records, self._stood)

    def _checkpoint(self, next_ms: int) -> None:
        """Make a checkpoint if it was quiet long enough before the next transition."""
        if not self._quiet_ms or next_ms - self.last_ms > self._quiet_ms:
            self._is_due = self._quiet_ms > 0
            self.checkpoint = self._made(self._records, self._stood)
            self._busy = (self.events, self.checkpoint)
        elif self.events - self._busy[0] >= BUSY_EVENTS:
            self.checkpoint = self._busy[1]  # so that reading starts at least BUSY_EVENTS events before this position
            self._busy = (self.events, self._made(self._records, self._stood))

    @property
    def last_ms(self) -> int:
        """Wall clock ms of the last transition, without clock jumps; 0 if there is none."""
        return self.last.why.decided_ms - self._clock.jumped_ms if self.last is not None else 0

    def _made(self, records: dict[bytes, StoredRecord], prelude: tuple[Told, ...]) -> Checkpoint:
        return Checkpoint(
            offset=self.next_offset,
            incarnation=self.last.incarnation if self.last else -1,
            seq=self.last.seq if self.last else 0,
            at_ms=self.last_ms,
            records=tuple(records.values()),
            prelude=prelude,
            missing=MissingParts(parts=tuple(self._missing), is_assigned_since=self._is_assigned),
            clock=self._clock,
        )

    def _note_missing(
        self, parts: Iterable[StoredRecord], record: StoredRecord, ended: PartialGroupEvent, numbered: int
    ) -> None:
        """Note what is missing before and within a transition; a running rebalance reports its own missing parts."""
        gaps = self._gaps(parts, record, ended) if self._count(ended, numbered) else ()
        if self.is_at_rest and (gaps or self._broken):
            self._missing += sorted((*gaps, *self._broken), key=lambda each: each.position.offset)
            self._is_assigned = False
        self._broken.clear()

    def _count(self, ended: PartialGroupEvent, numbered: int) -> bool:
        """Count missing events; return whether there are more than the unreadable records account for (one each).

        `numbered`: events of the transition that are in the log.
        """
        missing = ended.seq - self._last_seq(ended) - numbered
        is_more = missing > self._unreadable
        if is_more:
            self.missing += missing
        self._unreadable = 0
        if ended.why.cause is Cause.GROUP_REPAIRED:
            self.broken.clear()
        return is_more

    def _last_seq(self, ended: PartialGroupEvent) -> int:
        return self.last.seq if self.last is not None and self.last.incarnation == ended.incarnation else 0

    def _gaps(self, parts: Iterable[StoredRecord], record: StoredRecord, ended: PartialGroupEvent) -> list[Gap]:
        """Return the gaps before and within a transition."""
        gaps: list[Gap] = []
        last_seq, offset = self._last_seq(ended), -1
        for each in (*(part for part in parts if part.value is not None), record):
            seen = ended if each is record else _partial_event(each.value)
            if seen is None:
                continue
            within = (broken for broken in self._broken if offset < broken.position.offset < each.offset)
            explained = sum(1 + broken.more for broken in within)
            if seen.seq - last_seq - 1 > explained:
                gaps.append(
                    Gap(
                        position=_position(each),
                        incarnation=ended.incarnation,
                        first_seq=last_seq + 1,
                        last_seq=seen.seq - 1,
                    )
                )
            last_seq, offset = seen.seq, each.offset
        return gaps

    def _note_broken(self, record: StoredRecord) -> None:
        try:
            decode(record.value or b"")
        except UnknownEventType as unknown:
            broken = _broken(record, Unreadable.UNKNOWN_TYPE, unknown.reason)
            self.unknown_types += 1
        except BrokenRecord as error:
            broken = _broken(record, Unreadable.BROKEN, error.reason)
        else:
            return
        self._unreadable += 1
        if len(self._broken) < UNREADABLE_NAMED:
            self._broken.append(broken)
        else:
            self._broken[-1] = self._broken[-1].joined(broken)
        self.broken.append(broken)


def _broken(record: StoredRecord, kind: Unreadable, reason: str) -> Broken:
    return Broken(position=_position(record), kind=kind, reason=reason)


def _position(record: StoredRecord) -> LogPosition:
    return LogPosition(partition=record.partition, offset=record.offset, timestamp_ms=record.timestamp_ms)


def _incarnation(value: bytes) -> int:
    seen = _partial_event(value)
    return -1 if seen is None else seen.incarnation


def _partial_event(value: bytes | None) -> PartialEvent | PartialGroupEvent | None:
    """Return the partially decoded event; None if it cannot be read."""
    try:
        return decode_partially(value or b"")
    except BrokenRecord:
        return None
