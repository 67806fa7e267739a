"""The connection of a member: the socket notes what happens to it, and events record that. Knows nothing of sockets.

It is soft state like a session: shared by all copies, changed in place, and read when a decision records an event. So
the end of a connection writes nothing, no matter how many connections a client opens and closes.
"""

from collections.abc import Callable

import msgspec

from muster.events.connection import ConnectionEnd, LastConnection


class ConnectionRecord(msgspec.Struct, kw_only=True):
    """A member's connection, as far as events record it. Times are monotonic ms.

    `edge`: node id of the process that the client is connected to, if that is another process.

    `number`: assigned by `numbered`, at the first request that concerns a group. `received_ms`: when the last one
    arrived.
    """

    edge: int | None = None
    number: int = 0
    received_ms: int = 0
    end: ConnectionEnd | None = None
    ended_ms: int | None = None

    def numbered(self, new_number: Callable[[], int]) -> "ConnectionRecord":
        """Return itself, after assigning a number if it has none."""
        if not self.number:
            self.number = new_number()
        return self

    def ended(self, end: ConnectionEnd, now_ms: int) -> None:
        """Note how it ended; only the first end counts, since we close our side after the client has closed its own."""
        if self.end is None:
            self.end, self.ended_ms = end, now_ms

    def recorded(self, wall_of: Callable[[float], int]) -> LastConnection:
        """Return what an event records of it. `wall_of`: the wall clock at a monotonic time."""
        return LastConnection(
            connection_id=self.number,
            edge=self.edge,
            received_ms=wall_of(self.received_ms),
            end=self.end,
            ended_ms=None if self.ended_ms is None else wall_of(self.ended_ms),
        )
