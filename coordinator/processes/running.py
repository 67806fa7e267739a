"""One process of several: started, restarted when it ends, and stopped gracefully.

Decides when it is restarted, and what happens to its listening sockets in the meantime. A process that exits is
restarted immediately, and inherits its predecessor's sockets with the connections queued there. If it ends again soon,
the pauses grow, and its sockets are closed: clients would wait there for a long time, while the other processes can
serve them.
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
"""Exit code of a process that cannot use its arguments or files."""
COMMAND: Final = (sys.executable, "-P", "-m", "muster")
"""-P: as with the command `muster`, no module is imported from the working directory."""
RESTART_PAUSE_S: Final = 1.0
RESTART_PAUSE_MAX_S: Final = 5.0
"""The longest pause. All frontends may pause at once, for five of six seconds, while members' sessions keep running."""
SERVED_LONG_S: Final = 60.0
"""If a process ended after this long, it does not count as ending *again*."""


class RunningProcess:
    """One supervised process and its restarts."""

    def __init__(self, child: Child, inherited: Sequence[int] = ()) -> None:
        """`inherited`: descriptors of this process that the child inherits."""
        self.child = child
        self._inherited = inherited
        self.sockets = SocketStore()
        self.starts = 0
        """Number of starts; the counters of each start begin at 0."""
        self.is_unusable = False
        """True if it has ended for good, because it could not use its arguments or files.

        That is: before it ever served, or while it served, e.g. when another host has its node id. A process that
        served before and cannot start again is retried: a missing file may be back soon.
        """
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The id of the process that was started last."""
        return None if self._process is None else self._process.pid

    async def keep(self) -> None:
        """Keep it running, until it is stopped or cannot be started."""
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
                "process ended, restarting it",
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
        """Start it; return its exit code and a human-readable description of how it ended."""
        try:
            code = await self._run()
        except OSError as error:  # e.g. out of files or processes, which may pass
            return None, f"it could not be started: {error}"
        return code, _how(code)

    async def _run(self) -> int:
        """Start it and return its exit code."""
        ours, theirs = socket.socketpair()
        with theirs, ours, self.sockets.lent_to(ours):
            channel = theirs.fileno()
            # Its own process group: Ctrl-C only reaches the supervisor, which stops the processes in order.
            process = self._process = await asyncio.create_subprocess_exec(
                *COMMAND,
                *self.child.arguments,
                pass_fds=[channel, *self._inherited],
                env={**os.environ, VARIABLE: str(channel)},
                start_new_session=True,
            )
            theirs.close()
            self.starts += 1
            if self._stopping.is_set():  # stopped while starting: there is no graceful stop to wait for
                process.kill()
            return await process.wait()

    async def stop(self, within_s: float) -> None:
        """Stop it gracefully; kill it if it has not ended in time."""
        self._stopping.set()
        self.sockets.close()  # otherwise clients would wait there for nothing
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
    """Return the pause after this many ends in a row, each soon after its start except perhaps the first."""
    if ended_soon == 1:
        return 0
    doubled: float = RESTART_PAUSE_S * 2 ** min(ended_soon - 2, 10)
    return min(doubled, RESTART_PAUSE_MAX_S)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:  # real-time signals have no names
        return f"signal {-code}"
