"""An owner writes every five seconds that it is alive; its successor's CoordinatorReady quotes the last of these
records.
"""

import asyncio
from collections.abc import Mapping

import pytest
import structlog

from muster.coordinator.observability.metrics import REGISTRY
from muster.coordinator.runtime.ownership.signs_of_life import (
    READ_TIMEOUT_MS,
    REPORTED_AFTER_MS,
    SIGN_INTERVAL_MS,
    SignsOfLife,
)
from muster.events.avro.codec import decode
from muster.events.events import CoordinatorReady
from muster.events.log.base import LogWriter
from muster.events.log.memory import MemoryStorage
from muster.events.partitioner import partition_for
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate


def readies(storage: MemoryStorage, partition: int = 0) -> list[tuple[str | None, int | None]]:
    """The former owner and its last sign of life, from each CoordinatorReady of the partition."""
    events = [decode(record.value) for record in storage.records[partition] if record.value is not None]
    return [(event.owner_before, event.owner_before_seen_ms) for event in events if isinstance(event, CoordinatorReady)]


def test_a_takeover_quotes_the_last_sign_of_life() -> None:
    """The process crashed between two of them; times are by its own clock. A first owner has none to quote."""
    storage = MemoryStorage(2)

    async def life_and_crash() -> int:
        process = await SimulatedProcess(storage).start()
        began_ms = process.clock.wall_ms()
        await asyncio.sleep(2.4 * SIGN_INTERVAL_MS / 1000)
        return began_ms

    async def takeover() -> None:
        await asyncio.sleep(60)
        process = await SimulatedProcess(storage).start()
        await process.runtime.stop()

    began_ms = simulate(life_and_crash())  # its tasks end with the loop
    simulate(takeover())
    for partition in range(2):
        assert readies(storage, partition) == [(None, None), ("simulated:1", began_ms + 2 * SIGN_INTERVAL_MS)]


def test_a_partition_that_is_taken_back_quotes_the_process_itself() -> None:
    """There is one record for all partitions, and no second reading of the log."""

    async def story() -> None:
        storage = MemoryStorage(8)
        process = await SimulatedProcess(storage).start()
        left_ms = process.clock.wall_ms()
        await asyncio.sleep(1)
        assert storage.signs_of_life == {"simulated:1": left_ms}
        process.log.fail_next_append()
        process.join("a")
        await asyncio.sleep(1)
        await process.runtime.all_owned()
        assert readies(storage, partition_for(GROUP, 8)) == [(None, None), ("simulated:1", left_ms)]
        await process.runtime.stop()

    simulate(story())


def test_the_sign_of_an_earlier_owner_is_read_again() -> None:
    """In a container every process has the same name, and the record read earlier is old."""

    async def story() -> None:
        storage = MemoryStorage(2)
        process = SimulatedProcess(storage)
        await process.log.open()
        signs = SignsOfLife(process.log, "muster-1:1", process.clock, serves=lambda: True)
        for sign_ms in (1_000, 2_000):
            storage.signs_of_life = {"muster-0:1": sign_ms}
            assert await signs.last_of("muster-0:1") == sign_ms
            await asyncio.sleep(SIGN_INTERVAL_MS / 1000)

    simulate(story())


def test_none_is_left_before_a_partition_is_owned_and_after_the_end() -> None:
    """The next owner must not be shown times when the process did not serve."""

    async def story() -> None:
        storage = MemoryStorage(1)
        process = SimulatedProcess(storage)
        await process.log.open()
        await asyncio.sleep(SIGN_INTERVAL_MS / 1000)
        assert storage.signs_of_life == {}
        await process.runtime.start()
        await process.runtime.stop()
        storage.signs_of_life = {}
        await asyncio.sleep(3 * SIGN_INTERVAL_MS / 1000)
        assert storage.signs_of_life == {}

    simulate(story())


def test_a_log_of_level_3_has_none() -> None:
    """Its CoordinatorReady could not quote them."""

    async def story() -> None:
        storage = MemoryStorage(1, format_level=3)
        process = await SimulatedProcess(storage).start()
        await asyncio.sleep(3 * SIGN_INTERVAL_MS / 1000)
        assert storage.signs_of_life == {}
        await process.runtime.stop()

    simulate(story())


@pytest.mark.parametrize("after_s", [0.0, 3_600.0])
def test_a_sign_that_cannot_be_written_is_logged_once_and_counted(after_s: float) -> None:
    """Refused, or never answered: groups are served all the same, and a start waits for a second at most."""

    async def story() -> None:
        storage = MemoryStorage(8)
        former = await SimulatedProcess(storage).start()
        await former.runtime.stop()
        process, before = SimulatedProcess(storage), failures()
        process.log.refuse_signs_of_life(after_s=after_s)
        with structlog.testing.capture_logs() as lines:
            began_ms = process.clock.monotonic_ms()
            await process.start()
            assert process.clock.monotonic_ms() - began_ms <= READ_TIMEOUT_MS
            await process.stable_group("a")
            await asyncio.sleep(3 * REPORTED_AFTER_MS / 1000)
            await process.runtime.stop()
        assert [line["event"] for line in lines if line["log_level"] == "warning"] == [
            "could not read when the previous owner was last alive",
            "could not record that this process is alive: if it crashes, the time of the crash may be unknown",
        ]
        assert failures() - before >= 3
        assert readies(storage)[-1] == ("simulated:1", None)

    simulate(story())


def failures() -> float:
    return REGISTRY.get_sample_value("muster_signs_of_life_failed_total") or 0.0


def test_signs_are_read_while_partitions_are_claimed() -> None:
    """Once; no takeover waits for it unless the reading takes longer than the claim."""

    async def story() -> None:
        process = SimulatedProcess(MemoryStorage(2))
        order: list[str] = []
        claim, read = process.log.claim, process.log.last_signs_of_life

        async def claimed(partition: int) -> LogWriter:
            order.append("claim")
            return await claim(partition)

        async def signs(*, timeout_ms: int) -> Mapping[str, int]:
            order.append("signs")
            return await read(timeout_ms=timeout_ms)

        process.log.claim, process.log.last_signs_of_life = claimed, signs  # type: ignore[method-assign, assignment]
        await process.start()
        assert order == ["signs", "claim", "claim"]
        await process.runtime.stop()

    simulate(story())
