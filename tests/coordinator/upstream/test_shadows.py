"""Shadows on a real broker: taken, bumped, withdrawn, left; and the groups that are not ours to take."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.upstream.group_probe import KeptUpstream
from muster.coordinator.upstream.shadow_driver import PARKED_JOINS_MAX
from muster.coordinator.upstream.shadows import ShadowUnavailable
from tests.brokers.broker import Broker
from tests.coordinator.upstream.stage import NAME, Direct, Process, new_group, newer_heartbeat, process, share_heartbeat
from tests.waiting import until

pytestmark = pytest.mark.broker


def without_host(theirs: KeptUpstream | None) -> str:
    """The host differs if the broker is in a container."""
    assert theirs is not None
    text, at, host = theirs.reason.rpartition(" at /")
    assert at, theirs
    assert host
    return text


async def test_a_group_that_upstream_does_not_know_is_ours(ours: Process, direct: Direct) -> None:
    """At once; its shadow joins in the background."""
    group_id = new_group()
    assert not ours.shadows.owns(group_id)
    assert await ours.shadows.take(group_id) is None
    assert ours.shadows.owns(group_id)
    identity = await ours.bump_to(group_id, 1)
    assert await direct.members(group_id) == [(NAME.group_instance_id, identity.member_id)]


async def test_a_group_with_offsets_and_no_members_is_ours(ours: Process, direct: Direct) -> None:
    """Its offsets stay."""
    group_id = new_group()
    assert await direct.commit(group_id, offset=5) == 0
    await ours.own(group_id)
    assert await direct.committed(group_id) == 5


async def test_many_simultaneous_takers_share_one_attempt(ours: Process) -> None:
    """One that gives up does not cancel the others."""
    group_id = new_group()
    takers = [asyncio.create_task(ours.shadows.take(group_id)) for _ in range(5)]
    await asyncio.sleep(0)
    takers.pop().cancel()
    assert await asyncio.gather(*takers) == [None] * 4
    assert (await ours.bump_to(group_id, 1)).generation_id == 1


async def test_a_group_with_a_direct_member_is_theirs(ours: Process, direct: Direct) -> None:
    """The reason names the member."""
    group_id = new_group()
    await direct.join(group_id)
    theirs = await ours.shadows.take(group_id)
    assert without_host(theirs) == "upstream it has 1 member (type consumer), client direct"
    assert not ours.shadows.owns(group_id)


async def test_a_group_with_a_direct_member_of_the_newer_protocol_is_theirs(ours: Process, direct: Direct) -> None:
    """DescribeGroups calls it Dead."""
    group_id = new_group()
    joined = await newer_heartbeat(ours, group_id)
    assert joined.error_code is ErrorCode.none
    theirs = await ours.shadows.take(group_id)
    assert without_host(theirs) == "upstream it has 1 member (type consumer), client muster"


async def test_a_member_that_joins_in_between_is_found_by_the_join(ours: Process, direct: Direct) -> None:
    """The group is lost, with the reason; the next request finds the member upstream."""
    group_id = new_group()
    await direct.join(group_id)
    ours.shadows.update_generation(
        group_id, generation_id=1, is_wanted=True
    )  # as after a restart: no check comes first
    with pytest.raises(ShadowUnavailable, match="upstream it has 1 member"):
        await ours.shadows.wait_bumped(group_id, 1)
    assert [lost for lost, _ in ours.lost] == [group_id]
    assert not ours.shadows.owns(group_id)
    ours.shadows.update_generation(group_id, generation_id=2, is_wanted=True)
    assert not ours.shadows.owns(group_id), "it is not tried again and again"
    assert "1 member" in str(await ours.shadows.take(group_id))


async def test_a_share_group_is_theirs(ours: Process, direct: Direct) -> None:
    """Groups of another type stay upstream's, with or without members."""
    group_id = new_group()
    member_id = await share_heartbeat(ours, group_id, member_epoch=0)
    theirs = await ours.shadows.take(group_id)
    assert without_host(theirs) == "upstream it has 1 member (type share), client muster"
    await share_heartbeat(ours, group_id, member_epoch=-1, member_id=member_id)
    assert await ours.shadows.take(group_id) == KeptUpstream("upstream it is a group of type share")


async def test_a_member_that_joins_between_the_query_and_the_join_has_the_group(ours: Process, direct: Direct) -> None:
    """The join finds it, and the group is lost after it was taken."""
    group_id = new_group()
    async with AsyncExitStack() as all_lanes:
        for _ in range(PARKED_JOINS_MAX):
            await all_lanes.enter_async_context(ours.shadows._driver._parked.one())
        taking = asyncio.create_task(ours.shadows.take(group_id))
        await until(lambda: ours.shadows.owns(group_id))
        await direct.join(group_id)
        assert not taking.done()
    assert await taking is None
    await until(lambda: ours.lost != [])
    assert ours.lost[0][0] == group_id
    assert not ours.shadows.owns(group_id)


async def test_a_group_that_was_taken_for_nothing_is_given_back(kafka_broker: Broker, direct: Direct) -> None:
    """Its join was refused, so no generation was ever reported."""
    group_id = new_group()
    async with process(kafka_broker.bootstrap, heartbeat_interval_ms=100) as ours:
        assert await ours.shadows.take(group_id) is None
        await until(lambda: group_id not in ours.shadows._handles)
        assert await direct.members(group_id) == []


async def test_generations_grow_with_ours(ours: Process) -> None:
    """Each generation has its own identity, and only the current one is used."""
    group_id = new_group()
    generations = [(await ours.own(group_id, 1)).generation_id]
    for generation_id in range(2, 6):
        generations.append((await ours.bump_to(group_id, generation_id)).generation_id)
        assert ours.shadows.commit_identity(group_id, generation_id - 1) is None
    assert generations == sorted(set(generations))


async def test_of_many_bumps_the_newest_counts(ours: Process, direct: Direct) -> None:
    """Those in between are skipped."""
    group_id = new_group()
    first = await ours.own(group_id, 1)
    for generation_id in range(2, 50):
        ours.shadows.update_generation(group_id, generation_id=generation_id, is_wanted=True)
    await ours.shadows.wait_bumped(group_id, 20)
    await ours.shadows.wait_bumped(group_id, 49)
    newest = ours.shadows.commit_identity(group_id, 49)
    assert newest is not None
    assert newest.generation_id <= first.generation_id + 2
    assert await direct.commit(group_id, newest) == 0


async def test_the_shadow_leaves_with_the_last_of_us(ours: Process, direct: Direct) -> None:
    """Then any client may have the group."""
    group_id = new_group()
    await ours.own(group_id)
    ours.shadows.update_generation(group_id, generation_id=1, is_wanted=False)
    assert not ours.shadows.owns(group_id)
    assert ours.shadows.commit_identity(group_id, 1) is None
    async with ours.shadows.withdrawn(group_id):
        assert await direct.members(group_id) == []
    assert (await direct.join(group_id))["error_code"] == 0


async def test_a_group_that_is_just_leaving_is_taken_again(ours: Process, direct: Direct) -> None:
    """With a new identity."""
    group_id = new_group()
    before = await ours.own(group_id)
    ours.shadows.update_generation(group_id, generation_id=1, is_wanted=False)
    assert await ours.shadows.take(group_id) is None
    again = await ours.bump_to(group_id, 1)
    assert again != before
    assert await direct.commit(group_id, before) in {22, 25, 82}
    assert await direct.commit(group_id, again) == 0


async def test_the_shadow_steps_out_and_in_again(ours: Process, direct: Direct) -> None:
    """Two callers at the same time do not disturb each other."""
    group_id = new_group()
    before = await ours.own(group_id)
    async with ours.shadows.withdrawn(group_id):
        async with ours.shadows.withdrawn(group_id):
            assert await direct.members(group_id) == []
        assert await direct.members(group_id) == []
        assert ours.shadows.owns(group_id)
        assert ours.shadows.commit_identity(group_id, 1) is None
    await ours.shadows.wait_bumped(group_id, 1)
    assert ours.shadows.commit_identity(group_id, 1) not in {None, before}
    assert len(await direct.members(group_id)) == 1


async def test_a_group_of_others_need_not_step_out(ours: Process) -> None:
    """There is nothing to do."""
    async with ours.shadows.withdrawn(new_group()):
        pass


async def test_nothing_is_bumped_without_a_shadow(ours: Process) -> None:
    """One clear error, at once."""
    group_id = new_group()
    with pytest.raises(ShadowUnavailable, match=f"group {group_id} has no shadow upstream"):
        await ours.shadows.wait_bumped(group_id, 1)


async def test_closing_ends_waiters_and_leaves_the_shadow_in_place(ours: Process, direct: Direct) -> None:
    """A restart takes it back."""
    group_id = new_group()
    await ours.own(group_id)
    waiting = asyncio.create_task(ours.shadows.wait_bumped(group_id, 2))
    await asyncio.sleep(0)
    await ours.shadows.close()
    with pytest.raises(ShadowUnavailable, match="stopping"):
        await waiting
    assert len(await direct.members(group_id)) == 1


async def test_closing_ends_a_pending_take_of_a_group(ours: Process) -> None:
    """It gets the reason."""
    taking = asyncio.create_task(ours.shadows.take(new_group()))
    await asyncio.sleep(0)
    await ours.shadows.close()
    with pytest.raises(ShadowUnavailable, match="stopping"):
        await taking
    with pytest.raises(ShadowUnavailable, match="stopping"):
        await ours.shadows.take(new_group())


async def test_a_thousand_groups_are_retaken(ours: Process, successor: Process) -> None:
    """In the background; all of them, each with one identity for its generation."""
    groups = [new_group() for _ in range(1_000)]
    for group_id in groups:
        ours.shadows.update_generation(group_id, generation_id=1, is_wanted=True)
    for group_id in groups:
        await ours.shadows.wait_bumped(group_id, 1)
    for number, group_id in enumerate(groups):
        successor.shadows.update_generation(group_id, generation_id=1 + number % 2, is_wanted=True)
    for number, group_id in enumerate(groups):
        await successor.shadows.wait_bumped(group_id, 1 + number % 2)
        assert successor.shadows.commit_identity(group_id, 1 + number % 2) is not None
    for group_id in groups:
        successor.shadows.update_generation(group_id, generation_id=2, is_wanted=False)
    await until(lambda: not successor.shadows._handles)
