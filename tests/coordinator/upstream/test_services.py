"""Two services (event logs) share one broker. A group belongs to only one of them, whichever comes first.

A process of an earlier version is simulated by one whose shadows have the common name used then.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from muster.coordinator.client.group_admin import GroupAdmin
from muster.coordinator.upstream.shadow import UNNAMED
from muster.coordinator.upstream.upstream_members import NotAdoptable, upstream_members
from muster.events.ids import GroupId
from tests.brokers.broker import Broker
from tests.coordinator.upstream.stage import ANOTHER, NAME, Direct, Process, new_group, process
from tests.waiting import until

pytestmark = pytest.mark.broker


@pytest.fixture
async def other(kafka_broker: Broker) -> AsyncIterator[Process]:
    """A process of another service; it notices at once what was done to its shadows."""
    async with process(kafka_broker.bootstrap, ANOTHER, heartbeat_interval_ms=100) as started:
        yield started


@pytest.fixture
async def former(kafka_broker: Broker) -> AsyncIterator[Process]:
    """A process of an earlier version, ours or another service's."""
    async with process(kafka_broker.bootstrap, UNNAMED, heartbeat_interval_ms=100) as started:
        yield started


async def test_a_group_of_another_service_is_theirs(ours: Process, other: Process, direct: Direct) -> None:
    """Even for a service that has it in its log: the other's shadow is left alone."""
    group_id = new_group()
    identity = await other.own(group_id)
    theirs = await ours.shadows.take(group_id)
    assert "another Muster coordinates it (which has another event log," in str(theirs)
    ours.shadows.update_generation(
        group_id, generation_id=1, is_wanted=True
    )  # as after a restart: no other is asked first
    await until(lambda: ours.lost != [])
    assert [(lost, ANOTHER.group_instance_id in why) for lost, why in ours.lost] == [(group_id, True)]
    await ours.shadows.remove_stray_shadows(lambda _: True)
    assert await direct.commit(group_id, identity) == 0
    assert other.lost == []


async def test_no_member_is_moved_out_of_a_group_of_another_service(ours: Process, other: Process) -> None:
    """Its only member there is a shadow, not a client that could be asked to join here."""
    group_id = new_group()
    await other.own(group_id)
    with pytest.raises(NotAdoptable, match="another Muster coordinates it"):
        await upstream_members(ours.link, group_id, NAME)


async def test_of_two_services_that_come_at_once_one_has_the_group(
    ours: Process, other: Process, direct: Direct
) -> None:
    """The broker refuses the second shadow; its service is told that the group is lost, or sees it before."""
    groups = [new_group() for _ in range(20)]
    both = (ours, other)

    async def take(process: Process, group_id: GroupId) -> None:
        if await process.shadows.take(group_id) is None:
            process.shadows.update_generation(group_id, generation_id=1, is_wanted=True)

    def owners(group_id: GroupId) -> list[Process]:
        return [each for each in both if each.shadows.commit_identity(group_id, 1) is not None]

    def holders(group_id: GroupId) -> list[Process]:
        return [each for each in both if each.shadows.owns(group_id)]

    await asyncio.gather(*(take(process, group_id) for group_id in groups for process in both))
    for group_id in groups:
        await until(lambda: len(owners(group_id)) == 1 and owners(group_id) == holders(group_id))  # noqa: B023 -- awaited
        (owner,) = owners(group_id)
        (shadow,) = await direct.members(group_id)
        assert shadow[0] == owner.shadows.name.group_instance_id


async def test_a_group_is_the_other_services_once_it_is_empty(ours: Process, other: Process, direct: Direct) -> None:
    """Its shadow has left."""
    group_id = new_group()
    before = await other.own(group_id)
    other.shadows.update_generation(group_id, generation_id=1, is_wanted=False)
    await other.shadows.wait_gone(group_id)
    identity = await ours.own(group_id)
    assert await direct.commit(group_id, before) in {22, 25}
    assert await direct.commit(group_id, identity) == 0


async def test_remains_of_a_service_are_removed_by_its_name(
    ours: Process, other: Process, kafka_broker: Broker
) -> None:
    """The way out named by the reason."""
    group_id = new_group()
    await other.own(group_id)
    await other.shadows.close()
    assert await ours.shadows.take(group_id) is not None
    async with GroupAdmin(kafka_broker.bootstrap) as admin:
        await admin.remove_members_from_group(group_id, [ANOTHER.group_instance_id])
    await ours.own(group_id)


async def test_an_upgrade_takes_over_the_groups_that_our_log_names(
    ours: Process, former: Process, direct: Direct
) -> None:
    """The shadow of the earlier version is replaced; if it is still running it notices, and stays away."""
    group_id = new_group()
    before = await former.own(group_id)
    identity = await ours.bump_to(group_id, 1)
    assert await direct.members(group_id) == [(NAME.group_instance_id, identity.member_id)]
    assert await direct.commit(group_id, before) in {22, 25}
    assert await direct.commit(group_id, identity) == 0
    await until(lambda: [lost for lost, _ in former.lost] == [group_id])
    assert await direct.commit(group_id, identity) == 0
    assert ours.lost == []


async def test_an_upgrade_leaves_the_groups_of_an_earlier_version_beside_it(
    ours: Process, former: Process, direct: Direct
) -> None:
    """Groups that our log does not have, or has as Empty."""
    group_id = new_group()
    identity = await former.own(group_id)
    theirs = await ours.shadows.take(group_id)
    assert "another Muster coordinates it (one of an earlier version, or its leftover)" in str(theirs)
    await ours.shadows.remove_stray_shadows(lambda _: True)
    await until(lambda: not ours.shadows.may_have_shadow(group_id))
    assert await direct.commit(group_id, identity) == 0
    assert former.lost == []
