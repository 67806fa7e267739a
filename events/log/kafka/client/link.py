"""The way to the brokers of the log's cluster: each request to the right broker.

What belongs here: who is asked, and keeping the leaders of the followed topics known. What it must not know: what the
requests are for. The connections are in connections.py, what the cluster says of itself is read in
metadata.py, and what is tried again is in errors.py.

How it works: aiokafka's public producer cannot be given a producer id and epoch, so the log speaks to the cluster one
layer below, with aiokafka's request structures. One task asks for Metadata: every few seconds, and at once when a
request has failed. When it learns that a leader has moved, the connections to the old one that were for that partition
are closed, so whoever waits there for an answer goes on at the new leader. A question that any broker can answer is put
to another one too when the first is silent.
"""

import asyncio
import contextlib
import random
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from aiokafka.conn import AIOKafkaConnection
from aiokafka.protocol.admin import ApiVersionRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from kio.schema.errors import ErrorCode

from muster.events.kafka.first_answer import first_answer
from muster.events.kafka.security import KafkaSecurity
from muster.events.log.base import LogError, LogMismatch, LogUnavailable
from muster.events.log.kafka.client.connections import BrokerAddress, KafkaConnections, NotLetIn, Timeouts
from muster.events.log.kafka.client.errors import TryAgain, final_error, refused
from muster.events.log.kafka.client.metadata import ClusterView, MetadataQuestion

METADATA_BACKOFF_S: Final = 0.1
QUESTIONS: Final = "questions"
"""The lane of what any broker may answer."""
_TRANSACTION: Final = 1
"""The kind of coordinator that FindCoordinator is asked for."""


class PartitionLane(NamedTuple):
    """A lane for one kind of requests to the leader of one partition: they wait for each other, for nothing else."""

    kind: str
    topic: str
    partition: int


class KafkaLink:
    """One way to the cluster. Every method but `open` and `close` raises TryAgain when the cluster is not there.

    They raise LogUnavailable too when a broker does not let us in, and LogMismatch for a topic that is no longer the
    one that was followed, or a broker that lacks a request.
    """

    def __init__(self, bootstrap_servers: Sequence[str], security: KafkaSecurity, timeouts: Timeouts) -> None:
        self.bootstrap_servers = [server.strip() for server in bootstrap_servers]
        self.timeouts = timeouts
        self._security = security
        self._connections = self._new_connections()
        self._view = ClusterView()
        self._metadata_wanted = asyncio.Event()
        self._keeping_fresh: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Find the cluster. Raises LogUnavailable; LogMismatch when our credentials or certificates are refused."""
        self._connections = self._new_connections()
        self._view = ClusterView()
        try:
            await self.refresh()
        except NotLetIn as error:
            raise LogMismatch(f"no connection to {self._said_at(error)}") from error
        except TryAgain as error:
            raise LogUnavailable(f"no broker answers at {self._said_at(error)}") from error
        self._keeping_fresh = asyncio.create_task(self._keep_fresh(), name="kafka-metadata")

    def _said_at(self, error: Exception) -> str:
        """The addresses, and why; where there is one, it is said once."""
        servers = ",".join(self.bootstrap_servers)
        return f"{servers}: {str(error).removeprefix(f'{servers}: ')}"

    async def close(self) -> None:
        keeping_fresh, self._keeping_fresh = self._keeping_fresh, None
        if keeping_fresh is not None:
            keeping_fresh.cancel()
            await asyncio.gather(keeping_fresh, return_exceptions=True)
        await self._connections.close()

    def _new_connections(self) -> KafkaConnections:
        return KafkaConnections(
            self._security, connect_timeout_ms=self.timeouts.connect_timeout_ms, check=self._check_cluster
        )

    async def _check_cluster(self, address: BrokerAddress, connection: AIOKafkaConnection) -> None:
        """An address may have been given to a broker of another cluster. Raises TryAgain, and what aiokafka raises."""
        known = self._view.cluster_id
        if known is None:
            return
        answer = await connection.send(MetadataQuestion(()))
        told = getattr(answer, "cluster_id", None) or known
        if told != known:
            raise TryAgain(
                f"{address} is a broker of cluster {told}, where one of {known} was expected: correct the address, or"
                " restart if the cluster was made anew under it"
            )

    # ---- what is known of the cluster ------------------------------------------------------------------

    @property
    def cluster_id(self) -> str | None:
        """As the cluster tells it."""
        return self._view.cluster_id

    @property
    def who(self) -> str:
        """As whom the brokers see us, for people."""
        return self._security.who

    def brokers(self) -> list[int]:
        """The node ids of the live brokers, in order."""
        return sorted(self._view.brokers)

    def leader_said(self, topic: str, partition: int) -> str:
        """The partition's leader, for people."""
        leader = self._view.leader(topic, partition)
        if leader is None:
            return "a partition leader, of which none is known,"
        return f"broker {leader} at {self._view.brokers.get(leader, 'an address that is not known')}"

    def refusal(self, topic: str) -> LogMismatch | None:
        """Why a followed topic can no longer be used."""
        return self._view.refusals.get(topic)

    async def versions(self, node_id: int) -> dict[int, tuple[int, int]]:
        """The first and the last version of each API that the broker offers, by API key."""
        response = await self.ask(node_id, ApiVersionRequest())
        return {key: (first, last) for key, first, last in response.api_versions}

    async def follow(self, topics: Iterable[str]) -> None:
        """Keep the leaders of these topics' partitions known, and of no others. Raises TryAgain."""
        self._view.follow(list(topics))
        await self.refresh()

    async def metadata(self, topics: Collection[str]) -> Any:  # noqa: ANN401 -- MetadataResponse, in a version
        """What one broker says of these topics now; it creates none of them."""
        return await self.ask_any(MetadataQuestion(topics))

    async def refresh(self) -> None:
        """Ask for the brokers and leaders now."""
        answer = await self.metadata(self._view.topics)
        for moved in self._view.learn(answer, asyncio.get_running_loop().time()):
            if moved.was_at is not None:
                self._leave_leader(moved.topic, moved.partition, moved.was_at)

    def _leave_leader(self, topic: str, partition: int, was_at: BrokerAddress) -> None:
        def is_of_partition(lane: Hashable) -> bool:
            return isinstance(lane, PartitionLane) and (lane.topic, lane.partition) == (topic, partition)

        self._connections.drop(was_at, is_of_partition)

    async def _keep_fresh(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.timeouts.metadata_max_age_ms / 1000):
                    await self._metadata_wanted.wait()
            self._metadata_wanted.clear()
            # Whoever needs what is asked for here hears of the failure by an attempt of its own.
            with contextlib.suppress(TryAgain, LogError):
                await self.refresh()
            await asyncio.sleep(METADATA_BACKOFF_S)

    # ---- asking ----------------------------------------------------------------------------------------

    async def ask(
        self,
        node_id: int,
        request: Any,  # noqa: ANN401 -- one of aiokafka's requests, or an Exchange
        *,
        lane: Hashable = 0,
        timeout_ms: int | None = None,
    ) -> Any:  # noqa: ANN401 -- the response that belongs to it
        """One request to one broker. `timeout_ms`: other than the link's for a request."""
        address = self._view.brokers.get(node_id)
        if address is None:
            self._metadata_wanted.set()
            raise TryAgain(f"broker {node_id} is not there")
        try:
            return await self._connections.ask(
                address, request, lane=lane, timeout_ms=timeout_ms or self.timeouts.request_timeout_ms
            )
        except TryAgain as error:
            self._metadata_wanted.set()
            raise TryAgain(f"broker {node_id}: {error}") from error

    async def ask_leader(
        self,
        topic: str,
        partition: int,
        request: Any,  # noqa: ANN401 -- one of aiokafka's requests, or an Exchange
        *,
        lane: PartitionLane,
        timeout_ms: int | None = None,
    ) -> Any:  # noqa: ANN401 -- the response that belongs to it
        """One request to the partition's leader. `timeout_ms`: other than the link's for a request."""
        if self._keeping_fresh is None:
            raise LogUnavailable("the log is closed")
        if self._keeping_fresh.done():
            self._keeping_fresh.result()  # it ends by a bug of ours alone, which must not go by unheard
        if topic in self._view.refusals:
            raise LogMismatch(str(self._view.refusals[topic]))
        leader = self._view.leader(topic, partition)
        if leader is None:
            self._metadata_wanted.set()
            raise TryAgain(f"partition {partition} of {topic} has no leader")
        return await self.ask(leader, request, lane=lane, timeout_ms=timeout_ms)

    async def ask_any(self, request: Any) -> Any:  # noqa: ANN401 -- a request and its response
        """One request that may be made twice, to whichever broker answers first. Raises NotLetIn when none does."""
        known = list(self._view.brokers.values())
        random.shuffle(known)
        timeout_ms = self.timeouts.request_timeout_ms

        async def ask(address: BrokerAddress) -> Any:  # noqa: ANN401 -- the response that belongs to it
            return await self._connections.ask(address, request, lane=QUESTIONS, timeout_ms=timeout_ms)

        asked = await first_answer(dict.fromkeys([*known, *self._bootstrap()]), ask, (TryAgain, NotLetIn))
        if asked.answer is not None:
            return asked.answer[1]
        reasons = "; ".join(dict.fromkeys(map(str, asked.failed)))
        if all(isinstance(each, NotLetIn) for each in asked.failed):
            raise NotLetIn(reasons)
        raise TryAgain(reasons)

    async def ask_transaction_coordinator(self, transactional_id: str, request: Any, *, prefix: str) -> Any:  # noqa: ANN401 -- as above
        """One request to the coordinator of a transactional.id. Raises LogUnavailable when it may not be looked up.

        `prefix`: of the ids for which the right would be needed.
        """
        found = await self.ask_any(FindCoordinatorRequest(transactional_id, _TRANSACTION))
        error = self.settled(found.error_code, f"looking up {transactional_id}")
        if error is not ErrorCode.none:
            raise refused("FindCoordinator", error, "WRITE", prefix, who=self.who)
        return await self.ask(found.coordinator_id, request)

    def settled(self, code: int, what: str) -> ErrorCode:
        """The error of an answer that will not change by itself. Raises TryAgain for the others."""
        try:
            return final_error(code, what)
        except TryAgain:
            self._metadata_wanted.set()
            raise

    def _bootstrap(self) -> list[BrokerAddress]:
        addresses = []
        for server in self.bootstrap_servers:
            host, _, port = server.rpartition(":")
            addresses.append(BrokerAddress(host.strip("[]"), int(port)))
        return addresses
