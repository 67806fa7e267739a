"""A process of Muster in a simulated world: its event loop, its clocks, its machine, its log, and how it ends.

It has what a standalone process and a sidecar have in common; standalone_server.py and sidecar_server.py have the rest.
"""

import asyncio
from abc import abstractmethod
from contextlib import AsyncExitStack
from typing import Final, cast

import msgspec

from muster.coordinator.assembly import Readiness
from muster.coordinator.group.retention import MINUTE_MS
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.load.answer_memory import answer_memory_of
from muster.coordinator.load.slices import Slices
from muster.coordinator.load.turns import Turns
from muster.coordinator.net.limits import ConnectionLimits
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.offsets.base import OffsetStore
from muster.coordinator.partition_sharing import PartitionSharing
from muster.coordinator.runtime.ownership.takeover.ownership_end import end_unknown
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.runtime.partition.refused_joins import RefusedJoins
from muster.coordinator.runtime.partition.retention_clock import RetentionClock
from muster.coordinator.runtime.runtime import Runtime
from muster.coordinator.settings.settings import Settings
from muster.coordinator.wire.registry import APIS
from muster.events.log.base import EventLog, LogError
from muster.events.records import EventsError
from tests.simulation.log_broker import LogBroker
from tests.simulation.network import NOBODY, Network, Sockets
from tests.simulation.remote_log import LogFaults, LogLink, RemoteLog
from tests.simulation.world import World

PARTITIONS = 3
TOPIC, TOPIC_PARTITIONS = "orders", 6
CLIENT_PORT, PEER_PORT = 9092, 9093
KAFKA: Final = "kafka"
"""The broker that coordinates groups, the ownership group among them."""

BOTH: Final = "both"
"""The role of a process that owns partitions, and to which clients are connected."""

METRICS: Final = ServerMetrics(APIS)


class _Settings(Settings):
    """Settings without files."""

    def peer_secret(self) -> bytes:
        return b"the secret of all processes"


_SETTINGS: Final = _Settings(
    log=f"kafka://{KAFKA}:{CLIENT_PORT}/muster-events",
    upstream=f"{KAFKA}:{CLIENT_PORT}",
    share_partitions=True,
    owner_session_timeout_ms=4_000,
    group_initial_rebalance_delay_ms=200,
)


class Topics:
    """The topics of one log: events and offsets."""

    def __init__(self, world: World, partitions: int) -> None:
        self.events = LogBroker(partitions, lambda: world.now_s)
        self.offsets = LogBroker(partitions, lambda: world.now_s)


class Surroundings(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """All that is the same for all processes of one log."""

    world: World
    network: Network
    topics: Topics
    faults: LogFaults
    claim_renewal_ms: int | None
    answer_lease_ms: int | None


class MusterServer:
    """One process. `ended`: why it has ended by itself. `host`: the name under which others reach it, at the address of
    its machine. `node_id`: it shares the partitions with the other nodes; None: it takes all.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        name: str,
        *,
        host: str,
        address: str,
        node_id: int | None = None,
        role: str = BOTH,
    ) -> None:
        self.name = name
        self.host = host
        self.address = address
        self.node_id = node_id
        self.role = role
        self.surroundings = surroundings
        self.world = surroundings.world
        self.loop = self.world.new_loop(name)
        self.clock = self.loop.clock
        sockets = self.loop.sockets = Sockets(surroundings.network, self.loop, name, address, self.serves)
        sockets.loads = self._loads
        self.ended: Exception | None = None
        self.is_over = False
        self.runtime: Runtime | None = None
        self.settings = _SETTINGS.model_copy(
            update={
                "node_id": node_id,
                "answer_lease_ms": surroundings.answer_lease_ms,
                "listen": f"{host}:{CLIENT_PORT}",
                "peer_listen": f"{host}:{PEER_PORT}",
                "role": role,
            }
        )
        self.readiness = Readiness(self.clock)
        self._end: asyncio.Future[Exception | None] = self.loop.create_future()
        self._main = self.loop.create_task(self._live())

    @property
    def is_running(self) -> bool:
        return not self.is_over and not self.loop.is_dead

    def serves(self) -> frozenset[int]:
        return NOBODY if self.runtime is None else frozenset(self.runtime._owned)

    @property
    def is_writing(self) -> bool:
        """True while an append is in progress, which the log may already have and the memory not."""
        owned = [] if self.runtime is None else self.runtime._owned.values()
        return any(not each._outbox._idle.is_set() for each in owned)

    def _loads(self) -> frozenset[int]:
        return NOBODY if self.runtime is None else frozenset(self.runtime.claims()) - self.serves()

    def stop(self) -> None:
        """SIGTERM."""
        self.loop.call_soon(self.give_up, None)

    def kill(self) -> None:
        """SIGKILL."""
        self.loop.end()
        self.surroundings.network.killed(self.name)

    def pause(self) -> None:
        """SIGSTOP."""
        self.loop.is_paused = True

    def resume(self, *, was_suspended_s: float = 0.0) -> None:
        """SIGCONT; or the machine wakes up, and its monotonic clock has missed the time."""
        self.loop.suspended_s += was_suspended_s
        self.loop.is_paused = False

    def give_up(self, error: Exception | None) -> None:
        """Stop cleanly, after an error or on request; a bug of ours ends the world."""
        if error is not None and not isinstance(error, LogError | EventsError):
            self.world.failures.append(error)
        if not self._end.done():
            self._end.set_result(error)

    # ---- its life ------------------------------------------------------------------------------------

    async def _live(self) -> None:
        async with AsyncExitStack() as stack:
            starting = asyncio.create_task(self._start(stack))
            starting.add_done_callback(self._started)
            self.ended = await self._end
            starting.cancel()
            await asyncio.wait([starting])
        self.is_over = True
        self.loop.call_later(1, self._gone)

    def _started(self, starting: "asyncio.Task[None]") -> None:
        """It cannot continue if that has failed, as in serve."""
        error = None if starting.cancelled() else starting.exception()
        if isinstance(error, Exception):
            self.give_up(error)

    def _gone(self) -> None:
        """The machine closes what it has left open."""
        self.loop.end()
        self.surroundings.network.killed(self.name)

    @abstractmethod
    async def _start(self, stack: AsyncExitStack) -> None:
        """Start all parts; the stack stops them in reverse."""

    # ---- parts ---------------------------------------------------------------------------------------

    def new_log(self, broker: LogBroker) -> EventLog:
        """A log at the simulated broker."""
        around = self.surroundings
        link = LogLink(self.world, around.network, self.loop, self.name, around.faults)
        return cast("EventLog", RemoteLog(broker, link, claim_renewal_ms=around.claim_renewal_ms))

    def new_sharing(self, event_log: EventLog) -> PartitionSharing | None:
        return None if self.node_id is None else PartitionSharing(self.settings, event_log, self.clock)

    def new_runtime(self, owner: Owner, sharing: PartitionSharing | None) -> Runtime:
        return Runtime(
            owner,
            give_up=self.give_up,
            deposed=None if sharing is None else sharing.deposed,
            end_of=end_unknown if sharing is None else sharing.end_of,
            stands_by=sharing is not None,
        )

    def new_owner(self, event_log: EventLog, offsets: OffsetStore) -> Owner:
        settings = GroupSettings(
            initial_rebalance_delay_ms=self.settings.group_initial_rebalance_delay_ms, min_session_timeout_ms=100
        )
        return Owner(
            name=self.name,
            version="simulated",
            event_log=event_log,
            offsets=offsets,
            settings=settings,
            effective_settings={},
            answer_lease_ms=self.surroundings.answer_lease_ms,
            boot_ms=self.clock.boot_ms,
            clock=self.clock,
            retention_clock=RetentionClock(self.clock, kept_ms=settings.offsets_retention_minutes * MINUTE_MS),
            refused_joins=RefusedJoins(settings, self.clock.monotonic_ms),
            slices=Slices(answer_memory_of(ConnectionLimits().queued_max_request_bytes)),
            turns=Turns(clock=lambda: 0.0),
        )
