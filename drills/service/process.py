"""One `muster serve` as a child process: starts it, stops or kills it, and reads its log.

Its ports stay reserved while it is down, each by a socket that is bound but does not listen. Otherwise another process
could take such a port, or the system could choose it for an outgoing connection: a client that retries a process that
is down could even be connected to itself.
"""

import asyncio
import json
import os
import random
import signal
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from typing import Any, Final

from muster.drills.plan import ServiceFailed

HOST: Final = "127.0.0.1"
LASTING_PORTS: Final = range(15_000, 32_768)
"""Below the ephemeral ports of Linux (from 32768) and macOS (from 49152), and above the usual ports of services."""


def held(ports: Sequence[int]) -> list[socket.socket]:
    """Reserve all these ports until the sockets are closed; return no sockets if any of the ports is in use."""
    with ExitStack() as kept:
        try:
            with ExitStack() as tried:
                for port in ports:
                    tried.enter_context(socket.socket()).bind((HOST, port))
            sockets = [kept.enter_context(_holding(port)) for port in ports]
        except OSError:
            return []
        kept.pop_all()
        return sockets


def some_held(count: int) -> list[socket.socket]:
    """Reserve `count` ports, or fewer if there are not enough."""
    found = (sockets for port in random.sample(LASTING_PORTS, len(LASTING_PORTS)) if (sockets := held((port,))))
    return [each for (each,) in islice(found, count)]


def port_of(holding: socket.socket) -> int:
    """Return the port that a socket reserves."""
    port: int = holding.getsockname()[1]
    return port


def _holding(port: int) -> socket.socket:
    holding = socket.socket()
    holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holding.bind((HOST, port))
    return holding


COMMAND: Final = ("-m", "muster.drills.service.leashed", "serve")
STARTED_WITHIN_S: Final = 120.0
STOPPED_WITHIN_S: Final = 30.0
LINES_KEPT_BYTES: Final = 1 << 20
TAIL_LINES: Final = 8

Line = dict[str, Any]


class MusterProcess:
    """One `muster serve`. `name`: as messages show it; `address`: where clients reach it."""

    def __init__(self, name: str, arguments: Sequence[str], *, address: str) -> None:
        self.name = name
        self.address = address
        self._arguments = arguments
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._lines: list[Line] = []
        self._tail: list[str] = []
        self._news = asyncio.Event()
        self.was_started = False
        """True once the process was started: it may then have created something in the cluster."""

    @property
    def pid(self) -> int | None:
        """The process id; None while no process is running."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start it, and wait until it serves. Raises ServiceFailed."""
        assert self._process is None
        self._lines.clear()
        self.was_started = True
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *COMMAND,
            *self._arguments,
            "--log-format",
            "json",
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            env={**environment, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # so that Ctrl-C in a terminal only reaches the drill
            limit=LINES_KEPT_BYTES,
        )
        self._reading = asyncio.create_task(self._read(self._process), name=f"read-{self.name}")
        await self.until(lambda: self.last("serving") is not None, STARTED_WITHIN_S, "serves")

    async def stop(self) -> None:
        """Stop it cleanly (SIGTERM), and wait until it has ended. Raises ServiceFailed."""
        assert self._process is not None
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOPPED_WITHIN_S):
                await self._gone()
        except TimeoutError:
            raise ServiceFailed(f"{self.name} goes on {STOPPED_WITHIN_S:g} s after SIGTERM{self._said()}") from None

    async def kill(self) -> None:
        """Kill it (SIGKILL), and wait until it has ended."""
        self._signal(signal.SIGKILL)
        await self._gone()

    async def end(self) -> None:
        """Kill it if it is running."""
        if self._process is not None:
            await self.kill()

    def last(self, event: str) -> Line | None:
        """Return the last line with this event in its log since it was started."""
        return next((line for line in reversed(self._lines) if line.get("event") == event), None)

    @property
    def complaint(self) -> str | None:
        """The last warning or error in its log, without the timestamp."""
        bad = (line for line in reversed(self._lines) if line.get("level") in {"warning", "error", "critical"})
        line = next(bad, None)
        return None if line is None else json.dumps({key: line[key] for key in line if key != "timestamp"})

    async def until(self, condition: Callable[[], bool], within_s: float, what: str) -> None:
        """Wait until a condition on the lines of its log is true. Raises ServiceFailed."""
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    self.check(f" before it {what}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise ServiceFailed(
                f"{self.name} has not shown within {within_s:g} s that it {what}{self._said()}"
            ) from None

    def check(self, before: str = "") -> None:
        """Raise ServiceFailed if it has ended."""
        if self._reading is None or self._reading.done():
            said = self._said() if self.complaint is None else f": {self.complaint}"
            raise ServiceFailed(f"{self.name} ended{before}{said}")

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def _gone(self) -> None:
        assert self._process is not None
        assert self._reading is not None
        await asyncio.shield(self._reading)
        await self._process.wait()
        self._process = self._reading = None

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            text = line.decode(errors="replace").rstrip()
            self._tail = [*self._tail[1 - TAIL_LINES :], text]
            with suppress(json.JSONDecodeError):  # a Python warning
                told = json.loads(text)
                if isinstance(told, dict):
                    self._lines.append(told)
            self._news.set()
        self._news.set()

    def _said(self) -> str:
        return "; it said last:" + "".join(f"\n  {line}" for line in self._tail)
