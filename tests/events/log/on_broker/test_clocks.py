"""An owner with a wrong clock, on a real broker."""

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from muster.events.log.base import LogUnavailable
from muster.events.log.wall_clock import wall_clock_ms
from tests.events.log.on_broker.proxied import OpenKafkaLog
from tests.events.log.on_broker.topics import create_topic
from tests.events.log.transitions import read_all, transition

pytestmark = pytest.mark.broker

DAY_MS = 24 * 3_600_000


@pytest.mark.parametrize("off_ms", [2 * DAY_MS, -2 * DAY_MS])
async def test_an_owner_with_a_wrong_clock_still_appends(open_log: OpenKafkaLog, off_ms: int) -> None:
    """The time of a record is the broker's."""
    began_ms = wall_clock_ms()
    log = await open_log(partitions=1, wall_ms=lambda: began_ms + off_ms)

    await (await log.claim(0)).append([transition("a"), transition("b")])

    stored = await read_all(log, 0)
    assert stored
    assert all(abs(record.timestamp_ms - began_ms) < DAY_MS for record in stored)


async def test_a_topic_that_wants_the_owners_time_is_explained_when_a_clock_is_off(
    open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str
) -> None:
    """It was made by an earlier version, or by hand: the line names the clock, its time and the way out."""
    await create_topic(
        admin, topic, {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": "3600000"}
    )
    log = await open_log(wall_ms=lambda: 4_102_444_800_000)
    writer = await log.claim(0)

    with pytest.raises(LogUnavailable) as unavailable:
        await writer.append([transition("a")])

    text = str(unavailable.value)
    assert "INVALID_TIMESTAMP: by the clock of this machine it is 2100-01-01T00:00:00+00:00, and" in text
    assert f"--entity-name {topic} --add-config message.timestamp.type=LogAppendTime" in text
