"""A small simulated Kafka cluster for the log's own requests, and its faults.

It has brokers, topics and leaders, and handles Produce, Fetch and the others as far as the log can see. It has no
replicas; appends are durable at once, unless a test sets the high watermark.

    hang        a broker accepts connections and requests, and never responds: SIGSTOP, or a dead disk
    stop        its port is closed, and its connections are reset: the process is dead
    fail_over   the others have noticed: its partitions have other leaders, and Metadata omits it
"""

import asyncio
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from datetime import timedelta
from io import BytesIO
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid4

from aiokafka.protocol import admin, coordination, fetch, offset, produce, transaction  # noqa: TID251 -- written by another library than ours
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v10 import response as metadata_v10
from kio.schema.metadata.v10.request import MetadataRequest
from kio.schema.response_header.v1.header import ResponseHeader
from kio.serial import entity_reader, entity_writer

from tests.faults.network import Connection, NetworkLoop

HOST = "broker"
PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR, API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID, CONFIGS = (
    0, 1, 2, 3, 10, 18, 19, 22, 32,
)  # fmt: skip
_REQUESTS: dict[int, Any] = {
    PRODUCE: produce.ProduceRequest_v7,
    FETCH: fetch.FetchRequest_v11,
    LIST_OFFSETS: offset.OffsetRequest_v1,
    FIND_COORDINATOR: coordination.FindCoordinatorRequest_v1,
    API_VERSIONS: admin.ApiVersionRequest_v0,
    CREATE_TOPICS: admin.CreateTopicsRequest_v2,
    INIT_PRODUCER_ID: transaction.InitProducerIdRequest_v0,
    CONFIGS: admin.DescribeConfigsRequest_v1,
}
metadata: Any = metadata_v10
_ZERO = timedelta(0)
_HEADER = struct.Struct(">hhi")
_EARLIEST = -2
_TOPIC = 2
_GROUP = 32
_NOBODY = -1
PRODUCER_ID_EXPIRATION_MS = 240_000
"""So that claims are renewed each minute."""
TRANSACTION_TIMEOUT_MS_MAX = 900_000
"""Kafka's default of transaction.max.timeout.ms."""


class _Partition:
    """One partition's batches as (base offset, offset after it, bytes), and what it knows of its producers."""

    fences = True
    """True if batches of an older epoch are refused, as brokers do."""

    def __init__(self, leader: int) -> None:
        self.leader, self.leader_epoch = leader, 0
        self.batches: list[tuple[int, int, bytes]] = []
        self.producers: dict[int, tuple[int, int, int, int]] = {}
        """Epoch, sequence of the last batch, of the next one, and the last one's base offset, by producer id."""
        self.high_watermark: int | None = None
        """The one of a leader that was just elected, and knows no later one yet; None: the end."""

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else 0

    @property
    def known_end(self) -> int:
        return self.end if self.high_watermark is None else self.high_watermark

    def append(self, batch: bytes) -> tuple[ErrorCode, int]:
        """Like brokers with plain idempotent batches, and with those of producers without an id."""
        producer_id, epoch, sequence = struct.unpack_from(">qhi", batch, 43)
        (last_delta,) = struct.unpack_from(">i", batch, 23)
        known = self.producers.get(producer_id)
        base = self.end
        if producer_id == _NOBODY:
            self._store(batch, last_delta)
            return ErrorCode.none, base
        if known and epoch < known[0] and self.fences:
            return ErrorCode.invalid_producer_epoch, -1
        if known and known[:2] == (epoch, sequence):
            return ErrorCode.none, known[3]
        # A producer that is not known may begin anywhere: it may have been forgotten.
        if known and sequence != (known[2] if known[0] == epoch else 0) and self.fences:
            return ErrorCode.out_of_order_sequence_number, -1
        self.producers[producer_id] = (epoch, sequence, (sequence + last_delta + 1) % 2**31, base)
        self._store(batch, last_delta)
        return ErrorCode.none, base

    def _store(self, batch: bytes, last_delta: int) -> None:
        base = self.end
        self.batches.append((base, base + last_delta + 1, struct.pack(">q", base) + batch[8:]))


class _Topic:
    def __init__(self, leaders: list[int], configs: Mapping[str, str]) -> None:
        self.configs = configs
        self.topic_id: UUID = uuid4()
        self.partitions = [_Partition(leader) for leader in leaders]


class FakeBroker:
    """One node: a listener that answers for the cluster, unless it hangs."""

    def __init__(self, cluster: "FakeCluster", node_id: int) -> None:
        self.node_id, self._cluster = node_id, cluster
        self.is_hung = False
        self.connections: list[Connection] = []
        self.silent: set[Connection] = set()
        self._queued: list[tuple[Connection, bytes]] = []

    def accepted(self, connection: Connection) -> None:
        self.connections.append(connection)

    def received(self, connection: Connection, frame: bytes) -> None:
        """Handled now, or, if the broker is paused, when it resumes, even if the sender is gone."""
        if connection in self.silent:
            return
        if self.is_hung:
            self._queued.append((connection, frame))
            return
        api_key, _, correlation_id = _HEADER.unpack_from(frame)
        if api_key in self._cluster.unanswered:
            self.silent.add(connection)  # responses are in order
            return
        answer = self._cluster.handle(self.node_id, api_key, frame)
        if self._cluster.loses(api_key):
            connection.cut()
        else:
            header = ResponseHeader(correlation_id=correlation_id) if api_key == METADATA else None
            connection.answer((_written(header) if header else struct.pack(">i", correlation_id)) + answer)

    def go_on(self) -> None:
        """Handle the requests that have arrived meanwhile."""
        self.is_hung = False
        queued, self._queued = self._queued, []
        for connection, frame in queued:
            self.received(connection, frame)


class FakeCluster:
    """See the module. `asked` counts requests by API key."""

    def __init__(self, nodes: int = 1) -> None:
        self.brokers = {node: FakeBroker(self, node) for node in range(1, nodes + 1)}
        self.alive = set(self.brokers)
        self.topics: dict[str, _Topic] = {}
        self.may_not_describe: set[str] = set()
        """Topics, whether they exist or not."""
        self.cluster_id = "fake"
        self.coordinator = 1
        self.group_configs: dict[str, str] = {}
        self.produce_error: ErrorCode | None = None
        """The error that answers each Produce, which stores nothing then; None: as a broker does."""
        self.unanswered: set[int] = set()
        """The API keys of requests that are never handled, as if their threads or a controller hang."""
        self.asked: Counter[int] = Counter()
        self.fetched: Counter[str] = Counter()
        """Records that were sent out by Fetch, by topic."""
        self.acks: defaultdict[str, set[int]] = defaultdict(set)
        """The acks of Produce requests, by topic: -1 waits for all replicas in sync."""
        self._epochs: dict[str, int] = {}
        self._lost: Counter[int] = Counter()
        self._loop = asyncio.get_running_loop()
        assert isinstance(self._loop, NetworkLoop)
        for node in self.brokers:
            self.start(node)

    @property
    def bootstrap(self) -> list[str]:
        return [f"{HOST}:{node}" for node in self.brokers]

    def partition(self, topic: str, number: int) -> _Partition:
        return self.topics[topic].partitions[number]

    # ---- faults ----------------------------------------------------------------------------------------

    def hang(self, node: int) -> None:
        self.brokers[node].is_hung = True

    def go_on(self, node: int) -> None:
        self.brokers[node].go_on()

    def stop(self, node: int) -> None:
        assert isinstance(self._loop, NetworkLoop)
        del self._loop.listeners[HOST, node]
        for connection in self.brokers[node].connections:
            connection.cut()
        self.brokers[node].connections.clear()

    def start(self, node: int) -> None:
        assert isinstance(self._loop, NetworkLoop)
        self._loop.listeners[HOST, node] = self.brokers[node]
        self.alive.add(node)

    def drop_packets(self, node: int) -> None:
        """Drop the packets of open connections, as a router that has forgotten them. New connections are well."""
        self.brokers[node].silent.update(self.brokers[node].connections)

    def fail_over(self, node: int) -> None:
        self.alive.discard(node)
        others = sorted(self.alive)
        for topic in self.topics.values():
            for number, partition in enumerate(topic.partitions):
                if partition.leader == node:
                    partition.leader = others[number % len(others)]
                    partition.leader_epoch += 1
        if self.coordinator == node:
            self.coordinator = others[0]

    def lose_answers(self, api_key: int, count: int) -> None:
        """Handle requests, and reset the connection instead of responding."""
        self._lost[api_key] = count

    def delete(self, topic: str) -> None:
        del self.topics[topic]

    def create(self, topic: str, partitions: int, configs: Mapping[str, str] = MappingProxyType({})) -> None:
        nodes = sorted(self.alive)
        self.topics[topic] = _Topic([nodes[number % len(nodes)] for number in range(partitions)], configs)

    def recreate(self, topic: str) -> None:
        """Delete the topic and create it again, with the same number of partitions."""
        was = self.topics.pop(topic)
        self.create(topic, len(was.partitions), was.configs)

    def add_partition(self, topic: str) -> None:
        self.topics[topic].partitions.append(_Partition(min(self.alive)))

    def loses(self, api_key: int) -> bool:
        if not self._lost[api_key]:
            return False
        self._lost[api_key] -= 1
        return True

    # ---- requests --------------------------------------------------------------------------------------

    def handle(self, node: int, api_key: int, frame: bytes) -> bytes:
        """Return the response's bytes after the correlation id."""
        self.asked[api_key] += 1
        if api_key == METADATA:
            return self._metadata(frame)
        (client_id_length,) = struct.unpack_from(">h", frame, _HEADER.size)
        request = _REQUESTS[api_key].decode(BytesIO(frame[_HEADER.size + 2 + max(0, client_id_length) :]))
        handlers: dict[int, Callable[[int, Any], Any]] = {
            PRODUCE: self._produce,
            FETCH: self._fetch,
            LIST_OFFSETS: self._list_offsets,
            FIND_COORDINATOR: lambda *_: coordination.FindCoordinatorResponse_v1(
                0, 0, None, self.coordinator, HOST, self.coordinator
            ),
            API_VERSIONS: lambda *_: admin.ApiVersionResponse_v0(
                0, [(key, each.API_VERSION, each.API_VERSION) for key, each in _REQUESTS.items()] + [(METADATA, 4, 10)]
            ),
            CREATE_TOPICS: self._create_topics,
            INIT_PRODUCER_ID: self._init_producer_id,
            CONFIGS: self._configs,
        }
        answer: bytes = handlers[api_key](node, request).encode()
        return answer

    def _metadata(self, frame: bytes) -> bytes:
        _, at = entity_reader(MetadataRequest.__header_schema__)(frame, 0)
        request, _ = entity_reader(MetadataRequest)(frame, at)
        names = [str(wanted.name) for wanted in request.topics or ()]
        for name in names:
            if name not in self.topics and request.allow_auto_topic_creation:
                self.create(name, 1)
        brokers = tuple(metadata.MetadataResponseBroker(node_id=n, host=HOST, port=n) for n in sorted(self.alive))
        topics = tuple(self._topic_metadata(name) for name in names)
        return _written(
            metadata.MetadataResponse(
                throttle_time=_ZERO,
                brokers=brokers,
                cluster_id=self.cluster_id,
                controller_id=min(self.alive),
                topics=topics,
            )
        )

    def _topic_metadata(self, name: str) -> Any:
        topic = self.topics.get(name)
        if topic is None or name in self.may_not_describe:
            error = ErrorCode.unknown_topic_or_partition
            if name in self.may_not_describe:
                error = ErrorCode.topic_authorization_failed
            return metadata.MetadataResponseTopic(error_code=error, name=name, topic_id=None, partitions=())
        partitions = tuple(
            metadata.MetadataResponsePartition(
                error_code=ErrorCode.none,
                partition_index=number,
                leader_id=each.leader,
                leader_epoch=each.leader_epoch,
                replica_nodes=tuple(self.brokers),
            )
            for number, each in enumerate(topic.partitions)
        )
        return metadata.MetadataResponseTopic(
            error_code=ErrorCode.none, name=name, topic_id=topic.topic_id, partitions=partitions
        )

    def _led(self, node: int, topic: str, number: int) -> tuple[ErrorCode, _Partition | None]:
        if topic not in self.topics:
            return ErrorCode.unknown_topic_or_partition, None
        partition = self.partition(topic, number)
        return (ErrorCode.none, partition) if partition.leader == node else (ErrorCode.not_leader_or_follower, None)

    def _produce(self, node: int, request: Any) -> Any:
        ((topic, batches),) = request.topics
        self.acks[topic].add(request.required_acks)
        answers = [(number, *self._appended(node, topic, number, batch), -1, 0) for number, batch in batches]
        return produce.ProduceResponse_v7([(topic, answers)], 0)

    def _appended(self, node: int, topic: str, number: int, batch: bytes) -> tuple[int, int]:
        error, partition = self._led(node, topic, number)
        base = -1
        if self.produce_error is not None:
            error = self.produce_error
        elif partition is not None:
            error, base = partition.append(batch)
        return error.value, base

    def _fetch(self, node: int, request: Any) -> Any:
        ((topic, ((number, _, position, *_),)),) = request.topics
        error, partition = self._led(node, topic, number)
        end, batches = -1, b""
        if partition is not None:
            end = partition.known_end
            if position > partition.end:
                error = ErrorCode.offset_out_of_range
            wanted = [each for each in partition.batches if position < each[1] <= end]
            self.fetched[topic] += sum(after - base for base, after, _ in wanted)
            batches = b"".join(batch for _, _, batch in wanted)
        return fetch.FetchResponse_v11(0, 0, 0, [(topic, [(number, error.value, end, end, 0, [], -1, batches)])])

    def _list_offsets(self, node: int, request: Any) -> Any:
        ((topic, wanted),) = request.topics
        answers = []
        for number, timestamp in wanted:
            error, partition = self._led(node, topic, number)
            found = -1 if partition is None else 0 if timestamp == _EARLIEST else partition.known_end
            answers.append((number, error.value, -1, found))
        return offset.OffsetResponse_v1([(topic, answers)])

    def _create_topics(self, _node: int, request: Any) -> Any:
        ((name, partitions, _, _, configs),) = request.create_topic_requests
        error = ErrorCode.topic_already_exists if name in self.topics else ErrorCode.none
        if error is ErrorCode.none:
            self.create(name, partitions, dict(configs))
        return admin.CreateTopicsResponse_v2(0, [(name, error.value, None)])

    def _init_producer_id(self, node: int, request: Any) -> Any:
        if node != self.coordinator:
            return transaction.InitProducerIdResponse_v0(0, ErrorCode.not_coordinator.value, -1, -1)
        if not 0 < request.transaction_timeout_ms <= TRANSACTION_TIMEOUT_MS_MAX:
            return transaction.InitProducerIdResponse_v0(0, ErrorCode.invalid_transaction_timeout.value, -1, -1)
        name = request.transactional_id
        self._epochs[name] = self._epochs.get(name, -1) + 1
        producer_id = 1_000 + list(self._epochs).index(name)
        return transaction.InitProducerIdResponse_v0(0, 0, producer_id, self._epochs[name])

    def _configs(self, _node: int, request: Any) -> Any:
        ((kind, name, _),) = request.resources
        of_brokers = {"producer.id.expiration.ms": str(PRODUCER_ID_EXPIRATION_MS)}
        of_groups = self.group_configs if kind == _GROUP else of_brokers
        configs = self.topics[name].configs if kind == _TOPIC else of_groups
        entries: list[Any] = [(key, value, False, 0, False, []) for key, value in configs.items()]
        return admin.DescribeConfigsResponse_v1(0, [(0, None, kind, name, entries)])


def _written(entity: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()
