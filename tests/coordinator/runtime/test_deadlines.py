"""Deadlines: nobody is expired before what had arrived by then was looked at."""

import asyncio
from collections.abc import Callable

from muster.coordinator.runtime.deadlines import Deadlines
from muster.events.ids import GroupId
from tests.waiting import until


class Clock:
    """Stands still."""

    def monotonic_ms(self) -> int:
        return 1_000

    def wall_ms(self) -> int:
        return 1_000


def subject(due: list[GroupId], waiting: list[Callable[[], None]]) -> Deadlines:
    deadlines = Deadlines(Clock(), due=due.append, paused=lambda _: None, when_caught_up=waiting.append)
    deadlines.begin()
    return deadlines


async def test_what_waits_for_its_turn_is_looked_at_before_anything_is_due() -> None:
    """A heartbeat may lie behind what thousands of others have asked."""
    due, waiting = list[GroupId](), list[Callable[[], None]]()
    deadlines = subject(due, waiting)
    deadlines.schedule(GroupId("g"), 1_000)
    await until(lambda: bool(waiting))
    assert due == []
    deadlines.schedule(GroupId("other"), 900)
    await asyncio.sleep(0)
    assert (due, len(waiting)) == ([], 1)
    waiting[0]()
    assert due == ["other", "g"]
    deadlines.close()


async def test_nothing_is_due_any_more_once_it_is_closed() -> None:
    due, waiting = list[GroupId](), list[Callable[[], None]]()
    deadlines = subject(due, waiting)
    deadlines.schedule(GroupId("g"), 1_000)
    await until(lambda: bool(waiting))
    deadlines.close()
    deadlines.schedule(GroupId("late"), 900)
    waiting[0]()
    assert due == []
