"""A whole `muster serve` in a simulated world: a standalone server on a simulated log and a simulated network.

What belongs here: the assembly of standalone/serve, with the world's clocks, ids and sockets. What it must not know:
faults.
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import cast

from muster.coordinator.cluster import new_cluster
from muster.coordinator.group.retention import MINUTE_MS
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.load.answer_memory import answer_memory_of
from muster.coordinator.load.slices import Slices
from muster.coordinator.load.turns import Turns
from muster.coordinator.net.limits import ConnectionLimits
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.offsets.topic import TopicOffsetStore
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.runtime.partition.retention_clock import RetentionClock
from muster.coordinator.runtime.partition.waiting_limit import WaitingLimit, WaitingQuota
from muster.coordinator.runtime.runtime import Runtime
from muster.coordinator.service import Cancel, Service
from muster.coordinator.standalone.server import Server, ServerSettings
from muster.coordinator.topics import declare_topic
from muster.coordinator.wire.registry import APIS
from muster.events.log.base import EventLog
from tests.simulation.election import Election
from tests.simulation.log_broker import LogBroker
from tests.simulation.network import NOBODY, Network
from tests.simulation.remote_log import LogFaults, LogLink, RemoteLog
from tests.simulation.world import LoopClock, World

PARTITIONS = 3
CONFIRMED_AFTER_S = 1.0
TOPIC, TOPIC_PARTITIONS = "orders", 6
SETTINGS = GroupSettings(initial_rebalance_delay_ms=200, min_session_timeout_ms=100)

_METRICS = ServerMetrics(APIS)


class Topics:
    """The topics of one log: events and offsets."""

    def __init__(self, world: World, partitions: int) -> None:
        self.events = LogBroker(partitions, lambda: world.now_s)
        self.offsets = LogBroker(partitions, lambda: world.now_s)


class MusterServer:
    """One process. `ended` is why it has ended by itself. With an `election` it shares the partitions with others."""

    def __init__(
        self,
        world: World,
        network: Network,
        topics: Topics,
        name: str,
        *,
        faults: LogFaults,
        claim_renewal_ms: int | None,
        answer_lease_ms: int,
        election: Election | None = None,
    ) -> None:
        self.name = name
        self._election = election
        self._generation = 0
        self._share = NOBODY
        self._share_changed = asyncio.Event()
        self._is_stopping = False
        self.world = world
        self.loop = world.new_loop(name)
        self.clock = LoopClock(self.loop, world)
        self.ended: Exception | None = None
        self.is_over = False
        self._network = network
        self._topics = topics
        self._faults = faults
        self._claim_renewal_ms = claim_renewal_ms
        self._answer_lease_ms = answer_lease_ms
        self._server: Server | None = None
        self.runtime: Runtime | None = None
        self._main = self.loop.create_task(self._serve())
        self._end: asyncio.Future[Exception | None] = self.loop.create_future()

    @property
    def is_running(self) -> bool:
        return not self.is_over and not self.loop.is_dead

    @property
    def is_candidate(self) -> bool:
        return self.is_running and not self._is_stopping

    def assigned(self, generation: int, numbers: frozenset[int]) -> None:
        if generation > self._generation:
            self._generation, self._share = generation, numbers
            self._share_changed.set()

    def accept(self) -> asyncio.Protocol | None:
        return None if self._server is None or self.is_over else self._server._new_connection()

    def serves(self) -> frozenset[int]:
        return NOBODY if self.runtime is None else frozenset(self.runtime._owned)

    def stop(self) -> None:
        """SIGTERM."""
        self.loop.call_soon(self._give_up, None)

    def kill(self) -> None:
        """SIGKILL."""
        self.loop.end()
        self._network.killed(self.name)

    def pause(self) -> None:
        """SIGSTOP."""
        self.loop.is_paused = True

    def resume(self, *, was_suspended_s: float = 0.0) -> None:
        """SIGCONT; or the machine wakes up, and its monotonic clock has missed the time."""
        self.loop.suspended_s += was_suspended_s
        self.loop.is_paused = False

    def _give_up(self, error: Exception | None) -> None:
        self._is_stopping = True
        if not self._end.done():
            self._end.set_result(error)

    def _new_log(self, broker: LogBroker) -> RemoteLog:
        link = LogLink(self.world, self._network, self.loop, self.name, self._faults)
        return RemoteLog(broker, link, claim_renewal_ms=self._claim_renewal_ms)

    async def _serve(self) -> None:
        event_log = self._new_log(self._topics.events)
        offsets = TopicOffsetStore(lambda: cast("EventLog", self._new_log(self._topics.offsets)))
        quota = WaitingQuota(each_max=1_000, metrics=_METRICS)
        deposed = None if self._election is None else self._deposed
        self.runtime = runtime = Runtime(
            self._owner(event_log, offsets, quota),
            give_up=self._give_up,
            deposed=deposed,
            stands_by=deposed is not None,
        )
        service = self._service(runtime, quota)
        self._server = Server(settings=ServerSettings(), service=service, apis=APIS, metrics=_METRICS)
        await event_log.open()
        await offsets.open()
        starting = asyncio.create_task(self._start(runtime))
        self.ended = await self._end
        starting.cancel()
        await asyncio.wait([starting])
        self._server.stop_listening()
        await runtime.stop()
        await offsets.close()
        if self._election is not None:
            self._election.leave(self.name)
        await self._server.close()
        self.is_over = True
        self.loop.call_later(1, self.loop.end)

    async def _start(self, runtime: Runtime) -> None:
        try:
            if self._election is None:
                await runtime.start()
            else:
                await runtime.start(())
                await self._follow(runtime)
        except Exception as error:  # noqa: BLE001 -- as in serve: it cannot go on
            self._give_up(error)

    async def _follow(self, runtime: Runtime) -> None:
        """Serve what the election says, from now on."""
        serves = NOBODY
        while True:
            await self._share_changed.wait()
            self._share_changed.clear()
            share = self._share
            await runtime.release(serves - share)
            serves = share
            await runtime.assign(share)

    def _deposed(self, number: int) -> None:
        """Claim it again if the election has not given it to another one: that one was late."""

        def ask() -> None:
            assert self._election is not None
            if number in self._share and number in self._election.share_of(self.name) and self.is_candidate:
                self._share_changed.set()

        self.loop.call_later(CONFIRMED_AFTER_S, ask)

    def _owner(self, event_log: RemoteLog, offsets: TopicOffsetStore, quota: WaitingQuota) -> Owner:
        return Owner(
            name=self.name,
            version="simulated",
            event_log=event_log,
            offsets=offsets,
            settings=SETTINGS,
            effective_settings={},
            answer_lease_ms=self._answer_lease_ms,
            boot_ms=self.clock.boot_ms,
            clock=self.clock,
            retention_clock=RetentionClock(self.clock, kept_ms=SETTINGS.offsets_retention_minutes * MINUTE_MS),
            superseded=quota.release,
            slices=Slices(answer_memory_of(ConnectionLimits().queued_max_request_bytes)),
            turns=Turns(clock=lambda: 0.0),
        )

    def _service(self, runtime: Runtime, quota: WaitingQuota) -> Service:
        random = self.world.random

        def call_later(delay_ms: int, callback: Callable[[], None]) -> Cancel:
            return self.loop.call_later(delay_ms / 1000, callback).cancel

        return Service(
            groups=WaitingLimit(runtime, quota, runtime.is_member),
            cluster=new_cluster(
                cluster_id="simulated",
                node_id=1,
                host=self.name,
                port=9092,
                topics=(declare_topic(f"{TOPIC}:{TOPIC_PARTITIONS}"),),
            ),
            monotonic_ms=self.clock.monotonic_ms,
            wall_ms=self.clock.wall_ms,
            new_uuid=lambda: f"{random.getrandbits(64):016x}",
            new_request_id=itertools.count(1).__next__,
            call_later=call_later,
            gone=quota.release,
            slices=runtime.slices,
            turns=runtime.turns,
        )
