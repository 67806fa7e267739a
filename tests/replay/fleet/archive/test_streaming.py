"""Spark's archiver on a real broker, killed in the middle, and this process's archiver on the same archive."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from muster.events.log.kafka.log import KafkaEventLog
from muster.events.records import Record
from muster.replay.archive.manifest import load
from muster.replay.archive.verify import verify
from tests.brokers.broker import Broker
from tests.events.log.on_broker.proxied import new_topic_name
from tests.replay.archive.logs import archived, digests, digests_in, named
from tests.replay.fleet.fleets import timestamps
from tests.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

PARTITIONS = 2


async def append(broker: Broker, topic: str, records: int) -> None:
    """Append to each partition, as an owner."""
    log = KafkaEventLog([broker.bootstrap], topic, partitions=PARTITIONS)
    await log.open()
    for partition in range(PARTITIONS):
        writer = await log.claim(partition)
        for number in range(records):
            await writer.append([(Record(b"key-%d" % number, b"value"), Record(b"gone", None))])
    await log.close()


class Spark:
    """Spark's archiver on a topic, each time in a new process; `output` is that of the last one."""

    def __init__(self, url: str, root: Path, java_home: Path | None, output: Path) -> None:
        self._command = [sys.executable, "-m", "muster", "fleet", "archive", "--log", url, "--to", str(root)]
        self._command += ["--engine", "spark", "--master", "local[2]"]
        self._environment = os.environ | ({} if java_home is None else {"JAVA_HOME": str(java_home)})
        self.output = output

    def begin(self, *options: str) -> subprocess.Popen[bytes]:
        """Start an archiver."""
        with self.output.open("wb") as output:
            return subprocess.Popen(
                [*self._command, *options], stdout=output, stderr=subprocess.STDOUT, env=self._environment
            )


def commits(root: Path) -> int:
    state = load(root)
    return 0 if state is None else state.number


def jvm_of(process: subprocess.Popen[bytes]) -> int:
    """Return the process id of its JVM."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,comm="], capture_output=True, text=True, check=True).stdout
    rows = (line.split(maxsplit=2) for line in listed.splitlines())
    return next(int(pid) for pid, parent, name in rows if int(parent) == process.pid and name.endswith("java"))


async def test_each_record_is_archived_once_though_spark_is_killed(
    kafka_broker: Broker, java_home: Path | None, tmp_path: Path
) -> None:
    """First the process is killed, then only its JVM, which is reported in one line.

    The next one has another checkpoint, and continues by the manifests; headers are those of the topic.
    """
    topic, root = new_topic_name(), tmp_path / "archive"
    spark = Spark(f"kafka://{kafka_broker.bootstrap}/{topic}", root, java_home, tmp_path / "output")
    await append(kafka_broker, topic, 20)
    with spark.begin("--every", "200ms") as killed:
        try:
            await until(lambda: commits(root) >= 2 or killed.poll() is not None, within_s=240)
            assert killed.poll() is None, spark.output.read_text()
            await append(kafka_broker, topic, 20)
        finally:
            killed.kill()
    before = commits(root)
    await append(kafka_broker, topic, 20)
    with spark.begin("--every", "200ms") as without_jvm:
        try:
            await until(lambda: commits(root) > before or without_jvm.poll() is not None, within_s=240)
            await append(kafka_broker, topic, 20)
            os.kill(jvm_of(without_jvm), signal.SIGKILL)
            assert without_jvm.wait(60) == 2
        finally:
            without_jvm.kill()
    assert "Traceback" not in spark.output.read_text()
    assert "Spark could not archive" in spark.output.read_text()
    await append(kafka_broker, topic, 20)
    with spark.begin("--once") as last:
        assert last.wait(240) == 0, spark.output.read_text()
    assert timestamps(root) == {}, "an archive has its times as integers"
    log = KafkaEventLog([kafka_broker.bootstrap], topic, read_only=True)
    await log.open()
    assert await digests_in(root) == await digests(log)
    await append(kafka_broker, topic, 1)
    assert (await archived(log, root, now_ms=None)).records > 0  # by this process
    assert await digests_in(root) == await digests(log)
    found = await verify(root, log, watch=lambda _done, _total: None)
    assert (found.damage, found.compared) == ((), found.records)
    state = load(root)
    assert state is not None
    assert named(root) == set(state.segments)
    await log.close()
