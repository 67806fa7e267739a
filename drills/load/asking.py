"""One request of a member, tried again as clients do, until its answer counts; every request is noted.

What belongs here: attempts, and which of their outcomes are hidden from a member. What it must not know: why a member
asks, and what an answer means to it.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.upstream.group_requests import GroupRequest
from muster.drills.load.clock import Clock
from muster.drills.load.coordinators import Coordinators
from muster.drills.measuring.asked import NO_ANSWER, Asked, Kind
from muster.events.kafka.connections import Connections
from muster.events.kafka.errors import COORDINATOR_MOVED, TryAgain
from muster.events.kafka.exchange import Exchange

RETRY_S: Final = 0.1
"""As clients do by default (retry.backoff.ms)."""


class Who(msgspec.Struct, frozen=True):
    """A member: its group, and its name there."""

    group_id: str
    name: str


class _Retried(Exception):
    """An attempt that a client makes again; the text names why."""


class Open(msgspec.Struct, eq=False):
    """A request that is measured while it is open. `error`: set it to what the member was told in the end."""

    who: Who
    kind: Kind
    began_ms: int
    retried: list[str] = msgspec.field(default_factory=list)
    error: str = ""


class Asking:
    """See the module. All members ask through it; each kind of request has a connection of each member's own.

    On one connection a heartbeat would wait behind a commit, and each kind is to be measured by itself.
    """

    def __init__(self, connections: Connections, coordinators: Coordinators, clock: Clock) -> None:
        self._connections = connections
        self._coordinators = coordinators
        self._clock = clock
        self.asked: list[Asked] = []
        """All requests that are over, in the order of their ends; those that were cancelled have none."""
        self._open: set[Open] = set()

    @contextmanager
    def opened(self, who: Who, kind: Kind, *, is_measured: bool) -> Iterator[Open]:
        """A request, which may be several until it is answered; it is over when the block is left."""
        request = Open(who, kind, self._clock.now_ms())
        if is_measured:
            self._open.add(request)
        ended_ms = None
        try:
            yield request
            ended_ms = self._clock.now_ms()
        finally:
            if is_measured:
                self._open.discard(request)
                self.asked.append(
                    Asked(
                        kind=kind,
                        group_id=who.group_id,
                        member=who.name,
                        began_ms=request.began_ms,
                        ended_ms=ended_ms,
                        error=request.error,
                        retried=tuple(request.retried),
                    )
                )

    async def ask(self, request: Open, make: Callable[[], GroupRequest], *, timeout_ms: int) -> tuple[Any, ErrorCode]:
        """Ask until an answer counts; returns it with its error. Why each attempt before did not is noted."""
        while True:
            try:
                return await self._attempt(request, make(), timeout_ms)
            except _Retried as again:
                request.retried.append(str(again))
                await asyncio.sleep(RETRY_S)

    def waits_since_before(self, at_ms: int) -> bool:
        """Whether a request that began before a moment is without an answer."""
        return any(each.began_ms < at_ms for each in self._open)

    async def _attempt(self, request: Open, asked: GroupRequest, timeout_ms: int) -> tuple[Any, ErrorCode]:
        who = request.who
        address = await self._coordinators.of(who.group_id)
        exchange, lane = Exchange(asked.request, asked.response), (who, request.kind)
        try:
            answer = await self._connections.ask(address, exchange, lane=lane, timeout_ms=timeout_ms)
        except TryAgain as lost:
            self._coordinators.forget(who.group_id, address)
            raise _Retried(NO_ANSWER) from lost
        error = asked.error_of(answer)
        if error in COORDINATOR_MOVED:
            self._coordinators.forget(who.group_id, address)
            raise _Retried(error.name.upper())
        return answer, error
