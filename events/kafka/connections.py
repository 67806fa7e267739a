"""Connections to the brokers of one cluster, opened on demand.

Manages sockets, lanes and limits, and raises the errors of connections that cannot be opened or are lost. Knows nothing
of partition leaders and coordinators, of the requests, or of the wording of failures.

How it works: aiokafka handles each connection (security, correlation ids, versions). Its client for a whole cluster is
not used, since it opens one connection after another under one lock, lets metadata requests create topics, and does not
report why a broker cannot be reached. A *lane* names one connection to each broker: a broker answers the requests of
one connection one after another, so requests that must not wait for each other use different lanes. Each connection is
opened in its own task, so a broker that hangs delays only its own lanes. The state of an address is dropped when
nothing is open there and the cluster no longer names it, since brokers may keep returning under new addresses.

A request that gets no response in time closes its connection, since later requests would wait behind it. So does an
unreadable response.
"""

import asyncio
from collections.abc import Callable, Collection, Hashable
from contextlib import ExitStack
from typing import Any, Final

import msgspec
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError

from muster.events.kafka.addresses import BrokerAddress
from muster.events.kafka.connect import connect
from muster.events.kafka.errors import AnswerLost, LinkError, OwnShortage, TryAgain
from muster.events.kafka.exchange import NotOffered, Preparable, Undecoded, UnreadableAnswer
from muster.events.kafka.failures import NOT_OPENED, NOT_SENT, UNANSWERED, describe_failure
from muster.events.kafka.metadata import MetadataQuestion
from muster.events.kafka.security import KafkaSecurity
from muster.events.kafka.shortage import log_shortage

CLIENT_ID: Final = "muster"
CONNECTIONS_MAX_IDLE_MS: Final = 540_000
"""The default of Kafka's clients: shorter than the ten minutes after which a broker closes an idle connection."""
OPENING_MAX: Final = 16
"""At most this many connections to one broker are opened concurrently."""
CONNECTIONS_CLOSE_TIMEOUT_S: Final = 1.0
RECONNECT_BACKOFF_S: Final = 0.1
"""The pause after a failed connection to an address, since thousands of lanes may ask at once."""

Explain = Callable[[BrokerAddress, Exception], LinkError]
"""Builds the user's error for a failure: one of NOT_OPENED except for timeouts, NotOffered, OtherCluster, or the
AnswerLost of a broker that closes the connection after responding to nothing but ApiVersions, as it does for
unauthenticated clients.
"""


class OtherCluster(Exception):
    """The broker at an address belongs to another cluster."""


_Lane = tuple[Hashable, int]
"""A lane's name, and the timeout of its requests in ms."""


class _Known(msgspec.Struct, kw_only=True, eq=False):
    """The state of an address. `shut`: the end of its backoff, and the failure that caused it.

    `unchecked`: the lanes in `lanes` that were opened before the cluster's id was known.
    """

    lanes: dict[_Lane, AIOKafkaConnection] = msgspec.field(default_factory=dict)
    unchecked: dict[_Lane, AIOKafkaConnection] = msgspec.field(default_factory=dict)
    opening: dict[_Lane, asyncio.Task[AIOKafkaConnection]] = msgspec.field(default_factory=dict)
    slots: asyncio.Semaphore = msgspec.field(default_factory=lambda: asyncio.Semaphore(OPENING_MAX))
    shut: tuple[float, LinkError] | None = None

    def is_in_use(self) -> bool:
        """Return whether a connection is open there, or being opened."""
        return bool(self.opening) or any(connection.connected() for connection in self.lanes.values())


def ignore() -> None:
    """Do nothing: the default callback."""


class Connections:
    """Connections by broker and lane. `security` returns the settings at each opening; each disconnect calls `lost`."""

    def __init__(
        self,
        security: KafkaSecurity,
        *,
        connect_timeout_ms: int,
        explain: Explain,
        lost: Callable[[], None] = ignore,
        client_id: str = CLIENT_ID,
    ) -> None:
        self._security = security
        self._connect_timeout_ms = connect_timeout_ms
        self._explain = explain
        self._lost = lost
        self._client_id = client_id
        self._known: dict[BrokerAddress, _Known] = {}
        self.is_closed = False
        self.was_answered = False
        """True if any broker has ever responded."""
        self.cluster_id: str | None = None
        """The cluster's id, None while unknown; connections to brokers of other clusters are closed."""

    async def close(self) -> None:
        """Close all connections for good: requests in flight raise TryAgain."""
        self.is_closed = True
        known, self._known = self._known, {}
        opening = [task for each in known.values() for task in each.opening.values()]
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        closing = [connection.close() for each in known.values() for connection in each.lanes.values()]
        if under_way := [closed for closed in closing if closed is not None]:
            await asyncio.wait(under_way, timeout=CONNECTIONS_CLOSE_TIMEOUT_S)  # unsent data may never be read

    def forget_others(self, named: Collection[BrokerAddress]) -> None:
        """Drop the state of addresses that are not in use, and that the cluster no longer names."""
        gone = [address for address, known in self._known.items() if address not in named and not known.is_in_use()]
        for address in gone:
            del self._known[address]

    def hang_up(self, address: BrokerAddress, lanes: Callable[[Hashable], bool]) -> None:
        """Close these lanes: pending requests raise TryAgain now, and later ones do not wait behind them."""
        known = self._known.get(address)
        if known is None:
            return
        for (lane, _), connection in known.lanes.items():
            if lanes(lane):
                connection.close()
        for (lane, _), opening in known.opening.items():
            if lanes(lane):
                opening.cancel()

    async def open(self, address: BrokerAddress, *, lane: Hashable, timeout_ms: int) -> None:
        """Open the lane, unless it is open, for a request that must not wait for it. Raises like `ask`."""
        await self._connection(address, (lane, timeout_ms))

    async def ask(
        self,
        address: BrokerAddress,
        request: Preparable,
        *,
        lane: Hashable,
        timeout_ms: int,
        sent: Callable[[], None] = ignore,
    ) -> Any:  # noqa: ANN401 -- the response that belongs to it
        """Send a request and return its response; `sent` is called once it is sent. Raises TryAgain, and the errors
        that `explain` makes.
        """
        connection = await self._connection(address, (lane, timeout_ms))
        question = Undecoded(request)
        try:
            answering = connection.send(question)
        except NotOffered as error:
            raise self._explain(address, error) from error
        except NOT_SENT as error:
            connection.close()
            raise TryAgain(f"{address}: {describe_failure(error)}") from error
        sent()
        try:
            answer = await question.answer(answering)
        except TimeoutError as error:
            connection.close()
            raise AnswerLost(f"{address} did not answer within {timeout_ms / 1000:g} s") from error
        except UnreadableAnswer as error:
            connection.close()
            self.was_answered = True
            raise AnswerLost(f"{address}: {error}") from error
        except UNANSWERED as error:
            connection.close()
            lost: LinkError = AnswerLost(f"{address} did not answer: {describe_failure(error)}")
            if isinstance(error, KafkaConnectionError) and not self.was_answered:
                lost = self._explain(address, lost)
            raise lost from error
        self.was_answered = True
        return answer

    async def _connection(self, address: BrokerAddress, lane: _Lane) -> AIOKafkaConnection:
        """Return the lane's connection, opened once for concurrent callers."""
        if self.is_closed:
            raise TryAgain(f"{address}: our connections to the cluster are closed")
        known = self._known.get(address) or self._known.setdefault(address, _Known())
        connection = known.lanes.get(lane)
        is_checked = self.cluster_id is None or lane not in known.unchecked
        if connection is not None and connection.connected() and is_checked:
            return connection
        opening = known.opening.get(lane)
        if opening is None:
            opening = known.opening[lane] = asyncio.create_task(
                self._open(address, known, lane), name=f"connect-{address}"
            )
            opening.add_done_callback(lambda task: _ended(known, lane, task))
        await asyncio.wait({opening})  # if a waiting caller is cancelled, the task continues for the others
        if opening.cancelled():
            raise TryAgain(f"{address}: our connection was closed before it was established")
        return opening.result()

    async def _open(self, address: BrokerAddress, known: _Known, lane: _Lane) -> AIOKafkaConnection:
        async with known.slots:
            until, failure = known.shut or (0.0, None)
            loop = asyncio.get_running_loop()
            if failure is not None and loop.time() < until:
                raise type(failure)(str(failure)) from failure.__cause__
            try:
                connection = known.lanes[lane] = await self._connected(address, known, lane)
            except LinkError as failed:
                known.shut = loop.time() + RECONNECT_BACKOFF_S, failed
                raise
            return connection

    async def _connected(self, address: BrokerAddress, known: _Known, lane: _Lane) -> AIOKafkaConnection:
        """Open and authenticate a connection to a broker of this cluster, if that is known."""
        timeout_ms = min(self._connect_timeout_ms, lane[1])
        unchecked = known.unchecked.pop(lane, None)
        reuses = unchecked is not None and unchecked.connected()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connection = unchecked if reuses else await self._opened(address, lane[1])
                with ExitStack() as unless_checked:
                    unless_checked.callback(connection.close)
                    if self.cluster_id is None:
                        known.unchecked[lane] = connection
                    else:
                        await self._check_cluster(address, connection, self.cluster_id)
                    unless_checked.pop_all()
                return connection
        except TimeoutError as error:
            raise TryAgain(f"{address} did not answer within {timeout_ms / 1000:g} s") from error
        except UnreadableAnswer as error:
            raise TryAgain(f"{address}: {error}") from error
        except (*NOT_OPENED, NotOffered, OtherCluster) as error:
            if (ours := log_shortage(str(address), error)) is not None:
                raise OwnShortage(f"{address}: {ours}") from error
            if reuses and isinstance(error, NOT_OPENED):  # the broker has accepted our credentials before
                raise TryAgain(f"{address}: {describe_failure(error)}") from error
            raise self._explain(address, error) from error

    async def _opened(self, address: BrokerAddress, timeout_ms: int) -> AIOKafkaConnection:
        """Open and authenticate a connection. Raises the errors in NOT_OPENED."""
        return await connect(
            address.host,
            address.port,
            client_id=self._client_id,
            request_timeout_ms=timeout_ms,
            max_idle_ms=CONNECTIONS_MAX_IDLE_MS,
            on_close=self._closed,
            **self._security.client_arguments(),
        )

    async def _check_cluster(self, address: BrokerAddress, connection: AIOKafkaConnection, expected: str) -> None:
        """Check the broker's cluster id. Raises OtherCluster, UnreadableAnswer, and aiokafka's errors."""
        question = Undecoded(MetadataQuestion(()))
        answer = await question.answer(connection.send(question))
        found = getattr(answer, "cluster_id", None) or expected
        if found != expected:
            raise OtherCluster(
                f"{address} is a broker of cluster {found}, and cluster {expected} was expected: correct"
                " the address, or restart if the cluster was recreated at it"
            )

    def _closed(self, closed: AIOKafkaConnection, reason: CloseReason | None) -> None:
        """Report the loss of a connection, once, unless it was never in use."""
        was_in_use = any(closed is each for known in self._known.values() for each in known.lanes.values())
        if reason is CloseReason.CONNECTION_BROKEN and was_in_use:
            self._lost()


def _ended(known: _Known, lane: _Lane, task: asyncio.Task[AIOKafkaConnection]) -> None:
    del known.opening[lane]
    if not task.cancelled():
        task.exception()  # mark it as retrieved, even if no caller is waiting
