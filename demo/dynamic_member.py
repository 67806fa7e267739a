"""A dynamic member: aiokafka, without instance id. `python -m demo.dynamic_member BOOTSTRAP GROUP TOPIC CLIENT`

aiokafka leaves the group when it is stopped cleanly; a killed one is removed when its session expires.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Collection

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

from demo.reports import COMMIT_EVERY_S, Assigned, CommitFailed, Committed, Retried, Revoked, tell

SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 300


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Reports the client library's callbacks."""

    def __init__(self) -> None:
        self.mine: tuple[int, ...] = ()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.mine = tuple(sorted(partition.partition for partition in assigned))
        tell(Assigned(partitions=self.mine))

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.mine = ()
        if revoked:
            tell(Revoked(partitions=tuple(sorted(partition.partition for partition in revoked))))


class Retries(logging.Handler):
    """Reports errors that aiokafka retries, which are only in its log."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(Retried(error=record.getMessage()))


async def run(bootstrap: str, group_id: str, topic: str, client_id: str) -> None:
    """Consume and commit until SIGTERM."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    listener = Listener()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group_id,
        client_id=client_id,
        partition_assignment_strategy=(RangePartitionAssignor,),
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    consumer.subscribe([topic], listener=listener)
    await consumer.start()
    try:
        offset = 0
        while not stopped.is_set():
            if listener.mine:
                offset += 1
                await _commit(consumer, TopicPartition(topic, listener.mine[0]), offset)
            await consumer.getmany(timeout_ms=round(COMMIT_EVERY_S * 1000))
    finally:
        await consumer.stop()


async def _commit(consumer: AIOKafkaConsumer, partition: TopicPartition, offset: int) -> None:
    try:
        await consumer.commit({partition: offset})
    except KafkaError as error:
        tell((Retried if error.retriable else CommitFailed)(error=type(error).__name__))
    else:
        tell(Committed())


def main() -> None:
    logger = logging.getLogger("aiokafka")
    logger.setLevel(logging.WARNING)
    logger.addHandler(Retries())
    asyncio.run(run(*sys.argv[1:]))


if __name__ == "__main__":
    main()
