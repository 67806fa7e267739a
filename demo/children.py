"""Child processes of the demo: their output is read line by line, and none outlives the demo.

A child runs on a leash (`tests/brokers/leash.py`), which kills it when this process is gone for any reason. Both are in
a separate process group, so that a terminal's Ctrl-C only reaches the demo.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

ROOT: Final = Path(__file__).resolve().parents[1]
LEASH: Final = ROOT / "tests" / "brokers" / "leash.py"
GONE_WITHIN_S: Final = 10.0

LOG_TAIL_LINES: Final = 5

TakeLine = Callable[[bytes], None]


def child_environment(**more: str) -> Mapping[str, str]:
    """The demo's own environment without Muster's settings: the story only needs those it sets itself."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
    return {**own, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **more}


class Child:
    """A running process. Created by `start_child`."""

    def __init__(self, process: Process, take_line: TakeLine, ended: Callable[[], None]) -> None:
        self._process = process
        self._reading = asyncio.create_task(self._read(take_line, ended))

    @property
    def exit_code(self) -> int | None:
        """None while its leash runs; 128 plus the signal's number if a signal ended the child."""
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        """Signal the child, not only its leash; no effect if it has ended."""
        if not self._reading.done():
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def gone(self) -> None:
        """Wait until it has ended and all its output has been processed."""
        await asyncio.shield(self._reading)

    async def end(self) -> None:
        """Kill it if it is still running."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(GONE_WITHIN_S):
                await self.gone()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.gone()

    async def _read(self, take_line: TakeLine, ended: Callable[[], None]) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            take_line(line)
        await self._process.wait()
        ended()


async def start_child(
    command: Sequence[str], *, take_line: TakeLine, ended: Callable[[], None], errors: IO[bytes] | None
) -> Child:
    """Run Python with these arguments. Its output goes to `take_line`; its errors to a file, or to `take_line` as well.

    `ended` is called when it has ended and its last line was processed. If the start is cancelled, the child is ended
    here: asyncio would only kill the leash, and then wait as long as the child keeps its output open.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            str(LEASH),
            sys.executable,
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT if errors is None else errors,
            cwd=ROOT,
            env=child_environment(),
            start_new_session=True,
        )
    )
    try:
        return Child(await asyncio.shield(starting), take_line, ended)
    except asyncio.CancelledError:
        await Child(await starting, take_line, ended).end()
        raise


def log_tail(file: Path) -> str:
    """The end of a child's log file."""
    if not file.exists():
        return ""
    return "\n".join(file.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:])
