"""The listeners of a sidecar in process, in front of scripted brokers, and a client for them.

It starts the relay and sends requests. Groups are scripted, too (tests/coordinator/scripted.py): only the time of their
responses matters here.

    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        client.send(request(3, 12, 1))
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import cast

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest, Heartbeat, JoinGroup, SyncGroup
from muster.coordinator.group.outcomes import HeartbeatOutcome, Outcome
from muster.coordinator.load.answer_memory import HELD_BYTES_MAX
from muster.coordinator.net.limits import ConnectionLimits
from muster.coordinator.net.listening import Listening
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.service import Service
from muster.coordinator.settings.broker_ports import BrokerPorts
from muster.coordinator.sidecar.apis import authentication, produce_and_txn
from muster.coordinator.sidecar.apis.membership import MembershipApi
from muster.coordinator.sidecar.groups.moves import Moves
from muster.coordinator.sidecar.groups.routing import GroupRouter
from muster.coordinator.sidecar.messages.reserved_names import ReservedNames
from muster.coordinator.sidecar.messages.rewriting import AnswerRewriter
from muster.coordinator.sidecar.relay.client_side import ClientSide
from muster.coordinator.sidecar.relay.intercept import Forward, Handle, Interceptor, SidecarApi, forward_nothing
from muster.coordinator.sidecar.relay.limits import RelayLimits
from muster.coordinator.sidecar.relay.listeners import Listeners
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.upstream.coordinators import Heard, HeardFrom
from muster.coordinator.upstream.group_probe import KeptUpstream
from muster.coordinator.upstream.shadow import ShadowName
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.ids import GroupId
from tests.brokers.broker import lasting_base
from tests.coordinator.scripted import ManualTimers, ScriptedGroups, new_service
from tests.coordinator.sidecar.scripted_broker import ScriptedBroker

WITHIN_S = 20
HOST = "127.0.0.1"
MORE_THAN_SOCKETS_TAKE = 40_000_000
BASE_PORTS = 8
"""Node ids below this have ports."""


class FakeShadows:
    """Every group is ours, except those whose ids begin with `theirs`."""

    name = ShadowName.of("log")

    def owns(self, group_id: GroupId) -> bool:
        return not group_id.startswith("theirs")

    async def probe(self, _group_id: GroupId) -> KeptUpstream | None:
        return KeptUpstream("somebody is in it")

    async def take(self, _group_id: GroupId) -> KeptUpstream | None:
        return KeptUpstream("somebody is in it")

    def update_generation(self, group_id: GroupId, generation_id: int, is_wanted: bool) -> None:
        raise NotImplementedError

    async def wait_gone(self, _group_id: GroupId) -> None:
        raise NotImplementedError

    async def remove_stray_shadows(self, _is_ours: Callable[[GroupId], bool]) -> list[GroupId]:
        raise NotImplementedError


def _fails(error: Exception) -> None:
    raise error


def parks_joins(command: AnyRequest) -> Outcome | None:
    """Joins and syncs wait until a test releases them, heartbeats are accepted."""
    if isinstance(command, JoinGroup | SyncGroup):
        return None
    assert isinstance(command, Heartbeat), command
    return HeartbeatOutcome(error=ErrorCode.none)


class Relay:
    """See the module. `now_ms` is the clock of the relay."""

    def __init__(
        self,
        *,
        connection_limits: ConnectionLimits,
        limits: RelayLimits,
        broker_context: ssl.SSLContext | None,
        more: "Callable[[Relay], Iterable[SidecarApi]]",
    ) -> None:
        self.now_ms = 1_000
        self.groups = ScriptedGroups(parks_joins)
        self.timers = ManualTimers()
        self.metrics, self.relayed = ServerMetrics({}), RelayMetrics()
        self.service: Service = new_service(
            self.groups, self.timers, held_bytes_max=connection_limits.queued_max_request_bytes
        )
        self.service.monotonic_ms = lambda: self.now_ms
        self.listening = Listening[ClientSide](
            limits=connection_limits,
            metrics=self.metrics,
            monotonic_ms=self.service.monotonic_ms,
            call_later=self.service.call_later,
            answer_memory=self.service.slices.answer_memory,
            turns=self.service.turns,
        )
        self.moves = Moves(
            UpstreamLink("127.0.0.1:1", give_up=_fails),
            FakeShadows(),
            is_released=lambda _: False,
            monotonic_ms=self.service.monotonic_ms,
            give_up=_fails,
        )
        self.limits = limits
        self.broker_context = broker_context
        self.asked_to_look = 0
        """The number of requests to check the cluster after a broker was not reached."""
        self.forward: Forward = forward_nothing
        self.port = 0
        self.base_port = 0
        self.router = GroupRouter(
            FakeShadows(), self.moves, may_own=lambda _: True, is_loaded=lambda _: True, is_loaded_soon=lambda _: False
        )
        self.listeners = self._listeners(more(self))

    def _listeners(self, more: Iterable[SidecarApi]) -> Listeners:
        membership = MembershipApi(self.service, self.router, self.moves, lambda _: False)
        handled = {
            api.key: api
            for api in (
                *authentication.apis(self.relayed),
                *produce_and_txn.apis(ReservedNames(None)),
                *membership.apis(),
                *more,
            )
        }
        self.metrics.offer(handled)

        def interceptor(listeners: Listeners) -> Interceptor:
            return Interceptor(
                handled=handled,
                rewriting=AnswerRewriter(listeners.address_of, {key: api.versions for key, api in handled.items()}),
                metrics=self.metrics,
                service=self.service,
                forward=self._forward,
            )

        return Listeners(
            host=HOST,
            advertised_host="sidecar",
            interceptor=interceptor,
            service=self.service,
            listening=self.listening,
            metrics=self.metrics,
            relayed=self.relayed,
            limits=self.limits,
            client_context=None,
            broker_context=self.broker_context,
            heard=HeardFrom(Heard),
            on_unreachable=self._not_reached,
        )

    def _forward(self, client: ClientSide, frame: bytes, handle: Handle) -> bool:
        return self.forward(client, frame, handle)

    def _not_reached(self, _node_id: int | None) -> None:
        self.asked_to_look += 1

    async def start(self, brokers: Mapping[int, tuple[str, int]], base_port: int) -> None:
        """Listen, for these brokers."""
        self.base_port = base_port
        self.port = await self.listeners.start(0)
        self.listeners.open_for(brokers, BrokerPorts(base=base_port))

    def port_of(self, node_id: int | None) -> int:
        """The port of a broker's listener, or of the bootstrap listener."""
        return self.port if node_id is None else self.base_port + node_id

    async def connect(self, node_id: int | None = None) -> "Client":
        """Connect a client to a broker's listener, or to the bootstrap listener."""
        return Client(*await asyncio.open_connection(HOST, self.port_of(node_id), limit=2**27))

    def drain(self) -> None:
        """Drain, as on SIGTERM."""
        self.listening.stop_listening()
        for connection in self.listening.connections:
            connection.drain()


class Client:
    """Sends bytes, and splits responses."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def answer(self) -> tuple[int, bytes]:
        """The next response's correlation id and body."""
        async with asyncio.timeout(WITHIN_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            content = await self.reader.readexactly(size)
        return int.from_bytes(content[:4], "big"), content[4:]

    async def ask(self, frame: bytes) -> bytes:
        """Send a request, and return the body of its response."""
        self.send(frame)
        return (await self.answer())[1]

    async def rest(self) -> bytes:
        """All remaining bytes until the end of the stream, which may be a reset."""
        data = b""
        async with asyncio.timeout(WITHIN_S):
            try:
                while piece := await self.reader.read(65_536):
                    data += piece
            except ConnectionResetError:
                pass
        return data

    def stop_reading(self) -> None:
        """Stop reading, so that data stays with the sender beyond the kernel's buffers."""
        cast("asyncio.Transport", self.writer.transport).pause_reading()

    def read_again(self) -> None:
        cast("asyncio.Transport", self.writer.transport).resume_reading()

    def close(self) -> None:
        self.writer.close()

    def vanish(self) -> None:
        """Disconnect like a killed process."""
        self.writer.transport.abort()


@asynccontextmanager
async def relaying(
    brokers: Mapping[int, ScriptedBroker],
    *,
    base_port: int = 0,
    connections_max: int = 1_000,
    connections_max_idle_ms: int = 600_000,
    per_principal_max: int = 1_000,
    held_bytes_max: int = HELD_BYTES_MAX,
    frame_bytes_max: int = 1_048_576,
    waiting_bytes_max: int = 65_536,
    authorization_cache_ms: int = 5_000,
    authenticates: bool = False,
    delay_ms: int = 1,
    broker_context: ssl.SSLContext | None = None,
    more: Callable[[Relay], Iterable[SidecarApi]] = lambda _: (),
) -> AsyncIterator[Relay]:
    """Listen for these brokers, by node id; closed at the end, with nothing left open. `more`: handlers."""
    relay = Relay(
        connection_limits=ConnectionLimits(
            connections_max=connections_max,
            connections_max_idle_ms=connections_max_idle_ms,
            connections_per_principal=per_principal_max,
            queued_max_request_bytes=held_bytes_max,
        ),
        broker_context=broker_context,
        more=more,
        limits=RelayLimits(
            frame_bytes_max=frame_bytes_max,
            waiting_bytes_max=waiting_bytes_max,
            authorization_cache_ms=authorization_cache_ms,
            authenticates=authenticates,
            delay_ms=delay_ms,
        ),
    )
    places = {node_id: (HOST, broker.port) for node_id, broker in brokers.items()}
    await relay.start(places, base_port or lasting_base(BASE_PORTS))
    try:
        yield relay
    finally:
        await relay.listening.close(within_s=1)
