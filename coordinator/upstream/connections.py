"""Our own connections to brokers, opened when they are needed.

What belongs here: sockets, their security, and what it means when one is lost. What it must not know: which broker
there is where, and what is asked.

How it works: aiokafka keeps each connection (security, correlation ids), kio has the messages
(`events/kafka/exchange.py`).
A *lane* is one connection to a broker: a broker answers the requests of one connection one after another, so what must
not wait for each other goes in different lanes. What is known of a place is forgotten when nothing is open there and
the cluster names it no more: brokers may come back under new addresses for ever. aiokafka's own client of a cluster is
not used: it asks for all topics when it needs none, opens one connection after another, and keeps to itself why one
could not be opened.

    UpstreamError             one clear line
      UpstreamUnavailable     nobody answers; nothing was sent, or it had no effect. The same may succeed later
        AnswerLost            the request was sent, and its outcome is not known
      UpstreamRefused         it will not succeed by itself: credentials, rights, a broker that is too old
"""

import asyncio
import ssl
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import ExitStack
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
import structlog
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import IllegalSaslStateError, KafkaConnectionError
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse

from muster.events.kafka.connect import connect
from muster.events.kafka.exchange import Exchange, NotOffered
from muster.events.kafka.failures import (
    NOT_OPENED,
    NOT_SENT,
    UNANSWERED,
    is_refusal,
    refusal,
    said,
    tls_failure,
    where_trust_is_set,
)
from muster.events.kafka.security import KafkaSecurity

R = TypeVar("R")
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

TopicIds = Mapping[str, UUID | ErrorCode]
"""By name: the topic's id, or why there is none (`none` from brokers that know no ids)."""

CLIENT_ID: Final = "muster"
IDLE_MS: Final = 540_000
"""As in Kafka's clients: shorter than the ten minutes after which a broker hangs up."""
OPENING_MAX: Final = 16
"""At a time, to one broker."""
SHUT_FOR_S: Final = 0.1
"""What could not be opened is not tried again for that long: thousands of groups may ask at once."""


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


_Lane = tuple[Hashable, int]
"""And the limit on each of its requests in ms."""


class _Known(msgspec.Struct, kw_only=True, eq=False):
    """What is known of a place. `shut`: until when it is not tried again, and why."""

    lanes: dict[_Lane, AIOKafkaConnection] = msgspec.field(default_factory=dict)
    opening: dict[_Lane, asyncio.Lock] = msgspec.field(default_factory=dict)
    slots: asyncio.Semaphore = msgspec.field(default_factory=lambda: asyncio.Semaphore(OPENING_MAX))
    shut: tuple[float, UpstreamError] | None = None
    foreign: str = ""
    askers: int = 0

    def is_in_use(self) -> bool:
        """Whether a connection is open there, or wanted."""
        return bool(self.askers) or any(connection.connected() for connection in self.lanes.values())


def ignore() -> None:
    """For who does not want to know."""


class Connections:
    """See the module. `opens_within_ms`: what a broker may take to let us in. `lost`: told when one hangs up."""

    def __init__(self, security: KafkaSecurity, *, opens_within_ms: int, lost: Callable[[], None] = ignore) -> None:
        self._security = security
        self._opens_within_ms = opens_within_ms
        self._lost = lost
        self._known: dict[Place, _Known] = {}
        self._is_closed = False
        self.cluster_id = ""
        """Whose brokers these are; who is of another cluster is hung up on. "" while that is not known."""

    async def close(self) -> None:
        """Hang up; what is under way ends with AnswerLost."""
        self._is_closed = True
        connections = [each for known in self._known.values() for each in known.lanes.values()]
        self._known.clear()
        for closed in [connection.close() for connection in connections]:
            if closed is not None:
                await closed

    def forget_others(self, named: Collection[Place]) -> None:
        """Keep what is in use, and what the cluster names now."""
        gone = [place for place, known in self._known.items() if place not in named and not known.is_in_use()]
        for place in gone:
            del self._known[place]

    def hang_up(self, place: Place, lane: Hashable) -> None:
        """Close this lane: what is asked in it ends with AnswerLost, and what comes next does not wait behind it."""
        known = self._known.get(place)
        for (each, _), connection in known.lanes.items() if known else ():
            if each == lane:
                connection.close()

    async def ask(
        self,
        place: Place,
        request: Any,  # noqa: ANN401 -- any of kio's requests
        response: type[R],
        *,
        lane: Hashable,
        limit_ms: int,
        sent: Callable[[], None] = ignore,
    ) -> R:
        """The broker's answer. `sent` is told when the request has left. Raises as the module tells.

        After `limit_ms` the answer counts as lost, and the connection is closed: what follows would wait behind it.
        """
        connection = await self._connection(place, (lane, limit_ms), limit_ms)
        try:
            answer = connection.send(Exchange(request, response))
        except NotOffered as what:
            raise UpstreamRefused(f"the broker at {place} does not offer {what}") from what
        except NOT_SENT as error:
            connection.close()
            raise UpstreamUnavailable(f"{place}: {said(error)}") from error
        sent()
        try:
            received: R = await answer
        except TimeoutError as error:
            connection.close()
            raise AnswerLost(f"{place} did not answer within {limit_ms / 1000:g} s") from error
        except UNANSWERED as error:
            connection.close()
            raise AnswerLost(f"{place} did not answer: {said(error)}") from error
        return received

    async def _connection(self, place: Place, lane: _Lane, limit_ms: int) -> AIOKafkaConnection:
        known = self._known.get(place) or self._known.setdefault(place, _Known())
        known.askers += 1
        try:
            async with known.opening.setdefault(lane, asyncio.Lock()):
                connection = known.lanes.get(lane)
                if connection is not None and connection.connected():
                    return connection
                opened = await self._opened(place, known, limit_ms)
                if self._is_closed:
                    opened.close()
                    raise UpstreamUnavailable("the connections to the upstream cluster are closed")
                known.lanes[lane] = opened
                return opened
        finally:
            known.askers -= 1

    async def _opened(self, place: Place, known: _Known, limit_ms: int) -> AIOKafkaConnection:
        async with known.slots:
            until, error = known.shut or (0.0, None)
            loop = asyncio.get_running_loop()
            if error is not None and loop.time() < until:
                raise type(error)(str(error))
            try:
                connection = await self._connected(place, limit_ms)
                with ExitStack() as unless_checked:
                    unless_checked.callback(connection.close)
                    await self._check_cluster(place, known, connection)
                    unless_checked.pop_all()
            except UpstreamError as refusal:
                known.shut = loop.time() + SHUT_FOR_S, refusal
                raise
            known.shut = None
            return connection

    async def _check_cluster(self, place: Place, known: _Known, opened: AIOKafkaConnection) -> None:
        """An address may have been given to a broker of another cluster. Raises UpstreamUnavailable."""
        if not self.cluster_id:
            return
        request = MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
        try:
            answer: MetadataResponse = await opened.send(Exchange(request, MetadataResponse))
        except NOT_SENT as error:
            raise UpstreamUnavailable(f"{place} does not tell which cluster it is of: {said(error)}") from error
        told = answer.cluster_id or self.cluster_id
        if told == self.cluster_id:
            known.foreign = ""
            return
        reason = f"there is a broker of cluster {told}, where one of {self.cluster_id} was expected"
        if known.foreign != told:
            log.error(
                "a broker of another cluster is not spoken to",
                address=str(place),
                reason=reason,
                way_out="correct the address; if the cluster was made anew under it, restart",
            )
            known.foreign = told
        raise UpstreamUnavailable(f"{place}: {reason}")

    async def _connected(self, place: Place, limit_ms: int) -> AIOKafkaConnection:
        try:
            async with asyncio.timeout(self._opens_within_ms / 1000):
                return await connect(
                    place.host,
                    place.port,
                    client_id=CLIENT_ID,
                    request_timeout_ms=limit_ms,
                    max_idle_ms=IDLE_MS,
                    on_close=self._closed,
                    **self._security.client_arguments(),
                )
        except NOT_OPENED as error:
            raise self._failed(place, error) from error

    def _closed(self, closed: AIOKafkaConnection, reason: CloseReason | None) -> None:
        """Told once of each; one that never came to use says nothing new of the cluster."""
        was_in_use = any(closed is each for known in self._known.values() for each in known.lanes.values())
        if reason is CloseReason.CONNECTION_BROKEN and was_in_use:
            self._lost()

    def _failed(self, place: Place, error: Exception) -> UpstreamError:
        """What one of NOT_OPENED comes to."""
        if isinstance(error, ssl.SSLCertVerificationError):
            why = f"{error.verify_message}{where_trust_is_set(error)}"
            return UpstreamRefused(f"the certificate of the broker at {place}: {why}")
        if (tls := tls_failure(error)) is not None:
            reason = (tls.reason or str(tls)).lower().replace("_", " ")
            if "certificate" in reason and not self._security.presents_certificate:
                reason += "; it may demand a client's certificate, and none is given (ssl.certificate.location)"
            return UpstreamRefused(f"TLS fails with the broker at {place}: {reason}")
        if isinstance(error, IllegalSaslStateError):
            return UpstreamRefused(f"the broker at {place} takes no SASL there: see security.protocol")
        if isinstance(error, UnicodeError):
            return UpstreamRefused(f"{place}: {said(error)}")  # no name of a host
        if is_refusal(error):
            words = refusal(error, user=self._security.sasl_plain_username, presents_certificate=True)
            return UpstreamRefused(f"the broker at {place} does not let us in: {words}")
        if isinstance(error, TimeoutError):
            return UpstreamUnavailable(f"{place} did not answer within {self._opens_within_ms / 1000:g} s")
        if isinstance(error, KafkaConnectionError | ConnectionResetError):
            protocol = self._security.security_protocol
            return UpstreamUnavailable(f"{place} hung up: does it speak {protocol} (security.protocol)?")
        return UpstreamUnavailable(f"{place}: {said(error)}")
