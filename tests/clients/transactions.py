"""A confluent-kafka application that consumes, transforms and produces in transactions, in steps that a test calls.

The application is a member of a group from its first step on. It takes part in rebalances during steps that
consume, since those poll; between two steps its heartbeats continue.

    properties = {"bootstrap.servers": bootstrap}
    with copying(properties, group_id="g", source="in", target="out", transactional_id="t") as app:
        app.transform(3)
        app.send_offsets()
        app.commit()
    assert values(properties, "out") == [b"A", b"B", b"C"]
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

DONE_WITHIN_S: Final = 30
POLL_S: Final = 0.1
SESSION_MS: Final = 20_000
HEARTBEAT_MS: Final = 200


class Copier:
    """See the module. For one thread; each step raises `KafkaException`."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        group_id: str,
        source: str,
        target: str,
        transactional_id: str,
        instance: str | None = None,
    ) -> None:
        self._source, self._target = source, target
        self.assigned: frozenset[int] = frozenset()
        """The partitions of the source that it has now."""
        self._next: dict[int, int] = {}  # the state of the open transaction
        self._producer = Producer({**properties, "transactional.id": transactional_id})
        static = {} if instance is None else {"group.instance.id": instance}
        self._consumer = Consumer(
            {
                **properties,
                **static,
                "group.id": group_id,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        )
        self._producer.init_transactions(DONE_WITHIN_S)
        self._consumer.subscribe([source], on_assign=self._assigned_now, on_revoke=self._revoked_now)

    def transform(self, count: int) -> list[bytes]:
        """Begin a transaction, consume this many records, produce each in upper case, and return them."""
        self._producer.begin_transaction()
        self._next = {}
        consumed: list[bytes] = []
        while len(consumed) < count:
            message = self._polled()
            partition, offset = _place(message)
            value = _value(message)
            consumed.append(value)
            self._next[partition] = offset + 1
            self._producer.produce(self._target, value.upper())
        return consumed

    def poll(self) -> None:
        """Take part in a rebalance if there is one, without consuming."""
        message = self._consumer.poll(POLL_S)
        if message is None:
            return
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        partition, offset = _place(message)
        self._consumer.seek(TopicPartition(self._source, partition, offset))

    def metadata(self) -> bytes:
        """Its current identity in its group: member, instance and generation."""
        who: bytes = self._consumer.consumer_group_metadata()
        return who

    def send_offsets(self, *, metadata: bytes | None = None) -> None:
        """Add the consumed offsets to the transaction, with its current identity, or a former one (`metadata`)."""
        offsets = [TopicPartition(self._source, partition, offset) for partition, offset in self._next.items()]
        who = self.metadata() if metadata is None else metadata
        self._producer.send_offsets_to_transaction(offsets, who, DONE_WITHIN_S)

    def commit(self) -> None:
        """Commit the transaction: its records and offsets become visible together."""
        self._producer.commit_transaction(DONE_WITHIN_S)

    def abort(self) -> None:
        """Abort the transaction; its input will be consumed again."""
        self._producer.abort_transaction(DONE_WITHIN_S)
        for partition in self._next:
            committed = self.committed(partition)
            offset = OFFSET_BEGINNING if committed is None else committed
            self._consumer.seek(TopicPartition(self._source, partition, offset))

    def committed(self, partition: int) -> int | None:
        """The group's offset; while another one's transaction is open, this waits for its end."""
        (position,) = self._consumer.committed([TopicPartition(self._source, partition)], DONE_WITHIN_S)
        if position.error is not None:
            raise KafkaException(position.error)
        return None if position.offset < 0 else int(position.offset)

    def close(self) -> None:
        """Leave the group. An open transaction stays open, as after a crash."""
        self._consumer.close()

    def _polled(self) -> Message:
        deadline = time.monotonic() + DONE_WITHIN_S
        while (message := self._consumer.poll(POLL_S)) is None:
            assert time.monotonic() < deadline, "there was no record"
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        return message

    def _assigned_now(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned = frozenset(each.partition for each in partitions)

    def _revoked_now(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.assigned = frozenset()


@contextmanager
def copying(properties: Mapping[str, Any], **settings: Any) -> Iterator[Copier]:
    """An application that leaves its group at the end of the block. `settings` are those of `Copier`."""
    copier = Copier(properties, **settings)
    try:
        yield copier
    finally:
        copier.close()


def values(properties: Mapping[str, Any], topic: str, *, isolation_level: str = "read_committed") -> list[bytes]:
    """All values that a consumer with this isolation level finds in the topic now, partition by partition."""
    reader = Consumer(
        {
            **properties,
            "group.id": "nobody",
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = sorted(reader.list_topics(topic, DONE_WITHIN_S).topics[topic].partitions)
        read = (value for partition in partitions for value in _read(reader, topic, partition))
        return [value for value in read if value is not None]
    finally:
        reader.close()


def _read(reader: Consumer, topic: str, partition: int) -> Iterator[bytes | None]:
    reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    deadline = time.monotonic() + DONE_WITHIN_S
    while True:
        message = reader.poll(POLL_S)
        assert time.monotonic() < deadline, "the end of the partition was not reached"
        if message is None:
            continue
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            return
        if error is not None:
            raise KafkaException(error)
        yield message.value()


def _place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def _value(message: Message) -> bytes:
    value = message.value()
    assert value is not None
    return value
