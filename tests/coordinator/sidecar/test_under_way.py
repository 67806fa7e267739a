"""Commits that wait while their group's shadow is out, and those that are waited for before it goes."""

import asyncio
import gc

from coordinator.sidecar.under_way import CommitsUnderWay
from events.ids import GroupId

ORDERS, CLICKS = GroupId("orders"), GroupId("clicks")


class Place:
    """A connection, or what keeps an answer's Rewrite."""

    def __init__(self) -> None:
        self.is_open = True

    def asked(self) -> bool:
        return self.is_open


async def _holding(commits: CommitsUnderWay, entered: asyncio.Event, leave: asyncio.Event) -> None:
    async with commits.held_back(ORDERS):
        entered.set()
        await leave.wait()


async def _turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_block_begins_when_the_groups_commits_are_answered() -> None:
    """Those of other groups are not waited for; the answer is passed on as it is."""
    commits, entered, leave = CommitsUnderWay(), asyncio.Event(), asyncio.Event()
    answered = commits.given(ORDERS, Place().asked)
    others = commits.given(CLICKS, Place().asked)
    holding = asyncio.create_task(_holding(commits, entered, leave))
    await _turns()
    assert not entered.is_set()
    assert commits.is_held_back(ORDERS)
    assert not commits.is_held_back(CLICKS)
    assert answered(b"answer") == b"answer"
    await entered.wait()
    leave.set()
    await holding
    assert others(b"answer") == b"answer"


async def test_commits_wait_until_the_last_block_ends() -> None:
    """Two blocks at once: the commit goes on after both."""
    commits = CommitsUnderWay()
    leaves = [asyncio.Event(), asyncio.Event()]
    blocks = [asyncio.create_task(_holding(commits, asyncio.Event(), leave)) for leave in leaves]
    await _turns()
    waiting = asyncio.create_task(commits.until_let_go(ORDERS))
    for leave, block in zip(leaves, blocks, strict=True):
        await _turns()
        assert not waiting.done()
        leave.set()
        await block
    await waiting
    assert not commits.is_held_back(ORDERS)


async def test_a_lost_connection_is_not_waited_for() -> None:
    """Nobody reads the answer any more; and what was given there takes no memory."""
    commits, entered, leave = CommitsUnderWay(), asyncio.Event(), asyncio.Event()
    place = Place()
    answered = commits.given(ORDERS, place.asked)
    place.is_open = False
    leave.set()
    await asyncio.wait_for(_holding(commits, entered, leave), 1)
    del answered, place
    gc.collect()
    assert not commits._commits
