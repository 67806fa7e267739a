"""Spark's archiver on a real broker, killed in the middle; and this process's on the same archive."""

import subprocess
import sys
from pathlib import Path

import pytest

from muster.events.log.kafka.log import KafkaEventLog
from muster.events.records import Record
from muster.replay.fleet.archive.manifest import load
from muster.replay.fleet.archive.verify import verify
from tests.brokers.broker import Broker
from tests.events.log.kafka.proxied import new_topic_name
from tests.replay.fleet.archive.logs import archived, digests, digests_in, named
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


def archiving(broker: Broker, topic: str, root: Path, *options: str) -> subprocess.Popen[str]:
    """Spark's archiver, begun."""
    url = f"kafka://{broker.bootstrap}/{topic}"
    command = [sys.executable, "-m", "muster", "fleet", "archive", "--log", url, "--to", str(root)]
    command += ["--engine", "spark", "--master", "local[2]", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def commits(root: Path) -> int:
    state = load(root)
    return 0 if state is None else state.number


async def test_each_record_is_archived_once_though_spark_is_killed(kafka_broker: Broker, tmp_path: Path) -> None:
    """The next one has another checkpoint, and goes on by the manifests; headers are those of the topic."""
    topic, root = new_topic_name(), tmp_path / "archive"
    await append(kafka_broker, topic, 20)
    with archiving(kafka_broker, topic, root, "--every", "200ms") as killed:
        try:
            await until(lambda: commits(root) >= 2 or killed.poll() is not None, within_s=240)
            assert killed.poll() is None, killed.communicate()[0]
            await append(kafka_broker, topic, 20)
        finally:
            killed.kill()
    await append(kafka_broker, topic, 20)
    with archiving(kafka_broker, topic, root, "--once") as second:
        told = second.communicate(timeout=240)[0]
    assert second.returncode == 0, told
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
