"""Checks the event topic's settings periodically while it is served, since tools that reconcile topics may change them.

A topic that was created with `cleanup.policy=compact` and is changed to `delete` loses its oldest records within
minutes, and nothing else shows it: the state of owned partitions is in memory. At startup such settings are refused. A
process that is already serving continues, since stopping would lose more, and reports them in its log, in a metric and
in `muster status`. If the settings cannot be read, that is logged, and the next check may succeed.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from muster.coordinator.observability.metrics import LOG_FLAWS
from muster.events.log.base import LogError, WatchedLog

log = structlog.get_logger(__name__)

CHECK_INTERVAL_S: Final = 60.0


class LogSettingsWatch:
    """Checks one log. `known`: flaws that were logged when it was opened, and are not logged again."""

    def __init__(self, event_log: WatchedLog, location: str, known: Sequence[str] = ()) -> None:
        self._log = event_log
        self._location = location
        self._known = frozenset(known)
        self.flaws: tuple[str, ...] = ()
        """The flaws found since then, as of the last check. Any thread may read them."""
        self._failed: str | None = None
        LOG_FLAWS.set(0)

    async def keep_checking(self) -> None:
        """Check every minute, until this is cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            await self.check()

    async def check(self) -> None:
        """Check once, and log what is new; `flaws` stays as it is if the settings cannot be read."""
        try:
            found = tuple(flaw for flaw in await self._log.flaws() if flaw not in self._known)
        except LogError as error:
            if self._failed != str(error):
                log.warning("the event log's settings cannot be looked at", log=self._location, reason=str(error))
            self._failed = str(error)
            return
        self._failed = None
        for flaw in found:
            if flaw not in self.flaws:
                log.warning("the event log's settings are no longer safe", log=self._location, reason=flaw)
        if self.flaws and not found:
            log.info("the event log's settings are safe again", log=self._location)
        self.flaws = found
        LOG_FLAWS.set(len(found))
