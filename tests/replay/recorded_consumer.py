"""A consumer process for `record_clients.py`: `python -m tests.replay.recorded_consumer LIBRARY BOOTSTRAP GROUP NAME`.

It polls until SIGTERM and then closes its consumer. After SIGUSR1 it does not poll for `STALL_S`, which is longer than
its max.poll.interval.ms. `NAME` is its client id.
"""

import asyncio
import signal
import sys
import time
from typing import Final

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange

TOPIC: Final = "orders"
SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 1_000
POLL_INTERVAL_MS: Final = 8_000
STALL_S: Final = 14.0
POLL_S: Final = 0.1


class Signals:
    """The signals that it received."""

    def __init__(self) -> None:
        self.ends = False
        self.stalls = False
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGUSR1, self._stall)

    def _end(self, *_: object) -> None:
        self.ends = True

    def _stall(self, *_: object) -> None:
        self.stalls = True

    def stall(self) -> bool:
        """Return whether it should stall, once."""
        stalls, self.stalls = self.stalls, False
        return stalls


def run_librdkafka(bootstrap: str, group: str, name: str, signals: Signals) -> None:
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": name,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "max.poll.interval.ms": POLL_INTERVAL_MS,
        "enable.auto.commit": False,
        "partition.assignment.strategy": "range",
        "log_level": 0,
    }
    consumer = confluent_kafka.Consumer(config)
    consumer.subscribe([TOPIC])
    while not signals.ends:
        consumer.poll(POLL_S)
        if signals.stall():
            time.sleep(STALL_S)
    consumer.close()


def run_kafka_python(bootstrap: str, group: str, name: str, signals: Signals) -> None:
    consumer = kafka.KafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id=name,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=POLL_INTERVAL_MS,
        enable_auto_commit=False,
        partition_assignment_strategy=(KafkaPythonRange,),
    )
    while not signals.ends:
        consumer.poll(timeout_ms=int(POLL_S * 1_000))
        if signals.stall():
            time.sleep(STALL_S)
    consumer.close()


async def run_aiokafka(bootstrap: str, group: str, name: str, signals: Signals) -> None:
    consumer = aiokafka.AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id=name,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=POLL_INTERVAL_MS,
        enable_auto_commit=False,
        partition_assignment_strategy=(AiokafkaRange,),
    )
    await consumer.start()
    while not signals.ends:
        await consumer.getmany(timeout_ms=int(POLL_S * 1_000))
        if signals.stall():
            await asyncio.sleep(STALL_S)
    await consumer.stop()


def main() -> None:
    library, bootstrap, group, name = sys.argv[1:]
    signals = Signals()
    if library == "aiokafka":
        asyncio.run(run_aiokafka(bootstrap, group, name, signals))
    elif library == "kafka-python":
        run_kafka_python(bootstrap, group, name, signals)
    else:
        run_librdkafka(bootstrap, group, name, signals)


if __name__ == "__main__":
    main()
