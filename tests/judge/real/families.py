"""The consumer of each family, as in `tests/clients`, with a process's own configuration: its settings, and its member
id.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import confluent_kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AiokafkaRoundRobin
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as KafkaPythonRoundRobin
from py4j.protocol import Py4JJavaError

from tests.clients.consumers import Aiokafka, Confluent, KafkaPython, RunningConsumer
from tests.judge.real.given import Family, Given
from tests.judge.real.java_consumer import ASSIGNORS, JavaConsumer


class ProcessConsumer(RunningConsumer):
    """A consumer as a process has it: in the process's own thread, without the thread of a test's."""

    def __init__(self, given: Given, assigned: Callable[[str, tuple[int, ...]], None]) -> None:
        super().__init__(given.bootstrap, given.group_id, given.topic, instance=given.instance)
        self.OTHER_CONFIG: Mapping[str, Any] = self._config(given)
        self._told_assigned = assigned
        self._more_topics = given.more_topics

    @staticmethod
    def _config(given: Given) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def member_id(self) -> str:
        raise NotImplementedError

    def open(self) -> None:
        self._open()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe these; at its start, more of them."""
        more, self._more_topics = self._more_topics, ()
        super().subscribe((*topics, *more))  # type: ignore[safe-super]  # the library's, which comes behind it

    def poll(self) -> None:
        self._poll()

    def close(self) -> None:
        self._close()

    def stall(self, duration_s: float) -> None:
        """Stop polling; background heartbeats continue."""
        time.sleep(duration_s)

    def unsubscribe(self) -> None:
        """Give the subscription up; until the next one, `rest` takes the place of `poll`."""
        consumer: Any = self
        consumer._consumer.unsubscribe()

    def rest(self, duration_s: float) -> None:
        """Let time pass without a subscription, for which most clients refuse a poll."""
        self.stall(duration_s)

    def enforce(self) -> None:
        """Ask for a rebalance, as Java's application alone can."""
        raise NotImplementedError

    def assign_slowly(self, duration_s: float) -> None:
        """Take this long for each assignment from now on, which only assignors in Python can."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Have done with a consumer that is of no use any more."""

    def _assigned_now(self, partitions: Any) -> None:
        super()._assigned_now(partitions)
        self._told_assigned(self.member_id, tuple(sorted(self.assigned)))


class LibrdkafkaProcess(ProcessConsumer, Confluent):
    """confluent-kafka."""

    @staticmethod
    def _config(given: Given) -> dict[str, Any]:
        named = {} if given.client_id is None else {"client.id": given.client_id}
        return {
            **named,
            "session.timeout.ms": given.session_ms,
            "heartbeat.interval.ms": given.heartbeat_ms,
            "max.poll.interval.ms": given.poll_interval_ms,
            "partition.assignment.strategy": given.assignor,
            "topic.metadata.refresh.interval.ms": 1_000,
        }

    @property
    def member_id(self) -> str:
        return str(self._consumer.memberid())

    def rest(self, duration_s: float) -> None:
        until_s = time.monotonic() + duration_s
        while time.monotonic() < until_s:
            self.poll()


class KafkaPythonProcess(ProcessConsumer, KafkaPython):
    """kafka-python."""

    @staticmethod
    def _config(given: Given) -> dict[str, Any]:
        return _python_config(given, KafkaPythonRange, KafkaPythonRoundRobin)

    @property
    def member_id(self) -> str:
        return str(self._consumer._coordinator._generation.member_id)

    def assign_slowly(self, duration_s: float) -> None:
        _slow_down(KafkaPythonRange, duration_s)


class AiokafkaProcess(ProcessConsumer, Aiokafka):
    """aiokafka."""

    @staticmethod
    def _config(given: Given) -> dict[str, Any]:
        return _python_config(given, AiokafkaRange, AiokafkaRoundRobin)

    @property
    def member_id(self) -> str:
        return str(self._consumer._coordinator.member_id)

    def assign_slowly(self, duration_s: float) -> None:
        _slow_down(AiokafkaRange, duration_s)

    def stall(self, duration_s: float) -> None:
        self._loop.run_until_complete(asyncio.sleep(duration_s))

    def unsubscribe(self) -> None:
        async def within_loop() -> None:  # it begins a task
            self._consumer.unsubscribe()

        self._loop.run_until_complete(within_loop())


class JavaProcess(ProcessConsumer, JavaConsumer):
    """Kafka's own client."""

    @staticmethod
    def _config(given: Given) -> dict[str, Any]:
        named = {} if given.client_id is None else {"client.id": given.client_id}
        return {
            **named,
            "session.timeout.ms": str(given.session_ms),
            "heartbeat.interval.ms": str(given.heartbeat_ms),
            "max.poll.interval.ms": str(given.poll_interval_ms),
            "partition.assignment.strategy": ASSIGNORS[given.assignor],
            "metadata.max.age.ms": "1000",
        }

    @property
    def member_id(self) -> str:
        return self.known[0]

    def enforce(self) -> None:
        self._consumer.enforceRebalance("the application wants it")

    def abandon(self) -> None:
        self.end_machine()


def _slow_down(assignor: Any, duration_s: float) -> None:
    """Have the assignor of this process's only consumer sleep before each assignment."""
    assign = assignor.assign

    def assign_later(*given: Any) -> Any:
        time.sleep(duration_s)
        return assign(*given)

    assignor.assign = assign_later


def _python_config(given: Given, *assignors: Any) -> dict[str, Any]:
    """The settings; `assignors`: the library's classes."""
    named = {} if given.client_id is None else {"client_id": given.client_id}
    return {
        **named,
        "partition_assignment_strategy": tuple(each for each in assignors if each.name == given.assignor),
        "session_timeout_ms": given.session_ms,
        "heartbeat_interval_ms": given.heartbeat_ms,
        "max_poll_interval_ms": given.poll_interval_ms,
        "metadata_max_age_ms": 1_000,
    }


PROCESSES: dict[Family, type[ProcessConsumer]] = {
    Family.LIBRDKAFKA: LibrdkafkaProcess,
    Family.JAVA: JavaProcess,
    Family.KAFKA_PYTHON: KafkaPythonProcess,
    Family.AIOKAFKA: AiokafkaProcess,
}


def is_fenced(error: BaseException) -> bool:
    """Return whether the client stops because another process has its instance id."""
    if isinstance(error, confluent_kafka.KafkaException):
        return bool(
            error.args[0].code() == confluent_kafka.KafkaError._FATAL and "fenced" in error.args[0].str().lower()
        )
    if isinstance(error, Py4JJavaError):
        return "FencedInstanceId" in str(error.java_exception.toString())
    return "FencedInstanceId" in type(error).__name__
