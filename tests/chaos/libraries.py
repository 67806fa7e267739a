"""A group of librdkafka's consumers, and one of Java's, with whatever a client library makes of a fault.

They report what was committed, and what they are assigned; the requests in between they keep to themselves. Keeps them
running and makes them commit; knows nothing of the faults.
"""

import asyncio
import random
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final

import confluent_kafka

from tests.brokers.java_tools import JavaTool, RunningTool, ToolLine, running_tool
from tests.chaos.ledger import Ledger, LibraryCommit, Noticed
from tests.clients.consumers import Confluent

EVERY_S: Final = 1.0
PRODUCE_EVERY_S: Final = 0.5
LIBRDKAFKA: Final = "chaos-librdkafka"
JAVA: Final = "chaos-java"


class Librdkafka:
    """Two consumers that commit each second. Close it in the end."""

    def __init__(
        self, bootstraps: list[str], topic: str, *, partitions: int, ledger: Ledger, now_ms: Callable[[], int]
    ) -> None:
        self._ledger = ledger
        self._now_ms = now_ms
        self._partitions = partitions
        self._offset = 0
        self.served_ms = 0
        """When the last commit was begun that was done."""
        self._consumers = [Confluent(bootstrap, LIBRDKAFKA, topic) for bootstrap in bootstraps[:2]]
        for consumer in self._consumers:
            consumer.start()

    async def live(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            for consumer in self._consumers:
                if consumer.assigned:
                    await self._commit(consumer)
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S):
                    await stopping.wait()

    async def _commit(self, consumer: Confluent) -> None:
        partition, began_ms = min(consumer.assigned), self._now_ms()
        self._offset += 1
        offset = self._offset
        try:
            await asyncio.to_thread(consumer.commit, partition, offset)
        except Exception as error:  # noqa: BLE001 -- whatever a library raises is what an application notices
            reported = str(error.args[0].name()) if isinstance(error, confluent_kafka.KafkaException) else repr(error)
            self._noticed("commit", reported)
            return
        self._ledger.note(
            LibraryCommit(group_id=LIBRDKAFKA, partition=partition, offset=offset, heard_ms=self._now_ms())
        )
        self.served_ms = began_ms

    def is_served_since(self, since_ms: int) -> bool:
        """Return whether each partition belongs to one of them, and both can commit."""
        assigned = [partition for consumer in self._consumers for partition in consumer.assigned]
        return self.served_ms >= since_ms and sorted(assigned) == list(range(self._partitions))

    def failures(self) -> list[str]:
        return [f"{LIBRDKAFKA}: {each.error!r}" for each in self._consumers if each.error is not None]

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.end()

    def _noticed(self, kind: str, error: str) -> None:
        self._ledger.note(
            Noticed(
                kind=kind,
                group_id=LIBRDKAFKA,
                member="librdkafka",
                error=error,
                is_hidden=False,
                heard_ms=self._now_ms(),
            )
        )


class Java:
    """A producer, and a consumer of Java's that commits what it reads. Close it in the end."""

    def __init__(
        self, bootstrap: str, brokers: str, topic: str, *, partitions: int, ledger: Ledger, now_ms: Callable[[], int]
    ) -> None:
        self._ledger = ledger
        self._now_ms = now_ms
        self._topic = topic
        self._partitions = partitions
        self._stack = ExitStack()
        arguments = [
            "--bootstrap-server",
            bootstrap,
            "--topic",
            topic,
            "--group-id",
            JAVA,
            "--reset-policy",
            "earliest",
        ]
        self._tool = self._stack.enter_context(running_tool(JavaTool.VERIFIABLE_CONSUMER, *arguments))
        self._ending = threading.Event()
        self._producer = confluent_kafka.Producer({"bootstrap.servers": brokers, "log_level": 0})
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._produce, self._read)]
        self.served_ms = 0
        """When the last commit that succeeded was reported."""
        self.failed = ""
        for thread in self._threads:
            thread.start()

    def is_served_since(self, since_ms: int) -> bool:
        return self.served_ms >= since_ms

    def failures(self) -> list[str]:
        return [self.failed] if self.failed else []

    def close(self) -> None:
        self._ending.set()
        self._stack.close()
        for thread in self._threads:
            thread.join(10)

    def _produce(self) -> None:
        dice = random.Random(0)
        while not self._ending.wait(PRODUCE_EVERY_S):
            with suppress(BufferError):
                self._producer.produce(self._topic, b"chaos", partition=dice.randrange(self._partitions))
            self._producer.poll(0)

    def _read(self) -> None:
        while (line := _next(self._tool)) is not None:
            event, now_ms = line.event, self._now_ms()
            if event.get("name") != "offsets_committed":
                continue
            if not event["success"]:
                self._ledger.note(
                    Noticed(
                        kind="commit",
                        group_id=JAVA,
                        member="java",
                        error=str(event.get("error", "")),
                        is_hidden=False,
                        heard_ms=now_ms,
                    )
                )
                continue
            for each in event["offsets"]:
                self._ledger.note(
                    LibraryCommit(group_id=JAVA, partition=each["partition"], offset=each["offset"], heard_ms=now_ms)
                )
            self.served_ms = now_ms
        if not self._ending.is_set():
            self.failed = f"{JAVA}: the consumer has ended; {self._tool._report()[-1_000:]}"


def _next(tool: RunningTool) -> ToolLine | None:
    while True:
        with suppress(TimeoutError):
            return tool.next_line(within_s=3_600)
