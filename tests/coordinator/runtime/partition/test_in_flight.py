"""Requests wait for an append in flight, so that no client sees a change that may never become durable.

Kafka answers some of these at once, from state that is not durable yet (rules CC3, CC4, DG5, OF5, SG10, SG12 of its
coordinator). Here a group has one change in flight at a time, and later requests are decided after it.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.offsets.memory import MemoryOffsetStore
from muster.events.log.base import AppendRefused, LogUnavailable
from muster.events.log.memory import MemoryStorage
from muster.events.state import GroupState
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate
from tests.waiting import until

WHILE_S = 3.0


class HeldOffsets(MemoryOffsetStore):
    """Delays a write until it is released, or fails it."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()
        self.released.set()
        self.fails = False

    async def write(self, changes: Sequence[OffsetsChange]) -> Sequence[AppendRefused | None]:
        await self.released.wait()
        if self.fails:
            self.fails = False
            raise LogUnavailable("asked for")
        return await super().write(changes)


async def none_is_answered(*answers: "asyncio.Future[Any]") -> None:
    await asyncio.sleep(WHILE_S)
    assert not any(answer.done() for answer in answers)


async def in_sync_phase(process: SimulatedProcess) -> tuple[JoinGroupOutcome, JoinGroupOutcome]:
    """The leader and the follower of a new generation, neither of which has synced."""
    outcomes = [await join for join in [process.join("a"), process.join("b")]]
    leader, follower = sorted(outcomes, key=lambda joined: not joined.members)
    return leader, follower


def test_a_group_is_shown_when_its_creation_is_durable() -> None:
    """DG5, LS6: Kafka says Dead until then; here it is not listed, and a description waits."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage()).start()
        release = process.log.hold_acknowledgements()
        join = process.join(requires_known_member_id=True)
        described = process.describe()
        await none_is_answered(join, described)
        assert process.runtime.list_groups() == []
        release.set()
        assert (await join).error is ErrorCode.member_id_required
        assert (await described).state is GroupState.EMPTY
        listed = process.runtime.list_groups()
        assert not isinstance(listed, ErrorCode)
        assert [group.group_id for group in listed] == [GROUP]
        await process.runtime.stop()

    simulate(story())


def test_an_assignment_is_sent_when_it_is_durable() -> None:
    """SG9, SG11, CC3: no sync is answered before; Kafka would refuse the commit with 27."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage()).start()
        leader, follower = await in_sync_phase(process)
        release = process.log.hold_acknowledgements()
        syncs = [process.sync(follower), process.sync(leader)]
        heartbeat, commit = process.heartbeat(follower), process.commit(5, follower)
        await none_is_answered(*syncs, heartbeat, commit)
        release.set()
        assert [(await sync).assignment for sync in syncs] == [each.member_id.encode() for each in (follower, leader)]
        assert (await heartbeat).error is (await commit).error is ErrorCode.none
        await process.runtime.stop()

    simulate(story())


def test_a_join_behind_an_assignment_comes_after_it() -> None:
    """SG12, CC3: Kafka discards the assignment; here the generation is assigned, and the next one starts."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage()).start()
        leader, follower = await in_sync_phase(process)
        release = process.log.hold_acknowledgements()
        sync = process.sync(leader)
        join = process.join("b", follower.member_id, metadata=b"others")
        await none_is_answered(sync, join)
        release.set()
        assert (await sync).assignment == leader.member_id.encode()
        assert (await process.heartbeat(leader)).error is ErrorCode.rebalance_in_progress
        again = process.join("a", leader.member_id)
        assert {(await each).generation_id for each in (join, again)} == {leader.generation_id + 1}
        await process.runtime.stop()

    simulate(story())


def test_a_leader_that_syncs_twice_is_answered_twice() -> None:
    """SG10: the first assignment counts. Kafka stores both, and never answers the first sync."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage()).start()
        leader, _ = await in_sync_phase(process)
        release = process.log.hold_acknowledgements()
        syncs = [process.sync(leader, {leader.member_id: text}) for text in (b"first", b"second")]
        await none_is_answered(*syncs)
        release.set()
        assert [(await sync).assignment for sync in syncs] == [b"first", b"first"]
        await process.runtime.stop()

    simulate(story())


def test_a_restart_is_answered_when_it_is_durable_and_others_come_after_it() -> None:
    """ST11, CC4: the old process is fenced from then on; in Kafka a rebalance may come between, and be overtaken."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage()).start()
        joined = await process.stable_group("a", "b")
        release = process.log.hold_acknowledgements()
        restart = process.join("a")
        old, join = process.heartbeat(joined["a"]), process.join("b", joined["b"].member_id, metadata=b"others")
        await none_is_answered(restart, old, join)
        release.set()
        new = await restart
        assert (new.error, new.generation_id) == (ErrorCode.none, joined["a"].generation_id)
        assert (await old).error is ErrorCode.unknown_member_id
        assert (await process.heartbeat(new)).error is ErrorCode.rebalance_in_progress
        assert not join.done()
        await process.runtime.stop()

    simulate(story())


def test_a_commit_shows_when_it_is_durable() -> None:
    """OC20, OF6: the same for a fetch that requires stable offsets, which in Kafka would wait (OF5)."""

    async def story() -> None:
        offsets = HeldOffsets()
        process = await SimulatedProcess(MemoryStorage(), offsets=offsets).start()
        joined = await process.stable_group("a")
        await process.commit(5, joined["a"])
        offsets.released.clear()
        commit = process.commit(6, joined["a"])
        await none_is_answered(commit)
        assert process.runtime.committed_offsets(GROUP)["orders", 0].offset == 5  # type: ignore[index]
        offsets.released.set()
        assert (await commit).error is ErrorCode.none
        assert process.runtime.committed_offsets(GROUP)["orders", 0].offset == 6  # type: ignore[index]
        await process.runtime.stop()

    simulate(story())


def test_a_commit_that_cannot_be_stored_leaves_the_older_one() -> None:
    """OC20: its sender gets an error, and retries."""

    async def story() -> None:
        offsets = HeldOffsets()
        process = await SimulatedProcess(MemoryStorage(), offsets=offsets).start()
        joined = await process.stable_group("a")
        await process.commit(5, joined["a"])
        offsets.fails = True
        assert (await process.commit(6, joined["a"])).error is ErrorCode.not_coordinator
        await until(lambda: process.runtime.ready, "the partition is served again")
        assert process.runtime.committed_offsets(GROUP)["orders", 0].offset == 5  # type: ignore[index]
        await process.runtime.stop()

    simulate(story())
