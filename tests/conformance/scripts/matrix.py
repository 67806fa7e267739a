"""Scripts: each request in each state of a group. A request cannot meet a group in Dead."""

from collections.abc import AsyncIterator
from typing import Final

from tests.conformance.eras import STATIC, TWO_STEPS
from tests.conformance.member import CLICKS, ORDERS, OTHER, Member
from tests.conformance.script import script
from tests.conformance.stage import Stage

EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"
STATES: Final = (EMPTY, PREPARING, COMPLETING, STABLE)


async def in_each_state(stage: Stage, *, static: bool = False) -> AsyncIterator[tuple[str, Member, Member]]:
    """A group in each state, its leader (whose join is parked in the join phase) and its follower."""
    for state in STATES:
        stage.group_id = stage.group(state)
        stage.transcript.note(f"---- {state}")
        a, b = [await stage.member(f"{who} ({state})", who if static else None) for who in ("a", "b")]
        await stage.form(a, b)
        if state == EMPTY:
            await a.leave()
            await b.leave()
        elif state == PREPARING:
            a.join()
        elif state == COMPLETING:
            join = a.join()
            await stage.until(state=PREPARING)
            for each in [b.join(), join]:
                await each
        await stage.until(state=state)
        yield state, a, b


@script("MX1", eras=TWO_STEPS)
async def a_first_join_in_each_state(stage: Stage) -> None:
    async for state, _, _ in in_each_state(stage):
        newcomer = await stage.member(f"newcomer ({state})")
        await newcomer.join("")
        await stage.describe()


@script("MX2, JE1, JE2, JC3")
async def a_newcomer_in_each_state(stage: Stage) -> None:
    """In one step, or with a pending id."""
    async for state, _, _ in in_each_state(stage):
        newcomer = await stage.member(f"newcomer ({state})")
        await _comes_in(stage, newcomer, state)


@script("MX2", eras=STATIC)
async def a_static_newcomer_in_each_state(stage: Stage) -> None:
    async for state, _, _ in in_each_state(stage, static=True):
        newcomer = await stage.member(f"newcomer ({state})", "newcomer")
        await _comes_in(stage, newcomer, state)


async def _comes_in(stage: Stage, newcomer: Member, state: str) -> None:
    join = await newcomer.enter()
    if state == EMPTY:
        await stage.complete([newcomer], [join])
    else:
        await stage.until(members=3, state=PREPARING)
    await stage.describe()


@script("MX3")
async def a_member_joins_again_in_each_state(stage: Stage) -> None:
    async for state, a, b in in_each_state(stage):
        await b.join()
        if state == COMPLETING:
            await a.join()
        elif state == STABLE:
            a.join()
            await stage.until(state=PREPARING)
        await stage.describe()


@script("MX4, JP4")
async def a_member_joins_with_another_subscription_in_each_state(stage: Stage) -> None:
    async for state, _, b in in_each_state(stage):
        join = b.join(protocols=OTHER)
        if state in (COMPLETING, STABLE):
            await stage.until(state=PREPARING)
        else:
            await join
        await stage.describe()


@script("MX5, ST5", eras=STATIC)
async def a_restart_in_each_state(stage: Stage) -> None:
    """An Empty group has no instance to be replaced."""
    async for state, _, _ in in_each_state(stage, static=True):
        back = await stage.member(f"b again ({state})", "b")
        join = back.join("")
        if state == COMPLETING:
            await stage.until(state=PREPARING)
        else:
            await join
        if state != EMPTY:
            await stage.describe()


@script("MX6, MX7, MX9, MX10, MX12, MX13, MX14, CF1, SG3, H1, OC4")
async def what_a_member_is_answered_in_each_state(stage: Stage) -> None:
    async for state, a, b in in_each_state(stage):
        await b.heartbeat()
        await b.commit({(ORDERS, 1): 1, (CLICKS, 0): 2})
        await b.commit_as_nobody({(ORDERS, 2): 3})
        await stage.fetch_offsets((ORDERS, 1), (ORDERS, 2), (CLICKS, 0))
        await stage.delete_offsets((ORDERS, 1), (CLICKS, 0))
        if state == COMPLETING:
            sync = b.sync()
            await a.sync()
            await sync
        else:
            await b.sync()
        await stage.describe()
        await stage.list()
        await stage.delete()
        await stage.describe()
        await b.heartbeat()
        await b.commit()


@script("MX8, L9")
async def a_member_leaves_in_each_state(stage: Stage) -> None:
    async for state, a, b in in_each_state(stage):
        await b.leave()
        if state != EMPTY:
            await stage.until(members=1)
        if state != PREPARING:
            await a.heartbeat()
            await stage.describe()
            await a.leave()
            await stage.until(state=EMPTY)
