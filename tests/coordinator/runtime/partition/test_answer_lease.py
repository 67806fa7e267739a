"""The answer lease: a process that cannot prove its ownership of a partition stops answering."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import Heartbeat
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.runtime.ownership.lease_keeper import REAL_PROOF_MS
from muster.coordinator.runtime.partition.answer_lease import HELD_MS, AnswerLease
from muster.coordinator.runtime.runtime import Runtime
from muster.coordinator.service import HeartbeatTicket
from muster.events.log.base import AppendRefused, Deposed, LogWriter, Repeats
from muster.events.log.memory import MemoryLogWriter, MemoryStorage
from muster.events.records import Transition
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate

LEASE_MS = 2_000


async def leased(
    storage: MemoryStorage,
    name: str,
    *,
    boot_ms: Callable[[], int] | None = None,
    claim_renewal_ms: int | None = None,
    prepare: Callable[[SimulatedProcess], None] = lambda _: None,
) -> SimulatedProcess:
    """A process with a lease that has claimed its partition; `prepare` is called before."""
    process = SimulatedProcess(storage, claim_renewal_ms=claim_renewal_ms)
    boot_ms = boot_ms or process.clock.monotonic_ms
    owner = msgspec.structs.replace(process.runtime._owner, name=name, answer_lease_ms=LEASE_MS, boot_ms=boot_ms)
    process.runtime = Runtime(owner, give_up=process.lost.append)
    prepare(process)
    await process.start()
    return process


def left_ms(process: SimulatedProcess) -> int:
    """The time for which the process may respond without another proof."""
    kept = process.runtime._partitions.owned[0].kept
    assert kept is not None
    return kept.lease.left_ms


def story(reported: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        simulate(reported())

    test.__name__, test.__doc__ = reported.__name__, reported.__doc__
    return test


def ticket_of(process: SimulatedProcess, joined: JoinGroupOutcome) -> HeartbeatTicket:
    command: Heartbeat = process.heartbeat_command(joined)
    ticket = process.runtime.heartbeat_ticket(command)
    assert ticket is not None
    return ticket


@story
async def test_an_idle_owner_renews_its_lease_and_keeps_answering() -> None:
    """Its last append is sent again, which appends nothing, while there is nothing else to append."""
    storage = MemoryStorage(1)
    process = await leased(storage, "a")
    joined = await process.stable_group("x")
    end, ticket = storage.end_offset(0), ticket_of(process, joined["x"])
    for _ in range(20):
        await asyncio.sleep(1)
        assert ticket.accept(process.clock.monotonic_ms())
        assert (await process.heartbeat(joined["x"])).error is ErrorCode.none
    assert storage.end_offset(0) == end
    await process.runtime.stop()


@story
async def test_now_and_then_something_is_really_appended() -> None:
    """A leader that was itself deposed would repeat its response from memory for ever."""
    storage = MemoryStorage(1)
    process = await leased(storage, "a")
    end = storage.end_offset(0)
    await asyncio.sleep(2.2 * REAL_PROOF_MS / 1000)
    assert storage.end_offset(0) == end + 2
    assert storage.records[0][-1].value is None
    await process.runtime.stop()
    again = await leased(storage, "b")
    assert again.runtime.ready
    await again.runtime.stop()


@story
async def test_a_deposed_owner_stops_answering_when_its_lease_is_over() -> None:
    """Including responses from memory: the fast path, commits, lists."""
    storage = MemoryStorage(1)
    first = await leased(storage, "a")
    joined = await first.stable_group("x")
    ticket = ticket_of(first, joined["x"])
    second = await leased(storage, "b")
    assert ticket.accept(first.clock.monotonic_ms())
    await asyncio.sleep(LEASE_MS / 1000)
    assert not ticket.accept(first.clock.monotonic_ms())
    assert isinstance(first.lost[0], Deposed)
    assert (await second.heartbeat(joined["x"])).error is ErrorCode.none
    await first.runtime.stop()
    await second.runtime.stop()


@pytest.mark.parametrize("is_cut", [True, False])
def test_without_a_proof_responses_wait_and_then_fail_as_unavailable(*, is_cut: bool) -> None:
    """A response waits up to a second for a proof; if one comes it is sent unchanged."""

    async def reported() -> None:
        process = await leased(MemoryStorage(1), "a")
        joined = (await process.stable_group("x"))["x"]
        ticket = ticket_of(process, joined)
        repeat, until = process.log.repeat, asyncio.Event()

        async def late(writers: Sequence[LogWriter], *, timeout_ms: int) -> Repeats:
            await until.wait()
            async for answers in repeat(writers, timeout_ms=timeout_ms):
                yield answers

        process.log.repeat = late  # type: ignore[method-assign]
        await asyncio.sleep(2 * LEASE_MS / 1000)
        assert not ticket.accept(process.clock.monotonic_ms())
        assert process.runtime.list_groups() is ErrorCode.coordinator_not_available
        assert process.runtime.committed_offsets(process.group_id) is ErrorCode.coordinator_not_available
        asked_ms, heartbeat = process.clock.monotonic_ms(), process.heartbeat(joined)
        await asyncio.sleep(0.5)
        assert not heartbeat.done()
        if is_cut:
            assert (await heartbeat).error is ErrorCode.coordinator_not_available
            assert process.clock.monotonic_ms() - asked_ms == HELD_MS
        # A proof counts from when it was sent, which is too long ago by now; the next one is sent at once.
        until.set()
        answer = await (process.heartbeat(joined) if is_cut else heartbeat)
        assert answer.error is ErrorCode.none
        await process.runtime.stop()

    simulate(reported())


@pytest.mark.parametrize("ends_in_time", [True, False])
def test_a_heartbeat_behind_an_append_does_not_outlast_the_lease(*, ends_in_time: bool) -> None:
    """A process that is cut off from its log retries for long; its members should look for the next owner meanwhile."""

    async def reported() -> None:
        process = await leased(MemoryStorage(1), "a")
        joined = (await process.stable_group("x"))["x"]
        release = process.log.hold_acknowledgements()
        process.log.repeat = _nothing  # type: ignore[method-assign, assignment]
        join = process.join("y")
        await asyncio.sleep(0.01)
        heartbeat = process.heartbeat(joined)
        await asyncio.sleep(HELD_MS / 1000)
        assert not heartbeat.done()  # the lease still covers it
        if ends_in_time:
            release.set()
            assert (await heartbeat).error is ErrorCode.rebalance_in_progress
        else:
            await asyncio.sleep(LEASE_MS / 1000)
            assert (await heartbeat).error is ErrorCode.coordinator_not_available
            release.set()
        join.cancel()
        await process.runtime.stop()

    simulate(reported())


@story
async def test_an_append_proves_from_when_it_was_sent() -> None:
    """Another owner may have claimed the partition while the response was on its way."""
    process = await leased(MemoryStorage(1), "a")
    process.log.repeat = _nothing  # type: ignore[method-assign, assignment]
    release = process.log.hold_acknowledgements()
    commit = process.commit(7)
    await asyncio.sleep(0.75 * LEASE_MS / 1000)
    release.set()
    assert (await commit).error is ErrorCode.none
    assert 0 < left_ms(process) <= 0.25 * LEASE_MS
    await process.runtime.stop()


@story
async def test_an_append_that_is_refused_proves_nothing() -> None:
    """It is too large, and was not sent."""
    process = await leased(MemoryStorage(1), "a")
    process.log.repeat = _nothing  # type: ignore[method-assign, assignment]
    await asyncio.sleep(0.75 * LEASE_MS / 1000)
    process.log.refuse_in_next_append()
    assert (await process.commit(7)).error is not ErrorCode.none
    assert 0 < left_ms(process) <= 0.25 * LEASE_MS
    await process.runtime.stop()


@story
async def test_a_takeover_proves_from_when_its_last_record_was_sent() -> None:
    """However long the log takes to answer."""

    def make_slow(process: SimulatedProcess) -> None:
        append = MemoryLogWriter.append

        class SlowWriter(MemoryLogWriter):
            async def append(self, transitions: Sequence[Transition]) -> Sequence[AppendRefused | None]:
                answers = await append(self, transitions)
                await asyncio.sleep(0.75 * LEASE_MS / 1000)
                return answers

        claim = process.log.claim

        async def claimed(partition: int) -> MemoryLogWriter:
            writer = await claim(partition)
            writer.__class__ = SlowWriter
            return writer

        process.log.claim = claimed  # type: ignore[method-assign]

    process = await leased(MemoryStorage(1), "a", prepare=make_slow)
    assert 0 < left_ms(process) <= 0.25 * LEASE_MS
    await process.runtime.stop()


async def _nothing(_writers: Sequence[LogWriter], *, timeout_ms: int) -> Repeats:
    """No broker answers in time, so nothing is proven."""
    await asyncio.sleep(timeout_ms / 1000)
    nobody: dict[int, bool | Deposed] = {}
    yield nobody


@story
async def test_the_successor_of_a_clean_stop_does_not_wait() -> None:
    """Nor does a process that takes its own partition over again, after an outage of the log."""
    storage = MemoryStorage(1)
    first = await leased(storage, "a")
    began_ms = first.clock.monotonic_ms()
    await first.runtime.stop()
    second = await leased(storage, "b")
    assert second.clock.monotonic_ms() - began_ms < LEASE_MS / 4
    joined = (await second.stable_group("x"))["x"]
    second.log.fail_next_append()
    await second.commit(7, joined)
    await asyncio.sleep(LEASE_MS / 4 / 1000)
    began_ms = second.clock.monotonic_ms()
    assert (await second.commit(8, joined)).error is ErrorCode.none
    assert second.clock.monotonic_ms() - began_ms < LEASE_MS / 4
    await second.runtime.stop()


@story
async def test_a_machine_that_was_suspended_does_not_believe_its_lease() -> None:
    """The monotonic clock stops meanwhile, the lease clock does not."""
    slept_ms = 0
    process = await leased(
        MemoryStorage(1), "a", boot_ms=lambda: round(asyncio.get_running_loop().time() * 1000) + slept_ms
    )
    joined = (await process.stable_group("x"))["x"]
    ticket = ticket_of(process, joined)
    assert ticket.accept(process.clock.monotonic_ms())
    slept_ms = LEASE_MS
    assert not ticket.accept(process.clock.monotonic_ms())
    assert (await process.heartbeat(joined)).error is ErrorCode.none
    await process.runtime.stop()


def test_the_clock_is_read_once_for_all_responses_of_one_read() -> None:
    """After another reading of the loop's clock it is read again, even if the loop's time is the same: the machine was
    suspended.
    """
    looks: list[int] = []
    boot_ms = 10_000

    def look() -> int:
        looks.append(boot_ms)
        return boot_ms

    lease = AnswerLease(LEASE_MS, look)
    lease.proven(boot_ms)
    reading_ms, same_number = int("5000"), int("5000")
    assert [lease.covers_at(reading_ms) for _ in range(64)] == [True] * 64
    assert len(looks) == 1
    boot_ms += LEASE_MS
    assert not lease.covers_at(same_number)
    lease.proven(boot_ms)
    assert lease.covers_at(int("5001"))
    lease.end()
    assert not lease.covers_at(int("5001"))


def test_another_proof_is_wanted_when_half_of_the_lease_is_over() -> None:
    """From the sending of the last one, whichever response came later."""
    now_ms = 10_000
    lease = AnswerLease(LEASE_MS, lambda: now_ms)
    lease.proven(10_000)
    lease.proven(9_000)
    reported: dict[int, tuple[bool, bool]] = {}
    for now_ms in (10_999, 11_000, 11_999, 12_000):
        reported[now_ms] = lease.half_is_over, lease.covers
    assert reported == {10_999: (False, True), 11_000: (True, True), 11_999: (True, True), 12_000: (True, False)}


@story
async def test_a_response_of_a_released_partition_does_not_wait() -> None:
    """A late proof does not count: waiting responses become errors, and later ones do at once."""
    lease, reported, wanted = AnswerLease(LEASE_MS, lambda: 10_000), list[bool](), list[bool]()
    lease.want_proof = lambda: wanted.append(True)
    lease.when_covered(reported.append)
    assert (reported, wanted) == ([], [True])
    lease.end()
    assert reported == [False]
    lease.proven(10_000)
    lease.when_covered(reported.append)
    assert (reported, wanted) == ([False, False], [True])
