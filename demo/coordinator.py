"""The story's coordinator and the replay tool: the `muster` command, as a user types it.

`muster serve` runs as a child process, killed and restarted on the same port and log; `muster replay` reads that log.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

import msgspec

from demo.children import ROOT, Child, child_environment, log_tail, start_child
from demo.scene import NotAsTold, Scene

HOST: Final = "127.0.0.1"
STARTED_WITHIN_S: Final = 40.0
TAIL_LINES, TAIL_WIDTH = 8, 160
INITIAL_DELAY: Final = "group.initial.rebalance.delay.ms=1000"  # the members start at about the same time


class Coordinator:
    """`muster serve` for one topic. `log_url` is the value of its `--log`; `log_file` gets its output."""

    def __init__(self, scene: Scene, *, log_url: str, topic: str, log_file: Path) -> None:
        self._scene = scene
        self._log_url = log_url
        self._topic = topic
        self._log_file = log_file
        self._child: Child | None = None
        self._serving = False
        self._port = 0

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._port}"

    @property
    def command(self) -> list[str]:
        """The arguments of `muster`."""
        options = ("--topic", self._topic, "--log", self._log_url, "--config", INITIAL_DELAY)
        return ["serve", "--listen", self.bootstrap, *options]

    async def start(self) -> None:
        """Start it and wait until it serves: on a free port the first time, then always on the same one."""
        self._serving = False
        child = await start_child(
            ["-m", "muster", *self.command, "--log-format", "json"],
            take_line=self._take_line,
            ended=self._scene.note,
            errors=None,
        )
        self._child = child
        self._scene.add(child)
        await self._scene.until(
            "the coordinator serves",
            lambda: self._serving or child.exit_code is not None,
            within_s=STARTED_WITHIN_S,
        )
        if not self._serving:
            raise NotAsTold("the coordinator should serve", "it ended")

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self._child is not None
        self._child.signal(SIGKILL)
        await self._child.gone()

    def log_tail(self) -> str:
        """The end of its output."""
        return log_tail(self._log_file)

    def _take_line(self, line: bytes) -> None:
        with self._log_file.open("ab") as file:
            file.write(line)
        try:
            entry = msgspec.json.decode(line)
        except msgspec.DecodeError:
            return
        if isinstance(entry, dict) and entry.get("event") == "serving":
            self._port = int(str(entry["listen"]).rpartition(":")[2])
            self._serving = True
            self._scene.note()


class Replay:
    """`muster replay` on the story's log."""

    def __init__(self, log_url: str) -> None:
        self._log_url = log_url

    def command(self, *arguments: str) -> list[str]:
        """The arguments of `muster`."""
        return ["replay", *arguments, "--log", self._log_url]

    async def text(self, *arguments: str, width: int) -> str:
        """Its output in colours, for a terminal of this width."""
        return await self._run(*arguments, FORCE_COLOR="1", COLUMNS=str(width), TERM="xterm-256color")

    async def tail(self, *arguments: str) -> str:
        """Its last lines, without colours; its error message, if there is nothing to read yet."""
        try:
            output = await self._run(*arguments, COLUMNS=str(TAIL_WIDTH))
        except NotAsTold as error:
            return error.seen
        return "\n".join(output.splitlines()[-TAIL_LINES:])

    async def result(self, *arguments: str) -> Any:  # noqa: ANN401 -- JSON
        """Its JSON output."""
        return msgspec.json.decode(await self._run(*arguments, "--format", "json"))

    async def _run(self, *arguments: str, **environment: str) -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "muster",
            *self.command(*arguments),
            stdout=PIPE,
            stderr=PIPE,
            cwd=ROOT,
            env=child_environment(**environment),
        )
        try:
            output, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            command = " ".join(["muster", *self.command(*arguments)])
            raise NotAsTold(f"`{command}` should answer", errors.decode().strip() or f"exit code {process.returncode}")
        return output.decode()
