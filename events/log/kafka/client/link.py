"""The connections to the log's cluster.

Sends requests to partition leaders and coordinators, and turns failures into the log's errors. Knows nothing of the
purpose of requests. Connections are in `events/kafka/`, the topics' state is in followed.py, retries are in errors.py.

How it works: aiokafka's public producer cannot be given a producer id and epoch, so the log talks to the cluster one
layer below. When it learns that a leader has moved, the connections to the old one for that partition are closed, so
callers that wait there for a response continue at the new leader.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from copy import copy
from typing import Any, NamedTuple, TypeVar

import msgspec
from kio.schema.errors import ErrorCode

from muster.events.kafka.addresses import BrokerAddress, KnownBrokers, read_address
from muster.events.kafka.connections import OtherCluster
from muster.events.kafka.errors import AnswerLost, LinkError, LinkRefused, TryAgain
from muster.events.kafka.exchange import NotOffered, Preparable
from muster.events.kafka.failures import describe_failure, hung_up, is_refusal, refusal
from muster.events.kafka.link import ClusterLink
from muster.events.kafka.metadata import MetadataQuestion
from muster.events.kafka.requests import find_transaction_coordinator
from muster.events.kafka.security import KAFKA_CONFIG, KafkaSecurity
from muster.events.log.base import LogMismatch, LogUnavailable
from muster.events.log.kafka.client.errors import final_error, refusal_error, retry
from muster.events.log.kafka.client.followed import FollowedTopics

T = TypeVar("T")


class LogAuthenticationFailed(LinkRefused, LogUnavailable):
    """The broker refuses our credentials or certificate, or we refuse the broker's certificate."""


class UnsupportedByBroker(LinkRefused, LogMismatch):
    """The broker does not know a request, or knows it in other versions."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts in ms: those of one connection and of one request are well below `delivery_timeout_ms`."""

    connect_timeout_ms: int = 3_000
    """The time limit for opening and authenticating a connection."""
    request_timeout_ms: int = 5_000
    """The time limit for a response, unless the request has its own below."""
    produce_timeout_ms: int = 10_000
    """The timeout of Produce. The broker gives up after half of it, so that its REQUEST_TIMED_OUT arrives first."""
    fetch_timeout_ms: int = 20_000
    """The timeout of Fetch, whose response may carry a batch of 64 MiB over a slow link."""
    delivery_timeout_ms: int = 30_000
    """The time limit for all attempts of an append, a claim or a read."""
    metadata_max_age_ms: int = 5_000
    """The interval of Metadata requests, within which a leader's move is noticed."""


class PartitionLane(NamedTuple):
    """The lane of one kind of request to a partition's leader; requests on other lanes do not wait for it."""

    kind: str
    topic: str
    partition: int


class KafkaLink(ClusterLink):
    """The link of one log. Every method but `open` and `close` raises TryAgain if the cluster cannot be reached.

    They also raise LogUnavailable if a broker refuses us, and LogMismatch for a topic that is no longer the one that
    was followed, or a broker that lacks a request.
    """

    _view: FollowedTopics

    def __init__(
        self,
        bootstrap_servers: Sequence[str],
        security: KafkaSecurity,
        timeouts: Timeouts,
        known: KnownBrokers | None = None,
    ) -> None:
        """Raises ValueError for a server that is not HOST:PORT."""
        super().__init__(
            [read_address(server.strip()) for server in bootstrap_servers],
            security,
            FollowedTopics(),
            connect_timeout_ms=timeouts.connect_timeout_ms,
            request_timeout_ms=timeouts.request_timeout_ms,
            metadata_max_age_ms=timeouts.metadata_max_age_ms,
            known=known,
        )
        self.timeouts = timeouts
        self._transaction_coordinators: dict[str, int] = {}
        """The node ids of coordinators that were looked up, by transactional id."""

    async def open(self) -> None:
        """Connect to the cluster. Raises LogUnavailable; LogMismatch if credentials or certificates are refused."""
        await self._connections.close()
        self._connections = self._new_connections()
        self._view = FollowedTopics()
        try:
            await self.refresh()
        except LogAuthenticationFailed as error:
            raise LogMismatch(f"no connection to {self._said_at(error)}") from error
        except TryAgain as error:
            raise LogUnavailable(f"no broker answers at {self._said_at(error)}") from error
        self._start_refreshing()

    def _said_at(self, error: Exception) -> str:
        """Format the addresses and the error, without repeating a single address."""
        return f"{self.asked_at}: {str(error).removeprefix(f'{self.asked_at}: ')}"

    def _explained(self, address: BrokerAddress, error: Exception) -> LinkError:
        security = self._security
        wanted = security.wanted(f"{KAFKA_CONFIG} security.protocol=...")
        match error:
            case NotOffered():
                return UnsupportedByBroker(f"the broker at {address} lacks a request that an event log needs: {error}")
            case OtherCluster():
                return TryAgain(str(error))
            case AnswerLost():
                return TryAgain(f"{address}: closed the connection before it answered anything: {wanted}")
        if is_refusal(error):
            user, shows = security.sasl_plain_username, security.presents_certificate
            return LogAuthenticationFailed(f"{address}: {refusal(error, user=user, presents_certificate=shows)}")
        return TryAgain(f"{address}: {f'hung up: {wanted}' if hung_up(error) else describe_failure(error)}")

    # ---- what is known of the cluster ------------------------------------------------------------------

    @property
    def who(self) -> str:
        """Our principal at the brokers, for messages."""
        return self._security.who

    def brokers(self) -> list[int]:
        """Return the node ids of the live brokers, sorted."""
        return sorted(self._view.brokers)

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the node id of the partition's leader; None: none is known, or the topic can no longer be used."""
        return None if topic in self._view.refusals else self._view.leader(topic, partition)

    def leader_said(self, topic: str, partition: int) -> str:
        """Describe the partition's leader for a message."""
        leader = self._view.leader(topic, partition)
        if leader is None:
            return "a partition leader, of which none is known,"
        return self.broker_said(leader)

    def broker_said(self, node_id: int) -> str:
        """Describe a broker with its address for a message."""
        return f"broker {node_id} at {self._view.brokers.get(node_id, 'an address that is not known')}"

    def refusal(self, topic: str) -> LogMismatch | None:
        """Return the reason why a followed topic can no longer be used, or None."""
        return self._view.refusals.get(topic)

    async def follow(self, topics: Iterable[str]) -> None:
        """Follow the leaders of these topics' partitions, and of no others. Raises TryAgain."""
        self._view.follow(list(topics))
        await self.refresh()

    async def metadata(self, topics: Collection[str]) -> Any:  # noqa: ANN401 -- MetadataResponse, in a version
        """Send Metadata for these topics to any broker; it creates none of them."""
        return await self.ask_any(MetadataQuestion(topics))

    async def refresh(self) -> None:
        """Refresh the brokers and leaders now."""
        await self._ask_metadata()

    def _topics(self) -> Collection[str]:
        return self._view.topics

    def _apply_metadata(self, answer: Any) -> None:  # noqa: ANN401 -- MetadataResponse, in a version
        for moved in self._view.learn(answer, asyncio.get_running_loop().time()):
            if moved.was_at is not None:
                self._leave_leader(moved.topic, moved.partition, moved.was_at)

    def _leave_leader(self, topic: str, partition: int, was_at: BrokerAddress) -> None:
        def is_of_partition(lane: Hashable) -> bool:
            return isinstance(lane, PartitionLane) and (lane.topic, lane.partition) == (topic, partition)

        self._connections.hang_up(was_at, is_of_partition)

    # ---- asking ----------------------------------------------------------------------------------------

    async def ask(
        self,
        node_id: int,
        request: Preparable,
        *,
        lane: Hashable = 0,
        timeout_ms: int | None = None,
    ) -> Any:  # noqa: ANN401 -- the response that belongs to it
        """Send a request to one broker. `timeout_ms` overrides the link's request timeout."""
        try:
            return await self.ask_node(node_id, request, lane=lane, timeout_ms=timeout_ms)
        except TryAgain as error:
            self._check_open()
            raise TryAgain(f"broker {node_id}: {error}") from error

    async def ask_while_named(self, node_id: int, attempt: Callable[[], Awaitable[T]], *, timeout_ms: int) -> T | None:
        """Retry `attempt`, which sends this broker a request; None once the cluster no longer lists it, since it ended
        or hangs.

        Raises LogUnavailable after the timeout.
        """

        async def attempt_if_named() -> T | None:
            return await attempt() if node_id in self._view.brokers else None

        return await retry(attempt_if_named, timeout_ms=timeout_ms)

    async def ask_leader(
        self,
        topic: str,
        partition: int,
        request: Preparable,
        *,
        lane: PartitionLane,
        timeout_ms: int | None = None,
    ) -> Any:  # noqa: ANN401 -- the response that belongs to it
        """Send a request to the partition's leader. `timeout_ms` overrides the link's request timeout."""
        self._check_open()
        if self._refreshing is not None and self._refreshing.done():
            self._refreshing.result()  # it ends only by a bug of ours, which must not go unnoticed
        if topic in self._view.refusals:
            raise copy(self._view.refusals[topic])  # a separate error object for each caller
        leader = self._view.leader(topic, partition)
        if leader is None:
            self.refresh_soon()
            raise TryAgain(f"partition {partition} of {topic} has no leader")
        return await self.ask(leader, request, lane=lane, timeout_ms=timeout_ms)

    async def ask_any(self, request: Preparable) -> Any:  # noqa: ANN401 -- the response that belongs to it
        """Send an idempotent request to any broker. Raises LogAuthenticationFailed if all brokers refuse us."""
        try:
            return await super().ask_any(request)
        except TryAgain:
            self._check_open()
            raise

    async def ask_transaction_coordinator(self, transactional_id: str, request: Preparable, *, prefix: str) -> Any:  # noqa: ANN401 -- as above
        """Send a request to the coordinator of a transactional.id. Raises LogUnavailable if we may not look it up.

        `prefix`: the prefix of the ids for which the permission is needed.
        """
        node_id = await self.find_transaction_coordinator(transactional_id, prefix=prefix)
        try:
            response = await self.ask(node_id, request)
        except TryAgain:
            self._transaction_coordinators.pop(transactional_id, None)
            raise
        if response.error_code is not ErrorCode.none:
            self._transaction_coordinators.pop(transactional_id, None)
        return response

    async def find_transaction_coordinator(self, transactional_id: str, *, prefix: str) -> int:
        """Return the node id of the coordinator, which is cached until a request there fails, or its broker is gone.

        Raises like `ask_transaction_coordinator`.
        """
        known = self._transaction_coordinators.get(transactional_id)
        if known is not None and known in self._view.brokers:
            return known
        found = await self.ask_any(find_transaction_coordinator(transactional_id))
        error = self.settled(found.error_code, f"looking up {transactional_id}")
        if error is not ErrorCode.none:
            raise refusal_error("FindCoordinator", error, "WRITE", prefix, who=self.who)
        node_id: int = found.node_id
        self._transaction_coordinators[transactional_id] = node_id
        return node_id

    async def open_lane_of_leader(
        self, topic: str, partition: int, *, lane: PartitionLane, timeout_ms: int | None = None
    ) -> None:
        """Open the connection on which `ask_leader` would send a request; do nothing if no leader is known."""
        leader = self.leader(topic, partition)
        if leader is not None:
            await self.open_lane(leader, lane=lane, timeout_ms=timeout_ms)

    async def open_lane(self, node_id: int, *, lane: Hashable = 0, timeout_ms: int | None = None) -> None:
        """Open the connection on which `ask` would send a request; do nothing if the broker is unknown."""
        address = self._view.brokers.get(node_id)
        if address is not None:
            await self._connections.open(address, lane=lane, timeout_ms=timeout_ms or self._request_timeout_ms)

    def settled(self, error: ErrorCode, what: str) -> ErrorCode:
        """Return the error of a response, unless it is retriable. Raises TryAgain if it is."""
        try:
            return final_error(error, what)
        except TryAgain:
            self.refresh_soon()
            raise

    def _check_open(self) -> None:
        if self._connections.is_closed:
            raise LogUnavailable("the log is closed")
