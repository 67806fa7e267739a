"""Deadlines: no member expires before the requests that had arrived by then were processed."""

import asyncio
from collections.abc import Callable

import pytest

from muster.coordinator.runtime.partition.deadlines import GRACE_S, STALE_MIN, Deadlines
from muster.events.ids import GroupId
from tests.simulation.virtual_time import VirtualClock, simulate
from tests.waiting import until


class Clock:
    """A clock that a test moves."""

    now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


def subject(due: list[GroupId], waiting: list[Callable[[], None]]) -> Deadlines:
    deadlines = Deadlines(Clock(), due=due.append, paused=lambda _: None, when_caught_up=waiting.append)
    deadlines.begin()
    return deadlines


async def test_queued_requests_are_considered_before_deadlines() -> None:
    """A heartbeat may be queued behind thousands of other requests."""
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


@pytest.mark.parametrize(("late_ms", "pauses"), [(1_000, []), (1_001, [1_001])])
async def test_more_than_a_second_late_is_the_machines_doing(late_ms: int, pauses: list[int]) -> None:
    """No member is expired then, or blamed."""
    clock, due, waiting, paused = Clock(), list[GroupId](), list[Callable[[], None]](), list[int]()
    deadlines = Deadlines(clock, due=due.append, paused=paused.append, when_caught_up=waiting.append)
    deadlines.begin()
    deadlines.schedule(GroupId("g"), clock.now_ms)
    clock.now_ms += late_ms
    await until(lambda: bool(waiting or paused))
    assert (paused, due, bool(waiting)) == (pauses, [], not pauses)
    deadlines.close()


def test_a_machine_that_pauses_just_before_a_deadline_is_treated_as_paused() -> None:
    """Between the timer and the check of requests that arrived in the meantime."""

    async def story() -> None:
        due, paused, clock = list[GroupId](), list[int](), VirtualClock()
        deadlines = Deadlines(clock, due=due.append, paused=paused.append, when_caught_up=lambda run: run())
        deadlines.begin()
        deadlines.schedule(GroupId("g"), clock.monotonic_ms() + 100)
        loop = asyncio.get_running_loop()
        loop.call_later(0.1 + GRACE_S / 2, loop.advance, 2.0)  # type: ignore[attr-defined]
        await asyncio.sleep(0.2)
        assert due == []
        assert paused == [pytest.approx(2_000, abs=5)]
        deadlines.close()

    simulate(story())


def test_an_earlier_deadline_has_the_timer_and_the_later_one_has_it_after_that() -> None:
    """There is one timer at a time: a second one would be late, and taken for a stall of the machine."""

    async def story() -> None:
        due, paused, broken = list[GroupId](), list[int](), list[object]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
        clock = VirtualClock()
        deadlines = Deadlines(clock, due=due.append, paused=paused.append, when_caught_up=lambda run: run())
        deadlines.begin()
        now_ms = clock.monotonic_ms()
        deadlines.schedule(GroupId("later"), now_ms + 500)
        deadlines.schedule(GroupId("earlier"), now_ms + 100)
        await asyncio.sleep(0.2)
        assert due == ["earlier"]
        await asyncio.sleep(0.4)
        assert due == ["earlier", "later"]
        assert (paused, broken) == ([], [])
        deadlines.close()

    simulate(story())


def test_a_group_that_is_forgotten_has_no_deadline() -> None:
    """If it is created again, it has its own deadline, not the former one's, which was earlier."""

    async def story() -> None:
        due, clock = list[GroupId](), VirtualClock()
        deadlines = Deadlines(clock, due=due.append, paused=lambda _: None, when_caught_up=lambda run: run())
        deadlines.begin()
        now_ms = clock.monotonic_ms()
        deadlines.schedule(GroupId("g"), now_ms + 100)
        deadlines.forget(GroupId("g"))
        await asyncio.sleep(0.2)
        assert due == []
        deadlines.schedule(GroupId("g"), now_ms + 300)
        deadlines.forget(GroupId("g"))
        deadlines.schedule(GroupId("g"), now_ms + 500)
        await asyncio.sleep(0.2)
        assert due == []
        await asyncio.sleep(0.2)
        assert due == ["g"]
        deadlines.close()

    simulate(story())


async def test_short_lived_groups_leave_little_behind_until_their_deadlines() -> None:
    """A client may keep creating groups with a session of half an hour and deleting them."""
    due, waiting = list[GroupId](), list[Callable[[], None]]()
    deadlines = subject(due, waiting)
    deadlines.schedule(GroupId("stays"), 1_500)
    for number in range(10 * STALE_MIN):
        deadlines.schedule(GroupId(f"gone-{number}"), 1_000_000)
        deadlines.forget(GroupId(f"gone-{number}"))
        deadlines.schedule(GroupId("sooner"), 1_000_000 - number)
        assert len(deadlines._heap) <= 2 * 3 + STALE_MIN
    deadlines._clock.now_ms = 2_000_000  # type: ignore[attr-defined]
    deadlines._run()
    assert due == ["stays", "sooner"]
    deadlines.close()
