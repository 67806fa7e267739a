"""Shrinks a failing schedule to a short one that fails.

It decides which parts to leave out, and in which order.

Delta debugging: chunks of steps are left out, large ones first, as long as the rest fails; many are tried at a time,
since a trial mostly waits. Then each remaining step is simplified, field by field.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import msgspec

from tests.conformance.fuzz.schedule import AnyStep, Gather, LeaveGroup, OffsetCommit, Schedule

TRIALS_AT_A_TIME: Final = 8

Fails = Callable[[Schedule], Awaitable[bool]]


async def shrunk(schedule: Schedule, fails: Fails, *, last_step: int | None = None) -> Schedule:
    """The shortest failing schedule found; `last_step` is the one at which it failed, if known."""
    if last_step is not None:
        head = _with(schedule, schedule.steps[: last_step + 1])
        schedule = head if await fails(head) else schedule
    while True:
        before = schedule
        schedule = await _fewer_steps(schedule, fails)
        schedule = await _plainer_steps(schedule, fails)
        if schedule == before:
            return schedule


async def _fewer_steps(schedule: Schedule, fails: Fails) -> Schedule:
    size = max(1, len(schedule.steps) // 2)
    while True:
        smaller = await _first(list(_without_a_chunk(schedule, size)), fails)
        if smaller is not None:
            schedule = smaller
            size = min(size, max(1, len(schedule.steps) // 2))
        elif size == 1:
            return schedule
        else:
            size = max(1, size // 2)


def _without_a_chunk(schedule: Schedule, size: int) -> Iterator[Schedule]:
    steps = schedule.steps
    if len(steps) <= 1:
        return
    # From the end: the last steps are least likely to be the cause.
    for start in reversed(range(0, len(steps), size)):
        yield _with(schedule, (*steps[:start], *steps[start + size :]))


async def _plainer_steps(schedule: Schedule, fails: Fails) -> Schedule:
    number = 0
    while number < len(schedule.steps):
        steps = schedule.steps
        candidates = [
            _with(schedule, (*steps[:number], plainer, *steps[number + 1 :])) for plainer in _plainer(steps[number])
        ]
        plainer = await _first(candidates, fails)
        if plainer is None:
            number += 1
        else:
            schedule = plainer
    return schedule


def _plainer(step: AnyStep) -> Iterator[AnyStep]:
    """The same step with one oddity less."""
    for field in msgspec.structs.fields(step):
        if field.name != "who" and not field.required and getattr(step, field.name) != field.default:
            yield msgspec.structs.replace(step, **{field.name: field.default})
    for name in ("whos", "leavers", "offsets"):
        if isinstance(step, Gather | LeaveGroup | OffsetCommit) and hasattr(step, name):
            entries = getattr(step, name)
            if len(entries) > 1:
                for left_out in range(len(entries)):
                    rest = (*entries[:left_out], *entries[left_out + 1 :])
                    yield msgspec.structs.replace(step, **{name: rest})


def _with(schedule: Schedule, steps: Sequence[AnyStep]) -> Schedule:
    return msgspec.structs.replace(schedule, steps=tuple(steps))


async def _first(candidates: Sequence[Schedule], fails: Fails) -> Schedule | None:
    """The first of them that fails; some are tried at a time."""
    for start in range(0, len(candidates), TRIALS_AT_A_TIME):
        some = candidates[start : start + TRIALS_AT_A_TIME]
        results = await asyncio.gather(*(fails(each) for each in some))
        for candidate, failed in zip(some, results, strict=True):
            if failed:
                return candidate
    return None
