"""Failures inside one process affect as few groups as possible, and are always reported; in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.group.commands import Heartbeat
from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.group.outcomes import Outcome
from muster.coordinator.offsets.memory import MemoryOffsetStore
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused, Deposed, LogDenied, LogUnavailable
from muster.events.log.memory import MemoryLogWriter, MemoryStorage
from muster.events.records import StoredRecord
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate
from tests.waiting import until

RENEWAL_MS = 3_000


class FailingOffsets(MemoryOffsetStore):
    """Fails the next write, or the next that deletes a group's offsets, as set. No write is made before `goes_on`."""

    fails_with: Exception | None = None
    fails_deletion_with: Exception | None = None
    refuses = False

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def write(self, changes: Sequence[OffsetsChange]) -> Sequence[AppendRefused | None]:
        await self.goes_on.wait()
        if self.fails_deletion_with is not None and any(change.all_deleted for change in changes):
            error, self.fails_deletion_with = self.fails_deletion_with, None
            raise error
        if self.fails_with is not None:
            error, self.fails_with = self.fails_with, None
            raise error
        if self.refuses:
            return [AppendRefused(size_bytes=2, limit_bytes=1) for _ in changes]
        return await super().write(changes)


def test_no_client_is_served_before_the_fence_record_was_read() -> None:
    """A reading that ends before it, as at a lagging leader, may lack acknowledged events (L6)."""

    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        before = await SimulatedProcess(storage).start()
        joined = await before.stable_group("a")
        process = SimulatedProcess(storage)
        read, is_behind = process.log.read, True

        async def behind(number: int, **_: object) -> AsyncIterator[Sequence[StoredRecord]]:
            async for chunk in read(number):
                yield chunk[:-1] if is_behind else chunk

        process.log.read = behind  # type: ignore[method-assign, assignment]
        await process.start()
        await asyncio.sleep(3)
        assert not process.runtime.ready
        assert "the reading ended before the record" in str(process.runtime.not_ready)
        is_behind = False
        await until(lambda: process.runtime.ready)
        assert (await process.heartbeat(joined["a"])).error is ErrorCode.none
        await process.runtime.stop()

    simulate(story())


def test_a_recreated_group_inherits_no_offsets() -> None:
    """Deleted and committed to at once, with a crash between the events and deleting the former group's offsets."""

    async def story() -> None:
        offsets = FailingOffsets()
        process = await SimulatedProcess(MemoryStorage(partitions=1), offsets=offsets).start()
        assert (await process.commit(5)).error is ErrorCode.none
        offsets.goes_on.clear()
        commit = process.commit(6)
        await asyncio.sleep(0.01)
        delete, commit_anew = process.delete(), process.commit(1, topic="other")  # they wait for the commit, together
        offsets.fails_deletion_with = LogUnavailable("the disk is gone for a moment")
        offsets.goes_on.set()
        assert (await commit).error is ErrorCode.none
        assert (await delete).error is ErrorCode.not_coordinator
        assert (await commit_anew).error is ErrorCode.not_coordinator

        await until(lambda: process.runtime.ready, "the partition is served again")

        assert (await process.commit(1, topic="other")).error is ErrorCode.none
        found = process.runtime.committed_offsets(GROUP)
        assert not isinstance(found, ErrorCode)
        assert {partition: stored.offset for partition, stored in found.items()} == {("other", 0): 1}
        await process.runtime.stop()

    simulate(story())


def test_an_owner_that_slept_while_it_renewed_reads_what_others_wrote() -> None:
    """Another owner served between its last append and its new claim: none of its events is lost or denied."""

    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        first = await SimulatedProcess(storage, claim_renewal_ms=RENEWAL_MS).start()
        joined = await first.stable_group("a", "b")
        claim = first.log.claim

        async def claim_after_a_sleep(number: int) -> MemoryLogWriter:
            """While this process sleeps, another one takes over, serves, and stops."""
            first.log.claim = claim  # type: ignore[method-assign]
            second = await SimulatedProcess(storage).start()
            assert (await second.leave(joined["a"].member_id)).members[0].error is ErrorCode.none
            return await claim(number)

        first.log.claim = claim_after_a_sleep  # type: ignore[method-assign, assignment]
        await until(lambda: first.log.claim == claim, "claims are renewed")
        await until(lambda: first.runtime.ready, "the partition is served again")
        assert (await first.heartbeat(joined["a"])).error is ErrorCode.unknown_member_id
        assert (await first.heartbeat(joined["b"])).error is ErrorCode.rebalance_in_progress
        await first.runtime.stop()

    simulate(story())


def test_offsets_of_a_deletion_that_was_cut_short_are_gone_after_the_retake() -> None:
    """A group created again under the same id inherits nothing."""

    async def story() -> None:
        offsets = FailingOffsets()
        process = await SimulatedProcess(MemoryStorage(), offsets=offsets).start()
        await process.commit(5)
        offsets.fails_with = LogUnavailable("asked for")
        with capture_logs() as lines:
            assert (await process.delete()).error is ErrorCode.not_coordinator
            await until(lambda: process.runtime.ready, "the partition is served again")
        assert process.runtime.committed_offsets(GROUP) == {}
        (line,) = [each for each in lines if each["event"] == "removing offsets of deleted groups"]
        assert line["groups"] == 1
        await process.runtime.stop()

    simulate(story())


def test_a_commit_that_can_never_be_stored_is_refused_alone() -> None:
    """Its group and the others of the partition are still served."""

    async def story() -> None:
        offsets = FailingOffsets()
        process = await SimulatedProcess(MemoryStorage(), offsets=offsets).start()
        joined = await process.stable_group("a")
        offsets.refuses = True
        assert (await process.commit(5, joined["a"])).error is ErrorCode.unknown_server_error
        assert process.runtime.ready
        offsets.refuses = False
        await process.commit(6, joined["a"])
        assert process.runtime.committed_offsets(GROUP)["orders", 0].offset == 6  # type: ignore[index]
        await process.runtime.stop()

    simulate(story())


def test_offsets_that_are_refused_when_their_events_are_stored_have_the_partition_read_again() -> None:
    """Otherwise memory and log would differ."""

    async def story() -> None:
        offsets = FailingOffsets()
        process = await SimulatedProcess(MemoryStorage(partitions=1), offsets=offsets).start()
        offsets.refuses = True
        assert (await process.commit(5)).error is ErrorCode.not_coordinator, "it would have made the group"
        await until(lambda: process.runtime.ready, "the partition is served again")
        assert (await process.describe()).state == "Empty"
        assert process.runtime.committed_offsets(GROUP) == {}
        assert process.lost == []
        await process.runtime.stop()

    simulate(story())


def test_a_bug_in_what_writes_ends_the_process_in_words() -> None:
    """Rather than leaving a partition unserved in silence."""

    async def story() -> None:
        offsets = FailingOffsets()
        process = await SimulatedProcess(MemoryStorage(), offsets=offsets).start()
        offsets.fails_with = ZeroDivisionError("a bug")
        assert (await process.commit(5)) is not None
        assert isinstance(process.lost[0], ZeroDivisionError)

    simulate(story())


def test_a_failing_response_affects_no_other_client() -> None:
    """A bug when a response is encoded only affects that client."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage()).start()
        joined = await process.stable_group("a", "b")

        def fail(_outcome: Outcome) -> None:
            raise ZeroDivisionError("a bug")

        process.runtime.submit(process.heartbeat_command(joined["a"]), fail)
        assert (await process.leave(joined["b"].member_id)).error is ErrorCode.none
        assert process.lost == []
        await process.runtime.stop()

    simulate(story())


def test_a_ticket_ends_with_what_it_was_given_for() -> None:
    """While a change of the group is pending, and when the partition is released."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage()).start()
        joined = await process.stable_group("a", "b")
        heartbeat = process.heartbeat_command(joined["a"])
        ticket = process.runtime.heartbeat_ticket(heartbeat)
        assert ticket is not None
        assert ticket.accept(process.clock.monotonic_ms())
        release = process.log.hold_acknowledgements()
        leaving = process.leave(joined["a"].member_id)
        assert not ticket.accept(process.clock.monotonic_ms())
        release.set()
        await leaving
        ticket = process.runtime.heartbeat_ticket(process.heartbeat_command(joined["b"]))
        assert ticket is None  # it has to rejoin
        other = await process.join("x", group_id=GroupId("other"))
        ticket = process.runtime.heartbeat_ticket(
            Heartbeat(
                caller=heartbeat.caller,
                group_id=GroupId("other"),
                member_id=other.member_id,
                group_instance_id=None,
                generation_id=other.generation_id,
            )
        )
        assert ticket is not None
        await process.runtime.stop()
        assert not ticket.accept(process.clock.monotonic_ms())

    simulate(story())


def test_pending_appends_are_stored_before_coordinator_stopped() -> None:
    """Neither the pending append nor what waits for it is lost."""

    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        process = await SimulatedProcess(storage).start()
        joined = await process.stable_group("a")
        release = process.log.hold_acknowledgements()
        process.leave(joined["a"].member_id)
        await asyncio.sleep(0.1)
        process.commit(5, group_id=GroupId("behind"))
        stopping = asyncio.create_task(process.runtime.stop())
        await asyncio.sleep(1)
        assert not stopping.done()
        release.set()
        await stopping
        again = await SimulatedProcess(storage).start()
        assert (await again.heartbeat(joined["a"])).error is ErrorCode.unknown_member_id
        assert (await again.describe(GroupId("behind"))).state == "Empty"
        await again.runtime.stop()

    simulate(story())


def test_a_log_that_hangs_does_not_hold_up_the_end() -> None:
    """After a while the process ends without CoordinatorStopped, which is as safe as a crash."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage()).start()
        joined = await process.stable_group("a")
        process.log.hold_acknowledgements()
        process.leave(joined["a"].member_id)
        await asyncio.wait_for(process.runtime.stop(), 30)

    simulate(story())


def test_a_log_that_fails_while_it_stops() -> None:
    """Every partition is closed, and all pending requests are answered."""

    async def story() -> None:
        storage = MemoryStorage()
        process = await SimulatedProcess(storage).start()
        joined = await process.stable_group("a")
        storage.fences[:] = [epoch + 1 for epoch in storage.epochs]
        leaving = process.leave(joined["a"].member_id)
        await process.runtime.stop()
        assert (await leaving).error is ErrorCode.not_coordinator
        assert all(isinstance(error, Deposed) for error in process.lost)

    simulate(story())


def test_a_right_that_is_lost_and_had_before_is_waited_for() -> None:
    """An operator restores the ACLs; at the start it ends the process with an error."""

    async def story() -> None:
        offsets = FailingOffsets()
        process = await SimulatedProcess(MemoryStorage(partitions=1), offsets=offsets).start()
        claim, refused = process.log.claim, 0

        async def refuse(number: int) -> MemoryLogWriter:
            nonlocal refused
            refused += 1
            if refused < 5:
                raise LogDenied("the ACL Allow WRITE is not there")
            return await claim(number)

        process.log.claim = refuse  # type: ignore[method-assign, assignment]
        offsets.fails_with = LogUnavailable("asked for")
        assert (await process.commit(5)).error is ErrorCode.not_coordinator
        await until(lambda: refused >= 2, "it is tried again")
        assert "Allow WRITE" in str(process.runtime.not_ready)
        await until(lambda: process.runtime.ready, "the partition is served again")
        assert process.lost == []
        await process.runtime.stop()
        fresh, refused = SimulatedProcess(MemoryStorage(partitions=1)), 0
        fresh.log.claim = refuse  # type: ignore[method-assign, assignment]
        with pytest.raises(LogDenied):
            await fresh.start()

    simulate(story())


def test_a_bug_while_a_partition_is_taken_over_again_ends_the_process() -> None:
    """Otherwise a partition that is neither served nor retried would go unnoticed."""

    async def story() -> None:
        offsets = FailingOffsets()
        process = await SimulatedProcess(MemoryStorage(partitions=1), offsets=offsets).start()

        async def claim(_number: int) -> MemoryLogWriter:
            raise ZeroDivisionError

        process.log.claim = claim  # type: ignore[method-assign, assignment]
        offsets.fails_with = LogUnavailable("asked for")
        assert (await process.commit(5)).error is ErrorCode.not_coordinator
        await until(lambda: process.lost)
        assert [type(error) for error in process.lost] == [ZeroDivisionError]
        await process.runtime.stop()

    simulate(story())


@pytest.mark.parametrize("is_appending", [True, False])
def test_a_log_counts_as_unavailable_since_the_start_of_the_failed_append(*, is_appending: bool) -> None:
    """Or from now on, if no append was pending."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        joined = await process.stable_group("a")
        if is_appending:
            process.log.hold_acknowledgements()
            process.leave(joined["a"].member_id)
        await asyncio.sleep(7.0)
        with capture_logs() as lines:
            process.runtime._partitions.lost(0, LogUnavailable("an append came to nothing"))
        (line,) = [each for each in lines if each["event"] == "event log unavailable, retrying"]
        assert line["seconds"] == (7 if is_appending else 0)
        await process.runtime.stop()

    simulate(story())


def test_stopping_without_coordinator_stopped_is_logged() -> None:
    """In one line: the partitions and the reason, or the number of pending requests at the time-out."""

    async def lines_of_stopping(*, is_refused: bool) -> list[tuple[str, object, str | None]]:
        process = await SimulatedProcess(MemoryStorage(partitions=3)).start()
        if is_refused:
            for ownership in process.runtime._owned.values():
                ownership.stop = partial(stopped_in_vain, ownership.stop)  # type: ignore[method-assign]
        else:
            process.log.hold_acknowledgements()
        with capture_logs() as lines:
            await process.runtime.stop()
        await until(lambda: not any(task.get_name().startswith("stop-") for task in asyncio.all_tasks()))
        warned = [line for line in lines if line["log_level"] == "warning"]
        return [(line["event"], line["partitions"], line.get("error")) for line in warned]

    async def stopped_in_vain(stop: Callable[[], Awaitable[None]]) -> None:
        await stop()
        raise LogUnavailable("no broker")

    async def story() -> None:
        refused = ("could not write CoordinatorStopped", [0, 1, 2], "no broker")
        assert await lines_of_stopping(is_refused=True) == [refused]
        late = ("stopped before CoordinatorStopped was written", 3, None)
        assert await lines_of_stopping(is_refused=False) == [late]

    simulate(story())


def test_every_partition_is_taken_over_later_if_the_log_is_unavailable_at_the_start() -> None:
    """None waits for the first attempt of another, and failed ones are retried."""

    async def story() -> None:
        process = SimulatedProcess(MemoryStorage(partitions=3))
        claim, tried = process.log.claim, list[int]()

        async def refuse_first(number: int) -> MemoryLogWriter:
            tried.append(number)
            if len(tried) == 1:
                raise LogUnavailable("no broker")
            return await claim(number)

        process.log.claim = refuse_first  # type: ignore[method-assign, assignment]
        await process.start()
        assert tried[:3] == [0, 1, 2]
        await process.runtime.all_owned()
        assert process.runtime.ready
        assert sorted(tried) == [0, 0, 1, 2]
        await process.runtime.stop()

    simulate(story())


def test_a_bug_in_taking_a_partition_over_again_ends_the_process() -> None:
    """Otherwise the process would lack the partition for ever, without a report."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()

        async def fail(_number: int) -> MemoryLogWriter:
            message = "a bug"
            raise ZeroDivisionError(message)

        process.log.claim = fail  # type: ignore[method-assign, assignment]
        process.log.fail_next_append()
        assert (await process.commit(5)).error is ErrorCode.not_coordinator
        await until(lambda: bool(process.lost))
        assert [type(error) for error in process.lost] == [ZeroDivisionError]
        await process.runtime.stop()

    simulate(story())
