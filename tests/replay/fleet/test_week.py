"""A simulated week: both engines and `muster replay` report the same, and it matches the truth."""

import asyncio
from pathlib import Path

import pytest

from muster.events.kafka.security import NOT_SECURED
from muster.events.log.base import EventLog
from muster.replay.fleet.building.build import make_build
from muster.replay.fleet.building.engine import Engine
from muster.replay.fleet.building.local import LocalEngine
from muster.replay.fleet.building.spark import SparkEngine
from muster.replay.fleet.simulation.week import TruthOfGroup
from muster.replay.fleet.tables.schemas import TABLES
from muster.replay.logs.opening import open_for_reading
from tests.judge.count import Verdict, count
from tests.judge.table import described, failures, misses
from tests.replay.fleet.fleets import CAUSES, INCIDENTS, all_tables, in_order, results_of_why, rows_of, table_of
from tests.replay.fleet.simulated import case_of, fleet, simulated
from tests.replay.incidents.telling import tell
from tests.replay.recorded import DATA, sessions
from tests.replay.whole import read_histories

GROUPS = 8
DAYS = 7
SEED = 2


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[TruthOfGroup]]:
    """The week's archive, and the truth."""
    return simulated(fleet(GROUPS, DAYS, seed=SEED), tmp_path_factory.mktemp("week"))


async def opened(url: str) -> EventLog:
    log = open_for_reading(url, security=NOT_SECURED)
    await log.open()
    return log


async def tables_of(url: str, to: Path, engine: Engine) -> Path:
    """Return the tables that an engine makes of a log."""
    log = await opened(url)
    await make_build(log, to, lambda _bytes: engine)
    await log.close()
    return to


async def assert_told_as_by_why(url: str, tables: Path) -> None:
    """Check each rebalance and each incident, cause by cause."""
    rebalances, reported = await results_of_why(await opened(url))
    assert in_order(rows_of(tables, "rebalances"), CAUSES) == rebalances
    assert in_order(rows_of(tables, "incidents"), INCIDENTS) == reported
    assert reported


def assert_same(here: Path, there: Path) -> None:
    """Compare all tables: rows and Arrow schema."""
    assert all_tables(here) == all_tables(there)
    for table in TABLES:
        assert table_of(here, table).schema.equals(table_of(there, table).schema)


@pytest.fixture(scope="module")
def tables(week: tuple[Path, list[TruthOfGroup]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of the week, by the engine in this process."""
    return asyncio.run(tables_of(f"archive:{week[0]}", tmp_path_factory.mktemp("tables"), LocalEngine()))


async def test_the_week_is_reported_like_why(week: tuple[Path, list[TruthOfGroup]], tables: Path) -> None:
    """This is the engine in this process; the other one makes the same tables."""
    await assert_told_as_by_why(f"archive:{week[0]}", tables)


@pytest.mark.spark
async def test_both_engines_make_the_same_tables_of_the_week(
    week: tuple[Path, list[TruthOfGroup]], tables: Path, spark: SparkEngine, tmp_path: Path
) -> None:
    """Rows and Arrow schema."""
    assert_same(tables, await tables_of(f"archive:{week[0]}", tmp_path, spark))


@pytest.mark.parametrize("name", sessions())
async def test_actions_of_real_clients_are_reported_like_why(name: str, tmp_path: Path) -> None:
    """Cause by cause."""
    url = str(DATA / f"{name}.jsonl")
    await assert_told_as_by_why(url, await tables_of(url, tmp_path, LocalEngine()))


@pytest.mark.spark
@pytest.mark.parametrize("name", sessions())
async def test_both_engines_make_the_same_tables_of_real_clients(name: str, spark: SparkEngine, tmp_path: Path) -> None:
    """Rows and Arrow schema."""
    url = str(DATA / f"{name}.jsonl")
    here = await tables_of(url, tmp_path / "local", LocalEngine())
    assert_same(here, await tables_of(url, tmp_path / "spark", spark))


async def test_the_reported_week_matches_the_ground_truth(week: tuple[Path, list[TruthOfGroup]]) -> None:
    """The judge's goals hold: all recorded facts, 95 % of the inferred ones, and nothing false."""
    archive, groups = week
    verdicts: list[Verdict] = []
    for group_id, history in (await read_histories(await opened(f"archive:{archive}"))).items():
        (group,) = (each for each in groups if each.group_id == group_id)
        verdicts += count(case_of(group, history), tell(history, group.until_ms))
    assert not misses(verdicts), "\n".join(map(described, failures(verdicts)))
    assert {"deployment", "restart", "scale-up", "coordinator-change"} <= {each.kind for each in verdicts}
    assert len(verdicts) > 5 * GROUPS


async def test_an_outage_is_one_for_all_groups_of_its_partition(
    week: tuple[Path, list[TruthOfGroup]], tables: Path
) -> None:
    """The partition's coordinator is unreachable at the same times for each of them."""
    _, groups = week
    downtimes = rows_of(tables, "coordinator_downtime")
    for partition in {row["log_partition"] for row in downtimes}:
        there = {group.group_id for group in groups if group.partition == partition}
        for moment in {row["until_at"] for row in downtimes if row["log_partition"] == partition}:
            assert {row["group_id"] for row in downtimes if row["until_at"] == moment} == there
    assert downtimes
