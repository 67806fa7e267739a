"""An idle process proves ownership of all its partitions together, and notices when it has lost them."""

import asyncio
import gc
from collections.abc import Callable, Sequence

from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.runtime.ownership.lease_keeper import REAL_PROOF_MS
from muster.events.log.base import Deposed, LogWriter, Repeats
from muster.events.log.memory import MemoryLogWriter, MemoryStorage
from muster.events.partitioner import partition_for
from tests.coordinator.runtime.partition.test_answer_lease import LEASE_MS, leased, left_ms, story
from tests.simulation.process import SimulatedProcess
from tests.waiting import until

FOUND_OUT_S = 1.5 * LEASE_MS / 1000


def note_repeats(
    process: SimulatedProcess, *, answered: Callable[[], bool] = lambda: True, late_s: float = 0.0
) -> list[list[int]]:
    """Record the partitions of each repeated append; its response comes late, or proves nothing."""
    requests: list[list[int]] = []
    repeat = process.log.repeat

    async def noting(writers: Sequence[LogWriter], *, timeout_ms: int) -> Repeats:
        requests.append([writer.partition for writer in writers])
        async for answers in repeat(writers, timeout_ms=timeout_ms):
            await asyncio.sleep(late_s)
            yield answers if answered() else dict.fromkeys(answers, False)

    process.log.repeat = noting  # type: ignore[method-assign]
    return requests


@story
async def test_a_hundred_idle_partitions_are_proven_together_each_half_lease() -> None:
    """One timer and one request for all of them, and nothing is appended."""
    storage = MemoryStorage(partitions=100)
    process = await leased(storage, "a")
    logged, ends = note_repeats(process), [len(records) for records in storage.records]
    await asyncio.sleep(10 * LEASE_MS / 1000)
    assert all(sorted(numbers) == list(range(100)) for numbers in logged)
    assert 18 <= len(logged) <= 21
    assert [len(records) for records in storage.records] == ends
    await process.runtime.stop()


@story
async def test_a_repeated_append_proves_from_when_it_was_sent() -> None:
    """However late its response is."""
    process = await leased(MemoryStorage(1), "a")
    repeats = note_repeats(process, late_s=0.4 * LEASE_MS / 1000)
    await until(lambda: bool(repeats))
    before_ms = left_ms(process)
    await until(lambda: left_ms(process) > before_ms)
    assert left_ms(process) <= 0.6 * LEASE_MS
    await process.runtime.stop()


@story
async def test_an_idle_process_finds_out_that_it_was_deposed() -> None:
    """Within a lease, without an append; it names the new owner, as after a refused append."""
    storage = MemoryStorage()
    first = await leased(storage, "a")
    await asyncio.sleep(3_600)
    assert not first.lost
    second = await leased(storage, "b")
    with capture_logs() as lines:
        await asyncio.sleep(FOUND_OUT_S)
    assert isinstance(first.lost[0], Deposed)
    assert not first.runtime.ready
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["partition lost"]
    assert str(first.lost[0]).startswith("b took over the event log from this process at ")
    assert not second.lost
    await first.runtime.stop()
    await second.runtime.stop()


@story
async def test_a_deposed_process_leaves_no_task_behind() -> None:
    """Tasks of its partitions last until it stops, and end then."""
    storage = MemoryStorage()
    first, second = await leased(storage, "a"), await leased(storage, "b")
    await asyncio.sleep(FOUND_OUT_S)
    assert first.lost
    gc.collect()  # a task with no reference would be reported as destroyed
    await first.runtime.stop()
    await second.runtime.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@story
async def test_a_repeated_append_without_a_result_is_followed_by_another_append() -> None:
    """The append detects a log that does not respond, as usual; members can heartbeat meanwhile."""
    storage = MemoryStorage(1)
    process = await leased(storage, "a")
    joined = (await process.stable_group("x"))["x"]
    note_repeats(process, answered=lambda: False)
    end = storage.end_offset(0)
    await asyncio.sleep(FOUND_OUT_S)
    assert storage.end_offset(0) > end
    assert storage.records[0][-1].value is None
    assert (await process.heartbeat(joined)).error is ErrorCode.none
    process.log.fail_next_append()
    await asyncio.sleep(FOUND_OUT_S)
    assert process.runtime.ready  # it was lost for a moment, and taken over again
    assert storage.epochs[0] == 2
    await process.runtime.stop()


@story
async def test_a_proof_that_is_too_large_for_the_log_is_the_partitions_loss() -> None:
    """It cannot be owned without a proof; the process takes it over again."""
    storage = MemoryStorage(1)
    process = await leased(storage, "a")
    await asyncio.sleep(REAL_PROOF_MS / 1000 - LEASE_MS / 1000)
    process.log.refuse_in_next_append()
    await asyncio.sleep(2 * LEASE_MS / 1000)
    assert storage.epochs[0] == 2
    assert process.runtime.ready
    await process.runtime.stop()


@story
async def test_a_renewal_whose_newer_claim_is_in_the_log_already_deposes_no_owner() -> None:
    """The append before it is refused, as after another owner's claim."""
    storage = MemoryStorage(1)
    process = await leased(storage, "a", claim_renewal_ms=5 * LEASE_MS)
    claim = process.log.claim
    release: list[asyncio.Event] = []

    async def withheld(partition: int) -> MemoryLogWriter:
        writer = await claim(partition)
        release.append(process.log.hold_acknowledgements())
        return writer

    process.log.claim = withheld  # type: ignore[method-assign]
    await until(lambda: storage.fences[0] > 1)
    repeats = note_repeats(process)
    await asyncio.sleep(FOUND_OUT_S)
    assert repeats
    assert process.runtime.ready
    assert not process.lost
    for each in release:
        each.set()
    await process.runtime.stop()


@story
async def test_a_partition_lost_and_taken_over_again_meanwhile_deposes_no_owner() -> None:
    """Our own newer claim makes the append of the former ownership fail."""
    storage = MemoryStorage()
    process = await leased(storage, "a")
    number = partition_for(process.group_id, len(storage.records))
    repeats = note_repeats(process, late_s=0.4)
    await until(lambda: bool(repeats))
    process.log.fail_next_append()
    assert (await process.join("a")).error is ErrorCode.not_coordinator
    await until(lambda: process.runtime.ready)
    assert storage.epochs[number] == 2
    await asyncio.sleep(FOUND_OUT_S)
    assert process.runtime.ready
    assert storage.epochs[number] == 2
    assert not process.lost
    await process.runtime.stop()


@story
async def test_a_proof_that_is_under_way_is_not_begun_again() -> None:
    """However long the log takes to answer: the broker may be slow already."""
    process = await leased(MemoryStorage(1), "a")
    repeats = note_repeats(process, late_s=5 * LEASE_MS / 1000)
    await until(lambda: bool(repeats))
    await asyncio.sleep(4 * LEASE_MS / 1000)
    assert repeats == [[0]]
    await process.runtime.stop()
