"""Checking the event topic's settings while it is served; on a real broker: `events/log/on_broker/test_topic.py`."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import cast

import pytest
import structlog

from muster.coordinator import log_settings_watch
from muster.coordinator.assembly import watch_log_settings
from muster.coordinator.log_settings_watch import LogSettingsWatch
from muster.coordinator.observability.status import StatusParts
from muster.coordinator.settings.settings import Settings
from muster.events.log.base import EventLog, LogError, LogMismatch, LogUnavailable, OddAnswer
from tests.waiting import until


class Watched:
    """A log with these flaws, one set for each check; an error is raised."""

    location = "events"
    warnings = ("an old flaw",)

    def __init__(self, *looks: Sequence[str] | LogError) -> None:
        self._looks = [*looks]

    async def flaws(self) -> Sequence[str]:
        found = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        if isinstance(found, LogError):
            raise found
        return found


async def test_a_process_looks_as_long_as_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its status has the findings, except those reported at the start."""
    monkeypatch.setattr(log_settings_watch, "CHECK_INTERVAL_S", 0.001)
    failed: list[Exception] = []
    parts = StatusParts()
    event_log = cast("EventLog", Watched(["an old flaw"], ["an old flaw", "it is deleted"]))
    async with AsyncExitStack() as stack:
        watch_log_settings(Settings(), event_log, parts, stack, lost=failed.append)
        await until(lambda: parts.log_flaws() == ("it is deleted",))
    assert not failed
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "log-settings" and not task.cancelling()]


async def test_while_the_log_is_unavailable_nothing_changes() -> None:
    """The known flaws stay until the next check."""
    watch = LogSettingsWatch(Watched(["it is deleted"], LogUnavailable("it is away"), []), "events")
    for expected in (("it is deleted",), ("it is deleted",), ()):
        await watch.check()
        assert watch.flaws == expected


async def test_a_failed_check_is_logged_once_and_repeated() -> None:
    """For any error in the response; a repeated one is not logged again."""
    odd, denied = OddAnswer("of another topic"), LogMismatch("min.insync.replicas='x', which is not a number")
    watch = LogSettingsWatch(Watched(odd, odd, denied, ["it is deleted"], odd, []), "events")
    with structlog.testing.capture_logs() as reported:
        for _ in range(6):
            await watch.check()
    assert [line.get("reason") for line in reported] == [str(odd), str(denied), "it is deleted", str(odd), None]
