"""The Spark session: the user's settings are kept, its log is silent, and its errors are single lines."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError

import muster
from muster.events.log.base import LogMismatch
from muster.replay.archive.commits import writing
from muster.replay.archive.local import archived_log
from muster.replay.fleet.archive import streaming
from muster.replay.fleet.archive.connector import PACKAGE
from muster.replay.fleet.session import DEAD_WORKER, SparkFailed, in_a_line, reason_of, spark_session
from tests.replay.archive.logs import filled
from tests.replay.fleet.fleets import all_tables, built, judged, sqlite_copy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRIPT = Path(muster.__file__).parent / "__main__.py"

Batches = Iterable[pa.RecordBatch]


def failed(session: "SparkSession", work: Callable[[Batches], Iterator[pa.RecordBatch]]) -> str:
    """Run it in a worker; return the line of its failure."""
    with pytest.raises(SparkFailed) as raised, in_a_line("Spark could not fold"):
        session.range(1).mapInArrow(work, "id long").collect()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_jvm_that_ends_while_the_session_is_made_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the last call was; as if the kernel had killed it."""

    def ended(*_: object) -> None:
        raise Py4JNetworkError("Error while sending or receiving")

    monkeypatch.setattr("muster.replay.fleet.session._start_jvm", lambda *_given, **_named: None)
    monkeypatch.setattr("pyspark.SparkConf.contains", ended)
    with pytest.raises(SparkFailed, match=r"^Spark does not start: .*while sending or receiving$"):
        spark_session("local[1]")


@pytest.mark.spark
def test_a_command_that_a_dying_jvm_does_not_answer_leaves_no_traceback(
    spark_session_here: "SparkSession", caplog: pytest.LogCaptureFixture
) -> None:
    """py4j logs it to the root logger."""
    from py4j.java_gateway import GatewayClient
    from py4j.protocol import ERROR, ERROR_ON_RECEIVE, Py4JNetworkError

    class Broken:
        def send_command(self, _: str) -> str:
            raise Py4JNetworkError("gone", when=ERROR_ON_RECEIVE)

        def close(self, _: bool) -> None: ...

    class Client(GatewayClient):  # type: ignore[misc]  # py4j has no types
        def _get_connection(self) -> Broken:
            return Broken()

    assert Client().send_command("c\n", retry=False) == ERROR
    assert caplog.records == []


@pytest.mark.spark
def test_a_workers_exception_is_a_line(spark_session_here: "SparkSession") -> None:
    """And not the page that Spark prints."""

    def boom(_batches: Batches) -> Iterator[pa.RecordBatch]:
        raise PermissionError(13, "Permission denied", "/tables/_open")

    line = failed(spark_session_here, boom)
    assert line == "Spark could not fold: PermissionError: [Errno 13] Permission denied: '/tables/_open'"


@pytest.mark.spark
def test_a_worker_that_ends_is_a_line(spark_session_here: "SparkSession") -> None:
    """As if the kernel had killed it for its memory."""

    def end(_batches: Batches) -> Iterator[pa.RecordBatch]:
        import os

        os._exit(9)

    assert DEAD_WORKER in failed(spark_session_here, end)


@pytest.mark.spark
def test_a_worker_environment_without_muster_gets_instructions(spark_session_here: "SparkSession") -> None:
    def boom(_batches: Batches) -> Iterator[pa.RecordBatch]:
        raise ModuleNotFoundError("No module named 'muster'")

    assert "give them an environment by --archives" in failed(spark_session_here, boom)


@pytest.mark.spark
async def test_without_the_connectors_jar_the_package_is_named(
    spark_session_here: "SparkSession", tmp_path: Path
) -> None:
    """A session of `spark-submit` has the jars that it was given."""
    log = await filled()
    with writing(tmp_path, make=True) as writer:
        writer.begin(archived_log(log))
        source = streaming.KafkaSource(servers="kafka:9092", topic="events", options={}, open_log=lambda: log)
        with pytest.raises(LogMismatch, match=f"say --packages {PACKAGE} to spark-submit"):
            streaming._stream(spark_session_here, source, writer)


def test_a_lost_executor_is_named_with_the_reason() -> None:
    """In Spark's first line, without the driver's stack."""
    text = (
        "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in"
        " stage 1.0 (TID 7) (10.0.0.7 executor 3): ExecutorLostFailure (executor 3 exited caused by one of the running"
        " tasks) Reason: Command exited with code 137\nDriver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler"
    )
    line = reason_of(RuntimeError(text))
    assert line.endswith("Reason: Command exited with code 137")
    assert "10.0.0.7 executor 3" in line


def test_a_killed_worker_is_reported_in_one_line() -> None:
    """Spark reports it in the middle of a stack, or as an end of file on a pipe."""
    crashed = (
        'Traceback (most recent call last):\n  File "x.py", line 1\npy4j.protocol.Py4JJavaError: An error occurred'
        " while calling o82.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage failure: Lost"
        " task 0.0: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\tat org.apache"
    )
    no_daemon = "EOFException occurred while reading the port number from pyspark.daemon's stdout"
    assert {reason_of(RuntimeError(text)) for text in (crashed, no_daemon)} == {DEAD_WORKER}


def test_the_java_error_of_the_batch_query_is_the_reason() -> None:
    """And not that the query failed."""
    text = (
        'Traceback (most recent call last):\n  File "x.py", line 1\npy4j.protocol.Py4JJavaError: An error occurred'
        " while calling o82.collectToPython.\n: org.apache.spark.SparkException: No space left on device\n\tat org"
    )
    assert reason_of(RuntimeError(text)) == "org.apache.spark.SparkException: No space left on device"


@pytest.mark.spark
def test_spark_submit_has_the_master_and_a_silent_log(java_home: Path | None, tmp_path: Path) -> None:
    """Its settings are kept, whatever --master is; the tables are those of this process."""
    storage = judged((3, 14))
    url = asyncio.run(sqlite_copy(storage, tmp_path / "muster.db"))
    submit = Path(sys.executable).parent / "spark-submit"
    arguments = ["--master", "local[1]", "--name", "audit", "--conf", "spark.executorEnv.AUDIT=1"]
    build = ["fleet", "build", "--engine", "spark", "--log", url, "--to", str(tmp_path / "t"), "--master", "local[7]"]
    environment = {**os.environ, "PATH": f"{submit.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [str(submit), *arguments, str(SCRIPT), *build],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=environment if java_home is None else {**environment, "JAVA_HOME": str(java_home)},
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert " at local[1], 1 tasks at once" in output
    assert "Submitted application" not in output
    assert "DAGScheduler" not in output
    assert "\tat " not in output
    asyncio.run(built(storage, tmp_path / "here"))
    assert all_tables(tmp_path / "t") == all_tables(tmp_path / "here")


@pytest.mark.spark
def test_a_missing_master_is_reported_in_one_line(java_home: Path | None, tmp_path: Path) -> None:
    """It has the given address."""
    url = asyncio.run(sqlite_copy(judged((3,)), tmp_path / "muster.db"))
    command = [sys.executable, "-m", "muster", "fleet", "build", "--engine", "spark", "--log", url]
    command += ["--to", str(tmp_path / "t"), "--master", "nowhere:1"]
    environment = os.environ if java_home is None else {**os.environ, "JAVA_HOME": str(java_home)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Spark does not start (--master nowhere:1): Master must " in done.stderr
