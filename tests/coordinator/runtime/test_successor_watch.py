"""A process that appends nothing finds out all the same that another one has taken its log over."""

import asyncio
import gc

from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.runtime.ownership.successor import first_elected
from muster.coordinator.runtime.ownership.successor_watch import CHECK_INTERVAL_S, CHECK_TIMEOUT_S, PARTITIONS_AT_ONCE
from muster.events.log.base import Deposed
from muster.events.log.memory import MemoryLogWriter, MemoryStorage
from muster.events.partitioner import partition_for
from muster.events.records import StoredRecord
from tests.coordinator.runtime.test_runtime import story
from tests.simulation.process import SimulatedProcess
from tests.waiting import until

FOUND_OUT_S = 10.0


@story
async def test_an_idle_process_finds_out_that_it_was_deposed() -> None:
    """Within seconds, without an append, and it says by whom, as it does after an append that is refused."""
    storage = MemoryStorage()
    first = await SimulatedProcess(storage).start()
    await asyncio.sleep(3_600)
    assert not first.lost
    second = await SimulatedProcess(storage).start()
    before = [len(records) for records in storage.records]
    with capture_logs() as lines:
        await asyncio.sleep(FOUND_OUT_S)
    assert isinstance(first.lost[0], Deposed)
    assert not first.runtime.ready
    assert [line["event"] for line in lines] == ["partition lost"]
    assert str(first.lost[0]).startswith("simulated:1 took the event log over from this process at ")
    assert [len(records) for records in storage.records] == before
    assert not second.lost
    await first.runtime.stop()
    await second.runtime.stop()


@story
async def test_a_deposed_process_leaves_no_task_behind() -> None:
    """Those of its partitions last until it stops, and end then."""
    storage = MemoryStorage()
    first = await SimulatedProcess(storage).start()
    second = await SimulatedProcess(storage).start()
    await asyncio.sleep(FOUND_OUT_S)
    assert first.lost
    gc.collect()  # what nobody held would be reported as destroyed
    await first.runtime.stop()
    await second.runtime.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@story
async def test_a_successor_is_found_behind_more_strangers_than_a_look_reads() -> None:
    """A look that takes too long goes on where it was, and what cannot be decoded is no successor's record."""
    storage = MemoryStorage()
    first = await SimulatedProcess(storage).start()
    await asyncio.sleep(CHECK_INTERVAL_S + 1)  # where it ends was noted
    for records in storage.records:
        offset = storage.end_offset(records[0].partition)
        records += [StoredRecord(records[0].partition, offset + number, 0, b"key", b"?") for number in range(5)]
    second = await SimulatedProcess(storage).start()
    read = first.log.read

    async def slowly(partition: int, *, start: int = 0, end: int | None = None):  # type: ignore[no-untyped-def]  # noqa: ANN202
        async for chunk in read(partition, start=start, end=end):
            for record in chunk:
                await asyncio.sleep(CHECK_TIMEOUT_S / 2)
                yield [record]

    first.log.read = slowly  # type: ignore[method-assign]
    await asyncio.sleep(20 * CHECK_INTERVAL_S)
    assert isinstance(first.lost[0], Deposed)
    await first.runtime.stop()
    await second.runtime.stop()


@story
async def test_a_process_that_stands_alone_appends_nothing_and_reads_no_stranger_twice() -> None:
    """Strangers that write behind our last append depose nobody."""
    storage = MemoryStorage()
    process = await SimulatedProcess(storage).start()
    read = process.log.read
    starts: list[int] = []

    def noting(partition: int, *, start: int = 0, end: int | None = None):  # type: ignore[no-untyped-def]  # noqa: ANN202
        starts.append(start)
        return read(partition, start=start, end=end)

    process.log.read = noting  # type: ignore[method-assign]
    await asyncio.sleep(2 * CHECK_INTERVAL_S + 1)
    assert starts == []
    for _ in range(2):
        offset = storage.end_offset(0)
        storage.records[0].append(StoredRecord(0, offset, 0, b"key", b"value", stranger=True))
        await asyncio.sleep(10 * CHECK_INTERVAL_S)
        assert starts[-1] == offset
    assert len(starts) == 2
    assert not process.lost
    await process.runtime.stop()


@story
async def test_a_renewal_whose_newer_claim_is_in_the_log_already_deposes_nobody() -> None:
    """Its fence record is a newer owner's, too: it is found before the renewal knows that it is stored."""
    storage = MemoryStorage()
    process = await SimulatedProcess(storage, claim_renewal_ms=int(CHECK_INTERVAL_S * 3000)).start()
    claim, end_offset = process.log.claim, process.log.end_offset
    release: list[asyncio.Event] = []
    found: list[int] = []

    async def withheld(partition: int) -> MemoryLogWriter:
        writer = await claim(partition)
        release.append(process.log.hold_acknowledgements())
        return writer

    async def noting(partition: int) -> int:
        end = await end_offset(partition)
        if storage.fences[partition] > 1:
            found.append(partition)
        return end

    process.log.claim, process.log.end_offset = withheld, noting  # type: ignore[method-assign]
    await until(lambda: bool(found))
    await asyncio.sleep(FOUND_OUT_S)
    assert process.runtime.ready
    assert not process.lost
    for each in release:
        each.set()
    await process.runtime.stop()


@story
async def test_a_renewal_that_ends_while_it_is_looked_at_deposes_nobody() -> None:
    """The end of the log was asked for with the claim before."""
    storage = MemoryStorage()
    process = await SimulatedProcess(storage, claim_renewal_ms=int(CHECK_INTERVAL_S * 2500)).start()
    end_offset = process.log.end_offset
    found: list[int] = []

    async def after_the_renewal(partition: int) -> int:
        if storage.fences[partition] == 1:
            await until(lambda: storage.fences[partition] == 2)
            await asyncio.sleep(0.1)
            found.append(partition)
        return await end_offset(partition)

    process.log.end_offset = after_the_renewal  # type: ignore[method-assign]
    await until(lambda: bool(found))
    await asyncio.sleep(FOUND_OUT_S)
    assert process.runtime.ready
    assert not process.lost
    await process.runtime.stop()


@story
async def test_of_a_hundred_partitions_each_that_stands_still_tells_of_a_successor() -> None:
    """In as few seconds as one does, also when it comes right behind our last append."""
    storage = MemoryStorage(partitions=100)
    first = await SimulatedProcess(storage).start()
    await asyncio.sleep(CHECK_INTERVAL_S + 0.1)  # the first look is over
    await first.stable_group("a")
    second = await SimulatedProcess(storage).start()
    await asyncio.sleep(FOUND_OUT_S)
    assert isinstance(first.lost[0], Deposed)
    await first.runtime.stop()
    await second.runtime.stop()


@story
async def test_every_partition_is_looked_at_in_its_turn() -> None:
    """One partition of two in which nobody appends may be taken over before the other."""
    storage = MemoryStorage(partitions=2 * PARTITIONS_AT_ONCE + 1)
    process = await SimulatedProcess(storage).start()
    asked: list[int] = []
    end_offset = process.log.end_offset

    async def noting(partition: int) -> int:
        asked.append(partition)
        return await end_offset(partition)

    process.log.end_offset = noting  # type: ignore[method-assign]
    await asyncio.sleep(4 * CHECK_INTERVAL_S + 1)
    assert asked[: len(storage.records)] == list(range(len(storage.records)))
    assert asked[len(storage.records) :] == list(range(PARTITIONS_AT_ONCE - 1))
    await process.runtime.stop()


@story
async def test_a_log_that_does_not_answer_is_no_successor() -> None:
    """It is asked again, and the successor is found when it answers."""
    storage = MemoryStorage()
    first = await SimulatedProcess(storage).start()
    end_offset = first.log.end_offset
    is_away = True

    async def away(partition: int) -> int:
        if is_away:
            await asyncio.sleep(CHECK_TIMEOUT_S + 1)
        return await end_offset(partition)

    first.log.end_offset = away  # type: ignore[method-assign]
    second = await SimulatedProcess(storage).start()
    await asyncio.sleep(60)
    assert not first.lost
    is_away = False
    await asyncio.sleep(FOUND_OUT_S)
    assert isinstance(first.lost[0], Deposed)
    await first.runtime.stop()
    await second.runtime.stop()


@story
async def test_a_partition_that_was_lost_and_taken_over_again_meanwhile_deposes_nobody() -> None:
    """The record that is found then is our own."""
    storage = MemoryStorage()
    process = await SimulatedProcess(storage).start()
    number = partition_for(process.group_id, len(storage.records))
    end_offset = process.log.end_offset
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slowly(partition: int) -> int:
        if partition == number:
            asked.set()
            await answer.wait()
        return await end_offset(partition)

    process.log.end_offset = slowly  # type: ignore[method-assign]
    await asyncio.wait_for(asked.wait(), FOUND_OUT_S)
    process.log.fail_next_append()
    assert (await process.join("a")).error is ErrorCode.not_coordinator
    await until(lambda: process.runtime.ready)
    answer.set()
    await asyncio.sleep(FOUND_OUT_S)
    assert process.runtime.ready
    assert not process.lost
    await process.runtime.stop()


@story
async def test_ones_own_election_is_no_successors() -> None:
    """Nor is a former owner's, wherever the search begins."""
    process = await SimulatedProcess(MemoryStorage(1)).start()
    for epoch, found in ((0, 1), (1, None), (2, None)):
        elected = await first_elected(process.log, MemoryLogWriter(process.log, 0, epoch), start=0)
        assert (elected and elected.owner_epoch) == found
    await process.runtime.stop()
