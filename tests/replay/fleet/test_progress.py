"""While Spark's workers fold, the waiting process reports their progress."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from muster.replay.fleet.building.engine import Took
from muster.replay.fleet.building.spark import SparkEngine, folded, reporting, told
from tests.replay.fleet.fleets import built, judged
from tests.waiting import until_so


def test_the_progress_of_all_tasks_is_summed(tmp_path: Path) -> None:
    """A repeated task is counted once; a file that is being written counts the next time."""
    reporting(tmp_path, 1)(500)
    reporting(tmp_path, 2)(70)
    reporting(tmp_path, 1)(20)
    (tmp_path / "folded-000003").touch()
    assert folded(tmp_path) == 90


def test_a_worker_does_not_report_each_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes its file at most twice a second."""
    now = 1_000.0
    monkeypatch.setattr("muster.replay.fleet.building.spark.monotonic", lambda: now)
    report = reporting(tmp_path, 0)
    report(10)
    report(20)
    assert folded(tmp_path) == 10
    now += 1
    report(30)
    assert folded(tmp_path) == 30


def test_progress_is_reported_while_waiting(tmp_path: Path) -> None:
    """From another thread, since the first one waits for Spark; and not after the end."""
    seen: list[int] = []
    with told(tmp_path, seen.append):
        reporting(tmp_path, 0)(10)
        until_so(lambda: 10 in seen)
        reporting(tmp_path, 1)(5)
        until_so(lambda: 15 in seen)
    reporting(tmp_path, 2)(5)
    assert 20 not in seen


@pytest.mark.spark
async def test_spark_workers_report_progress(
    spark: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has written how many events it has folded, in a folder that this process sees."""
    at_the_end: list[int] = []

    @contextmanager
    def looked_at(folder: Path, watch: Took) -> Iterator[None]:
        yield
        at_the_end.append(folded(folder))

    monkeypatch.setattr("muster.replay.fleet.building.spark.told", looked_at)
    events = (await built(judged(range(3)), tmp_path, spark)).events
    assert events
    assert at_the_end == [events]
