"""How many bytes requests and answers hold, over the process, and who has to go when that is too much.

What belongs here: what each connection holds, the limit of all (Kafka's `queued.max.request.bytes`), and whose turn it
is. What it must not know: sockets, and what the bytes are.

Kafka stops reading from everybody at its limit. The request that would let others go may be among those that are not
read then, as the join that ends a rebalance may. So here everybody is read from, always, and at the limit whoever holds
most is closed: first among those that have not authenticated, then among those that are waited for (a request that is
half sent, answers that are not read), and only then among those that wait for us. Whoever has more than half of it,
with all connections of the same principal or address together, goes before others whatever they wait for: joins that
are parked by one take no room that others need. What a usual request has is not counted, so that it is never in
question. Whoever is like the first to go goes too, until a tenth of the limit is free again: what choosing costs is
spent once for many. Answers that are being written are nobody's yet: a quarter of the limit is kept for them
(load/room.py), so that nobody is closed for what closing frees nothing of. An answer is its connection's once it is
written.
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
ROOM_AGAIN: Final = 0.9


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
    EvictionOrder.UNAUTHENTICATED: "have not authenticated",
    EvictionOrder.STALLED: "have sent part of a request, or do not read their answers",
    EvictionOrder.AWAITING_ANSWER: "wait for an answer",
}
_Priority = tuple[bool, bool, EvictionOrder]


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
            self._close_some()

    def _all_bytes(self) -> int:
        return self._held_bytes + self._room.written_bytes

    def _close_some(self) -> None:
        """Close those that have the same priority as the first one, until there is room again."""
        turns = sorted(self._held, key=self._turn)
        priority, order = self._priority(turns[0]), turns[0].eviction_order
        closed: Counter[str] = Counter()
        connections = 0
        for goes in turns:
            if self._held_bytes <= ROOM_AGAIN * self._bytes_max or self._priority(goes) != priority:
                break
            closed[goes.client_host] += self._let_go(goes)
            self._metrics.connections_closed_for_memory += 1
            goes.evict()
            connections += 1
        (peer, _), *_ = closed.most_common(1)
        log.warning(
            "connections closed: what connections hold is over three quarters of --queued-max-request-bytes",
            connections=connections,
            held_bytes=closed.total(),
            most_by=peer,
            clients=_TOLD[order],
            limit_bytes=self._bytes_max,
        )

    def _turn(self, holder: Holder) -> tuple[_Priority, int]:
        return self._priority(holder), -self._held[holder][0]

    def _priority(self, holder: Holder) -> _Priority:
        has_its_share = 2 * self._held_by[self._held[holder][1]] <= self._bytes_max
        order = holder.eviction_order
        return order is not EvictionOrder.UNAUTHENTICATED, has_its_share, order

    def _let_go(self, holder: Holder) -> int:
        size, whose = self._held.pop(holder, (0, ""))
        self._held_bytes -= size
        self._held_by[whose] -= size
        if not self._held_by[whose]:
            del self._held_by[whose]
        return size
