"""The connections to a Kafka cluster: requests to the right broker, and what may be tried again.

What belongs here: one aiokafka client, its security, who leads a partition, and the loop that repeats an attempt until
a limit ends. What it must not know: what the requests are for.

How it works: aiokafka's public producer cannot be given a producer id and epoch, so the log speaks to the cluster one
layer below: aiokafka keeps the connections, the metadata and the request structures, and the modules beside this one
fill those in. A *lane* is one connection to each broker: a broker answers the requests of one connection one after
another, so what must not wait for each other goes in different lanes.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from aiokafka.client import AIOKafkaClient
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import ApiVersionRequest
from aiokafka.protocol.api import Request, Response
from aiokafka.structs import TopicPartition
from kio.schema.errors import ErrorCode
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from events.log.base import LogUnavailable
from events.log.kafka_security import KafkaSecurity

T = TypeVar("T")

CLIENT_ID = "muster"
_TRANSACTION = 1
"""The kind of coordinator that FindCoordinator is asked for."""

TRY_AGAIN = frozenset(
    {
        ErrorCode.unknown_server_error,
        ErrorCode.corrupt_message,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.replica_not_available,
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.not_controller,
        ErrorCode.concurrent_transactions,
        ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.throttling_quota_exceeded,
    }
)
"""Answers after which the same request may succeed. Some leave open whether the first one did."""

_TOO_FEW = "fewer replicas are in sync than the topic's min.insync.replicas asks for; are all brokers up?"
_MEANINGS = {ErrorCode.not_enough_replicas: _TOO_FEW, ErrorCode.not_enough_replicas_after_append: _TOO_FEW}
"""What to look for, where Kafka's name of the error does not say it."""

_GUARDED = {
    ErrorCode.topic_authorization_failed: "TOPIC",
    ErrorCode.transactional_id_authorization_failed: "TRANSACTIONAL_ID",
    ErrorCode.cluster_authorization_failed: "CLUSTER",
}


class TryAgain(Exception):
    """An attempt came to nothing, or its outcome is not known; the same again may succeed."""


class KafkaLink:
    """One client of the cluster. Every method but `open` and `close` raises TryAgain when the cluster is not there."""

    def __init__(self, bootstrap_servers: Sequence[str], security: KafkaSecurity, *, request_timeout_ms: int) -> None:
        self.bootstrap_servers = [server.strip() for server in bootstrap_servers]
        self.request_timeout_ms = request_timeout_ms
        self._security = security
        self._opened: AIOKafkaClient | None = None

    async def open(self) -> None:
        """Find the cluster. Raises LogUnavailable."""
        self._opened = AIOKafkaClient(
            bootstrap_servers=self.bootstrap_servers,
            client_id=CLIENT_ID,
            request_timeout_ms=self.request_timeout_ms,
            **self._security.client_arguments(),
        )
        try:
            await self._client.bootstrap()
        except KafkaError as error:
            await self.close()
            reason = await self._why_not() or str(error)
            raise LogUnavailable(f"no broker answers at {','.join(self.bootstrap_servers)}: {reason}") from error

    async def _why_not(self) -> str | None:
        """What is wrong with the first server, which aiokafka's client keeps to itself; None: nothing any more."""
        host, _, port = self.bootstrap_servers[0].rpartition(":")
        try:
            connection = await create_conn(
                host.strip("[]"),
                int(port),
                client_id=CLIENT_ID,
                request_timeout_ms=self.request_timeout_ms,
                **self._security.client_arguments(),
            )
        except (KafkaError, OSError) as error:  # OSError: time-outs and whatever is wrong with certificates, too
            return str(error) or repr(error)
        connection.close()
        return None

    async def close(self) -> None:
        client, self._opened = self._opened, None
        if client is not None:
            await client.close()

    @property
    def _client(self) -> AIOKafkaClient:
        if self._opened is None:
            raise LogUnavailable("the log is closed")
        return self._opened

    def brokers(self) -> list[int]:
        """The node ids of the live brokers, in order."""
        return sorted(broker.nodeId for broker in self._client.cluster.brokers())

    async def versions(self, node_id: int) -> dict[int, tuple[int, int]]:
        """The first and the last version of each API that the broker offers, by API key."""
        response = await self.ask(node_id, ApiVersionRequest())
        return {key: (first, last) for key, first, last in response.api_versions}

    async def follow(self, topics: Iterable[str]) -> None:
        """Keep the leaders of these topics' partitions known.

        The topics must exist: asking for a missing one would create it on a cluster that creates topics by itself.
        """
        await self._client.set_topics(topics)

    async def ask(self, node_id: int, request: Request, *, lane: Hashable = 0) -> Response:
        """One request to one broker, and its response as aiokafka decodes it."""
        try:
            return await self._client.send(node_id, request, group=lane)
        except KafkaError as error:
            self._client.force_metadata_update()
            raise TryAgain(f"broker {node_id}: {error!r}") from error

    async def ask_any(self, request: Request) -> Response:
        """One request to whichever broker is there."""
        node_id = self._client.get_random_node()
        if node_id is None:
            raise TryAgain("no broker is known")
        return await self.ask(node_id, request)

    async def ask_leader(self, topic: str, partition: int, request: Request, *, lane: Hashable) -> Response:
        """One request to the partition's leader."""
        leader = self._client.cluster.leader_for_partition(TopicPartition(topic, partition))
        if leader is None or leader < 0:
            self._client.force_metadata_update()
            raise TryAgain(f"partition {partition} of {topic} has no leader")
        return await self.ask(leader, request, lane=lane)

    async def ask_transaction_coordinator(self, transactional_id: str, request: Request) -> Response:
        """One request to the coordinator of a transactional.id. Raises LogUnavailable when it may not be looked up."""
        try:
            node_id = await self._client.coordinator_lookup(_TRANSACTION, transactional_id)
        except KafkaError as error:
            if error.errno is not None and (code := self.settled(error.errno, f"looking up {transactional_id}")):
                raise LogUnavailable(f"the coordinator of {transactional_id}: {named(code, 'WRITE')}") from error
            raise TryAgain(f"the coordinator of {transactional_id}: {error!r}") from error
        return await self.ask(node_id, request)

    def settled(self, code: int, what: str) -> ErrorCode:
        """The error of an answer that will not change by itself; TryAgain is raised for the others."""
        try:
            error = ErrorCode(code)
        except ValueError:  # from a newer broker; its meaning is not known, and so neither is the outcome
            error = ErrorCode.unknown_server_error
        if error in TRY_AGAIN:
            self._client.force_metadata_update()
            meaning = f": {_MEANINGS[error]}" if error in _MEANINGS else ""
            raise TryAgain(f"{what}: {error.name.upper()} ({code}){meaning}")
        return error


def named(error: ErrorCode, operation: str) -> str:
    """Kafka's name of an error, and the missing right, if that is what it says of `operation`."""
    name, resource = error.name.upper(), _GUARDED.get(error)
    if resource is None:
        return name
    return f"{name}: Muster's own principal lacks the ACL Allow {operation} on this {resource}"


async def retried(attempt: Callable[[], Awaitable[T]], *, limit_ms: int) -> T:
    """What `attempt` returns, once it does so without TryAgain. Raises LogUnavailable when the limit ends first.

    The pauses are random, up to 20 ms at first and 1 s later: a new leader is there within tens of milliseconds, or
    not for long.
    """
    reason = "no answer"

    async def attempt_again() -> T:
        nonlocal reason
        try:
            return await attempt()
        except TryAgain as error:
            reason = str(error)
            raise

    try:
        async with asyncio.timeout(limit_ms / 1000):
            # Nearly every first attempt succeeds, and the machinery for more would take a fifth of an append's time.
            with contextlib.suppress(TryAgain):
                return await attempt_again()
            return await AsyncRetrying(
                retry=retry_if_exception_type(TryAgain),
                wait=wait_random_exponential(multiplier=0.02, max=1.0),
            )(attempt_again)
    except TimeoutError as error:
        raise LogUnavailable(f"given up after {limit_ms} ms: {reason}") from error
