"""Limits the bytes of requests and responses in the process, and chooses which connections to close at the limit.

It knows the bytes of each connection, the limit for all (Kafka's `queued.max.request.bytes`), and the order in which
connections are closed, but nothing of sockets or what the bytes are.

At its limit Kafka stops reading from all clients. But one of the unread requests may be the one that frees memory, such
as the join that ends a rebalance. So here all clients are read from, and at the limit connections are closed in this
order, the largest of each kind first:

    1  clients that have to authenticate, and have not
    2  connections of a principal or an address that has more than half of the limit, in the order of 3 and 4
    3  clients that keep us waiting: with half a request sent, or responses that they do not read
    4  clients that wait for a response

Only connections of the first kind that exists are closed, until a tenth of the limit is free, so that the choice need
not be repeated for each request. The bytes of requests of ordinary size are not counted. A response counts for its
connection once it is written; before that, closing the connection would free nothing. So a quarter of the limit is
reserved for responses that are being written (load/answer_memory.py).
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from enum import IntEnum, unique
from typing import Final, Protocol

import structlog

from muster.coordinator.load.answer_memory import AnswerMemory
from muster.coordinator.observability.metrics import ServerMetrics

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

FREE_BYTES: Final = 16_384
"""How many bytes of each connection are not counted. Most requests are smaller."""
ROOM_AGAIN: Final = 0.9


@unique
class EvictionOrder(IntEnum):
    """The reasons why connections hold memory, the worst first: connections with the worst reason are closed first."""

    UNAUTHENTICATED = 0
    """The client has to authenticate, and has not done so."""
    STALLED = 1
    """The client has to send the rest of a request, or to read its responses."""
    AWAITING_ANSWER = 2
    """The client waits for us."""


_CLIENTS: Final = {
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
        """The principal, or the address if it is unknown."""

    def evict(self) -> None:
        """Close soon; it no longer counts."""


class Memory:
    """The process-wide budget of request and response bytes."""

    def __init__(self, bytes_max: int, metrics: ServerMetrics, answer_memory: AnswerMemory) -> None:
        self._answer_memory = answer_memory
        self._bytes_max = bytes_max - answer_memory.bytes_max
        self._metrics = metrics
        self._held: dict[Holder, tuple[int, str]] = {}  # the size, and the principal or address
        self._held_by: Counter[str] = Counter()
        self._held_bytes = 0
        metrics.ask_held_bytes(self._all_bytes)

    def hold(self, holder: Holder, size: int) -> None:
        """Note that the connection holds this many bytes now; this may close connections, including this one."""
        self._drop(holder)
        if size > FREE_BYTES:
            self._held[holder] = size, holder.whose
            self._held_by[holder.whose] += size
            self._held_bytes += size
        while self._held_bytes > self._bytes_max:
            self._close_some()

    def _all_bytes(self) -> int:
        return self._held_bytes + self._answer_memory.written_bytes

    def _close_some(self) -> None:
        """Close connections that have the priority of the first candidate, until there is room again."""
        candidates = sorted(self._held, key=self._eviction_key)
        priority, order = self._priority(candidates[0]), candidates[0].eviction_order
        closed: Counter[str] = Counter()
        connections = 0
        for each in candidates:
            if self._held_bytes <= ROOM_AGAIN * self._bytes_max or self._priority(each) != priority:
                break
            closed[each.client_host] += self._drop(each)
            self._metrics.connections_closed_for_memory += 1
            each.evict()
            connections += 1
        (peer, _), *_ = closed.most_common(1)
        log.warning(
            "connections closed: they hold more than three quarters of --queued-max-request-bytes",
            connections=connections,
            held_bytes=closed.total(),
            most_by=peer,
            clients=_CLIENTS[order],
            limit_bytes=self._bytes_max,
        )

    def _eviction_key(self, holder: Holder) -> tuple[_Priority, int]:
        return self._priority(holder), -self._held[holder][0]

    def _priority(self, holder: Holder) -> _Priority:
        has_its_share = 2 * self._held_by[self._held[holder][1]] <= self._bytes_max
        order = holder.eviction_order
        return order is not EvictionOrder.UNAUTHENTICATED, has_its_share, order

    def _drop(self, holder: Holder) -> int:
        size, whose = self._held.pop(holder, (0, ""))
        self._held_bytes -= size
        self._held_by[whose] -= size
        if not self._held_by[whose]:
            del self._held_by[whose]
        return size


class ConnectionMemory:
    """One connection's share of the budget. `eviction_order` ranks it for eviction; `abort` closes it immediately."""

    def __init__(
        self, memory: Memory, *, eviction_order: Callable[[], EvictionOrder], abort: Callable[[], None]
    ) -> None:
        self.client_host = ""
        self.principal: str | None = None
        """The principal; None for a client that does not authenticate, or has not yet."""
        self.is_counted = False
        """True if the connection is counted, so that `count` must be called when it holds less."""
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
        """Abort the connection in the next turn of the loop; it no longer counts."""
        self._is_evicted = True
        asyncio.get_running_loop().call_soon(self._abort)  # it may be writing now

    def end(self) -> None:
        """Remove a closed connection and the references to it, so that it is freed without waiting for garbage
        collection.
        """
        self._memory.hold(self, 0)
        self._eviction_order, self._abort = _gone, _do_nothing


def unsent_bytes(transport: asyncio.Transport | None) -> int:
    """Return the number of bytes that the transport could not send yet."""
    if transport is None or transport.is_closing():  # uvloop's must not be called then
        return 0
    return transport.get_write_buffer_size()


def _gone() -> EvictionOrder:
    return EvictionOrder.UNAUTHENTICATED


def _do_nothing() -> None:
    """Do nothing: the connection is closed already."""
