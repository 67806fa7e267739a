"""Work in slices: short work is done at once, long work shares the loop, one slice per turn."""

import asyncio
import time
from collections.abc import Callable

import pytest

from muster.coordinator.load.current_work import CURRENT_WORK, OtherWork, working_on
from muster.coordinator.load.slices import SLICE_S, Slices
from muster.events.steps import (
    ENTRIES_AT_ONCE,
    WAIT,
    Allowance,
    Each,
    Steps,
    TooManyEntries,
    collected,
    finished,
)


@pytest.fixture(autouse=True)
def _nothing_is_noted() -> None:
    """Earlier tests may have had two loops at once, which a process never has."""
    CURRENT_WORK.note = None


def counting(entries: int, log: list[str], name: str, *, busy: bool = False) -> Steps[str]:
    """This many entries; each of `busy` takes a whole slice."""
    for _ in range(entries):
        if busy:
            until = time.perf_counter() + SLICE_S
            while time.perf_counter() < until:
                pass
        log.append(name)
        yield 1
    return name


def fails(_told: object) -> None:
    raise AssertionError


def test_short_work_is_done_at_once_without_a_loop() -> None:
    done: list[str] = []
    assert Slices().run(counting(ENTRIES_AT_ONCE - 1, [], "short"), done.append, fails) is None
    assert done == ["short"]


async def test_long_works_take_turns_and_others_come_between() -> None:
    """However many there are, another callback of the loop waits for only one slice."""
    slices, log, done = Slices(), list[str](), list[str]()
    for name in ("a", "b"):
        slices.later(counting(3, log, name, busy=True), done.append, fails)
    assert (log, slices.waiting) == ([], 2)
    while slices.waiting:
        await asyncio.sleep(0)
        log.append("other")
    assert [name for name in log if name != "other"] == ["a", "b", "a", "b", "a", "b"]
    assert all(log[place] == "other" for place in range(1, 12, 2)), log
    assert done == ["a", "b"]


def waiting(turn: asyncio.Event, log: list[str], name: str, *, entries: int = 2) -> Steps[str]:
    """Wait for a turn each time, then do this many entries of a slice each."""
    try:
        while not turn.is_set():
            log.append(f"{name} waits")
            yield WAIT
        return (yield from counting(entries, log, name, busy=True))
    finally:
        log.append(f"{name} ends")


async def test_waiting_work_continues_when_other_work_ends_and_starts_the_next() -> None:
    """There may be room for more than one."""
    slices, turn, log, done = Slices(), asyncio.Event(), list[str](), list[str]()
    for name in "abc":
        slices.run(waiting(turn, log, name), done.append, fails)
    assert (log, slices.waiting) == (["a waits", "b waits", "c waits"], 3)
    turn.set()
    slices.later(counting(1, log, "other"), done.append, fails)
    log.clear()
    while slices.waiting:  # noqa: ASYNC110 -- slices set no event
        await asyncio.sleep(0)
    assert done == ["other", "a", "b", "c"]
    assert log.index("c") < log.index("a ends")


async def test_work_that_waits_again_stays_first() -> None:
    slices, turn, log, done = Slices(), asyncio.Event(), list[str](), list[str]()
    for name in "ab":
        slices.run(waiting(turn, log, name), done.append, fails)
    for _ in range(2):
        await slices.turn()  # it is work, too, and ends
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert log == ["a waits", "b waits", "a waits", "a waits"]
    assert slices.waiting == 2


async def test_cancelled_waiting_work_releases_its_slice_at_once() -> None:
    """No other work has to end first."""
    slices, turn, log, done = Slices(), asyncio.Event(), list[str](), list[str]()
    cancel = slices.run(waiting(turn, log, "a"), done.append, fails)
    assert cancel is not None
    cancel()
    await asyncio.sleep(0)
    assert (log, slices.waiting, done) == (["a waits", "a ends"], 0, [])


async def test_work_cancelled_in_its_own_slice_does_not_wait() -> None:
    slices, log, cancels = Slices(), list[str](), list[Callable[[], None]]()

    def cancelling() -> Steps[None]:
        try:
            yield ENTRIES_AT_ONCE
            cancels[0]()
            yield WAIT
        finally:
            log.append("ends")

    cancel = slices.run(cancelling(), fails, fails)
    assert cancel is not None
    cancels.append(cancel)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (log, slices.waiting) == (["ends"], 0)


def test_immediate_work_cannot_wait() -> None:
    with pytest.raises(AssertionError, match="nobody else goes on"):
        finished(waiting(asyncio.Event(), [], "a"))


async def test_cancelled_work_is_not_gone_on_with() -> None:
    slices, log, done = Slices(), list[str](), list[str]()
    cancel = slices.run(counting(ENTRIES_AT_ONCE + 1, log, "long"), done.append, fails)
    assert cancel is not None
    cancel()
    await slices.turn()
    assert (len(log), done, slices.waiting) == (ENTRIES_AT_ONCE, [], 0)


async def test_cancelled_work_takes_no_turns_of_others() -> None:
    """However much cancelled work comes first, one turn of the loop reaches the next that is not cancelled."""
    slices, log = Slices(), list[str]()
    for cancel in [slices.later(counting(1, log, "gone"), fails, fails) for _ in range(3)]:
        cancel()
    slices.later(counting(1, log, "next"), log.append, fails)
    await asyncio.sleep(0)
    assert (log, slices.waiting) == (["next", "next"], 0)


async def test_late_failures_are_returned_and_immediate_failures_raised() -> None:
    def failing(after: int) -> Steps[None]:
        yield after
        raise ValueError(after)

    slices, reported = Slices(), list[Exception]()
    with pytest.raises(ValueError, match="1"):
        slices.run(failing(1), fails, reported.append)
    slices.run(failing(ENTRIES_AT_ONCE), fails, reported.append)
    slices.run(counting(ENTRIES_AT_ONCE + 1, [], "long"), _breaks, reported.append)
    await slices.turn()
    assert [str(each) for each in reported] == [str(ENTRIES_AT_ONCE), "broken"]


def _breaks(_result: str) -> None:
    raise ValueError("broken")


async def test_the_work_of_a_slice_is_noted() -> None:
    """The watchdog can then name the request that blocks the loop, in any callback."""
    slices, seen, note = Slices(), list[object](), OtherWork(work="a test")

    def noting() -> Steps[None]:
        yield ENTRIES_AT_ONCE
        seen.append(CURRENT_WORK.note)

    with working_on(note):
        slices.run(noting(), lambda _: None, fails)
    assert CURRENT_WORK.note is None
    await slices.turn()
    assert (seen, CURRENT_WORK.note) == ([note], None)


async def test_a_coroutine_keeps_pace() -> None:
    slices, log = Slices(), list[str]()

    async def walk() -> None:
        pace = slices.pace()
        for _ in range(ENTRIES_AT_ONCE * 3):
            log.append("entry")
            await pace.worked()

    walking = asyncio.create_task(walk())
    await asyncio.sleep(0)
    assert log == ["entry"] * ENTRIES_AT_ONCE
    await walking
    assert len(log) == ENTRIES_AT_ONCE * 3


async def test_a_result_is_awaited() -> None:
    slices = Slices()
    assert await slices.result(counting(1, [], "short")) == "short"
    assert await slices.result(counting(ENTRIES_AT_ONCE * 2, [], "long")) == "long"


def test_steps_collect_all_items() -> None:
    assert finished(collected(None if n % 2 else n for n in range(100))) == list(range(0, 100, 2))


def test_entries_are_counted_over_all_arrays() -> None:
    allowance = Allowance(10)
    allowance.take(6)
    with pytest.raises(TooManyEntries, match="it has 11 entries or more, 10 are allowed"):
        allowance.take(5)


def test_results_are_made_for_each_call_and_equal() -> None:
    made: list[int] = []

    def double(number: int) -> int:
        made.append(number)
        return number * 2

    doubled = Each(double, range(3))
    assert (len(doubled), made) == (3, [])
    assert doubled == [0, 2, 4]
    assert 4 in doubled
    assert doubled != [0]
    assert made == [0, 1, 2] * 2 + [0, 1, 2]


@pytest.mark.parametrize("waits_for", ["a turn", "a result"])
async def test_cancelling_a_waiter_keeps_other_turns(waits_for: str) -> None:
    """Its turn may come after the cancellation, and before the waiter could withdraw."""
    slices, done = Slices(), asyncio.Event()
    waiting = slices.turn() if waits_for == "a turn" else slices.result(counting(ENTRIES_AT_ONCE * 2, [], "cancelled"))
    task = asyncio.create_task(waiting)
    await asyncio.sleep(0)
    slices.later(counting(1, [], "other"), lambda _: done.set(), fails)
    task.cancel()
    async with asyncio.timeout(30):
        await done.wait()
    assert slices.waiting == 0


async def test_work_of_a_cancelled_caller_stops() -> None:
    """It is closed in its next turn, without doing the rest."""
    slices, log, closed = Slices(), list[str](), list[bool]()

    def steps() -> Steps[str]:
        try:
            return (yield from counting(1_000, log, "work", busy=True))
        finally:
            closed.append(True)

    caller = asyncio.create_task(slices.result(steps()))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    done = len(log)
    while not closed:
        await slices.turn()
    assert len(log) == done < 1_000
