"""Children of the demo end with it, even if their leash was killed by another process."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from demo import children
from demo.children import start_child

ENDED_WITHIN_S = 30
LIVES_ON = "import os, time; print(os.getppid(), os.getpid(), flush=True); time.sleep(600)"


async def test_a_child_whose_leash_is_gone_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "GONE_WITHIN_S", 0.1)
    said: list[bytes] = []
    heard = asyncio.Event()

    def take(line: bytes) -> None:
        said.append(line)
        heard.set()

    child = await start_child(["-c", LIVES_ON], take_line=take, ended=lambda: None, errors=None)
    await heard.wait()
    leash, own = map(int, said[0].split())
    os.kill(leash, signal.SIGKILL)
    await child.end()  # returns when the output has ended, so no process holds it open
    async with asyncio.timeout(ENDED_WITHIN_S):
        while runs(own):  # noqa: ASYNC110 -- who is killed closes its files first, and ends a little later
            await asyncio.sleep(0.001)


def runs(process_id: int) -> bool:
    """Return whether the process exists and has not ended: without its parent it may stay a zombie for long."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in {"Z", "X"}
