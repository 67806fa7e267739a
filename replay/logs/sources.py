"""Decodes a log into histories. Only ever reads.

Everything is streamed: memory holds only what the caller keeps, whatever the log's size. For one group only its
partition is read, and only values whose key names the group are decoded. A window of a group's history is read in two
passes: the first skims what comes before the window (`skim.py`), the second yields the items from the last checkpoint
on.

A reader is lenient where an owner must not be: unknown event types are skipped and counted, and an unreadable value
becomes a `Broken` marker in its group's history. Foreign records are skipped (`ForeignRecords`), and so are tombstones
other than those of `muster log repair`, since the event before each has the same meaning. A log that must not be read
at all is an error: LogTooNew, or any LogError.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator
from itertools import groupby

import msgspec

from muster.events.avro.codec import decode
from muster.events.avro.partial import PartialGroupEvent
from muster.events.events import CoordinatorElected, PartitionEvent
from muster.events.ids import GroupId
from muster.events.keys import EntityKind, decode_key, prefix_of
from muster.events.records import (
    FORMAT_LEVEL,
    BrokenRecord,
    LogTooNew,
    StoredRecord,
    UndecodableKey,
    UnknownEventType,
)
from muster.replay.history.items import (
    Broken,
    Coordinated,
    Happened,
    Item,
    LogPosition,
    PassedOver,
    Prelude,
    Read,
    SeqGaps,
    Told,
    Unreadable,
)
from muster.replay.history.skim import BEGINNING, Checkpoint, Skim
from muster.replay.history.window import AtSeq, Window
from muster.replay.history.wrong_times import AS_RECORDED, ClockSurvey, Times
from muster.replay.logs.reading import Reading, chunks_of

# ---- one group ----------------------------------------------------------------------------------


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where to begin reading a group. `life`: its last incarnation found so far.

    `first` and `last` are the ends of the first and the last transition that were seen; all of them lie between
    `earliest_ms` and `latest_ms` (wall clock). `rebalances` counts those that began before the window, or all if there
    is no window.
    """

    group_id: GroupId
    checkpoint: Checkpoint
    life: int
    first: PartialGroupEvent | None
    last: PartialGroupEvent | None
    earliest_ms: int | None = None
    latest_ms: int | None = None
    rebalances: int
    times: Times = AS_RECORDED
    is_reached: bool
    """True if the window begins before the end of the log."""


def from_the_beginning(group_id: GroupId) -> Start:
    """Return the start of a full history, which needs no search."""
    return Start(group_id=group_id, checkpoint=BEGINNING, life=-1, first=None, last=None, rebalances=0, is_reached=True)


async def survey_times(reading: Reading, group: GroupId) -> Times:
    """Read through the group's history to find timestamps that cannot be right. Raises as the log does."""
    survey, prefix = ClockSurvey(), prefix_of(group)
    async for chunk in chunks_of(reading, group, start=0):
        survey.take(record for record in chunk if record.key.startswith(prefix))
    return survey.times()


async def find_start(
    reading: Reading,
    group: GroupId,
    window: Window | None,
    *,
    quiet_ms: int = 0,
    rebalances: int = 1,
    times: Times = AS_RECORDED,
) -> Start:
    """Skim the group's history up to the window; without a window, up to the last `rebalances` rebalances.

    `quiet_ms`: see `Skim`. If given, `rebalances` counts quiet times followed by rebalances, and as many before a
    window are included. `times`: the corrected times to look events up by. Raises LogTooNew, and as the log does.
    """
    skim = Skim(prelude := Prelude(), quiet_ms=quiet_ms, rebalances_kept=rebalances, times=times)
    search = _Search(group, window, skim, prelude, times)
    search.tells_before = quiet_ms > 0
    async for chunk in chunks_of(reading, group, start=0):
        if search.ends_within(chunk):
            break
    start = search.found()
    reading.note_unreadable(search.unreadable_before(start))
    return start


class _Search:
    """Searches for the checkpoint before a window."""

    def __init__(self, group: GroupId, window: Window | None, skim: Skim, prelude: Prelude, times: Times) -> None:
        self._times = times
        self._group = group
        self._prefix = prefix_of(group)
        self._window = window
        self._skim = skim
        self._prelude = prelude
        self._found: Checkpoint | None = None
        self.tells_before = False

    def ends_within(self, records: Iterable[StoredRecord]) -> bool:
        """Process the next records until the start is found; return True once no later record can change it."""
        for is_of_group, run in groupby(records, lambda record: record.key.startswith(self._prefix)):
            if is_of_group:
                if self._ends_within(run):
                    return True
                continue
            for record in run:
                found = read_record(record, self._group)
                if found is not None:
                    self._prelude.note(found[1])
        return False

    def _ends_within(self, records: Iterable[StoredRecord]) -> bool:
        window, skim = self._window, self._skim
        before = skim.last
        for _, ended in skim.transitions(records):
            if window is not None:
                if isinstance(window.since, AtSeq) and before is not None and ended.incarnation > before.incarnation:
                    self._found = None
                at_ms = ended.why.decided_ms - self._times.ahead_ms(skim.next_offset - 1, ended.owner_epoch)
                if self._found is None and window.begins_by(ended, at_ms):
                    self._found = self._before_rebalances() if self.tells_before else skim.checkpoint
                if self._found is not None and not window.has_seq:
                    return True
            before = ended
        return False

    def found(self) -> Start:
        """Return the best start found so far."""
        skim, found = self._skim, self._found
        if self._window is None:
            found = self._before_rebalances()
        return Start(
            group_id=self._group,
            checkpoint=found or skim.checkpoint,
            life=skim.last.incarnation if skim.last is not None else -1,
            first=skim.first,
            last=skim.last,
            earliest_ms=skim.earliest_ms,
            latest_ms=skim.latest_ms,
            rebalances=skim.rebalances,
            is_reached=found is not None,
            times=self._times,
        )

    def unreadable_before(self, start: Start) -> Iterator[Broken]:
        """Yield the unreadable records before the start offset that the result depends on."""
        yield from (each for each in self._skim.broken if each.position.offset < start.checkpoint.offset)
        yield from start.checkpoint.broken()

    def _before_rebalances(self) -> Checkpoint:
        return self._skim.before_rebalances[0] if self._skim.before_rebalances else self._skim.checkpoint


async def items(reading: Reading, start: Start, *, goes_on: bool = False) -> AsyncGenerator[Item]:
    """Yield the items of a group from a start on, in log order, with a marker wherever `seq` jumps.

    `goes_on`: never stop, but yield what is appended.
    """
    checkpoint = start.checkpoint
    gaps = SeqGaps(incarnation=checkpoint.incarnation, seq=checkpoint.seq)
    prelude = Prelude()
    has_begun = checkpoint.incarnation >= 0
    reading.note_unreadable(each for each in checkpoint.prelude if isinstance(each, Broken))
    for earlier in checkpoint.prelude:
        yield earlier
    chunks = chunks_of(reading, start.group_id, start=checkpoint.offset, goes_on=goes_on)
    async for record in (record async for chunk in chunks for record in chunk):
        found = read_record(record, start.group_id)
        if found is None:
            continue
        group_id, read = found
        if group_id is None and not has_begun:
            prelude.note(read)
            continue
        if isinstance(read, PassedOver):  # it has no group
            continue
        if isinstance(read, Broken):
            reading.note_unreadable([read])
        if not has_begun:
            has_begun = True
            reading.note_unreadable(prelude.broken)
            for earlier in prelude.reads:
                yield earlier
        gap = gaps.before(read)
        if gap is not None:
            yield gap
        yield read


def read_record(record: StoredRecord, wanted: GroupId | None = None) -> tuple[GroupId | None, Read] | None:
    """Decode a record: the group that it concerns (None: its whole partition), and its content.

    Return None if it has no content, or is not wanted. Raises LogTooNew.
    """
    position = position_of(record)
    try:
        key = decode_key(record.key)
    except UndecodableKey as broken:
        if record.value is None:
            return None, PassedOver(position=position, key=record.key)
        return None, Broken(position=position, kind=Unreadable.UNDECODABLE_KEY, reason=broken.reason, key=record.key)
    of_partition = key.kind is EntityKind.PARTITION
    if of_partition and record.value is None:
        return None, PassedOver(position=position, key=record.key)
    if record.value is None or not (of_partition or wanted is None or key.group_id == wanted):
        return None
    told = read_value(record.value, position, of_partition=of_partition)
    if of_partition and isinstance(told, Broken):
        told = msgspec.structs.replace(told, key=record.key)
    return None if of_partition else GroupId(key.group_id), told


def position_of(record: StoredRecord) -> LogPosition:
    """Return the position of a record."""
    return LogPosition(partition=record.partition, offset=record.offset, timestamp_ms=record.timestamp_ms)


def read_value(value: bytes, position: LogPosition, *, of_partition: bool) -> Told:
    """Decode a record's value; `of_partition`: its key concerns a whole partition. Raises LogTooNew."""
    try:
        event = decode(value)
    except UnknownEventType as unknown:
        kind = Unreadable.COORDINATOR if of_partition else Unreadable.UNKNOWN_TYPE
        return Broken(position=position, kind=kind, reason=unknown.reason)
    except BrokenRecord as broken:
        kind = Unreadable.COORDINATOR if of_partition else Unreadable.BROKEN
        return Broken(position=position, kind=kind, reason=broken.reason)
    if not isinstance(event, PartitionEvent):
        return Happened(position=position, event=event)
    if isinstance(event, CoordinatorElected) and event.format_level > FORMAT_LEVEL:
        raise LogTooNew(
            f"the event log has format level {event.format_level}, this version knows {FORMAT_LEVEL}: "
            f"it was written by Muster {event.version}; use a newer Muster"
        )
    return Coordinated(position=position, event=event)
