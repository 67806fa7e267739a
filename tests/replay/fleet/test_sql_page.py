"""docs/fleet.md and docs/fleet-sql.md: their commands and queries run, in DuckDB and in Spark."""

import asyncio
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from typer.testing import CliRunner

from muster.cli import app
from muster.events.log.memory import MemoryStorage
from tests.replay.fleet.fleets import built, sqlite_copy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[3] / "docs"
SQL = (DOCS / "fleet-sql.md").read_text(encoding="utf-8")
OPENING, *QUERIES = re.findall(r"```sql\n(.+?)```", SQL, re.DOTALL)
(OPENING_SPARK,) = re.findall(r"```python\n(.+?)```", SQL, re.DOTALL)


@pytest.fixture(scope="module")
def place(lived_log: MemoryStorage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tables in its folder `fleet`."""
    place = tmp_path_factory.mktemp("place")
    asyncio.run(built(lived_log, place / "fleet"))
    return place


def test_the_commands_of_the_page_run_in_their_order(
    lived_log: MemoryStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a file instead of the topic."""
    monkeypatch.chdir(tmp_path)
    log = asyncio.run(sqlite_copy(lived_log, tmp_path / "muster.db"))
    commands = re.findall(r"^\$ (.+)$", (DOCS / "fleet.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) == 10
    for command in commands:
        here = command.replace("kafka://kafka-1:9092/__muster_events", log)
        name, *args = shlex.split(here.replace("/archive", f"{tmp_path}/archive"))
        assert name == "muster"
        answer = CliRunner().invoke(app, args)
        assert answer.exit_code == 0, (command, answer.output)
    assert (tmp_path / "fleet.html").stat().st_size > 10_000


def test_each_query_is_answered_by_duckdb(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All queries have rows, except those about failures."""
    monkeypatch.chdir(place)
    assert len(QUERIES) == 10
    with duckdb.connect() as connection:
        connection.execute(OPENING)
        empty = [query for query in QUERIES if not connection.execute(query).fetchall()]
    assert all("grade = 'unknown'" in query or "how = 'expired'" in query for query in empty)


@pytest.mark.spark
def test_each_query_is_answered_by_spark_as_by_duckdb(
    spark_session_here: "SparkSession", place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows, if their order is fully specified; otherwise as many."""
    monkeypatch.chdir(place)
    exec(OPENING_SPARK.replace('Path("fleet")', f'Path("{place}/fleet")'), {"spark": spark_session_here})
    with duckdb.connect() as connection:
        connection.execute(OPENING)
        for query in QUERIES:
            rows: list[Any] = connection.execute(query).fetchall()
            there = spark_session_here.sql(query.strip().removesuffix(";")).collect()
            assert len(there) == len(rows), query
            if "limit" not in query:
                assert sorted(map(_plain, there)) == sorted(map(_plain, rows)), query


def _plain(row: Any) -> str:
    """Return a row as text, since both have other types for numbers and times."""
    return str([f"{each:.3f}" if isinstance(each, float) else str(each)[:19] for each in row])
