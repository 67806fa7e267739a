"""Our own connections to brokers, opened when they are needed.

What belongs here: sockets, their security, and what it means when one is lost. What it must not know: which broker
there is where, and what is asked.

How it works: aiokafka keeps each connection (security, correlation ids), kio has the messages (`exchange.py`). A *lane*
is one connection to a broker: a broker answers the requests of one connection one after another, so what must not wait
for each other goes in different lanes. aiokafka's own client of a cluster is not used: it asks for all topics when it
needs none, opens one connection after another, and keeps to itself why one could not be opened.

    UpstreamError             one clear line
      UpstreamUnavailable     nobody answers; nothing was sent, or it had no effect. The same may succeed later
        AnswerLost            the request was sent, and its outcome is not known
      UpstreamRefused         it will not succeed by itself: credentials, rights, a broker that is too old
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

import msgspec
from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from kio.schema.errors import ErrorCode

from coordinator.exchange import Exchange, NotOffered
from events.log.kafka_security import KafkaSecurity

R = TypeVar("R")

CLIENT_ID: Final = "muster"
IDLE_MS: Final = 540_000
"""As in Kafka's clients: shorter than the ten minutes after which a broker hangs up."""
OPENING_MAX: Final = 16
"""At a time, to one broker."""
SHUT_FOR_S: Final = 0.1
"""What could not be opened is not tried again for that long: thousands of groups may ask at once."""
_WRONG_CREDENTIALS = (AuthenticationFailedError, SaslAuthenticationFailed, UnsupportedSaslMechanismError)


class UpstreamError(Exception):
    """See the module."""


class UpstreamUnavailable(UpstreamError):
    """See the module."""


class AnswerLost(UpstreamUnavailable):
    """See the module."""


class UpstreamRefused(UpstreamError):
    """See the module. `error` is Kafka's, where an answer has told it."""

    def __init__(self, message: str, error: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.error = error


class Place(msgspec.Struct, frozen=True):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def places(bootstrap: str) -> tuple[Place, ...]:
    """`HOST:PORT`, several with commas between them. Raises UpstreamRefused."""
    return tuple(_place(text.strip()) for text in bootstrap.split(","))


def _place(text: str) -> Place:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) <= 65_535:
        raise UpstreamRefused(f"{text!r} should be HOST:PORT, for example kafka:9092")
    return Place(host.strip("[]"), int(port))


def nobody_asks() -> None:
    """For who does not want to know that a request was sent."""


class Connections:
    """See the module. `opens_within_ms`: what a broker may take to let us in."""

    def __init__(self, security: KafkaSecurity, *, opens_within_ms: int) -> None:
        self._security = security
        self._opens_within_ms = opens_within_ms
        self._open: dict[tuple[Place, Hashable], AIOKafkaConnection] = {}
        self._opening: dict[tuple[Place, Hashable], asyncio.Lock] = {}
        self._slots: dict[Place, asyncio.Semaphore] = {}
        self._shut: dict[Place, tuple[float, UpstreamError]] = {}
        self._is_closed = False

    async def close(self) -> None:
        """Hang up; what is under way ends with AnswerLost."""
        self._is_closed = True
        connections, self._open = self._open, {}
        for closed in [connection.close() for connection in connections.values()]:
            if closed is not None:
                await closed

    async def ask(
        self,
        place: Place,
        request: Any,  # noqa: ANN401 -- any of kio's requests
        response: type[R],
        *,
        lane: Hashable,
        limit_ms: int,
        sent: Callable[[], None] = nobody_asks,
    ) -> R:
        """The broker's answer. `sent` is told when the request has left. Raises as the module tells.

        After `limit_ms` the answer counts as lost, and the connection is closed: what follows would wait behind it.
        """
        connection = await self._connection(place, (lane, limit_ms), limit_ms)
        try:
            answer = connection.send(Exchange(request, response))
        except NotOffered as what:
            raise UpstreamRefused(f"the broker at {place} does not offer {what}") from what
        except KafkaError as error:
            raise UpstreamUnavailable(f"{place}: {error}") from error
        sent()
        try:
            received: R = await answer
        except (KafkaError, TimeoutError) as error:
            connection.close()
            raise AnswerLost(f"{place} did not answer: {_said(error)}") from error
        return received

    async def _connection(self, place: Place, lane: Hashable, limit_ms: int) -> AIOKafkaConnection:
        key = place, lane
        async with self._opening.setdefault(key, asyncio.Lock()):
            connection = self._open.get(key)
            if connection is not None and connection.connected():
                return connection
            opened = await self._opened(place, limit_ms)
            if self._is_closed:
                opened.close()
                raise UpstreamUnavailable("the connections to the upstream cluster are closed")
            self._open[key] = opened
            return opened

    async def _opened(self, place: Place, limit_ms: int) -> AIOKafkaConnection:
        async with self._slots.setdefault(place, asyncio.Semaphore(OPENING_MAX)):
            until, error = self._shut.get(place, (0.0, None))
            if error is not None and time.monotonic() < until:
                raise type(error)(str(error))
            try:
                connection = await self._connected(place, limit_ms)
            except UpstreamError as refusal:
                self._shut[place] = time.monotonic() + SHUT_FOR_S, refusal
                raise
            self._shut.pop(place, None)
            return connection

    async def _connected(self, place: Place, limit_ms: int) -> AIOKafkaConnection:
        try:
            async with asyncio.timeout(self._opens_within_ms / 1000):
                return await create_conn(
                    place.host,
                    place.port,
                    client_id=CLIENT_ID,
                    request_timeout_ms=limit_ms,
                    max_idle_ms=IDLE_MS,
                    **self._security.client_arguments(),
                )
        except IllegalSaslStateError as error:
            raise UpstreamRefused(f"the broker at {place} takes no SASL there: see security.protocol") from error
        except _WRONG_CREDENTIALS as error:
            raise UpstreamRefused(f"the broker at {place} does not let us in: {_said(error)}") from error
        except ssl.SSLCertVerificationError as error:
            raise UpstreamRefused(f"the certificate of the broker at {place}: {error.verify_message}") from error
        except TimeoutError as error:
            raise UpstreamUnavailable(f"{place} did not answer within {self._opens_within_ms / 1000:g} s") from error
        except (OSError, KafkaError) as error:
            # With TLS 1.3 a broker tells only afterwards that it wants another certificate of ours, or any.
            cause = error.__cause__ or error
            if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
                reason = (cause.reason or str(cause)).lower().replace("_", " ")
                raise UpstreamRefused(f"TLS fails with the broker at {place}: {reason}") from error
            if isinstance(error, KafkaConnectionError | ConnectionResetError):
                protocol = self._security.security_protocol
                raise UpstreamUnavailable(f"{place} hung up: does it speak {protocol} (security.protocol)?") from error
            raise UpstreamUnavailable(f"{place}: {_said(error)}") from error


def _said(error: BaseException) -> str:
    said = str(error) or type(error).__name__
    # aiokafka says that a connection was closed; why, as TLS tells it, is in the cause.
    return f"{said}: {_said(error.__cause__)}" if error.__cause__ is not None else said
