"""The engine in this process: DuckDB sorts the records, on disk if there are many, and they are folded here.

Memory holds DuckDB's sort buffers (limited), one batch of records and one group's episode, however many records a group
has.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb
import pyarrow as pa

from muster.events.log.base import LogError
from muster.replay.fleet.building.engine import BATCH_ROWS, STATE_OFFSET, Folded, Task, Took, fold_batches
from muster.replay.fleet.building.pieces import RECORDS, Piece, of_groups
from muster.replay.fleet.tables.parts import read_parquet

MEMORY_LIMIT: Final = "400MB"
"""DuckDB's memory limit; the rest goes to disk. With 160 MB it could not sort 2 GB of events."""

_RECORDS: Final = 'select group_id, partition, "offset", timestamp_ms, value from records'
_STATES: Final = f"select group_id, partition, {STATE_OFFSET}::bigint, 0::bigint, state from "  # noqa: S608


class LocalEngine:
    """Builds the tables in this process, with DuckDB."""

    name = "local"

    def fold(self, pieces: Sequence[Piece], states: Sequence[Path], task: Task, watch: Took) -> Folded:
        """See Engine."""
        query = f"{_RECORDS} union all {_STATES}{read_parquet(states)}" if states else _RECORDS
        source = _Source(pieces)
        with TemporaryDirectory(dir=task.scratch) as spilled:
            config: dict[str, Any] = {"memory_limit": MEMORY_LIMIT, "temp_directory": spilled, "threads": 2}
            with duckdb.connect(config=config) as connection:
                connection.register("records", source.reader())
                try:
                    ordered = connection.sql(f"{query} order by 1, 3")
                    batches: pa.RecordBatchReader = ordered.to_arrow_reader(BATCH_ROWS)
                    return fold_batches(batches, task, watch)
                except (duckdb.Error, pa.ArrowException):
                    if source.failed is not None:  # DuckDB would replace it with its own error
                        raise source.failed from None
                    raise


class _Source:
    """Feeds the records of pieces to DuckDB. `failed`: the error that ended them early."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self.failed: OSError | pa.ArrowException | LogError | None = None

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(RECORDS, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from of_groups(self._pieces)
        except (OSError, pa.ArrowException, LogError) as error:
            self.failed = error
            raise
