"""Simulated consumers, which know several addresses and go on to the next one when one does not answer.

What belongs here: what a client does, well or badly. What it must not know: which process owns what.

A member joins, syncs, and then heartbeats and commits until it is told to rejoin. By its lots it leaves, is killed, or
is silent for longer than its session; some send what they must not. Each partition's offsets grow with each commit, and
each commit says in its metadata under which generation it was made.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import Any, Final

from muster.events.ids import GroupId
from muster.events.partitioner import partition_for
from tests.conformance.wire import Connection, Fields, Pending, decoded, ms
from tests.simulation.ledger import CommitTold, FetchTold, JoinTold, Ledger, SyncTold, Told
from tests.simulation.muster_server import PARTITIONS, TOPIC, TOPIC_PARTITIONS, MusterServer
from tests.simulation.network import Network, Wire
from tests.simulation.world import SimulatedLoop, World

CLIENTS: Final = "clients"
SESSION_S: Final = 6.0
REBALANCE_S: Final = 5.0
HEARTBEAT_S: Final = 1.5
REQUEST_TIMEOUT_S: Final = 2.0
PAUSE_S: Final = 0.1

_CORRELATION_BYTES: Final = 4
NONE, LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 0, 14, 15, 16
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, FENCED, ID_REQUIRED = 22, 25, 27, 82, 79


class NoAnswer(Exception):
    """The request was not answered: it may have had its effect, or not."""


@lru_cache(maxsize=1_000)
def _decoded(api: str, version: int, after_correlation_id: bytes) -> Fields:
    """An answer, which nobody may change; most are like the one before."""
    return decoded(api, version, bytes(_CORRELATION_BYTES) + after_correlation_id)


class Members:
    """The network, the addresses and the ledger, which all members share."""

    def __init__(self, world: World, network: Network, servers: Callable[[], Sequence[MusterServer]]) -> None:
        self.world = world
        self.network = network
        self.servers = servers
        self.loop: SimulatedLoop = world.new_loop(CLIENTS)
        self.ledger = Ledger()
        self.offsets = itertools.count(1)
        self.is_calm = False
        """From then on nobody does anything but stay."""


class Member:
    """One consumer process after the other under one name; `instance` makes it a static member."""

    def __init__(self, shared: Members, name: str, group_id: str, instance: str | None, *, is_wrong: bool) -> None:
        self.name = name
        self.group_id = group_id
        self.instance = instance
        self.is_wrong = is_wrong
        self.member_id = ""
        self.generation_id = -1
        self.last_heartbeat_s = -1.0
        self._shared = shared
        self._world = shared.world
        self._ledger = shared.ledger
        self._random = Random(shared.world.random.getrandbits(64))
        self._address = self._random.randrange(1_000)
        self._connection: Connection | None = None
        self._server = ""
        self._assigned: tuple[int, ...] = ()
        self._last_heartbeat: tuple[Fields, bytes] = ({}, b"")
        self.task = shared.loop.create_task(self._live())

    async def _live(self) -> None:
        await asyncio.sleep(self._random.uniform(0, 3))
        while True:
            try:
                if await self._join() and await self._sync():
                    await self._fetch()
                    await self._stay()
            except NoAnswer:
                await asyncio.sleep(PAUSE_S)

    # ---- asking --------------------------------------------------------------------------------------

    async def _ask(self, api: str, version: int, timeout_s: float = REQUEST_TIMEOUT_S, **body: Any) -> Fields:
        """Ask the present process, or the next one. Raises NoAnswer."""
        connection = await self._connected()
        self._ledger.counts[f"asked {api}"] += 1
        pending = connection.send_frame(api, version, self._frame(connection, api, version, body))
        answer = await self._answer(pending, timeout_s)
        error = answer.get("error_code", NONE)
        if error:
            self._ledger.counts[f"error {error}"] += 1
        if error in {NOT_AVAILABLE, NOT_COORDINATOR, LOADING}:
            if error != LOADING:
                self._drop()
            raise NoAnswer(error)
        return answer

    async def _answer(self, pending: Pending, timeout_s: float) -> Fields:
        try:
            async with asyncio.timeout(timeout_s):
                frame = await asyncio.shield(pending._answer)
        except (TimeoutError, ConnectionResetError) as error:
            self._drop()
            raise NoAnswer from error
        return _decoded(pending.name, pending.version, frame[_CORRELATION_BYTES:])

    def _frame(self, connection: Connection, api: str, version: int, body: Fields) -> bytes:
        """The bytes of a request; those of a heartbeat are mostly those of the last one."""
        if api != "Heartbeat":
            return connection.frame(api, version, group_id=self.group_id, **body)
        if self._last_heartbeat[0] != body:
            self._last_heartbeat = body, connection.frame(api, version, group_id=self.group_id, **body)
        return self._last_heartbeat[1]

    async def _connected(self) -> Connection:
        if self._connection is not None and self._wire.is_closing():
            self._drop()
        if self._connection is None:
            servers = self._shared.servers()
            server = servers[self._address % len(servers)]
            connection = Connection(self.name)
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    await self._shared.network.connect(self._shared.loop, CLIENTS, server, connection)
            except (TimeoutError, ConnectionRefusedError) as error:
                self._address += 1
                raise NoAnswer from error
            self._connection, self._server = connection, server.name
        return self._connection

    @property
    def _wire(self) -> Wire:
        assert self._connection is not None
        wire = self._connection._transport
        assert isinstance(wire, Wire)
        return wire

    @property
    def _is_served(self) -> bool:
        """Whether who answered served the group then; a process that loads accepts every heartbeat, as Kafka does."""
        return partition_for(GroupId(self.group_id), PARTITIONS) in self._wire.departed.serves

    def _drop(self) -> None:
        """Hang up, and go to another one the next time."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._address += 1

    def _told(self, asked_s: float) -> dict[str, Any]:
        return {
            "process": self._server,
            "group_id": self.group_id,
            "member_id": self.member_id,
            "instance": self.instance,
            "generation_id": self.generation_id,
            "asked_s": asked_s,
            "left_s": self._wire.departed.at_s,
            "heard_s": self._world.now_s,
        }

    def _forgotten(self, error: int) -> None:
        if error in {UNKNOWN_MEMBER, FENCED}:
            self.member_id = ""
        self.generation_id = -1

    # ---- a member's life -----------------------------------------------------------------------------

    async def _join(self) -> bool:
        asked_s = self._world.now_s
        answer = await self._ask(
            "JoinGroup",
            5,
            REBALANCE_S + 2,
            session_timeout=ms(round(SESSION_S * 1000)),
            rebalance_timeout=ms(round(REBALANCE_S * 1000)),
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"topics"}],
        )
        error = answer["error_code"]
        if error == ID_REQUIRED:
            self.member_id = answer["member_id"]
            return await self._join()
        if error != NONE:
            self._ledger.counts["joins asked again"] += 1
            self._forgotten(error)
            await asyncio.sleep(PAUSE_S)
            return False
        self.member_id, self.generation_id = answer["member_id"], answer["generation_id"]
        self._ledger.joins.append(JoinTold(leader=answer["leader"], **self._told(asked_s)))
        self._members = [member["member_id"] for member in answer["members"]]
        return True

    async def _sync(self) -> bool:
        asked_s, made = self._world.now_s, []
        for index, member_id in enumerate(self._members):
            share = range(index, TOPIC_PARTITIONS, len(self._members))
            text = f"{self.member_id} {self.generation_id} {','.join(map(str, share))}"
            made.append({"member_id": member_id, "assignment": text.encode()})
        answer = await self._ask(
            "SyncGroup",
            3,
            REBALANCE_S + 2,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance,
            assignments=made,
        )
        if answer["error_code"] != NONE:
            self._forgotten(answer["error_code"])
            return False
        assignment = answer["assignment"]
        self._assigned = partitions_of(assignment)
        self._ledger.syncs.append(SyncTold(assignment=assignment, **self._told(asked_s)))
        return True

    async def _stay(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0.8, 1.0) * HEARTBEAT_S)
            lot = 1.0 if self._shared.is_calm else self._random.random()
            if lot < 0.010:
                await self._leave()
                return
            if lot < 0.025:
                self._killed()
                return
            if lot < 0.030:
                await asyncio.sleep(SESSION_S * self._random.uniform(0.5, 2.5))
            elif lot < 0.10 and self.is_wrong:
                await self._do_wrong()
            elif lot < 0.5:
                await self._commit()
            if not await self._heartbeat():
                return

    async def _heartbeat(self) -> bool:
        asked_s = self._world.now_s
        try:
            answer = await self._ask("Heartbeat", 3, **self._identity())
        except NoAnswer:
            await asyncio.sleep(PAUSE_S)
            return True
        error = answer["error_code"]
        if error == NONE:
            self.last_heartbeat_s = self._world.now_s
            if self._is_served:
                self._ledger.heartbeats.append(Told(**self._told(asked_s)))
        elif error != REBALANCING:
            self._forgotten(error)
        return bool(error == NONE)

    def _identity(self) -> dict[str, Any]:
        return {
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }

    async def _commit(self) -> None:
        if not self._assigned:
            return
        partition, offset, asked_s = self._random.choice(self._assigned), next(self._shared.offsets), self._world.now_s
        try:
            answer = await self._ask(
                "OffsetCommit",
                8,
                generation_id_or_member_epoch=self.generation_id,
                member_id=self.member_id,
                group_instance_id=self.instance,
                topics=[_commit_of(partition, offset, self.generation_id)],
            )
        except NoAnswer:
            return
        error = answer["topics"][0]["partitions"][0]["error_code"]
        if error == NONE:
            self._ledger.commits.append(CommitTold(partition=partition, offset=offset, **self._told(asked_s)))
        elif error in {NOT_AVAILABLE, NOT_COORDINATOR}:
            self._drop()

    async def _fetch(self) -> None:
        asked_s = self._world.now_s
        answer = await self._ask("OffsetFetch", 7, topics=None, require_stable=True)
        for topic in answer["topics"]:
            for found in topic["partitions"]:
                told = FetchTold(
                    partition=found["partition_index"], offset=found["committed_offset"], **self._told(asked_s)
                )
                self._ledger.fetches.append(told)

    async def _leave(self) -> None:
        asked_s = self._world.now_s
        member = {"member_id": self.member_id, "group_instance_id": self.instance}
        answer = await self._ask("LeaveGroup", 4, members=[member])
        (left,) = answer["members"]
        if left["error_code"] == NONE:
            self._ledger.leaves.append(Told(**self._told(asked_s)))
        self._killed()
        await asyncio.sleep(self._random.uniform(0.5, 6))

    def _killed(self) -> None:
        """Be another process from now on, which knows nothing of this one."""
        self._drop()
        self.member_id, self.generation_id, self._assigned = "", -1, ()

    async def _do_wrong(self) -> None:
        own = self._identity()
        what = self._random.choice(("generation", "member", "sync"))
        if what == "sync":
            wrong = own | {"generation_id": own["generation_id"] + 1}
            answer = await self._ask("SyncGroup", 3, assignments=[], **wrong)
        elif what == "generation":
            answer = await self._ask("Heartbeat", 3, **own | {"generation_id": own["generation_id"] - 1})
        else:
            answer = await self._ask("Heartbeat", 3, **own | {"member_id": "nobody"})
        if answer["error_code"] == NONE and self._is_served:
            self._ledger.wrongs.append(f"{self.name}: a wrong {what} was accepted by {self._server}")


def _commit_of(partition: int, offset: int, generation_id: int) -> Fields:
    one = {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": str(generation_id),
    }
    return {"name": TOPIC, "partitions": [one]}


def partitions_of(assignment: bytes) -> tuple[int, ...]:
    """The partitions that an assignment of a simulated leader names."""
    if not assignment:
        return ()
    _, _, numbers = assignment.decode().split(" ")
    return tuple(int(number) for number in numbers.split(",") if number)
