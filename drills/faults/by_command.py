"""A command of the operator's stops or restarts a process of a running service: `systemctl restart muster@1`.

Muster has no request by which a process is asked from outside to hand its partitions over: it does so when it is
stopped in good order. So whoever may stop it does.
"""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from typing import Final

from muster.drills.errors import ServiceFailed
from muster.drills.faults.fault import Stage

TAIL_BYTES: Final = 400


async def by_command(stage: Stage, command: str) -> None:
    """Run the command, and wait until the members are answered. Raises ServiceFailed."""
    stage.note(f"$ {command}", is_fault=True)
    process = await asyncio.create_subprocess_shell(command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
    try:
        async with asyncio.timeout(stage.plan.within_ms / 1000):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        raise ServiceFailed(f"the command {command!r} goes on after {stage.plan.within_ms / 1000:g} s") from None
    if process.returncode:
        said = output[-TAIL_BYTES:].decode(errors="replace").strip()
        raise ServiceFailed(f"the command {command!r} ended with exit code {process.returncode}: {said}")
    stage.note("the command has ended")
    await stage.answered("the command had ended")
