"""The engine in this process: DuckDB sorts the staged records, on disk where they are many, and they are folded here.

What is kept in memory is what DuckDB may have for sorting, a batch of records and one group's episode, whatever a group
has of records.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb

from muster.replay.fleet.engines.engine import BATCH_ROWS, Task, fold_batches
from muster.replay.fleet.stage import STATE_OFFSET
from muster.replay.fleet.tables.parts import Part

MEMORY_LIMIT: Final = "160MB"
"""The memory that DuckDB may have; the rest goes to disk."""

_RECORDS: Final = 'select group_id, partition, "offset", timestamp_ms, key, value from read_parquet($files)'
_STATES: Final = (
    f"select group_id, partition, {STATE_OFFSET}::bigint, 0::bigint, ''::blob, state from read_parquet($states)"  # noqa: S608
)


class LocalEngine:
    """See the module."""

    name = "local"

    def fold(self, files: Sequence[Path], states: Sequence[Path], task: Task) -> list[Part]:
        """See Engine."""
        parameters = {"files": [*map(str, files)], "states": [*map(str, states)]}
        wanted = [_RECORDS] if files else []
        wanted += [_STATES] if states else []
        if not wanted:
            return []
        query = f"{' union all '.join(wanted)} order by 1, 3"
        given = {name: value for name, value in parameters.items() if f"${name}" in query}
        with TemporaryDirectory(dir=task.scratch) as spilled:
            config: dict[str, Any] = {"memory_limit": MEMORY_LIMIT, "temp_directory": spilled, "threads": 2}
            with duckdb.connect(config=config) as connection:
                batches = connection.execute(query, given).to_arrow_reader(BATCH_ROWS)
                return fold_batches(batches, task)
