"""The connection that a member last used, and how it ended: evidence of what happened to its process.

A process that exits closes its connections immediately, whether it was stopped or killed. A machine that loses power,
or a network that is cut, closes none. A client that polled too late comes back on the same connection.
"""

from enum import StrEnum, unique

import msgspec


@unique
class ConnectionEnd(StrEnum):
    """How a connection ended. The values stay in logs forever: never change one."""

    CLOSED = "closed"
    """The client's side closed it (FIN)."""
    RESET = "reset"
    """The client's side reset it (RST), as when a process exits without having read everything."""
    TIMED_OUT = "timed-out"
    """The operating system closed it because the client's side acknowledged nothing."""
    CLOSED_BY_COORDINATOR = "closed-by-coordinator"
    """We closed it: it was idle, over a limit, violated the protocol, or its broker was lost."""
    UNKNOWN = "unknown"
    """The connection was to another Muster process, which was lost; or a newer version wrote a value unknown here."""


class LastConnection(msgspec.Struct, frozen=True, kw_only=True):
    """The connection of a member's last request. Times are wall clock in ms.

    `connection_id`: unique among the connections of one owner_epoch. `edge`: the node id of the Muster process that the
    client was connected to, if that is not the owner. `received_ms`: when the last request arrived on it, from any
    member. `end`, `ended_ms`: None while it is open.
    """

    connection_id: int
    edge: int | None = None
    received_ms: int
    end: ConnectionEnd | None = None
    ended_ms: int | None = None

    def shifted(self, by_ms: int) -> "LastConnection":
        """Return a copy with all times shifted."""
        ended_ms = None if self.ended_ms is None else self.ended_ms + by_ms
        return msgspec.structs.replace(self, received_ms=self.received_ms + by_ms, ended_ms=ended_ms)
