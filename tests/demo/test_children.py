"""Children of the demo end with it, also when their leash was ended by somebody else."""

import asyncio
import os
import signal

import pytest

from demo import children
from demo.children import start_child


async def test_a_child_whose_leash_is_gone_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "GONE_WITHIN_S", 0.1)
    said: list[bytes] = []
    heard = asyncio.Event()

    def take(line: bytes) -> None:
        said.append(line)
        heard.set()

    lives_on = "import os, time; print(os.getppid(), flush=True); time.sleep(600)"
    child = await start_child(["-c", lives_on], take_line=take, ended=lambda: None, errors=None)
    await heard.wait()
    os.kill(int(said[0]), signal.SIGKILL)
    await child.end()
    assert child.exit_code == -signal.SIGKILL
