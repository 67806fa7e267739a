"""Connections to the brokers of one cluster, opened when they are needed.

What belongs here: sockets, lanes, limits, and what it means when a connection cannot be opened or is lost. What it must
not know: which broker leads or coordinates what, what is asked, and in which words a failure is told.

How it works: aiokafka keeps each connection (security, correlation ids, versions); its client of a whole cluster is not
used, since it opens one connection after another under one lock, lets metadata requests create topics, and keeps to
itself why a broker cannot be reached. A *lane* names one connection to each broker: a broker answers the requests of
one connection one after another, so requests that must not wait for each other go in different lanes. Each connection
is opened in a task of its own, so a broker that hangs delays its own lanes and no others. What is known of an address
is forgotten when nothing is open there and the cluster names it no more: brokers may come back under new ones for ever.

A request without an answer in time closes its connection: whatever came after it would wait behind it. So does an
answer that cannot be read.
"""

import asyncio
from collections.abc import Callable, Collection, Hashable
from contextlib import ExitStack
from typing import Any, Final

import msgspec
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import IncompatibleBrokerVersion, KafkaConnectionError

from muster.events.kafka.addresses import BrokerAddress
from muster.events.kafka.connect import connect
from muster.events.kafka.errors import AnswerLost, LinkError, TryAgain
from muster.events.kafka.exchange import NotOffered, Undecoded, Unreadable
from muster.events.kafka.failures import NOT_OPENED, NOT_SENT, UNANSWERED, said
from muster.events.kafka.metadata import MetadataQuestion
from muster.events.kafka.security import KafkaSecurity

CLIENT_ID: Final = "muster"
CONNECTIONS_MAX_IDLE_MS: Final = 540_000
"""As in Kafka's clients: shorter than the ten minutes after which a broker closes an idle connection."""
OPENING_MAX: Final = 16
"""At a time, to one broker."""
CLOSES_WITHIN_S: Final = 1.0
RECONNECT_BACKOFF_S: Final = 0.1
"""After a failure no other connection to that address is tried for this long: thousands of lanes may ask at once."""

Explain = Callable[[BrokerAddress, Exception], LinkError]
"""The error, and its words, that a failure comes to. It is one of NOT_OPENED but for time-outs, NotOffered,
OtherCluster, or the AnswerLost of a broker that hangs up before anything was answered: a client that has not
authenticated is told the broker's versions, and nothing else.
"""


class OtherCluster(Exception):
    """An address may have been given to a broker of another cluster."""


_Lane = tuple[Hashable, int]
"""And the limit on each of its requests in ms."""


class _Known(msgspec.Struct, kw_only=True, eq=False):
    """What is known of an address. `shut`: until when it is not tried again, and why. `unchecked`: of `lanes`, those
    that were opened before it was known whose brokers are to be spoken to.
    """

    lanes: dict[_Lane, AIOKafkaConnection] = msgspec.field(default_factory=dict)
    unchecked: dict[_Lane, AIOKafkaConnection] = msgspec.field(default_factory=dict)
    opening: dict[_Lane, asyncio.Task[AIOKafkaConnection]] = msgspec.field(default_factory=dict)
    slots: asyncio.Semaphore = msgspec.field(default_factory=lambda: asyncio.Semaphore(OPENING_MAX))
    shut: tuple[float, LinkError] | None = None

    def is_in_use(self) -> bool:
        """Whether a connection is open there, or being opened."""
        return bool(self.opening) or any(connection.connected() for connection in self.lanes.values())


def ignore() -> None:
    """For who does not want to know."""


class Connections:
    """See the module. `security` is asked for its settings at each opening; `lost` is told when a broker hangs up."""

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
        """Whether somebody has ever answered."""
        self.cluster_id: str | None = None
        """Whose brokers these are; who is of another cluster is hung up on. None while that is not known."""

    async def close(self) -> None:
        """Hang up, for good: what is under way ends with TryAgain."""
        self.is_closed = True
        known, self._known = self._known, {}
        opening = [task for each in known.values() for task in each.opening.values()]
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        closing = [connection.close() for each in known.values() for connection in each.lanes.values()]
        if under_way := [closed for closed in closing if closed is not None]:
            await asyncio.wait(under_way, timeout=CLOSES_WITHIN_S)  # what is unsent may never be read

    def forget_others(self, named: Collection[BrokerAddress]) -> None:
        """Keep what is in use, and what the cluster names now."""
        gone = [address for address, known in self._known.items() if address not in named and not known.is_in_use()]
        for address in gone:
            del self._known[address]

    def hang_up(self, address: BrokerAddress, lanes: Callable[[Hashable], bool]) -> None:
        """Close these lanes: what is asked in them ends with TryAgain now, and what comes next does not wait behind."""
        known = self._known.get(address)
        if known is None:
            return
        for (lane, _), connection in known.lanes.items():
            if lanes(lane):
                connection.close()
        for (lane, _), opening in known.opening.items():
            if lanes(lane):
                opening.cancel()

    async def ask(
        self,
        address: BrokerAddress,
        request: Any,  # noqa: ANN401 -- one of aiokafka's requests, or an Exchange
        *,
        lane: Hashable,
        timeout_ms: int,
        sent: Callable[[], None] = ignore,
    ) -> Any:  # noqa: ANN401 -- the response that belongs to it
        """The broker's answer; `sent` is told when the request has left. Raises TryAgain, and what `explain` tells."""
        connection = await self._connection(address, (lane, timeout_ms))
        question = Undecoded(request)
        try:
            answering = connection.send(question)
        except (NotOffered, IncompatibleBrokerVersion, NotImplementedError) as error:
            raise self._explain(address, NotOffered(str(error))) from error
        except NOT_SENT as error:
            connection.close()
            raise TryAgain(f"{address}: {said(error)}") from error
        sent()
        try:
            answer = await question.answer(answering)
        except TimeoutError as error:
            connection.close()
            raise AnswerLost(f"{address} did not answer within {timeout_ms / 1000:g} s") from error
        except Unreadable as error:
            connection.close()
            self.was_answered = True
            raise AnswerLost(f"{address}: {error}") from error
        except UNANSWERED as error:
            connection.close()
            lost: LinkError = AnswerLost(f"{address} did not answer: {said(error)}")
            if isinstance(error, KafkaConnectionError) and not self.was_answered:
                lost = self._explain(address, lost)
            raise lost from error
        self.was_answered = True
        return answer

    async def _connection(self, address: BrokerAddress, lane: _Lane) -> AIOKafkaConnection:
        """The connection, opened once for all who ask for it at the same time."""
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
        await asyncio.wait({opening})  # who waits may be cancelled, and leaves the task to the others
        if opening.cancelled():
            raise TryAgain(f"{address}: our connection was closed before it was open")
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
        """Open, authenticated, and to a broker of this cluster, if that is known."""
        limit_ms = min(self._connect_timeout_ms, lane[1])
        unchecked = known.unchecked.pop(lane, None)
        is_open = unchecked is not None and unchecked.connected()
        try:
            async with asyncio.timeout(limit_ms / 1000):
                connection = unchecked if is_open else await self._opened(address, lane[1])
                with ExitStack() as unless_checked:
                    unless_checked.callback(connection.close)
                    if self.cluster_id is None:
                        known.unchecked[lane] = connection
                    else:
                        await self._check_cluster(address, connection, self.cluster_id)
                    unless_checked.pop_all()
                return connection
        except TimeoutError as error:
            raise TryAgain(f"{address} did not answer within {limit_ms / 1000:g} s") from error
        except Unreadable as error:
            raise TryAgain(f"{address}: {error}") from error
        except (*NOT_OPENED, NotOffered, OtherCluster) as error:
            if is_open and isinstance(error, NOT_OPENED):  # it has let us in before
                raise TryAgain(f"{address}: {said(error)}") from error
            raise self._explain(address, error) from error

    async def _opened(self, address: BrokerAddress, timeout_ms: int) -> AIOKafkaConnection:
        """Raises what is in NOT_OPENED."""
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
        """Raises OtherCluster, Unreadable, and what aiokafka raises."""
        question = Undecoded(MetadataQuestion(()))
        answer = await question.answer(connection.send(question))
        told = getattr(answer, "cluster_id", None) or expected
        if told != expected:
            raise OtherCluster(
                f"{address} is a broker of cluster {told}, where one of {expected} was expected: correct the"
                " address, or restart if the cluster was made anew under it"
            )

    def _closed(self, closed: AIOKafkaConnection, reason: CloseReason | None) -> None:
        """Told once of each; one that never came to use says nothing new of the cluster."""
        was_in_use = any(closed is each for known in self._known.values() for each in known.lanes.values())
        if reason is CloseReason.CONNECTION_BROKEN and was_in_use:
            self._lost()


def _ended(known: _Known, lane: _Lane, task: asyncio.Task[AIOKafkaConnection]) -> None:
    del known.opening[lane]
    if not task.cancelled():
        task.exception()  # also when nobody waits for it any more
