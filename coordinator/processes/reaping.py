"""Reaps orphaned processes: the first process of a container becomes their parent.

These are children that this process did not start, e.g. left over from a command that was run in the container. Each
stays a zombie and keeps its process id until it is waited for.
"""

import asyncio
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

CHECK_INTERVAL_S: Final = 1.0


def is_init() -> bool:
    """Return whether this is the first process of its container or machine."""
    return os.getpid() == 1


async def reap_orphans(own: Callable[[], Collection[int | None]]) -> None:
    """Reap periodically, forever. `own`: the children that other code here waits for."""
    while True:
        await asyncio.sleep(CHECK_INTERVAL_S)
        _reap(own())


def _reap(own: Collection[int | None]) -> None:
    """Wait for children that have ended. One of our own blocks the others until it is waited for, which is soon."""
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid in own:
                break
            os.waitpid(ended.si_pid, os.WNOHANG)
