"""Certificates that are renewed while the process runs: read again, without a restart.

What belongs here: when their files are looked at, and what is said of them. What it must not know: what they are for;
how they are read is in `events/log/tls_files.py`.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from events.log.tls_files import BadTlsFile, FilesContext

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

LOOKS_EVERY_S: Final = 5.0
LOOKS_AGAIN_S: Final = 0.5
"""While something cannot be read: who writes a key and its certificate one after the other is soon done."""


class Certificates:
    """Those of `contexts`, which is asked at each look."""

    def __init__(self, contexts: Callable[[], Iterable[FilesContext]]) -> None:
        self._contexts = contexts
        self._complaints: set[str] = set()

    def look(self) -> None:
        """Read what has changed. What cannot be read is said once, and the connections go on with what was there."""
        complaints: set[str] = set()
        for context in self._contexts():
            try:
                if context.read_again():
                    log.info("certificates were read again", files=context.files)
            except BadTlsFile as bad:
                complaints.add(str(bad))
        for complaint in complaints - self._complaints:
            log.warning("certificates cannot be read again, those from before are in use", reason=complaint)
        self._complaints = complaints

    async def keep_looking(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOKS_AGAIN_S if self._complaints else LOOKS_EVERY_S)
            self.look()
