"""The way to the broker behind a listener, and the socket that was opened for one client."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import structlog

from coordinator.sidecar.metrics import RelayMetrics

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

CONNECTS_WITHIN_S = 10.0


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """How the broker behind a listener is reached. `context` is None where it is not encrypted."""

    node_id: int | None
    """None behind the address that clients begin with: any broker."""
    addresses: Callable[[], Sequence[tuple[str, int]]]
    """Where the broker is now, or several to be tried in turn; none while that is not known."""
    context: ssl.SSLContext | None


class Told(Protocol):
    """The client's side, which is told what happens on the broker's."""

    def answers_received(self, data: bytes) -> None: ...

    def broker_lost(self, error: Exception | None) -> None: ...

    def broker_reads(self, *, reads: bool) -> None: ...


class BrokerSide(asyncio.Protocol):
    """The broker's socket of one client."""

    def __init__(self, client: Told) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.answers_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.broker_lost(exc)

    def pause_writing(self) -> None:
        self._client.broker_reads(reads=False)

    def resume_writing(self) -> None:
        self._client.broker_reads(reads=True)


async def reach(door: Door, client: Told, relayed: RelayMetrics) -> asyncio.Transport | None:
    """A connection to the broker, for this client alone; None, and a line in the log, when it cannot be had."""
    for host, port in door.addresses():
        try:
            async with asyncio.timeout(CONNECTS_WITHIN_S):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: BrokerSide(client), host, port, ssl=door.context
                )
        except (OSError, TimeoutError) as error:
            relayed.brokers_not_reached += 1
            reason = str(error) or f"no answer within {CONNECTS_WITHIN_S:g} s"
            log.warning("broker not reached", node_id=door.node_id, address=f"{host}:{port}", error=reason)
        else:
            return transport
    return None
