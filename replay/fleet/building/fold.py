"""Fold the records of one group, in order, into rows of all tables in one pass. Pure: no engine, no files.

The rows report what `muster replay why` reports, from the same transitions, rebalances and incidents. Closed rows are
returned immediately, so only one episode of one group is kept in memory. Open state can be carried over to the next
build: `GroupFold` continues with the group's next records as if it had read them all in one build.

Reads that concern the whole partition (its coordinators, and since when) are passed separately from the group's own
records, since every group of the partition needs them.

Order is checked, never assumed: offsets and, within an incarnation, `seq` increase from record to record. If they do
not, the engine has delivered records in another order than the log's (or twice), and every row would be wrong:
OutOfOrder.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from muster.events.avro.codec import decode
from muster.events.events import AnyEvent, Event
from muster.events.ids import GroupId
from muster.events.records import BrokenRecord
from muster.replay.fleet.building.partition_reads import PartitionReads
from muster.replay.fleet.tables.memberships import Stays
from muster.replay.fleet.tables.rows import Row, downtime_row, incident_row, quarantine_row, rebalance_row
from muster.replay.history.items import Broken, Happened, Item, LogPosition, SeqGaps, Told
from muster.replay.history.transitions import Step, Transition, Transitions
from muster.replay.incidents.incident import Incident
from muster.replay.incidents.telling import IncidentTeller
from muster.replay.logs.sources import read_value

RowOf: TypeAlias = tuple[str, Row]
"""The name of a table, and a row of it."""

OwnRecord: TypeAlias = tuple[int, int, bytes]
"""A record of the group: its offset, its timestamp in ms, its value. Tombstones are left out."""

NOWHERE: Final = -1


class OutOfOrder(Exception):
    """The records of a group arrived in another order than the log's, or twice."""


class GroupFold:
    """The fold over one group. `topic`: the log's location."""

    def __init__(self, group_id: GroupId, log_partition: int, topic: str) -> None:
        self.group_id = group_id
        self.log_partition = log_partition
        self._topic = topic
        self._gaps = SeqGaps()
        self._transitions = Transitions(group_id)
        self._teller = IncidentTeller(group_id, chained=False)
        self._stays = Stays(group_id, log_partition)
        self._offset = NOWHERE
        self._incarnation = NOWHERE
        self._seq = 0

    @property
    def has_begun(self) -> bool:
        """True if it has read anything."""
        return self._offset != NOWHERE

    def feed(self, read: Told) -> Iterable[RowOf]:
        """Process the next read; return the rows that it closes, which must be consumed before the next call."""
        self._check(read)
        gap = self._gaps.before(read)
        if gap is not None:
            return [*self._take(gap), *self._take(read)]
        return self._take(read)

    def take(self, offset: int, timestamp_ms: int, value: bytes) -> Iterable[RowOf]:
        """Process the group's next record; return the rows that it closes."""
        try:
            event = decode(value)
        except BrokenRecord:
            event = None
        if isinstance(event, Event) and self._is_next(offset, event):  # as in most cases
            self._offset, self._seq = offset, event.seq
            step = self._transitions.take(event)
            return () if step is None else self._step(step)
        position = LogPosition(partition=self.log_partition, offset=offset, timestamp_ms=timestamp_ms)
        return self.feed(read_value(value, position, of_partition=False))

    def _is_next(self, offset: int, event: AnyEvent) -> bool:
        """Return whether nothing is missing before the event; if so, the gap check has accepted it."""
        return offset > self._offset and event.incarnation == self._incarnation and self._gaps.follows(event)

    def begin(self, prelude: Iterable[Told]) -> Iterator[RowOf]:
        """Process the state that the partition had before the group's first record."""
        for read in prelude:
            yield from self._take(read)

    def open_rows(self) -> Iterator[RowOf]:
        """Yield the rows that are still open. Ends the fold."""
        yield from self._told(self._teller.end())
        for row in self._stays.there():
            yield "memberships", row

    def _take(self, item: Item) -> Sequence[RowOf]:
        step = self._transitions.feed(item)
        rows = () if step is None else self._step(step)  # most end no transition
        if isinstance(item, Broken) and item.kind.quarantines:
            return [("quarantine", quarantine_row(self._topic, item, self.group_id)), *rows]
        return rows

    def _step(self, step: Step) -> Sequence[RowOf]:
        ended = self._stays.feed(step) if isinstance(step, Transition) else ()
        incidents = self._teller.feed(step)
        away = self._teller.away
        if not ended and not incidents and away is None:  # most close nothing
            return ()
        rows = [("memberships", row) for row in ended]
        rows += self._told(incidents)
        if away is not None:
            self._teller.away = None
            rows.append(("coordinator_downtime", downtime_row(self.group_id, away, self.log_partition)))
        return rows

    def _told(self, incidents: Iterable[Incident]) -> Iterator[RowOf]:
        for incident in incidents:
            yield "incidents", incident_row(incident, self.log_partition)
            for rebalance in incident.rebalances:
                yield "rebalances", rebalance_row(rebalance, incident, self.log_partition)

    def _check(self, read: Told) -> None:
        """Raise OutOfOrder if the record is out of order."""
        offset = read.position.offset
        if offset <= self._offset:
            raise OutOfOrder(self._misplaced(read, f"offset {self._offset}"))
        self._offset = read.end.offset if isinstance(read, Broken) else offset
        if isinstance(read, Happened):
            incarnation, seq = read.event.incarnation, read.event.seq
            if incarnation == self._incarnation and seq <= self._seq:
                raise OutOfOrder(self._misplaced(read, f"seq {self._seq}, its own seq is {seq}"))
            if incarnation >= self._incarnation:  # else a leftover of an earlier incarnation
                self._incarnation, self._seq = incarnation, seq

    def _misplaced(self, read: Told, before: str) -> str:
        at = read.position
        return (
            f"group {self.group_id!r}: the record at offset {at.offset} of partition {at.partition} came after"
            f" {before}: the records are not in the log's order, or twice there"
        )


def fold_group(fold: GroupFold, records: Iterable[OwnRecord], shared: PartitionReads) -> Iterator[RowOf]:
    """Yield the rows that a group's next records close, in the order of its partition.

    `shared`: the reads that concern the whole partition. A fold that has not begun starts at the group's first record,
    with the partition's state before it.
    """
    records = iter(records)
    at = 0
    if not fold.has_begun:
        first = next(records, None)
        if first is None:
            return
        yield from fold.begin(shared.before(first[0]))
        yield from fold.take(*first)
        at = shared.index(first[0])
    next_offset = shared.offset(at)
    for offset, timestamp_ms, value in records:
        if offset > next_offset:
            until = shared.index(offset)
            for read in shared.told(at, until):
                yield from fold.feed(read)
            at, next_offset = until, shared.offset(until)
        rows = fold.take(offset, timestamp_ms, value)
        if rows:  # most close nothing
            yield from rows
    for read in shared.told(at):
        yield from fold.feed(read)
