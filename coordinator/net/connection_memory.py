"""One connection's share of the memory: what it holds, and how it is made to let go.

What belongs here: what is the same for all connections, whatever is spoken on them.
"""

import asyncio
from collections.abc import Callable

from muster.coordinator.net.memory import FREE_BYTES, Claim, Memory


class ConnectionMemory:
    """See the module. `claim` is asked when the memory runs out, `abort` closes the connection at once."""

    def __init__(self, memory: Memory, *, claim: Callable[[], Claim], abort: Callable[[], None]) -> None:
        self.client_host = ""
        self.principal: str | None = None
        """None where nobody authenticates, or has not yet."""
        self.is_counted = False
        """Whether the memory knows of this connection, and wants to hear when it holds less."""
        self._memory = memory
        self._claim = claim
        self._abort = abort
        self._is_evicted = False

    @property
    def claim(self) -> Claim:
        return self._claim()

    @property
    def whose(self) -> str:
        return self.principal or self.client_host

    def count(self, size: int) -> None:
        """The connection holds so many bytes now."""
        if not self._is_evicted:
            self.is_counted = size > FREE_BYTES
            self._memory.hold(self, size)

    def evict(self) -> None:
        """Close soon, and hold nothing any more."""
        self._is_evicted = True
        asyncio.get_running_loop().call_soon(self._abort)  # it may be in the midst of writing

    def end(self) -> None:
        """The connection is closed. It is forgotten, so that nothing of it is kept until garbage is looked for."""
        self._memory.hold(self, 0)
        self._claim, self._abort = _gone, _do_nothing


def unsent_bytes(transport: asyncio.Transport | None) -> int:
    """How much waits until the other end reads."""
    if transport is None or transport.is_closing():  # uvloop's may not be asked then
        return 0
    return transport.get_write_buffer_size()


def _gone() -> Claim:
    return Claim.STRANGER


def _do_nothing() -> None:
    """It is closed already."""
