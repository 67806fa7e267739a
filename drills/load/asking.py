"""Sends the requests of members: looks up their coordinators, retries as clients do, and records each request.

A client looks up the coordinator of one group at a time. A drill has hundreds of groups, and their lookups alone would
keep the service busy, so concurrent lookups share one request. The OffsetCommit is built here; the other requests are
those that Muster itself sends upstream (upstream/group_requests.py).
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v8.response import OffsetCommitResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from muster.coordinator.upstream.group_requests import AsMember, GroupRequest
from muster.drills.measuring.answers import NO_ANSWER, Asked, Kind
from muster.events.kafka.addresses import BrokerAddress
from muster.events.kafka.connections import Connections
from muster.events.kafka.errors import COORDINATOR_MOVED, LinkError, TryAgain
from muster.events.kafka.exchange import Exchange
from muster.events.kafka.first_answer import first_answer


class Clock:
    """A wall clock that never jumps during a drill: it is read once, and continues with the monotonic clock."""

    def __init__(self) -> None:
        self._begin_wall_ms = time.time_ns() // 1_000_000
        self._begin_ns = time.monotonic_ns()

    def now_ms(self) -> int:
        return self._begin_wall_ms + (time.monotonic_ns() - self._begin_ns) // 1_000_000


PROTOCOL_TYPE: Final = "consumer"
PROTOCOL: Final = "range"
REASON: Final = "muster drill"


class Membership(msgspec.Struct, kw_only=True):
    """The current ids of a member in its group; empty before it has joined, and after it was removed."""

    member_id: str = ""
    generation_id: int = -1
    partition: int | None = None


def commit(
    who: AsMember, at: Membership, *, topic: str, partition: int, offset: int, metadata: str = ""
) -> GroupRequest:
    """Return an OffsetCommit v8 for one partition."""
    entry = OffsetCommitRequestPartition(
        partition_index=i32(partition), committed_offset=i64(offset), committed_metadata=metadata
    )
    request = OffsetCommitRequest(
        group_id=GroupId(who.group_id),
        generation_id_or_member_epoch=i32(at.generation_id),
        member_id=at.member_id,
        group_instance_id=who.group_instance_id,
        topics=(OffsetCommitRequestTopic(name=TopicName(topic), partitions=(entry,)),),
    )
    return GroupRequest(request, OffsetCommitResponse, _error_of)


def _error_of(answer: OffsetCommitResponse) -> ErrorCode:
    return answer.topics[0].partitions[0].error_code


LOOK_UP_EVERY_S: Final = 0.1
"""The default of clients (retry.backoff.ms)."""

LOOK_UP_TIMEOUT_MS: Final = 5_000
GROUPS_AT_ONCE: Final = 100


class Coordinators:
    """The known address of each group's coordinator; concurrent lookups share one request."""

    def __init__(self, connections: Connections, bootstrap: Sequence[BrokerAddress]) -> None:
        self._connections = connections
        self._bootstrap = bootstrap
        self._found: dict[str, BrokerAddress] = {}
        self._wanted: set[str] = set()
        self._round: asyncio.Task[None] | None = None

    async def of(self, group_id: str) -> BrokerAddress:
        """Return the group's coordinator; wait until there is one."""
        while (found := self._found.get(group_id)) is None:
            self._wanted.add(group_id)
            if self._round is None or self._round.done():
                self._round = asyncio.create_task(self._look_up(), name="look-up-coordinators")
            await asyncio.wait({self._round})
        return found

    def forget(self, group_id: str, address: BrokerAddress) -> None:
        """Look up the coordinator again the next time: this one did not answer, or is no longer the coordinator."""
        if self._found.get(group_id) == address:
            del self._found[group_id]

    async def close(self) -> None:
        """Cancel a lookup that is in progress."""
        if self._round is not None:
            self._round.cancel()
            await asyncio.gather(self._round, return_exceptions=True)

    async def _look_up(self) -> None:
        """Look up all wanted groups once; if some were not found, wait before the next round."""
        wanted, self._wanted = sorted(self._wanted), set()
        order = random.sample(self._bootstrap, len(self._bootstrap))
        for at, address in enumerate(order):  # each address gets a share of the lookups, as clients choose any of them
            share = wanted[at :: len(order)]
            others = [each for each in order if each != address]
            for first in range(0, len(share), GROUPS_AT_ONCE):
                await self._ask(share[first : first + GROUPS_AT_ONCE], [address, *others])
        if any(key not in self._found for key in wanted):
            await asyncio.sleep(LOOK_UP_EVERY_S)

    async def _ask(self, group_ids: Sequence[str], among: Sequence[BrokerAddress]) -> None:
        exchange = Exchange(FindCoordinatorRequest(coordinator_keys=tuple(group_ids)), FindCoordinatorResponse)

        async def ask(address: BrokerAddress) -> FindCoordinatorResponse:
            answer: FindCoordinatorResponse = await self._connections.ask(
                address, exchange, lane="look-up", timeout_ms=LOOK_UP_TIMEOUT_MS
            )
            return answer

        asked = await first_answer(among, ask, (LinkError,))
        if asked.answer is not None:
            self._found |= {
                each.key: BrokerAddress(each.host, each.port)
                for each in asked.answer[1].coordinators
                if each.error_code is ErrorCode.none
            }


RETRY_S: Final = 0.1
"""The default of clients (retry.backoff.ms)."""


class Who(msgspec.Struct, frozen=True):
    """A member: its group, and its name in that group."""

    group_id: str
    name: str


class _Retried(Exception):
    """An attempt failed in a way that clients retry; the text is the reason."""


class Open(msgspec.Struct, eq=False):
    """A request that is being measured. `error`: set this to the error that the member finally gets."""

    who: Who
    kind: Kind
    began_ms: int
    retried: list[str] = msgspec.field(default_factory=list)
    error: str = ""


class Asking:
    """Sends the requests of all members, with retries. Each member has one connection for each kind of request.

    On a shared connection a heartbeat would wait behind a commit, but each kind is measured separately.
    """

    def __init__(self, connections: Connections, coordinators: Coordinators, clock: Clock) -> None:
        self._connections = connections
        self._coordinators = coordinators
        self._clock = clock
        self.asked: list[Asked] = []
        """All requests that have ended, in the order of their ends; cancelled ones have no end time."""
        self._open: set[Open] = set()

    @contextmanager
    def opened(self, who: Who, kind: Kind, *, is_measured: bool) -> Iterator[Open]:
        """Measure a request, with all its attempts, from here to the end of the block."""
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
        """Send a request until a response is final; return it and its error. The reason for each retry is recorded."""
        while True:
            try:
                return await self._attempt(request, make(), timeout_ms)
            except _Retried as again:
                request.retried.append(str(again))
                await asyncio.sleep(RETRY_S)

    def waits_since_before(self, at_ms: int) -> bool:
        """Return whether a request that began before this time is still unanswered."""
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
