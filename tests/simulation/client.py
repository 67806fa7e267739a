"""A simulated client, which knows several addresses and tries the next one when one does not respond. Knows nothing of
members.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import Any, Final

from muster.events.ids import GroupId
from muster.events.partitioner import partition_for
from tests.conformance.wire import Connection, Fields, Pending, decoded
from tests.simulation.ledger import Ledger
from tests.simulation.muster_server import CLIENT_PORT, PARTITIONS, MusterServer
from tests.simulation.network import NOBODY, Departure, Network, Sockets, Wire
from tests.simulation.world import SimulatedLoop, World

CLIENTS: Final = "clients"
REQUEST_TIMEOUT_S: Final = 2.0
PAUSE_S: Final = 0.1

_CORRELATION_BYTES: Final = 4
NONE, LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 0, 14, 15, 16
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, FENCED, ID_REQUIRED = 22, 25, 27, 82, 79


class NoAnswer(Exception):
    """The request was not answered: it may have had its effect, or not."""


@lru_cache(maxsize=1_000)
def _decoded(api: str, version: int, after_correlation_id: bytes) -> Fields:
    """A response, which must not be modified, since equal ones are shared: most are like the one before."""
    return decoded(api, version, bytes(_CORRELATION_BYTES) + after_correlation_id)


class Members:
    """The network, the addresses and the ledger, which all members share."""

    def __init__(self, world: World, network: Network, servers: Callable[[], Sequence[MusterServer]]) -> None:
        self.world = world
        self.network = network
        self.servers = servers
        self.loop: SimulatedLoop = world.new_loop(CLIENTS)
        self.loop.sockets = Sockets(network, self.loop, CLIENTS, "10.9.0.1", lambda: NOBODY)
        self.ledger = Ledger()
        self.offsets = itertools.count(1)
        self.upstream_serves_since_s: Callable[[], float] = lambda: 0.0
        self.has_old_clients = False
        self.is_calm = False
        """True once all members are only to stay in their groups."""


class Client:
    """One client of one group."""

    def __init__(self, shared: Members, name: str, group_id: str) -> None:
        self.name = name
        self.group_id = group_id
        self._shared = shared
        self._world = shared.world
        self._ledger = shared.ledger
        self._random = Random(shared.world.random.getrandbits(64))
        self._address = self._random.randrange(1_000)
        self._connection: Connection | None = None
        self._server = ""
        self._last_heartbeat: tuple[Fields, bytes] = ({}, b"")

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
                    await self._shared.loop.create_connection(lambda: connection, server.address, CLIENT_PORT)
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
    def _answered_by(self) -> tuple[Departure, bool]:
        """The process that has answered, if it serves the group; and whether another one answered in its name."""
        departed, partition = self._wire.departed, partition_for(GroupId(self.group_id), PARTITIONS)
        before = departed.before
        if partition in departed.serves | departed.loads:
            return departed, False
        if before is not None and partition in before.serves:
            return before, True
        return departed, False

    @property
    def _is_served(self) -> bool:
        """Return whether the process that answered served the group then; a loading process accepts every heartbeat, as
        Kafka does.
        """
        return partition_for(GroupId(self.group_id), PARTITIONS) in self._answered_by[0].serves

    def _is_heard_since(self, asked_s: float) -> bool:
        """Return whether the answer is from a process that serves, in front of a broker that does; for the broker as
        above.
        """
        return self._is_served and asked_s > self._shared.upstream_serves_since_s()

    def _drop(self) -> None:
        """Hang up, and go to another one the next time."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._address += 1
