"""A command of the operator's stops or restarts a process of a running service: `systemctl restart muster@1`.

Muster has no request by which a process is asked from outside to hand its partitions over: it does so when it is
stopped in good order. So whoever may stop it does.
"""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from contextlib import suppress
from typing import Final

from muster.drills.errors import ServiceFailed
from muster.drills.faults.fault import Stage

TAIL_BYTES: Final = 400
ENDED_WITHIN_S: Final = 5.0


async def by_command(stage: Stage, command: str) -> None:
    """Run the command, and wait until the members are answered. Raises ServiceFailed.

    It is a process group of its own, which is killed whole if it does not end, or the drill does.
    """
    stage.note(f"$ {command}", is_fault=True)
    process = await _started(command)
    try:
        async with asyncio.timeout(stage.plan.within_ms / 1000):
            output, _ = await process.communicate()
    except TimeoutError:
        raise ServiceFailed(f"the command {command!r} goes on after {stage.plan.within_ms / 1000:g} s") from None
    finally:
        await _end(process)
    if process.returncode:
        said = output[-TAIL_BYTES:].decode(errors="replace").strip()
        raise ServiceFailed(f"the command {command!r} ended with exit code {process.returncode}: {said}")
    stage.note("the command has ended")
    await stage.answered("the command had ended")


async def _started(command: str) -> Process:
    """Start it. Who is interrupted meanwhile kills it, with what it has started: asyncio would kill the shell alone."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_shell(command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, start_new_session=True)
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _end(await starting)
        raise


async def _end(process: Process) -> None:
    """Kill it if it runs, with what it has started, and hear its end: the event loop may be closed after that."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(TimeoutError):  # who has left its process group may hold its output open
            async with asyncio.timeout(ENDED_WITHIN_S):
                await process.communicate()
