"""Responses while a group cannot be served: its partition is still being loaded, or its process stops."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AuthorizeCommit, DeleteOffsets, ReleaseGroup
from muster.coordinator.group.outcomes import (
    DescribeGroupOutcome,
    JoinGroupOutcome,
    LeaveGroupOutcome,
    Outcome,
    Superseded,
)
from muster.coordinator.runtime.runtime import LOADED_SOON_MS
from muster.events.ids import GroupId, MemberId
from muster.events.log.base import LogWriter
from muster.events.log.memory import MemoryStorage
from muster.events.state import GroupState
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate

MEMBER = JoinGroupOutcome(member_id=MemberId("a-1"), generation_id=3, protocol_name="range")

ASKS: dict[str, Callable[[SimulatedProcess], Awaitable[Outcome]]] = {
    "JoinGroup": lambda process: process.join("a", MEMBER.member_id),
    "SyncGroup": lambda process: process.sync(MEMBER),
    "Heartbeat": lambda process: process.heartbeat(MEMBER),
    "LeaveGroup": lambda process: process.leave(MEMBER.member_id),
    "OffsetCommit": lambda process: process.commit(7, MEMBER),
    "OffsetDelete": lambda process: process.submit(
        DeleteOffsets(caller=process.caller(api_key=47, api_version=0), group_id=GROUP, partitions=(("orders", 0),))
    ),
    "DescribeGroups": lambda process: process.describe(),
    "DeleteGroups": lambda process: process.delete(),
    "TxnOffsetCommit": lambda process: process.submit(
        AuthorizeCommit(
            caller=process.caller(api_key=28, api_version=3),
            group_id=GROUP,
            member_id=MEMBER.member_id,
            group_instance_id=None,
            generation_id=MEMBER.generation_id,
            unknown_group_error=ErrorCode.illegal_generation,
            is_transactional=True,
        )
    ),
    "muster release": lambda process: process.submit(ReleaseGroup(caller=process.caller(), group_id=GROUP)),
}


async def answers(process: SimulatedProcess) -> dict[str, Outcome]:
    """The outcome of each API for a group."""
    return {name: await ask(process) for name, ask in ASKS.items()}


def errors(outcomes: dict[str, Outcome]) -> dict[str, ErrorCode]:
    """The group's own error in each response."""
    return {name: outcome.error for name, outcome in outcomes.items() if not isinstance(outcome, Superseded)}


def check_form(outcomes: dict[str, Outcome], error: ErrorCode) -> None:
    """A join's response has its own member id, a leave's no member, a description's no group."""
    assert outcomes["JoinGroup"] == JoinGroupOutcome(error=error, member_id=MEMBER.member_id)
    assert outcomes["LeaveGroup"] == LeaveGroupOutcome(error=error)
    assert outcomes["DescribeGroups"] == DescribeGroupOutcome(error=error, state=GroupState.DEAD)


def test_while_a_partition_is_read_members_retry_undisturbed() -> None:
    """G19 to G22, QK8: 14; but a heartbeat succeeds, and a sync is sent back to join, as 14 would be fatal to
    clients.
    """

    async def story() -> None:
        process = SimulatedProcess(MemoryStorage())
        outcomes = await answers(process)
        loading = ErrorCode.coordinator_load_in_progress
        unlike = {"Heartbeat": ErrorCode.none, "SyncGroup": ErrorCode.rebalance_in_progress}
        assert errors(outcomes) == {**dict.fromkeys(ASKS, loading), **unlike}
        check_form(outcomes, loading)
        assert process.runtime.list_groups() is loading
        assert process.runtime.committed_offsets(GROUP) is loading

    simulate(story())


def test_a_partition_is_loaded_soon_for_a_second_after_it_was_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it takes longer, brokers are unreachable or there is much to read. Before the log is open the result is
    unknown, and once it is served it is loaded.
    """

    async def is_not_answered(_: int) -> LogWriter:
        return await asyncio.Future[LogWriter]()

    async def story() -> None:
        process = SimulatedProcess(MemoryStorage())
        assert not process.runtime.is_loaded_soon(GROUP)
        await process.log.open()
        monkeypatch.setattr(process.log, "claim", is_not_answered)
        starting = asyncio.create_task(process.runtime.start())
        await asyncio.sleep(0.1)
        assert process.runtime.is_loaded_soon(GROUP)
        await asyncio.sleep(LOADED_SOON_MS / 1_000)
        assert not process.runtime.is_loaded_soon(GROUP)
        starting.cancel()
        await process.runtime.stop()
        served = await SimulatedProcess(MemoryStorage()).start()
        assert not served.runtime.is_loaded_soon(GROUP)
        await served.runtime.stop()

    simulate(story())


def test_an_invalid_join_is_refused_once_the_partition_is_read() -> None:
    """G15 differs here: the request is not validated before."""

    async def story() -> None:
        process = SimulatedProcess(MemoryStorage())
        process.group_id = GroupId("")
        assert (await process.join("a")).error is ErrorCode.coordinator_load_in_progress
        await process.start()
        assert (await process.join("a", session_timeout_ms=1)).error is ErrorCode.invalid_group_id
        await process.runtime.stop()

    simulate(story())


def test_a_stopping_process_is_not_available() -> None:
    """G18: 15 for every API."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage()).start()
        await process.runtime.stop()
        outcomes = await answers(process)
        ended = ErrorCode.coordinator_not_available
        assert errors(outcomes) == dict.fromkeys(ASKS, ended)
        check_form(outcomes, ended)
        assert process.runtime.list_groups() is ended
        assert process.runtime.committed_offsets(GROUP) is ended

    simulate(story())


def test_a_deposed_process_redirects_all_clients() -> None:
    """G23: requests that are waiting when the partition is lost get 16, so clients look up the coordinator again."""

    async def story() -> None:
        storage = MemoryStorage()
        first = await SimulatedProcess(storage).start()
        joined = await first.stable_group("a", "b")
        parked = first.join("a", joined["a"].member_id)
        second = await SimulatedProcess(storage).start()
        left = await first.leave(joined["b"].member_id)
        assert left.error is ErrorCode.not_coordinator
        assert (await parked).error is ErrorCode.not_coordinator
        assert (await parked).member_id == joined["a"].member_id
        assert (await second.describe()).state is GroupState.PREPARING_REBALANCE
        await second.runtime.stop()

    simulate(story())
