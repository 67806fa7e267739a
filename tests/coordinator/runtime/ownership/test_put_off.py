"""A new owner answers reads at once, and defers changes while the former owner may still answer from memory."""

import asyncio

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.runtime.partition.former_owners import OldLeases
from muster.events.events import CoordinatorElected, CoordinatorStopped
from muster.events.log.base import LogUnavailable
from muster.events.log.memory import MemoryStorage
from tests.coordinator.runtime.partition.test_answer_lease import LEASE_MS, leased, story
from tests.simulation.process import SimulatedProcess
from tests.waiting import until

ELECTED = CoordinatorElected(
    partition=0, owner_epoch=3, owner="a", elected_ms=0, version="1", format_level=1, settings={}
)


async def taken_over(
    *instances: str, session_timeout_ms: int = 10_000
) -> tuple[SimulatedProcess, SimulatedProcess, dict[str, JoinGroupOutcome]]:
    """A stable group of static members, its owner, which still runs, and the new owner."""
    storage = MemoryStorage(1)
    first = await leased(storage, "a")
    joins = {instance: first.join(instance, session_timeout_ms=session_timeout_ms) for instance in instances}
    reported = {instance: await join for instance, join in joins.items()}
    for sync in [first.sync(joined) for joined in reported.values()]:
        await sync
    return first, await leased(storage, "b"), reported


@story
async def test_heartbeats_and_questions_are_answered_at_once() -> None:
    """From the log, which the former owner can no longer change; errors too."""
    first, second, joined = await taken_over("x", "y")
    began_ms = second.clock.monotonic_ms()
    assert second.runtime.ready
    assert (await second.heartbeat(joined["x"])).error is ErrorCode.none
    assert second.runtime.heartbeat_ticket(second.heartbeat_command(joined["x"])) is not None
    nobody = msgspec.structs.replace(joined["x"], member_id="nobody")
    assert (await second.heartbeat(nobody)).error is ErrorCode.unknown_member_id
    assert len((await second.describe()).members) == 2
    assert (await second.sync(joined["y"])).assignment == joined["y"].member_id.encode()
    assert second.clock.monotonic_ms() - began_ms < LEASE_MS / 10
    await first.runtime.stop()
    await second.runtime.stop()


@story
async def test_changes_wait_until_the_old_lease_is_over() -> None:
    """A static restart, a commit, a leave, a new group: in order, with no error, and no session refreshed meanwhile."""
    first, second, joined = await taken_over("x", "y")
    began_ms = second.clock.monotonic_ms()
    restarted, commit, left = second.join("x"), second.commit(7, joined["y"]), second.leave(joined["y"].member_id)
    new = second.join("z", group_id="another")  # type: ignore[arg-type]
    await asyncio.sleep(LEASE_MS / 2 / 1000)
    assert (await first.heartbeat(joined["x"])).error in {ErrorCode.none, ErrorCode.not_coordinator}
    assert (await second.heartbeat(joined["x"])).error is ErrorCode.none
    assert not any(each.done() for each in (restarted, commit, left, new))
    assert second.runtime.committed_offsets(second.group_id) == {}
    assert (await restarted).error is ErrorCode.none
    assert LEASE_MS - 100 < second.clock.monotonic_ms() - began_ms < LEASE_MS + 100
    assert (await commit).error is ErrorCode.none  # before the leave that came after it
    assert (await left).members[0].error is ErrorCode.none
    assert (await new).error is ErrorCode.none
    await first.runtime.stop()
    await second.runtime.stop()


@story
async def test_no_member_expires_before_and_sessions_run_from_then() -> None:
    """The former owner may answer a member's heartbeats all that time, however short its session."""
    first, second, joined = await taken_over("x", session_timeout_ms=LEASE_MS // 2)
    await asyncio.sleep(1.4 * LEASE_MS / 1000)
    assert len((await second.describe()).members) == 1
    assert (await second.heartbeat(joined["x"])).error is ErrorCode.none
    await asyncio.sleep(0.6 * LEASE_MS / 1000)
    assert (await second.describe()).members == ()
    await first.runtime.stop()
    await second.runtime.stop()


@story
async def test_stopping_before_the_lease_is_over_writes_no_coordinator_stopped() -> None:
    """A CoordinatorStopped would be all its successor goes by. Deferred requests get NOT_COORDINATOR."""
    first, second, joined = await taken_over("x")
    began_ms, commit = second.clock.monotonic_ms(), second.commit(7, joined["x"])
    await second.runtime.stop()
    assert (await commit).error is ErrorCode.not_coordinator
    assert second.clock.monotonic_ms() - began_ms < LEASE_MS / 10
    third = await leased(second.log.storage, "c")
    assert (await third.heartbeat(joined["x"])).error is ErrorCode.none
    assert (await third.commit(8, joined["x"])).error is ErrorCode.none
    assert third.clock.monotonic_ms() - began_ms >= LEASE_MS - 100
    await first.runtime.stop()
    await third.runtime.stop()


@story
async def test_an_owner_that_briefly_loses_the_partition_still_waits_for_the_rest() -> None:
    """The former owner is then this process, but it is not the only one that may answer."""
    first, second, joined = await taken_over("x")
    began_ms = second.clock.monotonic_ms()
    second.runtime._partitions.owned[0]._outbox._lost(LogUnavailable("for a moment"))
    await asyncio.sleep(0.2)
    assert second.runtime.ready
    assert second.log.storage.epochs[0] == 3
    assert (await second.commit(8, joined["x"])).error is ErrorCode.none
    assert LEASE_MS - 100 < second.clock.monotonic_ms() - began_ms < LEASE_MS + 100
    await first.runtime.stop()
    await second.runtime.stop()


@story
async def test_an_owner_that_renewed_its_claim_is_still_the_only_one_that_answers() -> None:
    """It loses the partition for a moment, and defers nothing."""
    process = await leased(MemoryStorage(1), "a", claim_renewal_ms=LEASE_MS)
    joined = (await process.stable_group("x"))["x"]
    await until(lambda: process.log.storage.fences[0] > 1)
    await asyncio.sleep(LEASE_MS / 4 / 1000)
    process.runtime._partitions.owned[0]._outbox._lost(LogUnavailable("for a moment"))
    await until(lambda: process.runtime.ready)
    began_ms = process.clock.monotonic_ms()
    assert (await process.commit(8, joined)).error is ErrorCode.none
    assert process.clock.monotonic_ms() - began_ms < LEASE_MS / 4
    await process.runtime.stop()


def test_which_owners_before_may_still_answer() -> None:
    """One that did not stop cleanly, unless it was this process all the time."""
    stopped = CoordinatorStopped(partition=0, owner_epoch=3, owner="a", stopped_ms=0, uptime_ms=0)
    assert left(None) == 0
    assert left(stopped) == 0
    assert left(ELECTED) == LEASE_MS
    assert left(ELECTED, served=2) == LEASE_MS  # another process owned it in between
    assert left(ELECTED, served=3) == 0


def left(last_event: CoordinatorElected | CoordinatorStopped | None, *, served: int | None = None) -> int:
    leases = OldLeases()
    if served is not None:
        leases.served(0, served)
    leases.taken_over(0, last_event, fenced_ms=5_000, lease_ms=LEASE_MS)
    return leases.left_ms(0, 5_000)
