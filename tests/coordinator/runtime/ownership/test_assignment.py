"""Partitions are assigned and released one by one, to processes that share a log."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.runtime.ownership.owned_partitions import STOP_TIMEOUT_S
from muster.coordinator.runtime.partition.outbox import OutboxEnded
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.runtime.partition.partition import Partition
from muster.coordinator.runtime.runtime import Runtime
from muster.events.events import CoordinatorStopped
from muster.events.ids import GroupId
from muster.events.log.base import Deposed, LogDenied, LogMismatch, LogUnavailable
from muster.events.log.memory import MemoryLogWriter, MemoryStorage
from muster.events.partitioner import partition_for
from muster.events.state import Group
from tests.coordinator.runtime.test_runtime import recorded
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate
from tests.waiting import until

PARTITIONS = 2


def _group_in(number: int) -> GroupId:
    return next(
        group for index in range(100) if partition_for(group := GroupId(f"group-{index}"), PARTITIONS) == number
    )


async def _sharing(storage: MemoryStorage, *numbers: int) -> tuple[SimulatedProcess, list[int]]:
    """A process that shares the log with others and has these partitions, which others take from it."""
    process, deposed = SimulatedProcess(storage), list[int]()
    process.runtime = Runtime(process.runtime._owner, give_up=process.lost.append, deposed=deposed.append)
    await process.log.open()
    await process.runtime.start(numbers)
    return process, deposed


def test_each_process_serves_what_it_is_assigned() -> None:
    """It answers NOT_COORDINATOR for everything else; both processes are ready."""

    async def story() -> None:
        storage = MemoryStorage(PARTITIONS)
        processes = [(await _sharing(storage, number))[0] for number in range(PARTITIONS)]
        for number, process in enumerate(processes):
            assert process.runtime.ready
            assert (await process.join("a", group_id=_group_in(number))).error is ErrorCode.none
            assert (await process.join("a", group_id=_group_in(1 - number))).error is ErrorCode.not_coordinator
            assert process.runtime.committed_offsets(_group_in(1 - number)) is ErrorCode.not_coordinator
            assert [listed.group_id for listed in process.runtime.list_groups()] == [_group_in(number)]  # type: ignore[union-attr]
        for process in processes:
            await process.runtime.stop()

    simulate(story())


def test_a_partition_moves_without_the_end_of_a_process() -> None:
    """Its groups continue at the new owner, and the old one still serves its other partition."""

    async def story() -> None:
        storage = MemoryStorage(PARTITIONS)
        (first, deposed), (second, _) = await _sharing(storage, 0, 1), await _sharing(storage)
        assert second.runtime.ready  # with nothing to serve
        moved = first.group_id = second.group_id = _group_in(1)
        joined = await first.stable_group("a")
        parked = first.join("b")
        await first.runtime.release([1])
        assert (await parked).error is ErrorCode.not_coordinator
        assert [event.partition for event in recorded(storage, CoordinatorStopped)] == [1]  # type: ignore[attr-defined]
        await second.runtime.assign([1])
        assert (await second.heartbeat(joined["a"])).error is ErrorCode.rebalance_in_progress  # b's join is in the log
        assert (await first.heartbeat(joined["a"])).error is ErrorCode.not_coordinator
        assert (await first.join("a", group_id=_group_in(0))).error is ErrorCode.none
        assert (first.lost, deposed) == ([], [])
        await second.runtime.release([1])
        await first.runtime.assign([1])
        assert (await first.describe(moved)).error is ErrorCode.none
        await first.runtime.stop()
        await second.runtime.stop()

    simulate(story())


def test_a_process_deposed_of_one_partition_serves_the_others() -> None:
    """The error names the partition; the process does not claim it back by itself, but may be assigned it again."""

    async def story() -> None:
        storage = MemoryStorage(PARTITIONS)
        (first, deposed), (second, _) = await _sharing(storage, 0, 1), await _sharing(storage, 1)
        with capture_logs() as logged:
            assert (await first.join("a", group_id=_group_in(1))).error is ErrorCode.not_coordinator
            assert deposed == [1]
            await asyncio.sleep(60)
        (lost,) = [each["error"] for each in logged if each["event"] == "partition lost"]
        assert "This process continues with what it is assigned" in lost
        assert first.runtime.ready
        assert storage.epochs == [1, 2]
        assert (await first.join("a", group_id=_group_in(0))).error is ErrorCode.none
        assert not first.lost
        await second.runtime.release([1])
        await first.runtime.assign([1])
        assert (await first.join("a", group_id=_group_in(1))).error is ErrorCode.none
        await first.runtime.stop()
        await second.runtime.stop()

    simulate(story())


def test_a_partition_that_waits_for_the_log_can_be_released() -> None:
    """It is not retried any more, and with the remaining partitions the process is ready."""

    async def story() -> None:
        process, _ = await _sharing(MemoryStorage(PARTITIONS), 0)
        claim, tried = process.log.claim, list[int]()

        is_away = True

        async def perhaps(number: int) -> MemoryLogWriter:
            tried.append(number)
            if is_away:
                raise LogUnavailable("no broker")
            return await claim(number)

        process.log.claim = perhaps  # type: ignore[method-assign, assignment]
        await process.runtime.assign([1])
        await until(lambda: len(tried) > 2, "it is tried again and again")
        await process.runtime.release([1])
        assert process.runtime._partitions.outage.reason is None
        times = len(tried)
        await asyncio.sleep(60)
        assert len(tried) == times
        assert process.runtime.ready
        is_away = False
        await process.runtime.assign([1])
        assert (await process.join("a", group_id=_group_in(1))).error is ErrorCode.none
        await process.runtime.stop()

    simulate(story())


def test_a_partition_that_another_process_took_during_a_log_outage_is_not_awaited() -> None:
    """It belongs to the other process now; this one no longer reports the log as unavailable."""

    async def story() -> None:
        process, deposed = await _sharing(MemoryStorage(PARTITIONS), 0)
        errors: list[Exception] = [LogUnavailable("no broker"), LogUnavailable("no broker"), Deposed(1, 1)]

        async def fails(_: int) -> MemoryLogWriter:
            raise errors.pop(0)

        process.log.claim = fails  # type: ignore[method-assign, assignment]
        await process.runtime.assign([1])
        outage = process.runtime._partitions.outage
        reported = [outage.reason is None]
        await until(lambda: deposed == [1])
        assert [*reported, outage.reason is None] == [False, True]
        assert process.runtime.ready
        await process.runtime.stop()

    simulate(story())


def test_a_partition_that_is_assigned_again_while_it_is_released_waits_for_its_end() -> None:
    """It is claimed after its CoordinatorStopped, not before."""

    async def story() -> None:
        storage = MemoryStorage(PARTITIONS)
        process, _ = await _sharing(storage, 0)
        acknowledge = process.log.hold_acknowledgements()
        releasing = asyncio.create_task(process.runtime.release([0]))
        await asyncio.sleep(1)
        assigning = asyncio.create_task(process.runtime.assign([0]))
        await asyncio.sleep(1)
        assert (storage.epochs[0], process.runtime.ready) == (1, False)
        assert (await process.join("a", group_id=_group_in(0))).error is ErrorCode.coordinator_load_in_progress
        acknowledge.set()
        await asyncio.gather(releasing, assigning)
        assert (storage.epochs[0], process.runtime.ready) == (2, True)
        assert (await process.join("a", group_id=_group_in(0))).error is ErrorCode.none
        await process.runtime.stop()

    simulate(story())


def test_a_release_does_not_wait_for_a_log_that_hangs_for_ever() -> None:
    """It is cut short, and the released partition writes nothing later."""

    async def story() -> None:
        process, _ = await _sharing(MemoryStorage(PARTITIONS), 0)
        ownership = process.runtime._partitions.owned[0]
        process.log.hold_acknowledgements()
        parked = process.join("a", group_id=_group_in(0))
        await asyncio.sleep(1)
        began_ms = process.clock.monotonic_ms()
        with capture_logs() as logged:
            await process.runtime.release([0])
        assert process.clock.monotonic_ms() - began_ms == STOP_TIMEOUT_S * 1_000
        assert [each["event"] for each in logged] == ["stopped before CoordinatorStopped was written"]
        assert (await parked).error is ErrorCode.not_coordinator
        with pytest.raises(OutboxEnded):
            await ownership.durable_state()
        assert process.runtime.ready
        assert not process.lost
        await process.runtime.stop()

    simulate(story())


def test_a_snapshot_of_a_partition_that_is_lost_meanwhile_fails_at_once() -> None:
    """It is waiting for the current append, which is never answered."""

    async def story() -> None:
        process, deposed = await _sharing(MemoryStorage(PARTITIONS), 0)
        ownership = process.runtime._partitions.owned[0]
        process.log.hold_acknowledgements()
        process.join("a", group_id=_group_in(0))
        await asyncio.sleep(1)
        saving = asyncio.create_task(ownership.durable_state())
        await asyncio.sleep(1)
        began_ms = process.clock.monotonic_ms()
        process.runtime._partitions.lost(0, Deposed(0, 1))
        with pytest.raises(OutboxEnded, match="partition 0"):
            await saving
        assert (process.clock.monotonic_ms() - began_ms, deposed) == (0, [0])
        await process.runtime.stop()

    simulate(story())


def test_the_status_gives_the_reason_for_an_unserved_partition() -> None:
    """The partition is lost for good, and the process is about to end."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(PARTITIONS)).start()
        process.runtime._partitions.lost(1, LogMismatch("another log is there"))
        assert [str(error) for error in process.lost] == ["another log is there"]
        waiting = [(each.partition, each.reason) for each in process.runtime.status().waiting]
        assert waiting == [(1, "another log is there")]
        assert (process.runtime.ready, process.runtime.claims()[1]) == (False, 0)
        await process.runtime.stop()

    simulate(story())


def test_an_assignment_that_fails_leaves_nothing_that_tries_again() -> None:
    """Its other takeovers are cancelled; all partitions can be released."""

    async def story() -> None:
        process, _ = await _sharing(MemoryStorage(PARTITIONS))
        claim, tried = process.log.claim, list[int]()

        async def denied(number: int) -> MemoryLogWriter:
            tried.append(number)
            if number == 1:
                raise LogDenied("no right to write")
            await asyncio.sleep(60)
            return await claim(number)

        process.log.claim = denied  # type: ignore[method-assign, assignment]
        with pytest.raises(LogDenied):
            await process.runtime.assign([0, 1])
        await asyncio.sleep(600)
        assert tried == [0, 1]
        reasons = {each.partition: each.reason for each in process.runtime.status().waiting}
        assert reasons == {0: "no right to write", 1: "no right to write"}
        await process.runtime.release(process.runtime.claims())
        assert process.runtime.claims() == {}
        await process.runtime.stop()

    simulate(story())


def test_an_assignment_that_fails_leaves_alone_what_was_already_retried() -> None:
    """One partition's log was unavailable before the other's turned out to be denied."""

    async def story() -> None:
        process, _ = await _sharing(MemoryStorage(PARTITIONS))
        claim, is_away = process.log.claim, True

        async def denied(number: int) -> MemoryLogWriter:
            if number == 0 and is_away:
                raise LogUnavailable("no broker")
            if number == 1:
                await asyncio.sleep(60)
                raise LogDenied("no right to write")
            return await claim(number)

        process.log.claim = denied  # type: ignore[method-assign, assignment]
        with pytest.raises(LogDenied):
            await process.runtime.assign([0, 1])
        is_away = False
        await until(lambda: 0 in process.runtime._partitions.owned, "the one is served")
        assert not process.lost
        await process.runtime.release(process.runtime.claims())
        await process.runtime.stop()

    simulate(story())


def test_the_line_of_what_is_ready_does_not_wait_for_what_is_retried() -> None:
    """The retried partition has a line of its own when it is served."""

    async def story() -> None:
        process, _ = await _sharing(MemoryStorage(PARTITIONS))
        claim, is_away = process.log.claim, True

        async def perhaps(number: int) -> MemoryLogWriter:
            if number == 1 and is_away:
                raise LogUnavailable("no broker")
            return await claim(number)

        process.log.claim = perhaps  # type: ignore[method-assign, assignment]
        with capture_logs() as logged:
            await process.runtime.assign([0, 1])
            at_once = _ready_lines(logged)
            is_away = False
            await until(lambda: len(process.runtime._partitions.owned) == PARTITIONS, "both are served")
        assert (at_once, _ready_lines(logged)) == ([[0]], [[0], [1]])
        await process.runtime.stop()

    simulate(story())


def _ready_lines(logged: Iterable[Mapping[str, Any]]) -> list[list[int]]:
    return [each["partitions"] for each in logged if each["event"] == "partitions ready"]


def test_a_partition_that_is_released_twice_is_closed_when_the_second_release_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another takeover waits for both: it must not claim the offsets before the release gives them up."""
    gates = [asyncio.Event(), asyncio.Event()]
    waiting = iter(gates)

    async def slow(_owner: Owner, _number: int) -> None:
        await next(waiting).wait()

    async def story() -> None:
        storage = MemoryStorage(PARTITIONS)
        process, _ = await _sharing(storage, 0)
        with monkeypatch.context() as patch:
            patch.setattr(Owner, "give_up_offsets", slow)
            releasing = [asyncio.create_task(process.runtime.release([0]))]
            await asyncio.sleep(1)
            assigning = asyncio.create_task(process.runtime.assign([0]))
            await asyncio.sleep(1)
            releasing.append(asyncio.create_task(process.runtime.release([0])))
            await asyncio.sleep(1)
            gates[0].set()
            await releasing[0]
            await asyncio.wait([assigning])
        again = asyncio.create_task(process.runtime.assign([0]))
        await asyncio.sleep(1)
        assert (storage.epochs[0], process.runtime.ready) == (1, False)
        gates[1].set()
        await asyncio.gather(releasing[1], again)
        assert (storage.epochs[0], process.runtime.ready) == (2, True)
        await process.runtime.stop()

    simulate(story())


def test_a_stop_does_not_wait_for_ever_for_a_partition_that_another_process_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The task that still closes it is cancelled, and none is left."""

    async def hangs(_owner: Owner, _number: int) -> None:
        await asyncio.Event().wait()

    async def story() -> None:
        process, deposed = await _sharing(MemoryStorage(PARTITIONS), 0)
        monkeypatch.setattr(Owner, "give_up_offsets", hangs)
        process.runtime._partitions.lost(0, Deposed(0, 1))
        await asyncio.sleep(1)
        began_ms = process.clock.monotonic_ms()
        await process.runtime.stop()
        assert (process.clock.monotonic_ms() - began_ms, deposed) == (STOP_TIMEOUT_S * 1_000, [0])
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    simulate(story())


def test_a_takeover_that_is_released_while_it_loads_its_groups_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outbox ends, too."""
    loading = asyncio.Event()

    async def hangs(_partition: Partition, _groups: Sequence[Group]) -> None:
        loading.set()
        await asyncio.Event().wait()

    async def story() -> None:
        process, _ = await _sharing(MemoryStorage(PARTITIONS))
        monkeypatch.setattr(Partition, "add_loaded_groups", hangs)
        assigning = asyncio.create_task(process.runtime.assign([0]))
        await loading.wait()
        await process.runtime.release([0])
        await asyncio.wait([assigning])
        assert not [each for each in asyncio.all_tasks() if each.get_name() == "outbox-0"]
        await process.runtime.stop()

    simulate(story())
