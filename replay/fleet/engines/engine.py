"""The interface of engines, and the work that is the same in all of them: records in order -> parts of tables.

An engine has one duty: to bring the records of each group in one run, by offset, the group's state before them. Whoever
does it, the same function folds them and writes the parts, in this process or in a worker's.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from muster.events.ids import GroupId
from muster.events.records import StoredRecord
from muster.replay.fleet import open_items
from muster.replay.fleet.fold import GroupFold, OutOfOrder, fold_group
from muster.replay.fleet.stage import STATE_OFFSET
from muster.replay.fleet.tables.parts import Part, PartWriter, Role
from muster.replay.history.items import Prelude, Read

BATCH_ROWS: Final = 5_000
"""The records that come at a time."""

Stored = tuple[str, int, int, int, bytes, bytes]
"""A row of what is staged: group, partition, offset, timestamp_ms, key, value."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The work, apart from the records. `to`: the folder of the tables, which all workers see.

    `scratch`: a folder for what does not fit into memory. `shared`: what concerns whole partitions, since the build
    before; `preludes`: how they stood then.
    """

    to: str
    scratch: str
    build: int
    topic: str
    shared: dict[int, list[Read]]
    preludes: dict[int, Prelude]


class Engine(Protocol):
    """Brings records to the fold. `name` is what `--engine` calls it."""

    name: str

    def fold(self, files: Sequence[Path], states: Sequence[Path], task: Task) -> list[Part]:
        """Fold the staged files, going on from the states of groups. Raises what the fold raises."""
        ...


def fold_batches(batches: Iterable[pa.RecordBatch], task: Task) -> list[Part]:
    """Fold records that come in order; returns the parts, whole and on disk. Raises OutOfOrder, NotCarriedOver."""
    writer = PartWriter(Path(task.to), task.build)
    last = ""
    for group_id, rows in groupby(_rows(batches), key=itemgetter(0)):
        if group_id <= last and last:
            raise OutOfOrder(f"the records of group {group_id!r} came in several runs, after those of {last!r}")
        last = group_id
        _fold_group(GroupId(group_id), rows, task, writer)
    return writer.close()


def _fold_group(group_id: GroupId, rows: Iterator[Stored], task: Task, writer: PartWriter) -> None:
    first = next(rows)
    partition = first[1]
    if first[2] == STATE_OFFSET:
        fold = open_items.load(first[5])
        assert isinstance(fold, GroupFold)
    else:
        rows = chain([first], rows)
        fold = GroupFold(group_id, partition, task.topic)
    records = (StoredRecord(*row[1:]) for row in rows)
    shared = task.shared.get(partition, [])
    prelude = task.preludes.get(partition)
    for table, row in fold_group(fold, records, shared, prelude):
        writer.add(table, row, Role.CLOSED)
    writer.add_state(group_id, partition, open_items.dump(fold))
    for table, row in fold.open_rows():
        writer.add(table, row, Role.OPEN)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Stored]:
    for batch in batches:
        columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
        yield from zip(*columns, strict=True)
