"""The queue of connects to each broker: a limited number is in progress, and the others wait, first come, first served.

Each connect costs the event loop some tenths of a millisecond, more with TLS, when it begins and when the broker
responds. So connects to all brokers begin in shared turns, and few responses of one broker arrive at once, as they
would after it had hung. A broker that does not respond delays no connect to another one.
"""

from collections import OrderedDict
from typing import Final
from weakref import WeakValueDictionary

from muster.coordinator.load.turns import Turns, Waits

CONNECTS_AT_ONCE: Final = 128
TLS_CONNECTS_AT_ONCE: Final = 16
"""Limit of concurrent connects to one broker; a TLS handshake costs the event loop some milliseconds."""


class ConnectQueues:
    """The queues by address; one exists only while a connect uses it. All share the same turns."""

    def __init__(self, turns: Turns, *, at_once: int = CONNECTS_AT_ONCE) -> None:
        self._turns = turns
        self._at_once = at_once
        self._queues: WeakValueDictionary[tuple[str, int], ConnectQueue] = WeakValueDictionary()

    def to(self, address: tuple[str, int]) -> "ConnectQueue":
        """Return the queue of the broker at this host and port."""
        return self._queues.setdefault(address, ConnectQueue(self._turns, at_once=self._at_once))


class ConnectQueue:
    """The queue of one address. `take_turn` of a connect is called when it may begin; `leave` frees its place."""

    def __init__(self, turns: Turns, *, at_once: int = CONNECTS_AT_ONCE) -> None:
        self.at_once = at_once
        self.connected = 0
        """Counts successful connects."""
        self._turns = turns
        self._waiting: OrderedDict[Waits, None] = OrderedDict()
        self._under_way: set[Waits] = set()

    @property
    def is_full(self) -> bool:
        """True if the next connect has to wait until another one ends."""
        return len(self._under_way) >= self.at_once

    def wait(self, connect: Waits) -> None:
        """Begin the connect as soon as allowed, perhaps at once."""
        self._waiting[connect] = None
        self._fill()

    def leave(self, connect: Waits) -> None:
        """Remove a connect that has ended or is no longer needed."""
        self._waiting.pop(connect, None)
        self._turns.forget(connect)
        self._under_way.discard(connect)
        self._fill()

    def _fill(self) -> None:
        while self._waiting and not self.is_full:
            connect, _ = self._waiting.popitem(last=False)
            self._under_way.add(connect)
            if self._turns.begin(connect):
                connect.take_turn()
