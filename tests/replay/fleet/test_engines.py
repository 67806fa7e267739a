"""Both engines make the same tables, and a build says which one it used, and why."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from muster.events.log.memory import MemoryStorage
from muster.replay.archive.segment import SCHEMA
from muster.replay.fleet.asked import EngineName
from muster.replay.fleet.building.pieces import Piece
from muster.replay.fleet.building.spark import SparkEngine
from muster.replay.fleet.choice import LOCAL_BYTES_MAX, NoSpark, choose_builder
from muster.replay.fleet.tables.schemas import TABLES
from tests.replay.fleet.fleets import all_tables, built, judged, table_of, timestamps, up_to

SEEDS = range(0, 1_000, 50)


@pytest.mark.spark
async def test_both_engines_make_the_same_tables(spark: SparkEngine, lived_log: MemoryStorage, tmp_path: Path) -> None:
    """Rows and Arrow schema, in a full build and in a continued one. All timestamps have the zone UTC."""
    for name, storage in (("judged", judged(SEEDS)), ("lived", lived_log)):
        here, there = tmp_path / name / "local", tmp_path / name / "spark[1]{a,b}"  # a pattern to Spark
        for share in (0.6, 1.0):
            await built(up_to(storage, share), here)
            assert (await built(up_to(storage, share), there, spark)).build.engine == "spark"
        assert all_tables(here) == all_tables(there)
        for table in TABLES:
            schemas: list[pa.Schema] = [table_of(folder, table).schema for folder in (here, there)]
            assert schemas[0].equals(schemas[1])
        for folder in (here, there):
            found = timestamps(folder)
            assert found
            assert [column for column, is_utc in found.items() if not is_utc] == []


@pytest.mark.parametrize(
    ("as_int96", "zone", "is_utc"), [(True, "UTC", False), (False, None, False), (False, "UTC", True)]
)
def test_a_timestamp_without_a_zone_would_be_found(
    as_int96: bool, zone: str | None, is_utc: bool, tmp_path: Path
) -> None:
    """INT96, or a timestamp that is not adjusted to UTC."""
    table = pa.table({"at": pa.array([0], pa.timestamp("us", zone)), "name": ["a"]})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=as_int96)
    assert timestamps(tmp_path) == {"a.parquet at": is_utc}


@pytest.mark.spark
def test_sparks_plan_has_the_sort_right_under_the_fold(spark: SparkEngine, tmp_path: Path) -> None:
    """With nothing in between the planner has no reason to drop it (MEASURED.md: the order trap)."""
    pq.write_table(SCHEMA.empty_table(), tmp_path / "a.parquet")
    plan = spark.plan([Piece(path=str(tmp_path / "a.parquet"), partition=0, start=0, end=1)], [])
    steps = [line.strip(" +-:") for line in plan.splitlines() if line.strip(" +-:")]
    fold = next(number for number, step in enumerate(steps) if "MapInArrow" in step)
    assert steps[fold + 1].lstrip("*0123456789() ").startswith("Sort [group_id")


def test_a_small_log_does_not_start_spark() -> None:
    """With the reason; a larger one uses Spark, if it is installed."""
    small = choose_builder(EngineName.AUTO, 26 * 1024 * 1024)
    assert (small.engine, small.reason) == (
        EngineName.LOCAL,
        "27.3 MB of events are too few for Spark to be worth its start",
    )
    assert choose_builder(EngineName.LOCAL, 10 * LOCAL_BYTES_MAX).engine is EngineName.LOCAL


def test_without_java_what_is_large_is_folded_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the reason; a user who requests Spark gets instructions to install it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    large = choose_builder(EngineName.AUTO, 10 * LOCAL_BYTES_MAX)
    assert large.engine is EngineName.LOCAL
    assert "Spark needs Java 17 or 21: there is no java on the PATH" in large.reason
    with pytest.raises(NoSpark, match="openjdk-17"):
        choose_builder(EngineName.SPARK, 0)
