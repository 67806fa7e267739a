"""Reloads certificates that are renewed while the process runs, without a restart.

`events/kafka/tls_files.py` reads the files; this module decides when, and logs the results.

The files are checked in a thread, since a disk may hang; one check at a time, so further checks wait for a disk that
hangs.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import structlog

from muster.events.kafka.tls_files import BadTlsFile, FilesContext
from muster.events.log.sqlite.disk_thread import DiskThread

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

CHECK_INTERVAL_S: Final = 5.0
RETRY_INTERVAL_S: Final = 0.5
"""The interval while a file cannot be used: a key and its certificate are written one after the other."""
SLOW_CHECK_S: Final = 60.0
"""A check that takes longer is logged once."""


class Certificates:
    """Reloads the certificates of `contexts`, which is called for each check."""

    def __init__(self, contexts: Callable[[], Iterable[FilesContext]]) -> None:
        self._contexts = contexts
        self._thread = DiskThread("certificates")
        self._complaints: set[str] = set()

    async def check(self) -> None:
        """Reload changed files. Unusable ones are logged once; connections then keep the previous certificates."""
        complaints: set[str] = set()
        for context in self._contexts():
            try:
                contents = await self._changed(context)
                if contents is not None:
                    context.use(contents)
                    log.info("certificates reloaded", files=context.files)
            except BadTlsFile as bad:
                complaints.add(str(bad))
        for complaint in complaints - self._complaints:
            log.warning("could not reload certificates, keeping the previous ones", reason=complaint)
        self._complaints = complaints

    async def _changed(self, context: FilesContext) -> dict[Path, bytes] | None:
        looking = self._thread.submit(context.changed)
        done, _ = await asyncio.wait({looking}, timeout=SLOW_CHECK_S)
        if not done:
            log.warning("the certificates' disk does not respond, keeping the previous ones", files=context.files)
        return await looking

    async def keep_checking(self) -> None:
        """Check periodically until cancelled."""
        try:
            while True:
                await asyncio.sleep(RETRY_INTERVAL_S if self._complaints else CHECK_INTERVAL_S)
                await self.check()
        finally:
            self._thread.end()
