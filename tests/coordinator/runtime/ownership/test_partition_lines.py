"""Log lines about many partitions at once."""

import asyncio

from structlog.testing import capture_logs

from muster.coordinator.runtime.ownership.partition_lines import LOST_REPORT_DELAY_S, LostLog, ReadyLog
from muster.events.events import CoordinatorReady
from tests.simulation.virtual_time import simulate


def ready(partition: int, took_ms: int) -> CoordinatorReady:
    return CoordinatorReady(
        partition=partition,
        owner="own:1",
        owner_epoch=1,
        ready_ms=1,
        took_ms=took_ms,
        events_read=10,
        groups=2,
        members=3,
        incarnation_max=0,
    )


def test_partitions_that_were_read_together_took_as_long_as_the_slowest() -> None:
    """Everything else is added up, and the next line starts from zero."""
    lines = ReadyLog()
    with capture_logs() as logged:
        for partition, took_ms in ((1, 700), (0, 300)):
            lines.note(ready(partition, took_ms), offsets_read=5)
        lines.write()
        lines.write()
    (line,) = [each for each in logged if each["event"] == "partitions ready"]
    assert (line["partitions"], line["took_ms"]) == ([0, 1], 700)
    assert [line[name] for name in ("events", "offsets", "groups", "members")] == [20, 10, 4, 6]


def test_partitions_that_are_lost_within_a_second_share_a_line_and_the_next_ones_have_another() -> None:
    async def story() -> None:
        lines = LostLog()
        for partition in (1, 0):
            lines.note(partition, ConnectionError("no broker"))
        await asyncio.sleep(2 * LOST_REPORT_DELAY_S)
        lines.note(2, ConnectionError("no broker"))
        await asyncio.sleep(2 * LOST_REPORT_DELAY_S)

    with capture_logs() as logged:
        simulate(story())
    assert [each["partitions"] for each in logged] == [[0, 1], [2]]
