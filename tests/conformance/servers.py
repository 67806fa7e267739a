"""The two servers of a pair: a real Kafka and Muster, with the same settings and the same topics.

It has the pairs, and prepares a server for scripts.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal

import msgspec

from tests.brokers.broker import HOST, Broker, lasting_ports
from tests.conformance.member import TOPICS
from tests.conformance.wire import CHECK_INTERVAL_S, CONDITION_WITHIN_S, Connection, ms
from tests.muster_process import TEST_CONFIG, running_muster

Setup = Literal["usual", "narrow", "expiring"]
"""usual: the broker shared by all tests. narrow: groups of two members at most, and a visible initial delay. expiring:
continuous sweeps, which delete groups that other scripts need.
"""

INITIAL_DELAY_MS: Final = 1_500
NARROW: Final[Mapping[str, str]] = {
    "group.initial.rebalance.delay.ms": str(INITIAL_DELAY_MS),
    "group.max.size": "2",
}
EXPIRING: Final[Mapping[str, str]] = {
    "offsets.retention.check.interval.ms": "200",
    "offsets.retention.minutes": "1",
}


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server under test. `topic_ids` has its topics."""

    is_kafka: bool
    bootstrap: str
    topic_ids: Mapping[str, str]


NODE_ID: Final = 1
"""The node id of the tests' broker."""

Pair = tuple[Server, Server]
"""Kafka, then Muster."""


@contextmanager
def pair_with(broker: Broker, settings: Mapping[str, str]) -> Iterator[Pair]:
    """This broker and a Muster with the same settings, while the block lasts."""
    topics = [f"{topic}:{partitions}" for topic, partitions in TOPICS.items()]
    with running_muster(log="memory:", topics=topics, config={**TEST_CONFIG, **settings}) as muster:
        kafka = asyncio.run(server_at(broker.bootstrap, is_kafka=True))
        yield kafka, asyncio.run(server_at(muster.bootstrap, is_kafka=False))


@contextmanager
def pair_through_sidecar(
    broker: Broker, settings: Mapping[str, str], *, upstream: Broker | None = None
) -> Iterator[Pair]:
    """This broker, and a Muster with the same settings in front of it or of another one.

    It may be the same, since scripts use separate groups.
    """
    (port,) = lasting_ports(1)
    upstream = broker if upstream is None else upstream
    asyncio.run(server_at(upstream.bootstrap, is_kafka=True))  # creates the topics
    options = ["--upstream", upstream.bootstrap, "--listener-map", f"{NODE_ID}={port}"]
    with running_muster(log="memory:", config={**TEST_CONFIG, **settings}, options=options):
        kafka = asyncio.run(server_at(broker.bootstrap, is_kafka=True))
        yield kafka, asyncio.run(server_at(f"{HOST}:{port}", is_kafka=False))


async def server_at(bootstrap: str, *, is_kafka: bool) -> Server:
    """The server at this address, once the scripts' topics exist."""
    connection = await Connection.open(bootstrap)
    if is_kafka:
        topics = [
            {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": (), "configs": ()}
            for name, partitions in TOPICS.items()
        ]
        created = await connection.ask("CreateTopics", 5, topics=topics, timeout=ms(20_000), validate_only=False)
        assert {topic["error_code"] for topic in created["topics"]} <= {0, 36}, created
    topic_ids = await _topic_ids(connection)
    connection.close()
    return Server(is_kafka=is_kafka, bootstrap=bootstrap, topic_ids=topic_ids)


async def _topic_ids(connection: Connection) -> dict[str, str]:
    deadline = time.monotonic() + CONDITION_WITHIN_S
    while True:
        answer = await connection.ask(
            "Metadata",
            12,
            topics=[{"topic_id": None, "name": name} for name in TOPICS],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        if all(len(topic["partitions"]) == TOPICS[topic["name"]] for topic in answer["topics"]):
            return {topic["name"]: topic["topic_id"] for topic in answer["topics"]}
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(CHECK_INTERVAL_S)
