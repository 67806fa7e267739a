"""One process of several: started, started again when it ends, and stopped in good order.

What belongs here: when it is started again, and what becomes of its listening sockets meanwhile. What it must not know:
the other processes.

A process that ends is started again at once, and takes the sockets of the one before with the connections that wait
there. One that ends again soon has growing pauses, and its sockets are closed: clients would wait there for long, and
the others serve them.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from muster.coordinator.net.kept_sockets import VARIABLE
from muster.coordinator.processes.children import Child
from muster.coordinator.processes.socket_store import SocketStore

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

UNUSABLE: Final = 2
"""The exit code of a process that cannot use what it was given."""
COMMAND: Final = (sys.executable, "-P", "-m", "muster")
"""-P: as with the command `muster`, no module comes from the folder in which it was started."""
RESTART_PAUSE_S: Final = 1.0
RESTART_PAUSE_MAX_S: Final = 5.0
"""The longest pause: a second of work in six, and all edges may pause at a time, while members' sessions go on."""
SERVED_LONG_S: Final = 60.0
"""A process that ends after so long does not end *again*."""


class RunningProcess:
    """One supervised process and its restarts."""

    def __init__(self, child: Child, inherited: Sequence[int] = ()) -> None:
        """`inherited`: descriptors of this process that it has as well."""
        self.child = child
        self._inherited = inherited
        self.sockets = SocketStore()
        self.starts = 0
        """How often it was started: the counters of each one begin at 0."""
        self.is_unusable = False
        """Whether it has ended for good: it could not use what it was given.

        Before it has ever served, or while it did, as when another host has its node id. One that has served before and
        cannot start again is tried again: a file of its may be there again soon.
        """
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The id of the process that was started last."""
        return None if self._process is None else self._process.pid

    async def keep(self) -> None:
        """Keep it running, until it is stopped, or cannot be started."""
        ended_soon = 0
        while True:
            began_s = time.monotonic()
            code, how = await self._end()
            if self._stopping.is_set():
                return
            if code == UNUSABLE and (self.sockets.serves or not self.sockets.has_served):
                self.is_unusable = True
                return
            ran_s = time.monotonic() - began_s
            ended_soon = 1 if ran_s >= SERVED_LONG_S else ended_soon + 1
            pause_s = pause_before_restart_s(ended_soon)
            if pause_s:
                self.sockets.give_up()
            log.warning(
                "process ended, starting it again",
                process=self.child.name,
                ended=how,
                ran_s=round(ran_s, 1),
                pause_s=pause_s,
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()
            if self._stopping.is_set():
                return

    async def _end(self) -> tuple[int | None, str]:
        """Start it, and return its exit code and how it ended, for people."""
        try:
            code = await self._run()
        except OSError as error:  # as when no file or process is free, which may be otherwise soon
            return None, f"it could not be started: {error}"
        return code, _how(code)

    async def _run(self) -> int:
        """Start it, and return its exit code."""
        ours, theirs = socket.socketpair()
        with theirs, ours, self.sockets.lent_to(ours):
            channel = theirs.fileno()
            # A group of its own: Ctrl-C reaches the supervisor alone, which stops one after another.
            process = self._process = await asyncio.create_subprocess_exec(
                *COMMAND,
                *self.child.arguments,
                pass_fds=[channel, *self._inherited],
                env={**os.environ, VARIABLE: str(channel)},
                start_new_session=True,
            )
            theirs.close()
            self.starts += 1
            if self._stopping.is_set():  # while it was being started: nobody waits until it ends in good order
                process.kill()
            return await process.wait()

    async def stop(self, within_s: float) -> None:
        """Stop it in good order; kill it if it has not ended in time."""
        self._stopping.set()
        self.sockets.close()  # else clients would wait there for nobody
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(within_s):
                await process.wait()
        except TimeoutError:
            log.warning("process did not stop in time, killing it", process=self.child.name)
            process.kill()
            await process.wait()


def pause_before_restart_s(ended_soon: int) -> float:
    """Return the pause after so many ends in a row, each soon after its start but perhaps the first."""
    if ended_soon == 1:
        return 0
    doubled: float = RESTART_PAUSE_S * 2 ** min(ended_soon - 2, 10)
    return min(doubled, RESTART_PAUSE_MAX_S)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:  # real-time ones have no names
        return f"signal {-code}"
