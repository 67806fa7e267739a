"""A log in a topic is opened for writing: the topics that are made for it, and its level from then on."""

import asyncio

import pytest
from structlog.testing import capture_logs

from muster.coordinator.assembly import Readiness
from muster.events.kafka.link import CONFIG_OF_A_MUSTER
from muster.events.log.base import LogMismatch, LogMissing
from muster.events.log.kafka.log import KafkaEventLog
from muster.events.log.kafka.names import PROBE_SUFFIX
from muster.events.records import FORMAT_LEVEL, Record
from tests.faults.cluster import CREATE_TOPICS, INIT_PRODUCER_ID, PRODUCE, FakeCluster
from tests.faults.process import TOPIC, story
from tests.simulation.virtual_time import VirtualClock

THIRD, NEWEST = 3, FORMAT_LEVEL


@pytest.mark.parametrize("api_key", [PRODUCE, CREATE_TOPICS, INIT_PRODUCER_ID])
@story
async def test_a_log_that_is_slow_to_open_is_reported_before_its_timeout(api_key: int) -> None:
    """A broker that answers other requests would otherwise hold up a start for 30 s without a line."""
    cluster = FakeCluster()
    cluster.unanswered.add(api_key)
    log, readiness = KafkaEventLog(cluster.bootstrap, TOPIC, partitions=1), Readiness(VirtualClock())
    opening = asyncio.create_task(readiness.retry_until_available(log.open, TOPIC, lambda: log.trouble, log))
    with capture_logs() as logged:
        await asyncio.sleep(12)
        (line,) = logged
        assert line["event"] == "event log not open yet"
        assert line["reason"].startswith("the event log is being opened, for 10 s")
        assert str(readiness()).startswith("the event log is being opened, for 12 s; last failed request: ")
        assert "broker:1 did not answer within" in str(readiness())
        await asyncio.sleep(20)
        assert "has been unavailable for 3" in str(readiness())
    cluster.unanswered.clear()
    await opening
    await log.close()


@pytest.mark.parametrize(("level", "another"), [(THIRD, NEWEST), (NEWEST, THIRD)])
@story
async def test_a_log_has_the_level_that_it_was_begun_with(level: int, another: int) -> None:
    """From its first record on; while it has none, the process that opens it chooses."""
    cluster = FakeCluster()

    async def opened(new_format_level: int) -> KafkaEventLog:
        log = KafkaEventLog(cluster.bootstrap, TOPIC, partitions=2, new_format_level=new_format_level)
        await log.open()
        return log

    first = await opened(another)
    assert (first.created, first.format_level) == ([TOPIC, TOPIC + PROBE_SUFFIX], another)
    await first.close()
    second = await opened(level)
    assert (second.created, second.format_level) == ([], level)
    await (await second.claim(0)).append([(Record(b"k", b"v"),)])
    await second.close()
    third = await opened(another)
    assert (third.created, third.format_level) == ([], level)
    await third.close()


@pytest.mark.parametrize("level", [THIRD, NEWEST])
@story
async def test_a_level_that_is_raised_is_noted_with_the_next_record(level: int) -> None:
    """Until then, another process would continue at the old one."""
    cluster = FakeCluster()
    log = KafkaEventLog(cluster.bootstrap, TOPIC, partitions=1, new_format_level=level)
    await log.open()
    await (await log.claim(0)).append([(Record(b"k", b"v"),)])
    await log.raise_format_level()
    assert log.format_level == NEWEST
    await (await log.claim(0)).append([(Record(b"k", b"v"),)])
    await log.close()
    again = KafkaEventLog(cluster.bootstrap, TOPIC, new_format_level=THIRD)
    await again.open()
    assert again.format_level == NEWEST
    await again.close()


@story
async def test_an_owner_that_was_upgraded_meanwhile_is_to_be_started_again() -> None:
    """It would write records of an old level after those of the new one."""
    cluster = FakeCluster()
    older = KafkaEventLog(cluster.bootstrap, TOPIC, partitions=1, new_format_level=THIRD)
    await older.open()
    await (await older.claim(0)).append([(Record(b"k", b"v"),)])
    newer = KafkaEventLog(cluster.bootstrap, TOPIC)
    await newer.open()
    await newer.raise_format_level()
    await (await newer.claim(0)).append([(Record(b"k", b"v"),)])
    with pytest.raises(
        LogMismatch, match=f"upgraded to format level {NEWEST} while this process had it open at level 3: restart"
    ):
        await older.claim(0)
    for log in (older, newer):
        await log.close()


@story
async def test_a_muster_is_not_a_cluster_for_a_log() -> None:
    cluster = FakeCluster()
    cluster.group_configs = {CONFIG_OF_A_MUSTER: "muster"}
    with pytest.raises(
        LogMismatch, match=r"^broker:1 is a Muster, not a broker; name the brokers of the Kafka cluster"
    ):
        await KafkaEventLog(cluster.bootstrap, TOPIC).open()
    assert not cluster.topics


@story
async def test_a_cluster_that_does_not_fence_keeps_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deposed owner could continue to write there; that is tested before anything relies on it."""
    cluster = FakeCluster()
    monkeypatch.setattr(type(_partition_of(cluster)), "fences", False)
    with pytest.raises(
        LogMismatch, match=f"accepts the append of a deposed writer .tried on topic {TOPIC}{PROBE_SUFFIX}"
    ):
        await KafkaEventLog(cluster.bootstrap, TOPIC).open()


def _partition_of(cluster: FakeCluster) -> object:
    cluster.create("another", 1)
    return cluster.partition("another", 0)


@story
async def test_a_log_that_is_only_read_claims_nothing() -> None:
    cluster = FakeCluster()
    owner = KafkaEventLog(cluster.bootstrap, TOPIC, partitions=1)
    await owner.open()
    reader = KafkaEventLog(cluster.bootstrap, TOPIC, read_only=True)
    await reader.open()
    with pytest.raises(LogMismatch, match=f"^topic {TOPIC} is not open for writing: nothing can be claimed$"):
        await reader.claim(0)
    assert not await owner.has_owners_record(0)
    await (await owner.claim(0)).append([(Record(b"k", b"v"),)])
    assert await owner.has_owners_record(0)
    for log in (owner, reader):
        await log.close()


@pytest.mark.parametrize("mode", ["nobody opened it", "no right to the probe"])
@story
async def test_an_empty_topic_that_no_owner_has_opened_is_not_an_empty_log(mode: str) -> None:
    """It is another application's, or for a future log; a log that was opened may be empty."""
    cluster = FakeCluster()
    cluster.create(TOPIC, 2, {"cleanup.policy": "delete"})
    if mode == "no right to the probe":
        cluster.may_not_describe.add(TOPIC + PROBE_SUFFIX)
    reader = KafkaEventLog(cluster.bootstrap, TOPIC, read_only=True)
    with pytest.raises(LogMissing, match=f"topic {TOPIC} is empty, and no Muster has opened it as its event log: "):
        await reader.open()


@story
async def test_an_empty_topic_of_unknown_origin_is_read() -> None:
    """A reader needs no permission for the probe's topic or the configs."""
    cluster = FakeCluster()
    cluster.create(TOPIC, 2)
    cluster.may_not_describe.add(TOPIC + PROBE_SUFFIX)
    reader = KafkaEventLog(cluster.bootstrap, TOPIC, read_only=True)
    await reader.open()
    await reader.close()
