"""The interface of engines, and the work that all engines share: ordered records -> parts of tables.

An engine only has to deliver the records of each group without interruption, by offset, after the group's carried-over
state. The same function folds the records and writes the parts for every engine, in this process or in a worker.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from muster.events.ids import GroupId
from muster.replay.fleet.building import open_items
from muster.replay.fleet.building.fold import GroupFold, OutOfOrder, OwnRecord, fold_group
from muster.replay.fleet.building.partition_reads import PartitionReads
from muster.replay.fleet.building.pieces import Piece
from muster.replay.fleet.tables.parts import Part, PartWriter, Role
from muster.replay.garbage import collected_seldom
from muster.replay.history.items import Prelude, Read

BATCH_ROWS: Final = 5_000
"""Records per batch."""

SharedOf = Callable[[int], PartitionReads]

Took = Callable[[int], None]
"""Called with the number of events folded so far."""

STATE_OFFSET: Final = -1
"""The offset of a group's carried-over state, which sorts before all of its records."""

Stored = tuple[str, int, int, int, bytes]
"""A row of `pieces.RECORDS`: group, partition, offset, timestamp_ms, value."""


_OWN_RECORD: Final[Callable[[Stored], OwnRecord]] = itemgetter(2, 3, 4)


def untold(_events: int) -> None:
    """Ignore the progress."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The work, apart from the records. `to`: the folder of the tables, which all workers can access.

    `scratch`: a folder for what does not fit into memory. `shared`: the reads since the previous build that concern
    whole partitions; `preludes`: the state of the partitions before those.
    """

    to: str
    scratch: str
    build: int
    topic: str
    shared: dict[int, list[Read]]
    preludes: dict[int, Prelude]


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that were written, and the number of events folded into them."""

    parts: tuple[Part, ...]
    events: int


class Engine(Protocol):
    """Delivers records to the fold. `name` is its name in `--engine`."""

    name: str

    def fold(self, pieces: Sequence[Piece], states: Sequence[Path], task: Task, watch: Took) -> Folded:
        """Fold the records of groups in the pieces, continuing from the carried-over states.

        `watch` is called with the number of events folded so far, if that is known before the end. Raises the errors of
        the fold and of reading the pieces.
        """
        ...


def fold_batches(batches: Iterable[pa.RecordBatch], task: Task, watch: Took = untold) -> Folded:
    """Fold ordered records; on return the parts are complete and on disk. Raises OutOfOrder, NotCarriedOver."""
    last = ""
    events = 0

    def rows() -> Iterator[Stored]:
        nonlocal events
        for batch in batches:
            columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
            events += sum(offset != STATE_OFFSET for offset in columns[2])
            yield from zip(*columns, strict=True)
            watch(events)

    @cache
    def shared_of(partition: int) -> PartitionReads:
        return PartitionReads(task.shared.get(partition, ()), task.preludes.get(partition))

    with PartWriter(Path(task.to), task.build) as writer, collected_seldom():
        for group_id, of_group in groupby(rows(), key=itemgetter(0)):
            if group_id <= last and last:
                raise OutOfOrder(f"the records of group {group_id!r} came in several runs, after those of {last!r}")
            last = group_id
            _fold_group(GroupId(group_id), of_group, task, shared_of, writer)
    return Folded(parts=tuple(writer.parts), events=events)


def _fold_group(group_id: GroupId, rows: Iterator[Stored], task: Task, shared_of: SharedOf, writer: PartWriter) -> None:
    first = next(rows)
    partition = first[1]
    if first[2] == STATE_OFFSET:
        fold = open_items.load(first[4])
        assert isinstance(fold, GroupFold)
    else:
        rows = chain([first], rows)
        fold = GroupFold(group_id, partition, task.topic)
    for table, row in fold_group(fold, map(_OWN_RECORD, rows), shared_of(partition)):
        writer.add(table, row, Role.CLOSED)
    writer.add_state(group_id, partition, open_items.dump(fold))
    for table, row in fold.open_rows():
        writer.add(table, row, Role.OPEN)
