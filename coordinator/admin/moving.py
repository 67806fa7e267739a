"""Moving a live group to or from the cluster upstream, as Python functions: `muster adopt` and `muster release`.

    async with GroupAdmin("127.0.0.1:9092") as admin:
        move = await move_group(admin, "orders", MUSTER)
        print(move.state, move.members, move.reason)

A move is a change of the setting `members.coordinator`, which the sidecar answers when it has begun; how far it is
stands in `members.move`, so any AdminClient can do the same. See docs/moving-groups.md.
"""

import asyncio
from collections.abc import Callable

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.admin import GroupAdmin
from muster.coordinator.admin.link import AdminError, Refused
from muster.coordinator.group.configs import COORDINATOR, COORDINATOR_TIMEOUT, MEMBERS, MOVE, UPSTREAM
from muster.coordinator.group.outcomes import GroupMove, MoveState

LOOK_EVERY_S = 0.2


async def count_movers(admin: GroupAdmin, group_id: str, to: str) -> int | None:
    """How many members would have to join again: those that are not there already. None: there is no such group.

    Raises AdminError.
    """
    told = {each.name: each.value for each in await admin.describe_group_config(group_id, (MEMBERS,))}
    here = len(msgspec.json.decode(told.get(MEMBERS) or "[]"))
    if to == UPSTREAM or here:
        return here if to == UPSTREAM else 0
    try:
        return len((await admin.describe_group(group_id)).members)
    except Refused as refused:
        if refused.error is ErrorCode.group_id_not_found:
            return None
        raise


async def try_move(admin: GroupAdmin, group_id: str, to: str) -> None:
    """Whether the move could begin now. Raises Refused if not, and AdminError."""
    await admin.alter_group_config(group_id, {COORDINATOR: to}, validate_only=True)


async def move_group(
    admin: GroupAdmin,
    group_id: str,
    to: str,
    *,
    timeout_ms: int | None = None,
    tell: Callable[[GroupMove], None] = lambda _move: None,
) -> GroupMove:
    """Move the group, and wait until that is done, or given up; `tell` is called with each step that it makes.

    `to`: MUSTER or UPSTREAM. `timeout_ms`: when an adoption is given up. Raises Refused, and AdminError.
    """
    before = await described_move(admin, group_id)
    timeout = {} if timeout_ms is None else {COORDINATOR_TIMEOUT: str(timeout_ms)}
    await admin.alter_group_config(group_id, {COORDINATOR: to, **timeout})
    move = await described_move(admin, group_id)
    if move is None or move == before:  # nothing had to move
        return GroupMove(to=to, state=MoveState.DONE, members=0, told=0, back=0, took_ms=0)
    told = None
    while move.state is MoveState.MOVING:
        step = move.told, move.back
        if step != told:
            tell(move)
        told = step
        await asyncio.sleep(LOOK_EVERY_S)
        again = await described_move(admin, group_id)
        if again is None:
            raise AdminError(f"group {group_id}: the move has ended with the process that made it; ask again")
        move = again
    return move


async def described_move(admin: GroupAdmin, group_id: str) -> GroupMove | None:
    """How far the group's move is, or how the last one went; None if there was none. Raises AdminError."""
    told = {each.name: each.value for each in await admin.describe_group_config(group_id, (COORDINATOR, MOVE))}
    value = told.get(MOVE)
    return None if value is None else msgspec.json.decode(value, type=GroupMove)
