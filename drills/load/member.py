"""One member of a group, which acts like a client library: it joins, sends heartbeats, commits, and reacts to errors.

A *restarting* member is a static one that does nothing but restart: it joins without a member id again and again, like
a restarted process. This must not cause a rebalance (KIP-345).

A member decides what to send and when, and records what was acknowledged. Finding the coordinator, retries and
measurements are in `asking.py`.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.upstream.group_requests import AsMember, GroupRequest, heartbeat, join, sync
from muster.drills.load.asking import PROTOCOL, PROTOCOL_TYPE, REASON, Asking, Membership, Open, Who, commit
from muster.drills.measuring.answers import Acknowledged, Kind, Place
from muster.drills.plan import Load, ServiceFailed
from muster.events.consumer_protocol import assigned_partitions, encode_assignment, encode_subscription

REJOIN_S: Final = 0.05
JOIN_TIMEOUT_SLACK_MS: Final = 5_000
"""Added to the rebalance timeout when a member waits for a JoinGroup response, as clients do."""

LOST_PLACE = frozenset({ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id})
JOINS_AGAIN = LOST_PLACE | {ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation}
"""Errors after which a member joins again. Like Kafka, a coordinator that is still reading its log answers SyncGroup
with REBALANCE_IN_PROGRESS.
"""


class Member:
    """See the module. `number`: its number in the group, from 0 on."""

    def __init__(
        self,
        asking: Asking,
        acknowledged: Acknowledged,
        load: Load,
        *,
        group_id: str,
        number: int,
        static: bool,
        restarts: bool,
        topic: str,
    ) -> None:
        self.name = f"member-{number}"
        self.is_static = static
        self.restarts = restarts
        self._asking = asking
        self._acknowledged = acknowledged
        self._load = load
        self._topic = topic
        self._who = Who(group_id, self.name)
        self._as = AsMember(
            group_id=group_id,
            group_instance_id=self.name if static else None,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
        )
        self._at = Membership()
        self._joining = asyncio.Lock()
        self._is_measured = False

    @property
    def group_id(self) -> str:
        return self._as.group_id

    @property
    def generation_id(self) -> int:
        """The generation that the member is in; -1 if it is in none."""
        return self._at.generation_id

    @property
    def partition(self) -> int | None:
        """The partition of the topic that the member was assigned, if any."""
        return self._at.partition

    # ---- joining ------------------------------------------------------------------------------------

    async def take_part(self) -> None:
        """Join and sync until the member is in a stable generation."""
        async with self._joining:
            await self._take_part()

    def measure(self) -> None:
        """Measure requests from now on, because the group has formed."""
        self._is_measured = True

    async def _take_part(self) -> None:
        self._at.generation_id = -1
        with self._asking.opened(self._who, Kind.JOIN, is_measured=self._is_measured) as request:
            while True:
                if await self._has_joined(request):
                    return
                await asyncio.sleep(REJOIN_S)

    async def _has_joined(self, request: Open) -> bool:
        """Join and sync once; return whether that succeeded. Raises ServiceFailed."""
        load = self._load
        timeout_ms = load.session_timeout_ms + JOIN_TIMEOUT_SLACK_MS

        def to_join() -> GroupRequest:
            metadata, session_timeout_ms = encode_subscription([self._topic]), load.session_timeout_ms
            return join(
                self._as, self._at.member_id, metadata=metadata, session_timeout_ms=session_timeout_ms, reason=REASON
            )

        joined, error = await self._asking.ask(request, to_join, timeout_ms=timeout_ms)
        if error is ErrorCode.member_id_required:  # the first response to every new dynamic member (KIP-394)
            self._at.member_id = joined.member_id
            return False
        if not self._goes_on(request, error, "JoinGroup"):
            return False
        self._at.member_id = joined.member_id
        generation_id = int(joined.generation_id)
        self._acknowledged.joins += 1
        self._acknowledged.places.add(self._place(generation_id))
        assignments = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignments = ranged(self._topic, sorted(each.member_id for each in joined.members))

        def to_sync() -> GroupRequest:
            return sync(self._as, self._at.member_id, generation_id, assignments)

        synced, error = await self._asking.ask(request, to_sync, timeout_ms=timeout_ms)
        if not self._goes_on(request, error, "SyncGroup"):
            return False
        self._acknowledged.places.add(self._place(generation_id, synced.assignment))
        assigned = assigned_partitions(synced.assignment) or ()
        self._at.partition = min((partition for _, partition in assigned), default=None)
        self._at.generation_id = generation_id
        return True

    def _goes_on(self, request: Open, error: ErrorCode, what: str) -> bool:
        """Return whether a step of joining has succeeded; if not, the member joins again. Raises ServiceFailed."""
        if error is ErrorCode.none:
            return True
        if error not in JOINS_AGAIN:
            raise ServiceFailed(f"{what} of {self.name} of {self.group_id}: {error.name.upper()}")
        if error in LOST_PLACE:
            self._at.member_id = ""
        request.retried.append(error.name.upper())
        return False

    def _place(self, generation_id: int, assignment: bytes | None = None) -> Place:
        return Place(
            group_id=self.group_id,
            generation_id=int(generation_id),
            member_id=self._at.member_id,
            assignment=assignment,
        )

    # ---- being a member ------------------------------------------------------------------------------

    async def run(self, stopping: asyncio.Event) -> None:
        """Act as a member until `stopping` is set; a request that is in progress then is finished."""
        if self.restarts:
            await self._each(self._load.restart_interval_ms, self._restart, stopping)
            return
        await asyncio.gather(
            self._each(self._load.heartbeat_interval_ms, self._heartbeat, stopping),
            self._each(self._load.commit_interval_ms, self._commit, stopping),
        )

    async def _each(self, interval_ms: int, step: Callable[[], Any], stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            await step()
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_ms / 1000):
                    await stopping.wait()

    async def _restart(self) -> None:
        async with self._joining:
            self._at.member_id = ""
            await self._take_part()

    async def _heartbeat(self) -> None:
        at = msgspec.structs.replace(self._at)
        if at.generation_id != -1:  # otherwise the member is joining
            error = await self._ask(Kind.HEARTBEAT, lambda: heartbeat(self._as, at.member_id, at.generation_id))
            await self._act_on(error, at.generation_id)

    async def _commit(self) -> None:
        at = msgspec.structs.replace(self._at)
        if at.generation_id == -1 or at.partition is None:
            return
        place, told = (self.group_id, at.partition), self._acknowledged
        offset = told.sent[place] = told.sent.get(place, 0) + 1
        error = await self._ask(
            Kind.COMMIT, lambda: commit(self._as, at, topic=self._topic, partition=place[1], offset=offset)
        )
        if error is ErrorCode.none:
            told.commits[place] = max(offset, told.commits.get(place, 0))
            told.commit_count += 1
        await self._act_on(error, at.generation_id)

    async def _ask(self, kind: Kind, make: Callable[[], GroupRequest]) -> ErrorCode:
        """Send a request whose response has only an error, and return the error."""
        with self._asking.opened(self._who, kind, is_measured=self._is_measured) as request:
            _, error = await self._asking.ask(request, make, timeout_ms=self._load.request_timeout_ms)
            request.error = "" if error is ErrorCode.none else error.name.upper()
        return error

    async def _act_on(self, error: ErrorCode, generation_id: int) -> None:
        """Join again after an error, once for all requests that failed in this generation."""
        if error is ErrorCode.none:
            return
        async with self._joining:
            if self._at.generation_id != generation_id:
                return  # the member has joined again meanwhile
            if error in LOST_PLACE:
                self._at.member_id = ""
            await self._take_part()


def ranged(topic: str, member_ids: list[str]) -> dict[str, bytes]:
    """Return the leader's assignment: one partition for each member, in the order of their ids."""
    return {member_id: encode_assignment({topic: [n]}) for n, member_id in enumerate(member_ids)}
