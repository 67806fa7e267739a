"""The connects to each broker: some are under way, the others wait, first come first served.

Each costs the loop some tenths of a millisecond, more with TLS, when it begins and when the broker has answered. So
they begin in turns, which all brokers share, and few answers of one broker come at once, as those of one that stood
still do. A broker that does not answer delays no connect to another one.
"""

from collections import OrderedDict
from typing import Final
from weakref import WeakValueDictionary

from muster.coordinator.load.turns import Turns, Waits

CONNECTS_AT_ONCE: Final = 128
TLS_CONNECTS_AT_ONCE: Final = 16
"""The connects to one broker that are under way at a time; a TLS handshake costs the loop some milliseconds."""


class ConnectQueues:
    """The queue of each address, which is kept while somebody is in it. All begin in the same turns."""

    def __init__(self, turns: Turns, *, at_once: int = CONNECTS_AT_ONCE) -> None:
        self._turns = turns
        self._at_once = at_once
        self._queues: WeakValueDictionary[tuple[str, int], ConnectQueue] = WeakValueDictionary()

    def to(self, address: tuple[str, int]) -> "ConnectQueue":
        """Return the queue of the broker at this host and port."""
        return self._queues.setdefault(address, ConnectQueue(self._turns, at_once=self._at_once))


class ConnectQueue:
    """The queue of one address. A connect's `take_turn` is called when it may begin; `leave` gives its place back."""

    def __init__(self, turns: Turns, *, at_once: int = CONNECTS_AT_ONCE) -> None:
        self.at_once = at_once
        self.connected = 0
        """Counts the connects that have succeeded."""
        self._turns = turns
        self._waiting: OrderedDict[Waits, None] = OrderedDict()
        self._under_way: set[Waits] = set()

    @property
    def is_full(self) -> bool:
        """Whether the next one has to wait for another one to end."""
        return len(self._under_way) >= self.at_once

    def wait(self, connect: Waits) -> None:
        """Begin the connect as soon as it may, perhaps at once."""
        self._waiting[connect] = None
        self._fill()

    def leave(self, connect: Waits) -> None:
        """Forget a connect that has ended, or that nobody wants any more."""
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
