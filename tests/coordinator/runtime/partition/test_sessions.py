"""Expiry of sessions in a running process, in virtual time. The rules of their length: `group/test_sessions.py`."""

import asyncio
from collections.abc import Sequence

from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.offsets.memory import MemoryOffsetStore
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused
from muster.events.log.memory import MemoryStorage
from tests.coordinator.runtime.partition.test_in_flight import HeldOffsets
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import VirtualTimeLoop, simulate
from tests.waiting import until

LATE = "timer late, sessions extended"


def test_a_session_that_became_shorter_ends_in_time() -> None:
    """ST8: the restarted member's own timeout applies from its first heartbeat on, though a later expiry was
    planned.
    """

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage()).start()
        joined = await process.stable_group("a", "b")
        back = await process.join("b", session_timeout_ms=1_000)
        assert (await process.heartbeat(back)).error is ErrorCode.none
        await asyncio.sleep(0.9)
        assert (await process.heartbeat(joined["a"])).error is ErrorCode.none
        await asyncio.sleep(0.2)
        assert (await process.heartbeat(joined["a"])).error is ErrorCode.rebalance_in_progress
        assert (await process.heartbeat(back)).error is ErrorCode.unknown_member_id
        await process.runtime.stop()

    simulate(story())


async def short_and_long(process: SimulatedProcess) -> tuple[JoinGroupOutcome, JoinGroupOutcome]:
    """A stable group of a member with a session of 6 s and one with 60 s."""
    joins = [process.join("a", session_timeout_ms=6_000), process.join("b", session_timeout_ms=60_000)]
    a, b = [await join for join in joins]
    for sync in [process.sync(joined) for joined in (a, b)]:
        assert (await sync).error is ErrorCode.none
    return a, b


def test_a_session_ends_in_time_though_others_refresh_theirs_before_a_look_at_the_deadlines_has_ended() -> None:
    """While a commit is stored, the check waits behind the next commit, whose sender has a longer session."""

    async def story() -> None:
        offsets = HeldOffsets()
        process = await SimulatedProcess(MemoryStorage(), offsets=offsets).start()
        a, b = await short_and_long(process)
        await asyncio.sleep(3)
        assert (await process.heartbeat(a)).error is ErrorCode.none
        await asyncio.sleep(2.5)
        offsets.released.clear()
        commits = [process.commit(offset, b) for offset in range(2)]
        await asyncio.sleep(1)  # the check planned before the heartbeat fires
        offsets.released.set()
        for commit in commits:
            assert (await commit).error is ErrorCode.none
        await asyncio.sleep(2)
        assert (await process.heartbeat(b)).error is ErrorCode.none
        await asyncio.sleep(1)
        assert (await process.heartbeat(b)).error is ErrorCode.rebalance_in_progress
        await process.runtime.stop()

    simulate(story())


class SlowOffsets(MemoryOffsetStore):
    async def write(self, changes: Sequence[OffsetsChange]) -> Sequence[AppendRefused | None]:
        await asyncio.sleep(0.25)
        return await super().write(changes)


def test_a_session_ends_in_time_in_a_group_that_is_never_idle() -> None:
    """Another member, whose session is longer, always has one commit being stored and one waiting."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(), offsets=SlowOffsets()).start()
        a, b = await short_and_long(process)

        async def commit_on() -> None:
            while True:
                await process.commit(1, b)

        committing = [asyncio.create_task(commit_on()) for _ in range(2)]
        await asyncio.sleep(3)
        assert (await process.heartbeat(a)).error is ErrorCode.none
        await asyncio.sleep(5)
        assert (await process.heartbeat(b)).error is ErrorCode.none
        await asyncio.sleep(2)
        assert (await process.heartbeat(b)).error is ErrorCode.rebalance_in_progress
        for each in committing:
            each.cancel()
        await process.runtime.stop()

    simulate(story())


def test_a_pause_during_an_append_moves_what_is_decided_already_by_the_same_rule() -> None:
    """The log line has the number of sessions restarted in full, and of those extended by the lost time."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        process.group_id = GroupId("other")  # during the append only its deadlines have the timer
        await process.stable_group("d")
        process.group_id = GROUP
        joined = await process.stable_group("a", "b")
        (ownership,) = process.runtime._owned.values()
        context = ownership.partition._contexts[GROUP]
        sessions = context.soft.sessions

        async def stand_still(beyond_s: float) -> tuple[int, int, int]:
            """Stall the machine; return how late the timer was, and the counts of sessions in the log line."""
            loop.advance(min(each.deadline_ms for each in sessions.values()) / 1000 - loop.time() + beyond_s)
            with capture_logs() as lines:
                await until(lambda: any(line["event"] == LATE for line in lines))
            (line,) = (line for line in lines if line["event"] == LATE)
            return line["late_ms"], line["in_full"], line["by_late_ms"]

        release = process.log.hold_acknowledgements()
        joining = process.join("c", rebalance_timeout_ms=30_000)
        await until(lambda: context.batch is not None and context.batch.decisions)
        assert context.batch is not None
        batch, dead = context.batch, sessions[joined["b"].member_id]
        assert (context.soft.join_deadline_ms, batch.soft.join_deadline_ms is not None) == (None, True)
        _, in_full, lengthened = await stand_still(40)
        assert (in_full, lengthened) == (3, 0)
        session_ms, phase_ms = dead.deadline_ms, batch.soft.join_deadline_ms
        assert session_ms == sessions[joined["a"].member_id].deadline_ms
        assert phase_ms == session_ms - 10_000 + 30_000
        await asyncio.sleep(1)
        sessions[joined["a"].member_id].refresh(process.clock.monotonic_ms() + 1, None)
        late_ms, in_full, lengthened = await stand_still(2)
        assert (in_full, lengthened) == (1, 2)
        assert (dead.deadline_ms, batch.soft.join_deadline_ms) == (session_ms + late_ms, phase_ms + late_ms)
        release.set()
        joining.cancel()
        await process.runtime.stop()

    simulate(story())
