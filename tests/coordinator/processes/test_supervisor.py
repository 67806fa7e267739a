"""All processes of one host together: the order in which they stop."""

import asyncio
import os
import signal
from typing import Any

import pytest
from structlog.testing import capture_logs

from muster.coordinator.processes import supervisor
from muster.coordinator.processes.children import Child
from muster.coordinator.settings.loading import load_settings


async def test_the_edges_stop_before_their_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its groups then move to another host without pending requests."""
    stopped, kept = list[str](), list[str]()

    class Process:
        """A process that runs until it is stopped, which takes a while."""

        is_unusable, pid = False, None

        def __init__(self, child: Child, _inherited: Any) -> None:
            self.child = child
            self._ended = asyncio.Event()

        async def keep(self) -> None:
            kept.append(self.child.name)
            if len(kept) == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            await self._ended.wait()

        async def stop(self, _within_s: float) -> None:
            await asyncio.sleep(0.01)
            stopped.append(self.child.name)
            self._ended.set()

    async def are_free(*_: Any) -> bool:
        return True

    monkeypatch.setattr(supervisor, "RunningProcess", Process)
    monkeypatch.setattr(supervisor, "hold_addresses", are_free)
    monkeypatch.setattr(supervisor, "configure_logs", lambda *_: None)
    settings = load_settings({"upstream": "kafka:9092", "processes": 2}, [], None)
    with capture_logs() as logged:
        async with asyncio.timeout(20):
            await supervisor.supervise(settings, ())
    assert [line["reason"] for line in logged if line["event"] == "stopping"] == ["SIGTERM"]
    assert kept == ["owner", "edge-1", "edge-2"]
    assert sorted(stopped[:2]) == ["edge-1", "edge-2"]
    assert stopped[2:] == ["owner"]
