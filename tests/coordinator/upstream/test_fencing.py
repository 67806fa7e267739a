"""A real broker's fencing while a shadow is in the group: what it refuses, and what it accepts."""

import pytest
from kio.schema.errors import ErrorCode

from tests.coordinator.upstream.stage import Direct, Process, new_group, newer_heartbeat

pytestmark = pytest.mark.broker


async def test_a_commit_under_the_identity_is_taken(ours: Process, direct: Direct) -> None:
    """This is how commits of our members are relayed."""
    group_id = new_group()
    identity = await ours.own(group_id)
    assert await direct.commit(group_id, identity, offset=11) == 0
    assert await direct.committed(group_id) == 11


async def test_a_simple_commit_is_refused(ours: Process, direct: Direct) -> None:
    """The broker answers UNKNOWN_MEMBER_ID."""
    group_id = new_group()
    await ours.own(group_id)
    assert await direct.commit(group_id) == 25


async def test_a_commit_of_an_older_generation_is_refused(ours: Process, direct: Direct) -> None:
    """ILLEGAL_GENERATION, as soon as the next one is bumped; its own commits are accepted."""
    group_id = new_group()
    older = await ours.own(group_id, 1)
    assert await direct.commit(group_id, older) == 0
    newer = await ours.bump_to(group_id, 2)
    assert newer.generation_id > older.generation_id
    assert newer.member_id == older.member_id
    assert await direct.commit(group_id, older) == 22
    assert await direct.commit(group_id, newer) == 0


async def test_a_commit_of_a_deposed_owner_is_refused(ours: Process, successor: Process, direct: Direct) -> None:
    """FENCED_INSTANCE_ID; the successor's is accepted without a bump."""
    group_id = new_group()
    deposed = await ours.own(group_id)
    retaken = await successor.bump_to(group_id, 1)
    assert await direct.commit(group_id, deposed) == 82
    assert await direct.commit(group_id, retaken) == 0


async def test_a_direct_delete_is_refused(ours: Process, direct: Direct) -> None:
    """The broker answers NON_EMPTY_GROUP."""
    group_id = new_group()
    await ours.own(group_id)
    answer = await direct.ask("DeleteGroups", 2, groups_names=[group_id])
    assert answer["results"][0]["error_code"] == 68


async def test_a_direct_classic_member_is_refused(ours: Process, direct: Direct) -> None:
    """The broker answers INCONSISTENT_GROUP_PROTOCOL."""
    group_id = new_group()
    await ours.own(group_id)
    assert (await direct.join(group_id))["error_code"] == 23


async def test_a_direct_member_of_the_newer_protocol_is_refused(ours: Process, direct: Direct) -> None:
    """GROUP_ID_NOT_FOUND: the group cannot be converted, since its type is not consumer."""
    group_id = new_group()
    await ours.own(group_id)
    assert (await newer_heartbeat(ours, group_id)).error_code is ErrorCode.group_id_not_found
    assert await direct.members(group_id) != []


async def test_all_is_allowed_again_when_the_shadow_has_left(ours: Process, direct: Direct) -> None:
    """Offsets can be reset, the group can be deleted."""
    group_id = new_group()
    await ours.own(group_id)
    async with ours.shadows.withdrawn(group_id):
        assert await direct.commit(group_id) == 0
        answer = await direct.ask("DeleteGroups", 2, groups_names=[group_id])
        assert answer["results"][0]["error_code"] == 0
