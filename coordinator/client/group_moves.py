"""Moving a group with live members to or from the upstream cluster: functions for `muster adopt` and `muster release`.

    async with GroupAdmin("127.0.0.1:9092") as admin:
        move = await move_group(admin, "orders", MUSTER)
        print(move.state, move.members, move.reason)

A move is a change of the config `members.coordinator`, which the sidecar answers when the move has begun; the progress
is in the config `members.move`. So any AdminClient can do the same. See docs/moving-groups.md.
"""

import asyncio
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.client.coordinator_link import (
    AdminError,
    NoCoordinator,
    NotCoordinatedHere,
    NotForGroup,
    Refused,
    UpstreamAlready,
)
from muster.coordinator.client.group_admin import ConfigEntry, GroupAdmin
from muster.coordinator.client.requests import ANY_GROUP
from muster.coordinator.group.configs import COORDINATOR, COORDINATOR_TIMEOUT, MEMBERS, MOVE, MUSTER, UPSTREAM
from muster.coordinator.group.outcomes import GroupMove, ListedMember, MoveState
from muster.coordinator.upstream.shadow import PROTOCOL_TYPE as SHADOW_PROTOCOL_TYPE

POLL_INTERVAL_S = 0.2
MOVING = "moving"


class GroupCoordinator(msgspec.Struct, frozen=True, kw_only=True):
    """A group's coordinator: MUSTER, UPSTREAM, or MOVING; None if there is no such group. `text` is for users."""

    coordinator: str | None
    text: str


class GroupsHere(msgspec.Struct, frozen=True, kw_only=True):
    """The groups that have members on a Muster instance. Without `sees_all`, `user` may lack DESCRIBE on others."""

    group_ids: list[str]
    sees_all: bool
    user: str


async def coordinator_of(admin: GroupAdmin, group_id: str) -> GroupCoordinator:
    """Return a group's coordinator. Raises NotMuster, AdminError, and Refused for unknown groups."""
    configs = await _configs(admin, group_id, (COORDINATOR, MOVE, MEMBERS))
    if COORDINATOR not in configs:
        await admin.check_is_muster(group_id)
    move = _move(configs)
    if move is not None and move.state is MoveState.MOVING:
        return GroupCoordinator(coordinator=MOVING, text=configs[COORDINATOR] or "")
    if configs[COORDINATOR] == UPSTREAM:
        return GroupCoordinator(coordinator=UPSTREAM, text="coordinated by the cluster upstream: it was released")
    if _members_of(configs):
        return GroupCoordinator(coordinator=MUSTER, text="coordinated by this Muster")
    described = await admin.describe_group(group_id)
    if not described.members:
        return GroupCoordinator(coordinator=MUSTER, text="coordinated by this Muster: new members join here")
    another = described.protocol_type == SHADOW_PROTOCOL_TYPE
    whom = "another Muster" if another else "the cluster upstream: it has its members there"
    return GroupCoordinator(coordinator=UPSTREAM, text=f"coordinated by {whom}")


async def list_with_coordinator(admin: GroupAdmin, group_id: str) -> tuple[GroupCoordinator, tuple[ListedMember, ...]]:
    """Return the coordinator and `GroupAdmin.list_members`; no members for a moving group. Raises AdminError."""
    coordinator = await coordinator_of(admin, group_id)
    if coordinator.coordinator == MOVING:
        return coordinator, ()
    return coordinator, await admin.list_members(group_id)


async def describe_with_coordinator(
    admin: GroupAdmin, group_id: str
) -> tuple[GroupCoordinator | None, tuple[ConfigEntry, ...]]:
    """Return the coordinator, unless the user lacks DESCRIBE, and `GroupAdmin.describe_group_config`."""
    configs = await admin.describe_group_config(group_id)
    if all(each.name != COORDINATOR for each in configs):
        await admin.check_is_muster(group_id)
    return await _known_coordinator(admin, group_id), configs


async def alter_with_coordinator(
    admin: GroupAdmin, group_id: str, configs: Mapping[str, str | None]
) -> GroupCoordinator | None:
    """Call `GroupAdmin.alter_group_config`; return the coordinator, unless the user lacks DESCRIBE on the group."""
    await admin.alter_group_config(group_id, configs)
    return await _known_coordinator(admin, group_id)


async def _known_coordinator(admin: GroupAdmin, group_id: str) -> GroupCoordinator | None:
    try:
        return await coordinator_of(admin, group_id)
    except Refused as refused:
        if refused.error is not ErrorCode.group_id_not_found:
            return None
        near = await admin.groups_like(group_id)
        return GroupCoordinator(
            coordinator=None, text=f"not created yet: its first member creates it, with these configs{near}"
        )


async def groups_of_muster(admin: GroupAdmin) -> GroupsHere:
    """List the groups that have members at this Muster, sorted. Raises NotMuster and AdminError."""
    listed = sorted(await admin.list_groups())
    here = [group_id for group_id in listed if await _members_here(admin, group_id)]
    sees_all = await _sees_any(admin)
    if not here and sees_all:
        await _check_is_muster(admin, listed[0] if listed else ANY_GROUP)
    return GroupsHere(group_ids=here, sees_all=sees_all, user=admin.user)


async def _sees_any(admin: GroupAdmin) -> bool:
    """Return whether the user may describe any group; ListGroups omits groups without DESCRIBE."""
    try:
        await admin.describe_group(ANY_GROUP)
    except Refused as refused:
        return refused.error is not ErrorCode.group_authorization_failed
    return True


async def _check_is_muster(admin: GroupAdmin, group_id: str) -> None:
    """Raise NotMuster if a Kafka broker answers; a sidecar that does not coordinate the group is Muster too."""
    with suppress(NotForGroup):
        await admin.check_is_muster(group_id)


async def _members_here(admin: GroupAdmin, group_id: str) -> int:
    configs = await _configs(admin, group_id, (MEMBERS,))
    return len(_members_of(configs))


def _members_of(configs: Mapping[str, str | None]) -> list[ListedMember]:
    """Return the group's members here, without expected instances."""
    listed = msgspec.json.decode(configs.get(MEMBERS) or "[]", type=list[ListedMember])
    return [each for each in listed if each.member_id]


async def count_movers(admin: GroupAdmin, group_id: str, to: str) -> int | None:
    """Count the members that would have to join again, as they are on the other side; None for an unknown group.

    Raises AdminError.
    """
    here = await _members_here(admin, group_id)
    if to == UPSTREAM or here:
        return here if to == UPSTREAM else 0
    try:
        return len((await admin.describe_group(group_id)).members)
    except Refused as refused:
        if refused.error is ErrorCode.group_id_not_found:
            return None
        raise


async def try_move(admin: GroupAdmin, group_id: str, to: str) -> None:
    """Check whether the move could begin now. Raises Refused if not, and AdminError."""
    try:
        await admin.alter_group_config(group_id, {COORDINATOR: to}, validate_only=True)
    except NotCoordinatedHere as elsewhere:
        if to != UPSTREAM or not elsewhere.may_be_adopted:
            raise
        raise UpstreamAlready(group_id) from elsewhere


async def move_group(
    admin: GroupAdmin,
    group_id: str,
    to: str,
    *,
    timeout_ms: int | None = None,
    report: Callable[[GroupMove], None] = lambda _move: None,
) -> GroupMove:
    """Move the group, and wait until the move is done or given up; `report` is called at each step.

    `to`: MUSTER or UPSTREAM. `timeout_ms`: after which an adoption is given up. Raises Refused, and AdminError.
    """
    before = await described_move(admin, group_id)
    timeout = {} if timeout_ms is None else {COORDINATOR_TIMEOUT: str(timeout_ms)}
    await admin.alter_group_config(group_id, {COORDINATOR: to, **timeout})
    move = await described_move(admin, group_id)
    if move is None or move == before:  # no member had to move
        return GroupMove(to=to, state=MoveState.DONE, members=0, told=0, back=0, took_ms=0)
    last_step = None
    while move.state is MoveState.MOVING:
        step = move.told, move.back, move.left, len(move.late)
        if step != last_step:
            report(move)
        last_step = step
        await asyncio.sleep(POLL_INTERVAL_S)
        try:
            again = await described_move(admin, group_id)
        except NoCoordinator as error:
            how_far = f"muster members list {shlex.quote(group_id)}"
            raise AdminError(f"{error}; the move continues, unless the sidecar has ended: {how_far}") from error
        if again is None:
            raise AdminError(f"group {group_id}: the move has ended with the process that made it; ask again")
        move = again
    return move


async def described_move(admin: GroupAdmin, group_id: str) -> GroupMove | None:
    """Return the group's current or last move; None if there was none. Raises AdminError."""
    return _move(await _configs(admin, group_id, (COORDINATOR, MOVE)))


async def _configs(admin: GroupAdmin, group_id: str, names: tuple[str, ...]) -> Mapping[str, str | None]:
    return {each.name: each.value for each in await admin.describe_group_config(group_id, names)}


def _move(configs: Mapping[str, str | None]) -> GroupMove | None:
    value = configs.get(MOVE)
    return None if value is None else msgspec.json.decode(value, type=GroupMove)
