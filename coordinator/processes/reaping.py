"""Reaps processes that nobody else waits for: the first process of a container becomes their parent.

What belongs here: children that this process has not started, such as what is left of a command that was run in the
container. Each is a zombie, and keeps its process id, until somebody has waited for it.
"""

import asyncio
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

LOOK_EVERY_S: Final = 1.0


def is_init() -> bool:
    """Whether this is the first process of its container, or of the machine."""
    return os.getpid() == 1


async def reap_orphans(own: Callable[[], Collection[int | None]]) -> None:
    """Reap now and then, for ever. `own`: the children that somebody else here waits for."""
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        _reap(own())


def _reap(own: Collection[int | None]) -> None:
    """Wait for those that have ended. One of our own is waited for soon, and holds up the others until then."""
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid in own:
                break
            os.waitpid(ended.si_pid, os.WNOHANG)
