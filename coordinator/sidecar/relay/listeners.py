"""The sidecar's listeners: one for bootstrap, and one for each broker, with a port derived from its node id.

Each listener connects to the broker with that node id, whatever its address; the bootstrap listener connects to any
broker. When a broker first appears in a response, its listener is bound before the response is sent. A broker whose
port cannot be bound is left out of responses, since another process may listen on that port.
"""

import itertools
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import structlog

from muster.coordinator.load.turns import Turns
from muster.coordinator.log_throttle import LogThrottle
from muster.coordinator.net.listening import Address, Listening, addresses_of
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.service import Service
from muster.coordinator.settings.addresses import why_not_bound
from muster.coordinator.settings.broker_ports import BrokerPorts, NoPort
from muster.coordinator.sidecar.relay.broker_side import BrokerEndpoint
from muster.coordinator.sidecar.relay.client_side import ClientSide
from muster.coordinator.sidecar.relay.connect_queue import CONNECTS_AT_ONCE, TLS_CONNECTS_AT_ONCE, ConnectQueues
from muster.coordinator.sidecar.relay.intercept import Interceptor
from muster.coordinator.sidecar.relay.limits import RelayLimits
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.sidecar.relay.refusals import RefusalLog
from muster.coordinator.upstream.coordinators import HeardFrom

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class CannotListen(Exception):
    """An address cannot be bound; the message names it and says what to change."""


class Listeners:
    """All listeners. Clients connect to `advertised_host`; `on_unreachable` is called with a broker's node id."""

    def __init__(
        self,
        *,
        host: str,
        advertised_host: str,
        interceptor: Callable[["Listeners"], Interceptor],
        service: Service,
        listening: Listening[ClientSide],
        metrics: ServerMetrics,
        relayed: RelayMetrics,
        limits: RelayLimits,
        client_context: ssl.SSLContext | None,
        broker_context: ssl.SSLContext | None,
        on_unreachable: Callable[[int | None], None],
        heard: HeardFrom,
    ) -> None:
        self._host = host
        self._advertised_host = advertised_host
        self._ports = BrokerPorts(0)
        self._interceptor = interceptor(self)
        self._service = service
        self._listening = listening
        self._metrics = metrics
        self._relayed = relayed
        self._limits = limits
        self._client_context = client_context
        self._broker_context = broker_context
        self._on_unreachable = on_unreachable
        self._heard = heard
        self._brokers: dict[int, tuple[str, int]] = {}
        self._live: tuple[tuple[str, int], ...] = ()
        self._addresses: list[Address] = []
        self._bound: dict[int, int] = {}
        self._complaints: dict[int, str] = {}
        self._firsts = itertools.count()
        at_once = CONNECTS_AT_ONCE if broker_context is None else TLS_CONNECTS_AT_ONCE
        self._connects = ConnectQueues(Turns(), at_once=at_once)
        self._throttle = LogThrottle(service.monotonic_ms)
        self._refusals = RefusalLog(service.monotonic_ms)

    async def start(self, port: int) -> int:
        """Listen on the bootstrap address; return its port. Raises OSError."""
        self._addresses = await addresses_of(self._host)
        return await self._listening.listen(self._host, port, self._connections_to(None), context=self._client_context)

    def open_for(self, brokers: Mapping[int, tuple[str, int]], ports: BrokerPorts) -> None:
        """Listen for each of these brokers, and for later ones, on these ports. Raises CannotListen, NoPort."""
        self._ports = ports
        self._live = tuple(brokers.values())
        for node_id, address in brokers.items():
            self._brokers[node_id] = address
            try:
                self._listen_for(node_id)
            except OSError as error:
                why = why_not_bound(error, f"choose another --broker-base-port, or --listener-map {node_id}=PORT")
                raise CannotListen(
                    f"the listener of node id {node_id} cannot have port {self._ports.port_of(node_id)}: {why}"
                ) from error

    def follow(self, brokers: Mapping[int, tuple[str, int]]) -> None:
        """Update the brokers and their addresses."""
        self._live = tuple(brokers.values())
        for node_id, (host, port) in brokers.items():
            self.address_of(node_id, host, port)

    def address_of(self, node_id: int, host: str, port: int) -> tuple[str, int] | None:
        """Return the address of the listener for the broker at `host` and `port`; if it has none, log that and return
        None.
        """
        self._brokers[node_id] = (host, port)
        try:
            own_port = self._listen_for(node_id)
        except (NoPort, OSError) as error:
            if self._complaints.get(node_id) != str(error):  # once, not for every response
                self._complaints[node_id] = str(error)
                log.error("a broker cannot be reached through the sidecar", node_id=node_id, reason=str(error))
            return None
        return self._advertised_host, own_port

    def _listen_for(self, node_id: int) -> int:
        """Return the port of a broker's listener, binding it if necessary. Raises NoPort, OSError."""
        own_port = self._bound.get(node_id)
        if own_port is None:
            own_port = self._ports.port_of(node_id)
            for each in self._listening.bind(self._addresses, own_port):
                self._listening.accept_at(each, self._connections_to(node_id), context=self._client_context)
            self._bound[node_id] = own_port
        return own_port

    def _connections_to(self, node_id: int | None) -> Callable[[], ClientSide]:
        endpoint = BrokerEndpoint(
            node_id=node_id,
            addresses=lambda: self._where(node_id),
            context=self._broker_context,
            connects=self._connects,
            throttle=self._throttle,
            refusals=self._refusals,
            on_unreachable=partial(self._on_unreachable, node_id),
            heard=self._heard[node_id],
        )

        def new_connection() -> ClientSide:
            return ClientSide(
                endpoint=endpoint,
                plan_of=self._interceptor.plan_of,
                handle=self._interceptor.handle_own,
                metrics=self._metrics,
                relayed=self._relayed,
                monotonic_ms=self._service.monotonic_ms,
                limits=self._limits,
                listening=self._listening,
                slices=self._service.slices,
            )

        return new_connection

    def _where(self, node_id: int | None) -> Sequence[tuple[str, int]]:
        if node_id is not None:
            known = self._brokers.get(node_id)
            return () if known is None else (known,)
        first = next(self._firsts) % max(1, len(self._live))
        return (*self._live[first:], *self._live[:first])
