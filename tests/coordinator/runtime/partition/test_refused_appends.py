"""Joins whose events cannot be stored, and restarts during an append; in virtual time."""

import asyncio

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.runtime.partition.command_processor import CommandProcessor
from muster.coordinator.runtime.partition.group_context import Batch, GroupContext
from muster.events.ids import UNKNOWN_MEMBER_ID
from muster.events.log.memory import MemoryStorage
from muster.events.state import GroupState
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate

LIMIT_BYTES = 10_000
TOO_LARGE = bytes(2 * LIMIT_BYTES)


def test_a_group_whose_first_join_cannot_be_stored_never_existed() -> None:
    """J4: the join gets the error and no member id, in one step or in two."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(), batch_bytes_max=LIMIT_BYTES).start()
        refused = JoinGroupOutcome(error=ErrorCode.unknown_server_error, member_id=UNKNOWN_MEMBER_ID)
        assert await process.join("a", metadata=TOO_LARGE) == refused
        assert (await process.describe()).state is GroupState.DEAD
        process.log.refuse_in_next_append()
        assert await process.join(requires_known_member_id=True) == refused
        assert (await process.describe()).state is GroupState.DEAD
        assert (await process.join("a")).generation_id == 1
        await process.runtime.stop()

    simulate(story())


def test_an_unencodable_event_fails_alone_and_is_named() -> None:
    """Not the first of those that were decided together with it."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage()).start()
        released = process.log.hold_acknowledgements()
        first, second, torn = process.join("a"), process.join("b"), process.join("\ud800")
        await asyncio.sleep(0.01)
        with capture_logs() as lines:
            released.set()
            assert (await torn).error is ErrorCode.unknown_server_error
        (line,) = [line for line in lines if line["event"] == "events cannot be encoded"]
        assert "group_instance_id='\\ud800'" in line["command"]
        assert not first.done() or first.result().error is ErrorCode.none
        assert not second.done() or second.result().error is ErrorCode.none
        await process.runtime.stop()

    simulate(story())


def test_events_refused_together_are_stored_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them: only the culprit fails, and is found in one pass."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        batches = list[int]()
        store = CommandProcessor._store

        def note(processor: CommandProcessor, context: GroupContext, batch: Batch) -> None:
            batches.append(len(batch.commands))
            store(processor, context, batch)

        monkeypatch.setattr(CommandProcessor, "_store", note)
        released = process.log.hold_acknowledgements()
        first = process.join("first")
        await asyncio.sleep(0.01)
        joins = [process.join(f"i{number}") for number in range(4)]
        process.log.refuse_in_next_append()
        released.set()
        assert {(await join).error for join in (first, *joins)} == {ErrorCode.none}
        assert batches[:6] == [1, 4, 1, 1, 1, 1]
        await process.runtime.stop()

    simulate(story())


def test_a_restart_that_cannot_be_stored_leaves_the_old_process_in_its_place() -> None:
    """ST17: it has its id, leadership, assignment and session as before, and the next restart succeeds."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(), batch_bytes_max=LIMIT_BYTES).start()
        outcomes = await process.stable_group("a", "b")
        before = await process.describe()
        failed = await process.join("a", metadata=TOO_LARGE)
        assert (failed.error, failed.member_id) == (ErrorCode.unknown_server_error, "")
        assert await process.describe() == before
        await asyncio.sleep(9)
        for joined in outcomes.values():
            assert (await process.heartbeat(joined)).error is ErrorCode.none
        assert (await process.sync(outcomes["a"])).assignment == outcomes["a"].member_id.encode()
        back = await process.join("a")
        assert (back.error, back.generation_id) == (ErrorCode.none, outcomes["a"].generation_id)
        assert (await process.heartbeat(outcomes["a"])).error is ErrorCode.unknown_member_id
        await process.runtime.stop()

    simulate(story())


def test_each_of_two_restarts_is_answered_though_the_first_is_not_stored_yet() -> None:
    """ST16 differs here: the second one waits, so that both are answered; the later one wins."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage()).start()
        joined = await process.stable_group("a", "b")
        release = process.log.hold_acknowledgements()
        restarts = [process.join("a"), process.join("a")]
        await asyncio.sleep(1)
        assert not any(restart.done() for restart in restarts)
        release.set()
        first, second = [await restart for restart in restarts]
        assert {first.error, second.error} == {ErrorCode.none}
        assert {first.generation_id, second.generation_id} == {joined["a"].generation_id}
        assert (await process.heartbeat(first)).error is ErrorCode.unknown_member_id
        assert (await process.heartbeat(second)).error is ErrorCode.none
        await process.runtime.stop()

    simulate(story())


def test_offsets_of_a_group_that_cannot_be_stored_are_not_stored_either() -> None:
    """The commit that would create the group is refused as a whole: no offset is durable without its group."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage()).start()
        process.log.refuse_in_next_append()
        assert (await process.commit(7)).error is not ErrorCode.none
        assert not process.offsets.committed(GROUP)
        assert (await process.describe()).state is GroupState.DEAD
        await process.runtime.stop()

    simulate(story())
