"""A group's work is done in slices, with other work in between; a retried request leaves nothing of the first
behind.
"""

import asyncio
import gc
from collections.abc import Iterator

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.load import slices
from muster.coordinator.runtime.partition import partition as partition_module
from muster.coordinator.runtime.partition.outbox import Outbox, WriteUnit
from muster.coordinator.runtime.partition.waiting import WaitingRequests
from muster.events.ids import GroupId
from muster.events.keys import EntityKind, RecordKey
from muster.events.log.memory import MemoryStorage
from muster.events.state import Group, GroupState
from tests.coordinator.group.crowd import formed
from tests.coordinator.hostile import HELD_S_MAX
from tests.coordinator.longest_callback import longest_callback
from tests.coordinator.serving import serving
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import VirtualClock, simulate

JOINS = 400


class BusyClock(VirtualClock):
    """Each reading of the clock takes a millisecond, so that work takes time."""

    def __init__(self) -> None:
        self._looks = 0

    def monotonic_ms(self) -> int:
        self._looks += 1
        return super().monotonic_ms() + self._looks


def waiting_requests(process: SimulatedProcess) -> WaitingRequests:
    """The waiting requests of a process with one partition."""
    (ownership,) = process.runtime._owned.values()
    return ownership.partition._waiting


def test_others_have_their_turn_while_a_long_queue_is_worked_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of joins that waited for one append are decided a few at a time, here one."""
    monkeypatch.setattr(slices, "SLICE_S", 0.0)

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1), clock=BusyClock()).start()
        release = process.log.hold_acknowledgements()
        joins = [process.join(f"i{number}", rebalance_timeout_ms=300_000) for number in range(JOINS)]
        await asyncio.sleep(0.001)
        (ownership,) = process.runtime._owned.values()
        queue = ownership.partition._contexts[GROUP].queue
        release.set()
        answered = 0
        while queue:
            assert (await process.describe(GroupId("other"))).error is ErrorCode.group_id_not_found
            answered += 1
            await asyncio.sleep(0)
        assert answered > JOINS / 2
        assert {(await join).generation_id for join in joins} == {1}
        await process.runtime.stop()

    simulate(story())


def stored_together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of records of each batch stored from now on."""
    batches: list[int] = []
    submit = Outbox.submit

    def note(outbox: Outbox, unit: WriteUnit) -> None:
        batches.append(len(unit.transition))
        submit(outbox, unit)

    monkeypatch.setattr(Outbox, "submit", note)
    return batches


def test_a_queue_that_is_longer_than_a_batch_is_stored_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch has at most a thousand commands."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        batches = stored_together(monkeypatch)
        joins = [process.join(f"i{number}", rebalance_timeout_ms=300_000) for number in range(1_051)]
        await asyncio.sleep(0.05)
        assert batches == [3, 2 * 1_000, 2 * 50], "the member, and the group's own record"
        reported = [await join for join in joins]
        assert {joined.error for joined in reported} == {ErrorCode.none}
        assert {joined.generation_id for joined in reported} == {1}
        await process.runtime.stop()

    simulate(story())


def test_commands_of_many_events_are_stored_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch with ten thousand events takes no further command."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        (ownership,) = process.runtime._owned.values()
        group = formed(10_003).group
        await ownership.partition.add_loaded_groups([group])
        release = process.log.hold_acknowledgements()
        first, second, third, *others = group.members
        batches = stored_together(monkeypatch)
        leaves = [process.leave(*members) for members in ((first,), (second,), others, (third,))]
        await asyncio.sleep(0.001)
        release.set()
        for leave in leaves:
            assert {each.error for each in (await leave).members} == {ErrorCode.none}
        assert batches == [3, 3 + 2 * 10_000 + 1, 3], "the last leave waits"
        await process.runtime.stop()

    simulate(story())


def test_deadlines_that_expire_together_are_stored_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Including the sessions of a group that was just loaded."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        (ownership,) = process.runtime._owned.values()
        group = formed(3).group
        await ownership.partition.add_loaded_groups([group])
        batches = stored_together(monkeypatch)
        await asyncio.sleep(60)
        (ended,) = batches
        assert ended > 3, "an event for each member, and the group's own"
        await process.runtime.stop()

    simulate(story())


def test_after_a_slow_load_members_have_their_full_time_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """They could not be heard before; extending sessions counts as work, like loading groups."""
    counted, worked = list[int](), slices.Pace.worked

    async def count(pace: slices.Pace, entries: int = 1) -> None:
        counted.append(entries)
        await worked(pace, entries)

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        (ownership,) = process.runtime._owned.values()
        group = formed(3).group

        def read_slowly() -> Iterator[Group]:
            yield group
            asyncio.get_running_loop().advance(10)  # type: ignore[attr-defined]

        monkeypatch.setattr(slices.Pace, "worked", count)
        await ownership.partition.add_loaded_groups(read_slowly())
        sessions = ownership.partition._contexts[group.group_id].soft.sessions.values()
        now_ms = process.clock.monotonic_ms()
        assert [session.deadline_ms - now_ms for session in sessions] == [session.timeout_ms for session in sessions]
        assert counted == [1 + 3, 1 + 3]
        await process.runtime.stop()

    simulate(story())


def test_a_repeated_parked_request_leaves_nothing_behind() -> None:
    """J13, SG17: the earlier one is never answered, as in Kafka, so nothing may be kept for it."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        outcomes = await process.stable_group("a", "b")
        waiting = waiting_requests(process)
        assert len(waiting) == 0
        last = process.join("a", outcomes["a"].member_id, metadata=b"another")
        for number in range(100):
            last = process.join("a", outcomes["a"].member_id, metadata=b"other %d" % number)
            await asyncio.sleep(0.01)
            assert len(waiting) == 1
        other = process.join("b", outcomes["b"].member_id)
        joined = {"a": await last, "b": await other}
        assert {each.error for each in joined.values()} == {ErrorCode.none}
        assert len(waiting) == 0
        follower = next(each for each in joined.values() if not each.members)
        sync = process.sync(follower)
        for _ in range(100):
            sync = process.sync(follower)
            await asyncio.sleep(0.01)
            assert len(waiting) == 1
        await process.sync(next(each for each in joined.values() if each.members))
        assert (await sync).error is ErrorCode.none
        assert len(waiting) == 0
        await process.runtime.stop()

    simulate(story())


async def test_a_partition_of_many_groups_is_taken_over_with_others_in_between() -> None:
    """In batches of 10 groups: all at once took most of a second; and again after the machine stalled."""
    group = formed(10).group
    groups = [msgspec.structs.replace(group, group_id=GroupId(f"g{n}")) for n in range(30_000)]
    async with serving() as muster:
        partition = muster.runtime._owned[0].partition
        with longest_callback() as longest:
            await partition.add_loaded_groups(groups)
            partition._machine_paused(2_000)
            while partition._slices.waiting:
                await partition._slices.turn()
        assert longest.seconds < HELD_S_MAX, longest
        assert len(partition.groups()) == len(groups)
        assert partition._deadlines._timer is not None


def test_many_records_of_one_group_are_written_again_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_module, "REWRITTEN_AT_ONCE", 2)

    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        process = await SimulatedProcess(storage).start()
        await process.stable_group(*"abcde")
        keys = [RecordKey(group_id=GROUP, kind=EntityKind.STATIC_MEMBER, entity_id=instance) for instance in "abcde"]
        before = storage.end_offset(0)
        (ownership,) = process.runtime._owned.values()
        ownership.partition.rewrite(keys)
        await asyncio.sleep(0.1)
        # One for each of them, and the group's own record for each decision.
        assert storage.end_offset(0) - before == 5 + 3
        await process.runtime.stop()

    simulate(story())


def test_the_payload_of_a_parked_request_is_not_kept_twice() -> None:
    """A follower's sync may have 64 MB of assignments that are never read."""

    class Large(bytes):
        pass

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        outcomes = await process.stable_group("a", "b")
        rejoins = [process.join(name, joined.member_id, metadata=b"new") for name, joined in outcomes.items()]
        follower = next(joined for joined in [await rejoin for rejoin in rejoins] if not joined.members)
        sync = process.sync(follower, {"x": Large(1_000)})
        await asyncio.sleep(0.01)
        assert not sync.done()
        assert not [each for each in gc.get_objects() if type(each) is Large]
        await process.runtime.stop()

    simulate(story())


def test_after_a_pause_a_join_phase_has_its_full_time_again() -> None:
    """No member is dropped for not having rejoined while the machine stalled."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        joined = await process.join(session_timeout_ms=40_000)
        assert (await process.sync(joined)).error is ErrorCode.none
        joining = process.join(session_timeout_ms=40_000)
        await asyncio.sleep(1.0)
        assert (await process.heartbeat(joined)).error is ErrorCode.rebalance_in_progress
        asyncio.get_running_loop().advance(60.0)  # type: ignore[attr-defined]
        await asyncio.sleep(5.0)
        assert (await process.heartbeat(joined)).error is ErrorCode.rebalance_in_progress
        again = process.join(member_id=joined.member_id, session_timeout_ms=40_000)
        assert {(await each).generation_id for each in (joining, again)} == {2}
        assert (await process.describe()).state is GroupState.COMPLETING_REBALANCE
        await process.runtime.stop()

    simulate(story())


def test_after_a_pause_a_sync_phase_has_its_full_time_again() -> None:
    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        joins = [process.join(name, session_timeout_ms=80_000) for name in ("a", "b")]
        reported = [await join for join in joins]
        await asyncio.sleep(1.0)
        asyncio.get_running_loop().advance(40.0)  # type: ignore[attr-defined]
        await asyncio.sleep(5.0)
        syncs = [process.sync(each) for each in reported]
        assert {(await sync).error for sync in syncs} == {ErrorCode.none}
        await process.runtime.stop()

    simulate(story())


def test_after_a_pause_what_is_being_stored_has_its_full_time_again_too() -> None:
    """The phase that starts with the append, as well as those that were running before."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1)).start()
        joined = await process.join(session_timeout_ms=40_000)
        assert (await process.sync(joined)).error is ErrorCode.none
        release = process.log.hold_acknowledgements()
        process.join(session_timeout_ms=40_000)
        await asyncio.sleep(1.0)
        (ownership,) = process.runtime._owned.values()
        batch = ownership.partition._contexts[GROUP].batch
        assert batch is not None
        asyncio.get_running_loop().advance(60.0)  # type: ignore[attr-defined]
        await asyncio.sleep(1.0)
        assert batch.soft.join_deadline_ms is not None
        assert batch.soft.join_deadline_ms >= process.clock.monotonic_ms() + 28_000
        release.set()
        await process.runtime.stop()

    simulate(story())


def test_a_client_decided_before_the_end_gets_its_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is durable; only the others are sent elsewhere."""
    monkeypatch.setattr(slices, "SLICE_S", 0.0)

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=1), clock=BusyClock()).start()
        joins = [process.join(f"i{number}", rebalance_timeout_ms=300_000) for number in range(20)]
        await asyncio.wait(joins, return_when=asyncio.FIRST_COMPLETED)
        assert not all(join.done() for join in joins)
        await process.runtime.stop()
        assert {((await join).error, (await join).generation_id) for join in joins} == {(ErrorCode.none, 1)}

    simulate(story())
