"""Letting time pass in a script: what keeps a member, and what does not.

It waits, and repeats requests meanwhile. Scripts do not sleep: the clock is a member of another group, whose session
expires.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any, Final

from tests.conformance.member import Reply
from tests.conformance.stage import Stage
from tests.conformance.wire import CHECK_INTERVAL_S, Fields

ASKED_EVERY_S: Final = 0.2
"""Often within the shortest session, but rare enough for many scripts at a time."""

Ask = Callable[[], Reply]

_clocks: Final[Iterator[int]] = count(1)


async def passed(stage: Stage, duration_ms: int, *meanwhile: Ask) -> None:
    """Wait this long, and repeat these requests meanwhile; the transcript shows their responses."""
    clock = await stage.member("clock", session_ms=duration_ms)
    group_id = stage.group(f"of clock {next(_clocks)}")
    join = clock.join("", group_id=group_id)
    if (await join.quietly())["error_code"] == 79:
        await clock.join(group_id=group_id).quietly()
    codes = await repeat_until(stage.until(group_id=group_id, state="Empty"), *meanwhile)
    stage.transcript.note(f"({duration_ms} ms passed; answered meanwhile: {codes})")


async def repeat_until(end: Awaitable[Any], *requested: Ask) -> list[list[int]]:
    """Repeat the requests until `end` is done; return the error codes of each. Raises what `end` raises."""
    ending = asyncio.ensure_future(end)
    codes: list[set[int]] = [set() for _ in requested]
    while not ending.done():
        for ask, seen in zip(requested, codes, strict=True):
            seen.update(_codes(await ask().quietly()))
        await asyncio.wait({ending}, timeout=ASKED_EVERY_S)
    await ending
    return [sorted(each) for each in codes]


def _codes(answer: Fields) -> set[int]:
    if "error_code" in answer:
        return {answer["error_code"]}
    return {partition["error_code"] for topic in answer["topics"] for partition in topic["partitions"]}


async def answered_within(reply: Reply, within_s: float) -> None:
    """Wait for a response longer than scripts usually do. Raises `TimeoutError`."""
    deadline = time.monotonic() + within_s
    while not reply.is_answered:
        if time.monotonic() >= deadline:
            raise TimeoutError(f"not answered within {within_s} s")
        await asyncio.sleep(CHECK_INTERVAL_S)
