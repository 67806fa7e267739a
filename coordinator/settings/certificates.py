"""Certificates that are renewed while the process runs: read again, without a restart.

What belongs here: when their files are looked at, and what is said of them. What it must not know: what they are for;
how they are read is in `events/kafka/tls_files.py`.

How it works: a thread looks, since a disk may hang; one look at a time, so a disk that does not answer is waited for.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import structlog

from muster.events.kafka.tls_files import BadTlsFile, FilesContext
from muster.events.log.sqlite.disk_thread import DiskThread

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

LOOKS_EVERY_S: Final = 5.0
LOOKS_AGAIN_S: Final = 0.5
"""While something cannot be read: who writes a key and its certificate one after the other is soon done."""
SILENT_AFTER_S: Final = 60.0
"""A look that takes longer is told of, once."""


class Certificates:
    """Those of `contexts`, which is asked at each look."""

    def __init__(self, contexts: Callable[[], Iterable[FilesContext]]) -> None:
        self._contexts = contexts
        self._thread = DiskThread("certificates")
        self._complaints: set[str] = set()

    async def look(self) -> None:
        """Read what has changed. What cannot be read is said once, and the connections go on with what was there."""
        complaints: set[str] = set()
        for context in self._contexts():
            try:
                contents = await self._changed(context)
                if contents is not None:
                    context.use(contents)
                    log.info("certificates were read again", files=context.files)
            except BadTlsFile as bad:
                complaints.add(str(bad))
        for complaint in complaints - self._complaints:
            log.warning("certificates cannot be read again, those from before are in use", reason=complaint)
        self._complaints = complaints

    async def _changed(self, context: FilesContext) -> dict[Path, bytes] | None:
        looking = self._thread.submit(context.changed)
        done, _ = await asyncio.wait({looking}, timeout=SILENT_AFTER_S)
        if not done:
            log.warning("the disk of certificates does not answer, those from before are in use", files=context.files)
        return await looking

    async def keep_looking(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                await asyncio.sleep(LOOKS_AGAIN_S if self._complaints else LOOKS_EVERY_S)
                await self.look()
        finally:
            self._thread.end()
