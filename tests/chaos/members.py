"""Members of groups, which behave like client libraries and record all responses.

Half of the groups have static members, the last of which only restarts. The members of a group are at different
addresses, if they can choose: each looks up its coordinator by itself. Knows nothing of the faults.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.upstream.group_requests import AsMember, GroupRequest, heartbeat, join, sync
from muster.drills.load.asking import PROTOCOL, PROTOCOL_TYPE, Clock, Coordinators, Membership, commit
from muster.drills.load.load import explained
from muster.drills.load.member import JOIN_TIMEOUT_SLACK_MS, JOINS_AGAIN, LOST_PLACE, ranged
from muster.drills.measuring.answers import NO_ANSWER
from muster.events.consumer_protocol import assigned_partitions, encode_subscription
from muster.events.kafka.addresses import read_servers
from muster.events.kafka.connections import Connections
from muster.events.kafka.errors import COORDINATOR_MOVED, LinkError
from muster.events.kafka.exchange import Exchange
from muster.events.kafka.security import NOT_SECURED
from tests.chaos.ledger import CommitReply, Entry, HeartbeatReply, JoinReply, Ledger, Noticed, SyncReply, Waited

INTERVAL_S: Final = 1.0
RESTART_EVERY_S: Final = 3.0
RETRY_S: Final = 0.1
REQUEST_TIMEOUT_MS: Final = 10_000
CONNECT_TIMEOUT_MS: Final = 3_000
LONG_MS: Final = 1_000
"""A request that takes longer is noted as a wait."""

SESSIONS_MS: Final = (10_000, 25_000)
"""The sessions of every other pair of groups: one that may run out in a fault, and one that seldom does."""


class MemberFailed(Exception):
    """A member got an error after which no client library continues."""


class Offsets:
    """The next offset of each group's partition, the same for all its members: a later commit has a higher one."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], int] = {}

    def next(self, group_id: str, partition: int) -> int:
        place = (group_id, partition)
        self._last[place] = self._last.get(place, 0) + 1
        return self._last[place]


class Client:
    """The connections of some members, and where they look for coordinators."""

    def __init__(self, bootstrap: str, ledger: Ledger, clock: Clock) -> None:
        self.connections = Connections(
            NOT_SECURED, connect_timeout_ms=CONNECT_TIMEOUT_MS, explain=explained, client_id="chaos"
        )
        self.coordinators = Coordinators(self.connections, read_servers(bootstrap))
        self.ledger = ledger
        self.now_ms = clock.now_ms

    async def close(self) -> None:
        await self.coordinators.close()
        await self.connections.close()


class _Answer(msgspec.Struct, frozen=True):
    """An answer that counts, and the attempt that got it."""

    body: Any
    error: ErrorCode
    via: str
    asked_ms: int
    heard_ms: int


class Member:
    """See the module. `number`: its place in the group, from 0 on."""

    def __init__(
        self,
        client: Client,
        offsets: Offsets,
        *,
        group_id: str,
        number: int,
        of: int,
        static: bool,
        session_ms: int,
        topic: str,
    ) -> None:
        self.name = f"member-{number}"
        self.group_id = group_id
        self.restarts = static and number == of - 1
        self._client = client
        self._offsets = offsets
        self._topic = topic
        self._session_ms = session_ms
        self._as = AsMember(
            group_id=group_id,
            group_instance_id=self.name if static else None,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
        )
        self._member_id = ""
        self.generation_id = -1
        self.partition: int | None = None
        self._joining = asyncio.Lock()
        self.served_ms: dict[str, int] = {}
        """When its last successful request was sent, by kind."""

    # ---- joining ------------------------------------------------------------------------------------

    async def _take_part(self) -> None:
        """Join, and sync, until it has a place."""
        self.generation_id = -1
        began_ms = self._client.now_ms()
        while not await self._has_joined():  # noqa: ASYNC110 -- asked anew each time
            await asyncio.sleep(RETRY_S / 2)
        self._waited("join", began_ms)
        self.served_ms["join"] = began_ms

    async def _has_joined(self) -> bool:
        timeout_ms = self._session_ms + JOIN_TIMEOUT_SLACK_MS
        metadata = encode_subscription([self._topic])
        joined = await self._ask(
            "join",
            lambda: join(
                self._as, self._member_id, metadata=metadata, session_timeout_ms=self._session_ms, reason="chaos"
            ),
            timeout_ms,
        )
        if joined.error is ErrorCode.member_id_required:
            self._member_id = joined.body.member_id
            return False
        if not self._goes_on(joined.error, "join"):
            return False
        self._member_id = joined.body.member_id
        generation_id = int(joined.body.generation_id)
        self._note(JoinReply, joined, generation_id, leader=str(joined.body.leader))
        assignments = {}
        if joined.body.leader == joined.body.member_id and not joined.body.skip_assignment:
            assignments = ranged(self._topic, sorted(each.member_id for each in joined.body.members))
        synced = await self._ask(
            "sync", lambda: sync(self._as, self._member_id, generation_id, assignments), timeout_ms
        )
        if not self._goes_on(synced.error, "sync"):
            return False
        self._note(SyncReply, synced, generation_id, assignment=synced.body.assignment)
        assigned = assigned_partitions(synced.body.assignment) or ()
        self.partition = min((partition for _, partition in assigned), default=None)
        self.generation_id = generation_id
        return True

    def _goes_on(self, error: ErrorCode, kind: str) -> bool:
        """Return whether a step of joining succeeded; if not, start over. Raises MemberFailed."""
        if error is ErrorCode.none:
            return True
        self._noticed(kind, error.name.upper(), is_hidden=False)
        if error not in JOINS_AGAIN:
            raise MemberFailed(f"{kind} of {self.name} of {self.group_id}: {error.name.upper()}")
        if error in LOST_PLACE:
            self._member_id = ""
        return False

    # ---- being a member ------------------------------------------------------------------------------

    async def live(self, stopping: asyncio.Event) -> None:
        """Join, and act as a member, until told to stop. Raises MemberFailed."""
        async with self._joining:
            await self._take_part()
        if self.restarts:
            await _each(RESTART_EVERY_S, self._restart, stopping)
            return
        async with asyncio.TaskGroup() as living:
            living.create_task(_each(INTERVAL_S, self._heartbeat, stopping))
            living.create_task(_each(INTERVAL_S, self._commit, stopping))

    async def _restart(self) -> None:
        async with self._joining:
            self._member_id = ""
            await self._take_part()

    async def _heartbeat(self) -> None:
        member_id, generation_id = self._member_id, self.generation_id
        if generation_id == -1:
            return  # it is joining
        began_ms = self._client.now_ms()
        answer = await self._ask("heartbeat", lambda: heartbeat(self._as, member_id, generation_id))
        self._waited("heartbeat", began_ms)
        if answer.error is ErrorCode.none:
            self._note(HeartbeatReply, answer, generation_id, member_id=member_id)
            self.served_ms["heartbeat"] = answer.asked_ms
        await self._act_on("heartbeat", answer.error, generation_id)

    async def _commit(self) -> None:
        member_id, generation_id, partition = self._member_id, self.generation_id, self.partition
        if generation_id == -1 or partition is None:
            return
        offset = self._offsets.next(self.group_id, partition)
        at = Membership(member_id=member_id, generation_id=generation_id, partition=partition)
        reported = str(generation_id)  # so that the stored commit shows it
        began_ms = self._client.now_ms()
        answer = await self._ask(
            "commit",
            lambda: commit(self._as, at, topic=self._topic, partition=partition, offset=offset, metadata=reported),
        )
        self._waited("commit", began_ms)
        if answer.error is ErrorCode.none:
            self._note(CommitReply, answer, generation_id, member_id=member_id, partition=partition, offset=offset)
            self.served_ms["commit"] = answer.asked_ms
        await self._act_on("commit", answer.error, generation_id)

    async def _act_on(self, kind: str, error: ErrorCode, generation_id: int) -> None:
        """Join again after an error, once for all requests that had it."""
        if error is ErrorCode.none:
            return
        self._noticed(kind, error.name.upper(), is_hidden=False)
        async with self._joining:
            if self.generation_id != generation_id:
                return  # it has joined again meanwhile
            if error in LOST_PLACE:
                self._member_id = ""
            await self._take_part()

    # ---- asking -------------------------------------------------------------------------------------

    async def _ask(self, kind: str, make: Callable[[], GroupRequest], timeout_ms: int = REQUEST_TIMEOUT_MS) -> _Answer:
        """Ask until an answer counts, as clients do."""
        client, lane = self._client, (self.group_id, self.name, "commit" if kind == "commit" else "other")
        while True:
            address = await client.coordinators.of(self.group_id)
            request, asked_ms = make(), client.now_ms()
            exchange = Exchange(request.request, request.response)
            try:
                body = await client.connections.ask(address, exchange, lane=lane, timeout_ms=timeout_ms)
            except LinkError:
                why = NO_ANSWER
            else:
                error = request.error_of(body)
                if error not in COORDINATOR_MOVED:
                    return _Answer(body, error, str(address), asked_ms, client.now_ms())
                why = error.name.upper()
            client.coordinators.forget(self.group_id, address)
            self._noticed(kind, why, is_hidden=True)
            await asyncio.sleep(RETRY_S)

    def _note(self, kind: Callable[..., Entry], answer: _Answer, generation_id: int, **fields: object) -> None:
        reported = {"member_id": self._member_id, **fields}
        self._client.ledger.note(
            kind(
                via=answer.via,
                group_id=self.group_id,
                instance=self._as.group_instance_id,
                generation_id=generation_id,
                asked_ms=answer.asked_ms,
                heard_ms=answer.heard_ms,
                **reported,
            )
        )

    def _noticed(self, kind: str, error: str, *, is_hidden: bool) -> None:
        self._client.ledger.note(
            Noticed(
                kind=kind,
                group_id=self.group_id,
                member=self.name,
                error=error,
                is_hidden=is_hidden,
                heard_ms=self._client.now_ms(),
            )
        )

    def _waited(self, kind: str, began_ms: int) -> None:
        heard_ms = self._client.now_ms()
        if (waited_ms := heard_ms - began_ms) > LONG_MS:
            self._client.ledger.note(
                Waited(kind=kind, group_id=self.group_id, member=self.name, waited_ms=waited_ms, heard_ms=heard_ms)
            )


async def _each(interval_s: float, step: Callable[[], Any], stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        await step()
        with suppress(TimeoutError):
            async with asyncio.timeout(interval_s):
                await stopping.wait()
