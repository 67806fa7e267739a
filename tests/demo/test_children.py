"""Children of the demo end with it, even if their leash was killed, or the demo is interrupted while one starts."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from demo import children
from demo.children import start_child

ENDED_WITHIN_S = 30
LIVES_ON = "import os, time; print(os.getppid(), os.getpid(), flush=True); time.sleep(600)"


async def test_a_child_without_its_leash_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "GONE_WITHIN_S", 0.1)
    reported: list[bytes] = []
    heard = asyncio.Event()

    def take(line: bytes) -> None:
        reported.append(line)
        heard.set()

    child = await start_child(["-c", LIVES_ON], take_line=take, ended=lambda: None, errors=None)
    await heard.wait()
    leash, own = map(int, reported[0].split())
    os.kill(leash, signal.SIGKILL)
    await child.end()  # returns when the output has ended, so no process holds it open
    async with asyncio.timeout(ENDED_WITHIN_S):
        while runs(own):  # noqa: ASYNC110 -- who is killed closes its files first, and ends a little later
            await asyncio.sleep(0.001)


async def test_a_start_that_is_cancelled_ends_and_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its child runs before asyncio has its pipes. asyncio would only kill the leash and wait for the output."""
    started, word = subprocess.Popen, secrets.token_hex(8)
    command = [sys.executable, "-c", LIVES_ON, word]

    def started_on_a_busy_machine(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = started(*arguments, **options)
        while command not in command_lines():
            pass
        starting.cancel()
        return process

    monkeypatch.setattr(subprocess, "Popen", started_on_a_busy_machine)
    starting = asyncio.create_task(start_child(command[1:], take_line=lambda _: None, ended=lambda: None, errors=None))
    async with asyncio.timeout(ENDED_WITHIN_S):
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert command not in command_lines()


def command_lines() -> list[list[str]]:
    """Those of all running processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            found.append(path.read_text(encoding="utf-8", errors="replace").split("\0")[:-1])
    return found


def runs(process_id: int) -> bool:
    """Return whether the process exists and has not ended: without its parent it may stay a zombie for long."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in {"Z", "X"}
