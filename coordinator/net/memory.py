"""How many bytes requests and answers hold, over the process, and who has to go when that is too much.

What belongs here: what each connection holds, the limit of all (Kafka's `queued.max.request.bytes`), and whose turn it
is. What it must not know: sockets, and what the bytes are.

Kafka stops reading from everybody at its limit. The request that would let others go may be among those that are not
read then, as the join that ends a rebalance may. So here everybody is read from, always, and at the limit whoever holds
most is closed: first among those that have not authenticated, then among those that are waited for (a request that is
half sent, answers that are not read), and only then among those that wait for us. Whoever has more than half of it,
with all connections of the same principal or address together, goes before others whatever they wait for: joins that
are parked by one take no room that others need. What a usual request has is not counted, so that it is never in
question. Answers that are being written are nobody's yet: a quarter of the limit is kept for them (load/room.py), so
that nobody is closed for what closing frees nothing of. An answer is its connection's once it is written.
"""

from collections import Counter
from enum import IntEnum, unique
from typing import Final, Protocol

import structlog

from muster.coordinator.load.room import Room
from muster.coordinator.observability.metrics import ServerMetrics

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

FREE_BYTES: Final = 16_384
"""The bytes of each connection that are not counted. A usual request is smaller."""


@unique
class EvictionOrder(IntEnum):
    """How good a connection's reason is to hold what it holds. Who has the least goes first."""

    UNAUTHENTICATED = 0
    """It has to authenticate, and has not."""
    STALLED = 1
    """The client has to send the rest of a request, or to read its answers."""
    AWAITING_ANSWER = 2
    """The client waits for us."""


_TOLD: Final = {
    EvictionOrder.UNAUTHENTICATED: "has not authenticated",
    EvictionOrder.STALLED: "has sent part of a request, or does not read its answers",
    EvictionOrder.AWAITING_ANSWER: "waits for an answer",
}


class Holder(Protocol):
    """One connection's share."""

    @property
    def eviction_order(self) -> EvictionOrder: ...

    @property
    def client_host(self) -> str: ...

    @property
    def whose(self) -> str:
        """The principal, or the address where it is not known."""

    def evict(self) -> None:
        """Close soon, and hold nothing any more."""


class Memory:
    """See the module."""

    def __init__(self, bytes_max: int, metrics: ServerMetrics, room: Room) -> None:
        self._room = room
        self._bytes_max = bytes_max - room.bytes_max
        self._metrics = metrics
        self._held: dict[Holder, tuple[int, str]] = {}  # so much, of whom
        self._held_by: Counter[str] = Counter()
        self._held_bytes = 0
        metrics.ask_held_bytes(self._all_bytes)

    def hold(self, holder: Holder, size: int) -> None:
        """The connection holds this many bytes now; some may be closed for it, be it this one."""
        self._let_go(holder)
        if size > FREE_BYTES:
            self._held[holder] = size, holder.whose
            self._held_by[holder.whose] += size
            self._held_bytes += size
        while self._held_bytes > self._bytes_max:
            self._close_one()

    def _all_bytes(self) -> int:
        return self._held_bytes + self._room.written_bytes

    def _close_one(self) -> None:
        goes = min(self._held, key=self._turn)
        size = self._let_go(goes)
        self._metrics.connections_closed_for_memory += 1
        log.warning(
            "connection closed: what connections hold is over three quarters of --queued-max-request-bytes",
            peer=goes.client_host,
            held_bytes=size,
            client=_TOLD[goes.eviction_order],
            limit_bytes=self._bytes_max,
        )
        goes.evict()

    def _turn(self, holder: Holder) -> tuple[bool, bool, EvictionOrder, int]:
        size, whose = self._held[holder]
        has_its_share = 2 * self._held_by[whose] <= self._bytes_max
        return holder.eviction_order is not EvictionOrder.UNAUTHENTICATED, has_its_share, holder.eviction_order, -size

    def _let_go(self, holder: Holder) -> int:
        size, whose = self._held.pop(holder, (0, ""))
        self._held_bytes -= size
        self._held_by[whose] -= size
        if not self._held_by[whose]:
            del self._held_by[whose]
        return size
