"""The account of one connection in the memory of all (memory.py): its size, its owner, and how it is closed."""

import asyncio
from collections.abc import Callable

from muster.coordinator.net.memory import FREE_BYTES, EvictionOrder, Memory


class ConnectionMemory:
    """See the module. `eviction_order` is asked for when the memory runs out, `abort` closes the connection at once."""

    def __init__(
        self, memory: Memory, *, eviction_order: Callable[[], EvictionOrder], abort: Callable[[], None]
    ) -> None:
        self.client_host = ""
        self.principal: str | None = None
        """The principal; None for a client that does not authenticate, or has not yet."""
        self.is_counted = False
        """Whether the connection is counted, so that `count` has to be called when it holds less."""
        self._memory = memory
        self._eviction_order = eviction_order
        self._abort = abort
        self._is_evicted = False

    @property
    def eviction_order(self) -> EvictionOrder:
        return self._eviction_order()

    @property
    def whose(self) -> str:
        return self.principal or self.client_host

    def count(self, size: int) -> None:
        """Note the number of bytes that the connection holds now."""
        if not self._is_evicted:
            self.is_counted = size > FREE_BYTES
            self._memory.hold(self, size)

    def evict(self) -> None:
        """Abort the connection with the next turn of the loop; it counts no more."""
        self._is_evicted = True
        asyncio.get_running_loop().call_soon(self._abort)  # it may be in the midst of writing

    def end(self) -> None:
        """Remove a connection that was closed, with its references, so that it need not wait for garbage collection."""
        self._memory.hold(self, 0)
        self._eviction_order, self._abort = _gone, _do_nothing


def unsent_bytes(transport: asyncio.Transport | None) -> int:
    """The number of bytes that the transport could not send yet."""
    if transport is None or transport.is_closing():  # uvloop's may not be asked then
        return 0
    return transport.get_write_buffer_size()


def _gone() -> EvictionOrder:
    return EvictionOrder.UNAUTHENTICATED


def _do_nothing() -> None:
    """Do nothing: the connection is closed already."""
