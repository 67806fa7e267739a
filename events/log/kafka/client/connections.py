"""Connections to the brokers of a cluster, opened when they are needed.

What belongs here: sockets, their security, and what it means when one cannot be opened or is lost. What it must not
know: which broker leads what, and what is asked.

How it works: aiokafka keeps each connection (security, correlation ids, versions); its client of a whole cluster is not
used, since it opens one connection after another under one lock, lets metadata requests create topics, and keeps to
itself why a broker cannot be reached. A *lane* names one connection to each broker: a broker answers the requests of
one connection one after another, so requests that must not wait for each other go in different lanes. Each connection
is opened in a task of its own, so a broker that hangs delays its own lanes and no others.

A request without an answer in time closes its connection: whatever came after it would wait behind it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import ExitStack
from typing import Any, Final

import msgspec
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import IncompatibleBrokerVersion, KafkaConnectionError

from muster.events.kafka.connect import connect
from muster.events.kafka.exchange import NotOffered
from muster.events.kafka.failures import NOT_OPENED, NOT_SENT, UNANSWERED, is_refusal, refusal, said
from muster.events.kafka.security import KAFKA_CONFIG, KafkaSecurity
from muster.events.log.base import LogMismatch, LogUnavailable
from muster.events.log.kafka.client.errors import TryAgain

CLIENT_ID: Final = "muster"
CONNECTIONS_MAX_IDLE_MS: Final = 540_000
"""As in Kafka's clients: shorter than the ten minutes after which a broker closes an idle connection."""
RECONNECT_BACKOFF_S: Final = 0.1
"""After a failure no other connection to that address is tried for this long: many lanes may ask at once."""


class NotLetIn(LogUnavailable):
    """The broker refuses our credentials or our certificate, or we refuse the broker's certificate."""


class BrokerAddress(msgspec.Struct, frozen=True):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long each step may take, in ms: those of one connection and of one request are well inside `delivery`."""

    connect_timeout_ms: int = 3_000
    """Until a connection is open and authenticated."""
    request_timeout_ms: int = 5_000
    """Until a request is answered, unless it has a limit of its own below."""
    produce_timeout_ms: int = 10_000
    """Of Produce. The broker gives up after half of it, so that its REQUEST_TIMED_OUT is heard before."""
    fetch_timeout_ms: int = 20_000
    """Of Fetch, whose answer may carry a batch of 64 MiB over a slow link."""
    delivery_timeout_ms: int = 30_000
    """Until an append, a claim or a read is given up, over all its attempts."""
    metadata_max_age_ms: int = 5_000
    """How long a leader's move may go unnoticed while a request waits for the old one."""


Check = Callable[[BrokerAddress, AIOKafkaConnection], Awaitable[None]]
_Key = tuple[BrokerAddress, Hashable, int]
"""A connection: where to, the lane, and the limit on each of its requests in ms."""


class KafkaConnections:
    """See the module. `security` is asked for its settings at each opening.

    `check` asks a connection that was just opened whether it is one to this cluster; it raises TryAgain.
    """

    def __init__(self, security: KafkaSecurity, *, connect_timeout_ms: int, check: Check) -> None:
        self._security = security
        self._connect_timeout_ms = connect_timeout_ms
        self._check = check
        self._open: dict[_Key, AIOKafkaConnection] = {}
        self._opening: dict[_Key, asyncio.Task[AIOKafkaConnection]] = {}
        self._failures: dict[BrokerAddress, tuple[float, Exception]] = {}
        self._is_closed = False
        self._was_answered = False

    async def close(self) -> None:
        """Hang up; requests under way end with TryAgain, connections being opened with LogUnavailable."""
        self._is_closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        connections, self._open = self._open, {}
        for closed in [connection.close() for connection in connections.values()]:
            if closed is not None:
                await closed

    def drop(self, address: BrokerAddress, lanes: Callable[[Hashable], bool]) -> None:
        """Close the connections in these lanes: their requests end with TryAgain now, not at their time-out."""
        for at, lane, timeout_ms in list(self._open):
            if at == address and lanes(lane):
                self._open.pop((at, lane, timeout_ms)).close()

    async def ask(
        self,
        address: BrokerAddress,
        request: Any,  # noqa: ANN401 -- one of aiokafka's requests, or an Exchange
        *,
        lane: Hashable,
        timeout_ms: int,
    ) -> Any:  # noqa: ANN401 -- the response that belongs to it
        """The broker's answer. Raises TryAgain; LogMismatch when the broker lacks the request; NotLetIn."""
        key = (address, lane, timeout_ms)
        connection = self._open.get(key)
        if connection is None or not connection.connected():
            connection = await self._opened(key)
        try:
            answering = connection.send(request)
        except (NotOffered, IncompatibleBrokerVersion, NotImplementedError) as error:
            raise LogMismatch(f"the broker at {address} lacks a request that an event log needs: {error}") from error
        except NOT_SENT as error:
            connection.close()
            raise TryAgain(f"{address}: {said(error)}") from error
        try:
            answer = await answering
        except TimeoutError as error:
            connection.close()
            raise TryAgain(f"{address} did not answer within {timeout_ms / 1000:g} s") from error
        except UNANSWERED as error:
            connection.close()
            if isinstance(error, KafkaConnectionError) and not self._was_answered:
                # To whom has not authenticated, a broker tells its versions, and nothing else.
                raise TryAgain(f"{address}: hung up before anything was answered: {self._wanted()}") from error
            raise TryAgain(f"{address}: {said(error)}") from error
        except asyncio.CancelledError:
            connection.close()
            raise
        self._was_answered = True
        return answer

    async def _opened(self, key: _Key) -> AIOKafkaConnection:
        """The connection, opened once for all who ask for it at the same time."""
        if self._is_closed:
            raise LogUnavailable("the log is closed")
        opening = self._opening.get(key)
        if opening is None:
            opening = self._opening[key] = asyncio.create_task(self._open_one(key), name=f"connect-{key[0]}")
            opening.add_done_callback(lambda task: self._opening_ended(key, task))
        await asyncio.wait({opening})  # who waits may be cancelled, and leaves the task to the others
        if opening.cancelled():
            raise LogUnavailable("the log is closed")
        return opening.result()

    def _opening_ended(self, key: _Key, task: asyncio.Task[AIOKafkaConnection]) -> None:
        del self._opening[key]
        if not task.cancelled():
            task.exception()  # also when nobody waits for it any more

    async def _open_one(self, key: _Key) -> AIOKafkaConnection:
        address, _, timeout_ms = key
        until, failure = self._failures.get(address, (0.0, None))
        loop = asyncio.get_running_loop()
        if failure is not None and loop.time() < until:
            raise type(failure)(str(failure))
        try:
            connection = await self._connect(address, timeout_ms)
        except (TryAgain, NotLetIn) as failed:
            self._failures[address] = loop.time() + RECONNECT_BACKOFF_S, failed
            raise
        self._failures.pop(address, None)
        self._open = {each: kept for each, kept in self._open.items() if kept.connected()}  # brokers come and go
        self._open[key] = connection
        return connection

    async def _connect(self, address: BrokerAddress, timeout_ms: int) -> AIOKafkaConnection:
        try:
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                connection = await connect(
                    address.host,
                    address.port,
                    client_id=CLIENT_ID,
                    request_timeout_ms=timeout_ms,
                    max_idle_ms=CONNECTIONS_MAX_IDLE_MS,
                    **self._security.client_arguments(),
                )
                with ExitStack() as unless_checked:
                    unless_checked.callback(connection.close)
                    await self._check(address, connection)
                    unless_checked.pop_all()
                return connection
        except TimeoutError as error:
            raise TryAgain(f"{address} did not answer within {self._connect_timeout_ms / 1000:g} s") from error
        except NOT_OPENED as error:
            raise self._not_opened(address, error) from error

    def _not_opened(self, address: BrokerAddress, error: BaseException) -> TryAgain | NotLetIn:
        """What one of NOT_OPENED comes to."""
        security = self._security
        if is_refusal(error):
            user, shows = security.sasl_plain_username, security.presents_certificate
            return NotLetIn(f"{address}: {refusal(error, user=user, presents_certificate=shows)}")
        if isinstance(error, KafkaConnectionError | ConnectionResetError):
            return TryAgain(f"{address}: hung up: {self._wanted()}")
        return TryAgain(f"{address}: {said(error)}")

    def _wanted(self) -> str:
        """What somebody who hangs up may want, for people."""
        protocol = self._security.security_protocol
        if protocol == "PLAINTEXT":
            return f"does it want credentials or TLS ({KAFKA_CONFIG} security.protocol=...)?"
        return f"does it speak {protocol} (security.protocol)?"
