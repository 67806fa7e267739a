"""The queue of connection attempts to each broker: a limited number runs at a time, the others wait in order.

Each attempt costs the event loop a few tenths of a millisecond, more with TLS, when it begins and when the broker
responds. So attempts for all brokers begin in shared turns. And since their number is limited, only a few responses can
arrive at once, even from a broker that had hung. A broker that does not respond delays no attempt to connect to another
one.
"""

from collections import OrderedDict
from typing import Final
from weakref import WeakValueDictionary

from muster.coordinator.load.turns import Turns, Waits

CONNECTS_AT_ONCE: Final = 128
TLS_CONNECTS_AT_ONCE: Final = 16
"""Limit of concurrent attempts to connect to one broker; a TLS handshake costs the event loop a few milliseconds."""


class ConnectQueues:
    """The queues by address; a queue exists only while it is in use. All share the same turns."""

    def __init__(self, turns: Turns, *, at_once: int = CONNECTS_AT_ONCE) -> None:
        self._turns = turns
        self._at_once = at_once
        self._queues: WeakValueDictionary[tuple[str, int], ConnectQueue] = WeakValueDictionary()

    def to(self, address: tuple[str, int]) -> "ConnectQueue":
        """Return the queue of the broker at this host and port."""
        return self._queues.setdefault(address, ConnectQueue(self._turns, at_once=self._at_once))


class ConnectQueue:
    """The queue of one address. Calls `take_turn` of an attempt that may begin; `leave` frees the attempt's place."""

    def __init__(self, turns: Turns, *, at_once: int = CONNECTS_AT_ONCE) -> None:
        self.at_once = at_once
        self.connected = 0
        """The number of successful attempts."""
        self._turns = turns
        self._waiting: OrderedDict[Waits, None] = OrderedDict()
        self._under_way: set[Waits] = set()

    @property
    def is_full(self) -> bool:
        """True if the next attempt has to wait until another one ends."""
        return len(self._under_way) >= self.at_once

    def wait(self, connect: Waits) -> None:
        """Begin the attempt as soon as allowed, perhaps at once."""
        self._waiting[connect] = None
        self._fill()

    def leave(self, connect: Waits) -> None:
        """Remove an attempt that has ended or is no longer needed."""
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
