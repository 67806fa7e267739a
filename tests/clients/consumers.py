"""A consumer of each client library in its own thread, with a common interface.

It sets up, polls, queries and closes each library.

A consumer's thread polls, like an application, and runs requested calls between polls (libraries only allow one
thread). Heartbeats are frequent, so that a rebalance is noticed soon; sessions are long, so that they do not expire on
a slow machine.
"""

import asyncio
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, Final, TypeVar

import aiokafka
import confluent_kafka
import kafka
import msgspec
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange

SESSION_MS: Final = 20_000
HEARTBEAT_MS: Final = 200
POLL_MS: Final = 50
JOINING_POLL_MS: Final = 1_000
BACKOFF_MS: Final = 50
BACKOFF_MAX_MS: Final = 250
DONE_WITHIN_S: Final = 30

T = TypeVar("T")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A consumed record."""

    partition: int
    offset: int
    value: str


class RunningConsumer(ABC):
    """A consumer that polls, from `start` to `close`. `error` is the reason why it stopped."""

    def __init__(self, bootstrap: str, group_id: str, topic: str, *, instance: str | None = None) -> None:
        self.bootstrap, self.group_id, self.topic, self.instance = bootstrap, group_id, topic, instance
        self.assigned: frozenset[int] = frozenset()
        """The partitions it has now."""
        self.assignments = 0
        """The number of its assignments: one for each rebalance it took part in, none for restarts of others."""
        self.records: list[Record] = []
        """The consumed records, in order."""
        self.error: BaseException | None = None
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{type(self).__name__}-{instance}", daemon=True)

    def start(self) -> "RunningConsumer":
        self._thread.start()
        return self

    def close(self) -> None:
        """Close it cleanly. Raises the error with which it stopped, if any."""
        self.end()
        assert not self._thread.is_alive(), "it did not close"
        assert self.error is None, self.error

    def end(self) -> None:
        """Close it in any state."""
        self._ending.set()
        self._thread.join(DONE_WITHIN_S)

    def commit(self, partition: int, offset: int) -> None:
        """Commit, and wait for the response. Raises the library's errors."""
        self.do(lambda: self._commit(partition, offset))

    def committed(self, partition: int) -> int | None:
        """The group's offset for this partition."""
        return self.do(lambda: self._committed(partition))

    def wants_nothing(self, _since_s: float) -> bool:
        """True if at that monotonic time it can have no rebalance pending that the others do not know of."""
        return True

    def do(self, call: Callable[[], T]) -> T:
        """Call this in its thread between two polls, and return the result."""
        assert self._thread.is_alive(), self.error
        done: Future[T] = Future()
        self._asked.put((call, done))
        return done.result(DONE_WITHIN_S)

    def _run(self) -> None:
        try:
            self._open()
            while not self._ending.is_set():
                self._poll()
                while not self._asked.empty():
                    call, done = self._asked.get()
                    try:
                        done.set_result(call())
                    except Exception as error:  # noqa: BLE001 -- whatever a library raises is the asker's to judge
                        done.set_exception(error)
        except Exception as error:  # noqa: BLE001 -- the thread ends; `close` and `do` tell why
            self.error = error
        self._end()

    def _end(self) -> None:
        """Close the library's consumer, even after an error: otherwise its threads would reconnect until pytest ends.

        kafka-python leaves the socket of each refused connection to the garbage collector, so they add up.
        """
        try:
            self._close()
        except Exception as error:  # noqa: BLE001 -- as above
            self.error = self.error or error

    def _assigned_now(self, partitions: Any) -> None:
        self.assigned = frozenset(each.partition for each in partitions)
        self.assignments += 1

    def _consumed(self, partition: Any, offset: Any, value: Any) -> None:
        self.records.append(Record(partition=partition, offset=offset, value=value.decode()))

    @abstractmethod
    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to these topics instead; called in its own thread."""

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def _poll(self) -> None: ...

    @abstractmethod
    def _commit(self, partition: int, offset: int) -> None: ...

    @abstractmethod
    def _committed(self, partition: int) -> int | None: ...

    @abstractmethod
    def _close(self) -> None: ...


class Confluent(RunningConsumer):
    """confluent-kafka: librdkafka, whose own threads communicate with the coordinator."""

    OTHER_CONFIG: ClassVar[Mapping[str, Any]] = {}
    """The configs that a test changes; None leaves one out."""

    def _open(self) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group_id,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "reconnect.backoff.ms": BACKOFF_MS,
            "reconnect.backoff.max.ms": BACKOFF_MAX_MS,
            "log_level": 0,
        }
        if self.instance is not None:
            config["group.instance.id"] = self.instance
        config |= self.OTHER_CONFIG
        self._consumer = confluent_kafka.Consumer({name: value for name, value in config.items() if value is not None})
        self.subscribe([self.topic])

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(
            list(topics),
            on_assign=lambda _, partitions: self._assigned_now(partitions),
            on_revoke=lambda _consumer, _partitions: None,
        )

    def _poll(self) -> None:
        message = self._consumer.poll(POLL_MS / 1000)
        error = None if message is None else message.error()
        if error is not None and error.code() == confluent_kafka.KafkaError._FATAL:
            raise confluent_kafka.KafkaException(error)
        if message is not None and error is None:
            self._consumed(message.partition(), message.offset(), message.value())

    def _commit(self, partition: int, offset: int) -> None:
        position = confluent_kafka.TopicPartition(self.topic, partition, offset)
        for committed in self._consumer.commit(offsets=[position], asynchronous=False):
            if committed.error is not None:
                raise confluent_kafka.KafkaException(committed.error)

    def _committed(self, partition: int) -> int | None:
        (position,) = self._consumer.committed([confluent_kafka.TopicPartition(self.topic, partition)], DONE_WITHIN_S)
        return None if position.offset < 0 else int(position.offset)

    def _close(self) -> None:
        self._consumer.close()


class KafkaPython(RunningConsumer):
    """kafka-python."""

    OTHER_CONFIG: ClassVar[Mapping[str, Any]] = {}
    """The configs that a test changes."""

    def _open(self) -> None:
        config: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "group_id": self.group_id,
            "group_instance_id": self.instance,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "reconnect_backoff_ms": BACKOFF_MS,
            "reconnect_backoff_max_ms": BACKOFF_MAX_MS,
            "partition_assignment_strategy": (KafkaPythonRange,),
        }
        self._consumer = kafka.KafkaConsumer(**{**config, **self.OTHER_CONFIG})
        self.subscribe([self.topic])
        # Otherwise it may lead before it knows the number of partitions, and rejoin as soon as it does.
        self._consumer.topics()

    def subscribe(self, topics: Sequence[str]) -> None:
        assigned_now = self._assigned_now

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: Any) -> None:
                pass

            def on_partitions_assigned(self, assigned: Any) -> None:
                assigned_now(assigned)

        self._consumer.subscribe(list(topics), listener=Listener())

    def _poll(self) -> None:
        # It rejoins when a poll's time is over before it has processed the SyncGroup response.
        timeout_ms = JOINING_POLL_MS if self._consumer._coordinator.need_rejoin() else POLL_MS
        try:
            polled = self._consumer.poll(timeout_ms=timeout_ms)
        except kafka.errors.KafkaConnectionError:
            return  # it passes on an error that other clients retry
        for records in polled.values():
            for record in records:
                self._consumed(record.partition, record.offset, record.value)

    def wants_nothing(self, since_s: float) -> bool:
        """It rejoins when a heartbeat response from before that reports a rebalance."""
        coordinator = self._consumer._coordinator
        heartbeat = coordinator.heartbeat
        return heartbeat.last_receive > heartbeat.last_send > since_s and not coordinator.need_rejoin()

    def _commit(self, partition: int, offset: int) -> None:
        position = kafka.TopicPartition(self.topic, partition)
        self._consumer.commit({position: kafka.OffsetAndMetadata(offset, "", -1)})

    def _committed(self, partition: int) -> int | None:
        offset: int | None = self._consumer.committed(kafka.TopicPartition(self.topic, partition))
        return offset

    def _close(self) -> None:
        self._consumer.close()


class Aiokafka(RunningConsumer):
    """aiokafka, with an event loop in its thread."""

    OTHER_CONFIG: ClassVar[Mapping[str, Any]] = {}
    """The configs that a test changes."""

    def _open(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._start())

    async def _start(self) -> None:
        config: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "group_id": self.group_id,
            "group_instance_id": self.instance,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "retry_backoff_ms": BACKOFF_MS,
            "partition_assignment_strategy": (AiokafkaRange,),
        }
        self._consumer = aiokafka.AIOKafkaConsumer(**{**config, **self.OTHER_CONFIG})
        self.subscribe([self.topic])
        starting = asyncio.ensure_future(self._consumer.start())
        while not starting.done() and not self._ending.is_set():  # it waits for a missing topic
            await asyncio.wait({starting}, timeout=POLL_MS / 1000)
        if self._ending.is_set():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        else:
            starting.result()

    def subscribe(self, topics: Sequence[str]) -> None:
        assigned_now = self._assigned_now

        class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: Any) -> None:
                pass

            def on_partitions_assigned(self, assigned: Any) -> None:
                assigned_now(assigned)

        self._consumer.subscribe(list(topics), listener=Listener())

    def _poll(self) -> None:
        for records in self._loop.run_until_complete(self._consumer.getmany(timeout_ms=POLL_MS)).values():
            for record in records:
                self._consumed(record.partition, record.offset, record.value)

    def _commit(self, partition: int, offset: int) -> None:
        self._loop.run_until_complete(self._consumer.commit({aiokafka.TopicPartition(self.topic, partition): offset}))

    def _committed(self, partition: int) -> int | None:
        offset: int | None = self._loop.run_until_complete(
            self._consumer.committed(aiokafka.TopicPartition(self.topic, partition))
        )
        return offset

    def _close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


LIBRARIES: Final[tuple[type[RunningConsumer], ...]] = (Confluent, Aiokafka, KafkaPython)
