"""The documented schema is the schema of the files."""

import asyncio
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from muster.replay.fleet.tables.builds import current
from muster.replay.fleet.tables.schemas import TABLES, FleetTable
from tests.replay.fleet.docs_tables import page
from tests.replay.fleet.fleets import built, judged, rows_of, table_of

DOCS = Path(__file__).parents[3] / "docs" / "fleet.md"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    asyncio.run(built(judged(range(1, 400, 16)), folder))
    return folder


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_written_files_have_the_documented_schema(table: FleetTable, tables: Path) -> None:
    """For each file: names, types, and which columns may be null."""
    for part in current(tables).of(table.name):
        assert pq.read_schema(tables / part.path).remove_metadata().equals(table.schema)
    for column in table.columns:
        if not column.can_be_null:
            assert table_of(tables, table.name).column(column.name).null_count == 0


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_times_are_timestamps_and_durations_whole_milliseconds(table: FleetTable) -> None:
    """Their names end in `_at` and `_ms`, and each column has a description."""
    for column in table.columns:
        if column.name.endswith("_at"):
            assert column.type == pa.timestamp("us", tz="UTC")
        if column.name.endswith("_ms"):
            assert column.type == pa.int64()
        assert column.about.endswith(".")


@pytest.mark.parametrize("name", ["rebalances", "incidents", "memberships", "group_day", "coordinator_downtime"])
def test_the_tables_have_rows_to_be_held_against(name: str, tables: Path) -> None:
    """A schema without any rows proves nothing."""
    assert rows_of(tables, name)


def test_the_page_has_every_table() -> None:
    """docs/fleet.md is made from the schemas: `python -m tests.replay.fleet.docs_tables`."""
    assert page() in DOCS.read_text(encoding="utf-8")
