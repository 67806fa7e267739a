"""A sidecar in front of a real cluster, and the brokers' own view of a group.

It starts the sidecar, and sends requests that bypass it.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import confluent_kafka

from tests.brokers.broker import HOST, lasting_ports
from tests.brokers.probes import WITHIN_S, make_topics
from tests.clients.conftest import PARTITIONS
from tests.conformance.wire import Connection, Fields
from tests.muster_process import TEST_CONFIG, MusterProcess
from tests.waiting import until_so

SHADOW_TYPE = "muster"
_NOT_COORDINATOR = {14, 15, 16}


@contextmanager
def running_sidecar(
    bootstrap: str, *, nodes: Sequence[int], config: Mapping[str, str] = TEST_CONFIG, options: Sequence[str] = ()
) -> Iterator[MusterProcess]:
    """A sidecar with its event log in the cluster, the default. It is killed at the end of the block.

    One at a time for a cluster: a second one would take the log over.
    """
    port, *ports = lasting_ports(1 + len(nodes))
    listeners = ",".join(f"{node}={at}" for node, at in zip(nodes, ports, strict=True))
    settings = [argument for name, value in config.items() for argument in ("--config", f"{name}={value}")]
    arguments = ["--listen", f"{HOST}:{port}", "--upstream", bootstrap, "--listener-map", listeners, *settings]
    with TemporaryDirectory(prefix="muster-") as directory:
        muster = MusterProcess(*arguments, *options, output=Path(directory) / "output")
        muster.log = f"kafka://{bootstrap}/__muster_events"
        muster.start()
        try:
            yield muster
        finally:
            muster.end()


def new_topic(bootstrap: str, *, partitions: int = PARTITIONS) -> str:
    """A topic for one test."""
    name = f"topic-{uuid4().hex[:8]}"
    make_topics({"bootstrap.servers": bootstrap}, name, partitions=partitions)
    return name


def produce(bootstrap: str, topic: str, value: str, *, partitions: int = PARTITIONS) -> None:
    """Produce the same record to each partition."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for partition in range(partitions):
        producer.produce(topic, value.encode(), partition=partition)
    assert producer.flush(WITHIN_S) == 0


def offsets_at(bootstrap: str, group_id: str, topic: str, *, partitions: int = PARTITIONS) -> dict[int, int]:
    """The group's offsets by partition, as `bootstrap` returns them to a client that is no member."""
    asker = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group_id, "log_level": 0})
    wanted = [confluent_kafka.TopicPartition(topic, partition) for partition in range(partitions)]
    reported: list[confluent_kafka.TopicPartition] = []
    refused: list[confluent_kafka.KafkaException] = []

    def answered() -> bool:
        try:
            reported[:] = asker.committed(wanted, WITHIN_S)
        except confluent_kafka.KafkaException as error:
            refused.append(error)  # perhaps the coordinator has just changed
        return bool(reported)

    try:
        until_so(answered, lambda: refused[-1:])
    finally:
        asker.close()
    assert all(each.error is None for each in reported), reported
    return {each.partition: each.offset for each in reported if each.offset >= 0}


def upstream_group(bootstrap: str, group_id: str) -> Fields:
    """The group as described by its coordinator among the brokers at `bootstrap`: if it is owned, with the shadow."""
    reported: list[Fields] = []

    def found() -> bool:
        reported[:] = asyncio.run(_described_by_all(bootstrap, group_id))
        return len(reported) == 1

    until_so(found, lambda: reported)
    return reported[0]


def assert_is_owned(bootstrap: str, group_id: str) -> None:
    """The only member that the brokers know is a shadow, whose instance id begins with its type."""
    group = upstream_group(bootstrap, group_id)
    assert group["protocol_type"] == SHADOW_TYPE, group
    assert [member["group_instance_id"].split("-")[0] for member in group["members"]] == [SHADOW_TYPE], group


async def _described_by_all(bootstrap: str, group_id: str) -> list[Fields]:
    """The group as described by the brokers that coordinate it."""
    reported: list[Fields] = []
    for address in bootstrap.split(","):
        try:
            connection = await Connection.open(address)
        except ConnectionError:
            continue
        try:
            answer = await connection.ask("DescribeGroups", 5, groups=[group_id], include_authorized_operations=False)
        except ConnectionError:
            continue
        finally:
            connection.close()
        reported += [group for group in answer["groups"] if group["error_code"] not in _NOT_COORDINATOR]
    return reported
