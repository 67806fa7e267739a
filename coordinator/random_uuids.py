"""Random UUIDs for the ids of members."""

import os
import uuid
from typing import Final

UUIDS_AT_ONCE: Final = 256


class RandomUuids:
    """Random UUIDs (version 4). The system is asked for the random bytes of 256 UUIDs at a time.

    The system call releases the interpreter's lock. With a call for each join, the event loop would often have to wait
    until the event log's thread releases the lock.
    """

    def __init__(self) -> None:
        self._ready: list[str] = []

    def next(self) -> str:
        if not self._ready:
            some = os.urandom(16 * UUIDS_AT_ONCE)
            self._ready = [str(uuid.UUID(bytes=some[at : at + 16], version=4)) for at in range(0, len(some), 16)]
        return self._ready.pop()
