"""The settings of the event topic, looked at again and again while it is served: operators reconcile topics.

A topic that was made with `cleanup.policy=compact` and is set to `delete` loses its oldest records within minutes, and
nothing else tells of it: what is owned is in memory. The start refuses such settings; a process that serves goes on,
since ending would lose more, and says so: in its log, in a metric, and to `muster status`. An answer that cannot be
read is a line, too, and the next look may find another one.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from muster.coordinator.observability.metrics import LOG_FLAWS
from muster.events.log.base import LogError, WatchedLog

log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 60.0


class LogSettingsWatch:
    """Looks at one log. `known`: what was logged when it was opened, and is not said again."""

    def __init__(self, event_log: WatchedLog, location: str, known: Sequence[str] = ()) -> None:
        self._log = event_log
        self._location = location
        self._known = frozenset(known)
        self.flaws: tuple[str, ...] = ()
        """The flaws that were not there then, as of the last look. Any thread may read them."""
        self._failed: str | None = None
        LOG_FLAWS.set(0)

    async def keep_looking(self) -> None:
        """Look every minute, until this is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Look once, and log what is new; nothing changes where nothing can be found out."""
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
