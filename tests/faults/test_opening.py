"""A log in a topic is opened for writing: the topics that are made for it, and its level from then on."""

import pytest

from muster.events.log.kafka.log import KafkaEventLog
from muster.events.log.kafka.names import PROBE_SUFFIX
from muster.events.records import FORMAT_LEVEL, Record
from tests.faults.cluster import FakeCluster
from tests.faults.process import TOPIC, story

THIRD, NEWEST = 3, FORMAT_LEVEL


@pytest.mark.parametrize(("level", "another"), [(THIRD, NEWEST), (NEWEST, THIRD)])
@story
async def test_a_log_has_the_level_that_it_was_begun_with(level: int, another: int) -> None:
    """From its first record on; while it has none, whoever opens it says which."""
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
