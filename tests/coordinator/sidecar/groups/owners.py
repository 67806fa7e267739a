"""Consumers that record when they own which partition, and what they consume: for groups that move.

There are two kinds of processes with one interface, and readers of their records. A process works as if it must not
lose anything: it consumes a batch, commits it, and continues. A partition is owned from its assignment until the
revocation callback is called.
"""

import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import confluent_kafka
import msgspec

from tests.brokers.java_tools import JavaTool, RunningTool, ToolLine, running_tool

RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
ENDS_WITHIN_S = 40


class Interval(msgspec.Struct):
    """The time for which a process owned a partition, by the wall clock in seconds; `until_s` is None while it does."""

    process: str
    partition: int
    since_s: float
    until_s: float | None = None


class Owner(ABC):
    """One process of an application. `offsets`: what it consumed, by partition; `error`: why it stopped."""

    def __init__(self, name: str, bootstrap: str, group_id: str, topic: str) -> None:
        self.name, self.bootstrap, self.group_id, self.topic = name, bootstrap, group_id, topic
        self.intervals: list[Interval] = []
        self.offsets: dict[int, set[int]] = {}
        self.committed: dict[int, int] = {}
        """The highest offset whose commit succeeded."""
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> "Owner":
        self._thread.start()
        return self

    @property
    def owned(self) -> set[int]:
        """The partitions that it has now."""
        return {each.partition for each in list(self.intervals) if each.until_s is None}

    def end(self) -> None:
        """Close it cleanly."""
        self._stop()
        self._thread.join(ENDS_WITHIN_S)
        assert not self._thread.is_alive(), f"{self.name} did not close"
        self._lose(self.owned, time.time())

    def _gain(self, partitions: Iterable[int], at_s: float) -> None:
        self.intervals += [Interval(self.name, partition, at_s) for partition in set(partitions) - self.owned]

    def _lose(self, partitions: Iterable[int], at_s: float) -> None:
        for each in self.intervals:
            if each.until_s is None and each.partition in partitions:
                each.until_s = at_s

    @abstractmethod
    def _run(self) -> None: ...

    @abstractmethod
    def _stop(self) -> None: ...


class ConfluentOwner(Owner):
    """confluent-kafka in a thread. `works_s`: the time that it works on a batch."""

    works_s = 0.0

    def __init__(self, name: str, bootstrap: str, group_id: str, topic: str) -> None:
        super().__init__(name, bootstrap, group_id, topic)
        self._ending = threading.Event()

    def _run(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group_id,
                "session.timeout.ms": 20_000,
                "heartbeat.interval.ms": 300,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "range",
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 250,
                "log_level": 0,
            }
        )

        def taken(_: Any, partitions: Any) -> None:
            self._lose({each.partition for each in partitions}, time.time())

        def given(_: Any, partitions: Any) -> None:
            self._gain((each.partition for each in partitions), time.time())

        consumer.subscribe([self.topic], on_assign=given, on_revoke=taken, on_lost=taken)
        try:
            while not self._ending.is_set():
                self._consume(consumer)
        except confluent_kafka.KafkaException as error:
            self.error = error
        finally:
            consumer.close()

    def _consume(self, consumer: confluent_kafka.Consumer) -> None:
        messages = [each for each in consumer.consume(20, 0.05) if each.error() is None]
        for message in messages:
            self.offsets.setdefault(int(message.partition() or 0), set()).add(int(message.offset() or 0))
        if not messages:
            return
        self._ending.wait(self.works_s)
        try:
            positions = consumer.commit(message=messages[-1], asynchronous=False)
        except confluent_kafka.KafkaException:
            return  # not a member any more: the partition's new owner consumes this again
        for each in positions or ():
            if each.error is None:
                self.committed[each.partition] = max(each.offset, self.committed.get(each.partition, 0))

    def _stop(self) -> None:
        self._ending.set()


class BusyOwner(ConfluentOwner):
    """The same, but it keeps working on its records long after it learned that it is no longer a member."""

    works_s = 1.5


class JavaOwner(Owner):
    """Kafka's VerifiableConsumer, which reports its events, and commits what it consumed."""

    assignor = RANGE

    def __init__(self, name: str, bootstrap: str, group_id: str, topic: str) -> None:
        super().__init__(name, bootstrap, group_id, topic)
        where = ("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group_id)
        how = ("--session-timeout", "20000", "--assignment-strategy", self.assignor, "--verbose")
        self._stack = ExitStack()
        self._tool: RunningTool = self._stack.enter_context(running_tool(JavaTool.VERIFIABLE_CONSUMER, *where, *how))

    def _run(self) -> None:
        while (line := self._tool.next_line(within_s=600)) is not None:
            self._learn(line)

    def _learn(self, line: ToolLine) -> None:
        event = line.event
        partitions = {each["partition"] for each in event.get("partitions", ()) if "partition" in each}
        at_s = event.get("timestamp", 0) / 1000
        match event.get("name"):
            case "partitions_assigned":
                self._gain(partitions, at_s)
            case "partitions_revoked":
                self._lose(partitions, at_s)
            case "record_data":
                self.offsets.setdefault(event["partition"], set()).add(event["offset"])
            case "offsets_committed" if event["success"]:
                for each in event["offsets"]:
                    partition, offset = each["partition"], each["offset"]
                    self.committed[partition] = max(offset, self.committed.get(partition, 0))

    def _stop(self) -> None:
        self._tool.signal(signal.SIGTERM)
        self._thread.join(ENDS_WITHIN_S)
        self._stack.close()


class CooperativeJavaOwner(JavaOwner):
    """The same, with an assignor that lets members keep their partitions."""

    assignor = COOPERATIVE


def overlaps(owners: Iterable[Owner]) -> list[tuple[Interval, Interval]]:
    """Pairs of processes that owned one partition at the same time."""
    intervals = sorted((each for owner in owners for each in owner.intervals), key=lambda each: each.since_s)
    latest: dict[int, Interval] = {}
    found = []
    for each in intervals:
        before = latest.get(each.partition)
        is_another = before is not None and before.process != each.process
        if before is not None and is_another and (before.until_s is None or before.until_s > each.since_s):
            found.append((before, each))
        latest[each.partition] = each
    return found


def consumed(owners: Iterable[Owner]) -> dict[int, set[int]]:
    """All offsets that any process has consumed, by partition."""
    together: dict[int, set[int]] = {}
    for owner in owners:
        for partition, offsets in owner.offsets.items():
            together.setdefault(partition, set()).update(offsets)
    return together


def acknowledged(owners: Iterable[Owner]) -> dict[int, int]:
    """The highest committed offset, by partition."""
    highest: dict[int, int] = {}
    for owner in owners:
        for partition, offset in owner.committed.items():
            highest[partition] = max(offset, highest.get(partition, 0))
    return highest
