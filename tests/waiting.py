"""Waiting in tests for what sets no event: another process, a thread, a broker, or virtual time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

WITHIN_S: Final = 60.0
POLL_INTERVAL_S: Final = 0.02
"""Where another process is asked."""
LOOP_POLL_INTERVAL_S: Final = 0.002
"""Where it is in this one."""

Telling = str | Callable[[], object] | None
"""The description of a condition in words, or a function that describes the state instead."""


async def until(
    condition: Callable[[], Any],
    what: Telling = None,
    *,
    within_s: float = WITHIN_S,
) -> None:
    """Wait until the condition holds, by the clock of the loop; it may have to be awaited. Raises TimeoutError."""
    now_s = asyncio.get_running_loop().time
    deadline_s = now_s() + within_s
    while True:
        holds, every_s = condition(), LOOP_POLL_INTERVAL_S
        if isinstance(holds, Awaitable):
            holds, every_s = await holds, POLL_INTERVAL_S
        if holds:
            return
        if now_s() >= deadline_s:
            raise TimeoutError(_too_late(what, within_s))
        await asyncio.sleep(every_s)


def until_so(condition: Callable[[], Any], what: Telling = None, *, within_s: float = WITHIN_S) -> None:
    """The same where no loop runs."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= deadline_s:
            raise TimeoutError(_too_late(what, within_s))
        time.sleep(POLL_INTERVAL_S)


def _too_late(what: Telling, within_s: float) -> str:
    return f"not within {within_s:g} s: {what() if callable(what) else what or 'see the traceback'}"
