"""Log lines about unanswered appends: their partitions, since when, and the log; in virtual time."""

import asyncio
from itertools import count

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.offsets.topic import TopicOffsetStore
from muster.events.ids import GroupId
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.partitioner import partition_for
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate

PARTITIONS = 2


class LogOfOffsets(MemoryEventLog):
    @property
    def location(self) -> str:
        return "offsets"


def group_in(partition: int) -> GroupId:
    return next(GroupId(f"g{n}") for n in count() if partition_for(f"g{n}", PARTITIONS) == partition)


def reason(log: str, seconds: int, partitions: str) -> str:
    text = f"an append to the event log {log} has waited for {seconds} s ({partitions})"
    return f"{text}: memory has not answered"


def not_ready_of(process: SimulatedProcess) -> str | None:
    return process.runtime.not_ready


async def slept(seconds: float) -> None:
    """Slightly longer, so that whole seconds have passed."""
    await asyncio.sleep(seconds + 0.1)


def test_events_are_waited_for_and_then_the_offsets_behind_them() -> None:
    """Each has its own start time and log; a failed append no longer counts when the next is written."""

    async def story() -> None:
        of_offsets = LogOfOffsets(MemoryStorage(PARTITIONS))
        offsets = TopicOffsetStore(lambda: of_offsets)
        await offsets.open()
        process = await SimulatedProcess(MemoryStorage(PARTITIONS), offsets=offsets).start()
        process.group_id = group_in(1)
        joined = (await process.stable_group("a"))["a"]
        assert (await process.commit(5, joined)).error is ErrorCode.none
        await process.leave(joined.member_id)

        events, written = process.log.hold_acknowledgements(), of_offsets.hold_acknowledgements()
        deleting = process.delete()
        await slept(9)
        assert not_ready_of(process) is None
        await slept(2)
        assert not_ready_of(process) == reason("memory", 11, "partition 1")
        events.set()
        await slept(8)
        assert not_ready_of(process) is None
        await slept(4)
        assert not_ready_of(process) == reason("offsets", 12, "partition 1")
        written.set()
        assert (await deleting).error is ErrorCode.none
        await slept(1)
        assert not_ready_of(process) is None

        events = process.log.hold_acknowledgements()
        process.join("b")
        await slept(12)
        assert not_ready_of(process) == reason("memory", 12, "partition 1")
        events.set()
        await process.runtime.stop()

    simulate(story())


def test_the_renewal_of_a_claim_on_the_offsets_is_waited_for_in_their_log() -> None:
    """Its fence record is an append, too."""

    async def story() -> None:
        of_offsets = LogOfOffsets(MemoryStorage(PARTITIONS))
        offsets = TopicOffsetStore(lambda: of_offsets)
        await offsets.open()
        process = SimulatedProcess(MemoryStorage(PARTITIONS), offsets=offsets, claim_renewal_ms=30_000)
        await process.start()
        held = of_offsets.hold_acknowledgements()
        await slept(30 + 12)
        assert not_ready_of(process) == reason("offsets", 12, "partitions 0 to 1")
        held.set()
        await process.runtime.stop()

    simulate(story())


def test_the_longest_of_equal_waits_is_logged() -> None:
    """In any order of the partitions."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(PARTITIONS)).start()
        held = process.log.hold_acknowledgements()
        process.join("a", group_id=group_in(1))
        await slept(5)
        process.join("a", group_id=group_in(0))
        await slept(11)
        assert not_ready_of(process) == reason("memory", 16, "partitions 0 to 1")
        held.set()
        await process.runtime.stop()

    simulate(story())


@pytest.mark.parametrize("trouble", [None, "the disk does not respond"])
def test_a_waiting_append_is_logged_unless_the_log_gave_the_reason(trouble: str | None) -> None:
    """One, however long it waits, and none after the end."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(PARTITIONS)).start()
        held = process.log.hold_acknowledgements()
        process.join("a", group_id=group_in(1))
        process.log.trouble = trouble
        with capture_logs() as lines:
            await slept(60)
        reported = [line for line in lines if line["event"] == "append not acknowledged, waiting for it"]
        assert [(line["log"], line["partitions"]) for line in reported] == ([] if trouble else [("memory", [1])])
        held.set()
        await process.runtime.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    simulate(story())
