"""The operator's command of a drill: nothing is left of it when the drill is interrupted."""

import asyncio
from asyncio.subprocess import Process
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.drills.faults import Stage, by_command
from tests.drills.running import lives
from tests.waiting import until


async def test_a_command_that_is_interrupted_while_it_starts_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have started others, before asyncio has reported that it runs."""
    start, goes_on, pid = asyncio.create_subprocess_shell, asyncio.Event(), tmp_path / "pid"

    started: list[Process] = []

    async def slowly(command: str, **options: Any) -> Process:
        process = await start(command, **options)
        started.append(process)
        await goes_on.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_shell", slowly)
    stage = SimpleNamespace(note=lambda *_, **__: None, plan=SimpleNamespace(within_ms=60_000))
    running = asyncio.create_task(by_command(cast("Stage", stage), f"sh -c 'echo $$ > {pid}; exec sleep 600'; true"))
    await until(lambda: pid.exists() and pid.read_text().strip())
    running.cancel()
    await asyncio.sleep(0)
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert started[0].returncode is not None, "its end was heard before the loop may be closed"
    await until(lambda: not lives(int(pid.read_text())))
