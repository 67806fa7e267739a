"""Producers of each kind through the sidecar, on a real cluster: every acknowledged record is there."""

import random
from itertools import product
from typing import Final
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported without saying so

from tests.brokers.cluster import Cluster
from tests.brokers.java_tools import JavaTool, run_tool
from tests.brokers.probes import WITHIN_S
from tests.clients.through_sidecar.sidecar import new_topic
from tests.clients.transactions import values
from tests.muster_process import MusterProcess
from tests.waiting import until_so

pytestmark = pytest.mark.clients

ACKS: Final = ("0", "1", "all", "idempotent")
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS: Final = 30
LARGE_BYTES: Final = 20_000_000
LARGE_BYTES_MAX: Final = 21_000_000


def properties(acks: str, codec: str) -> dict[str, str | int | bool]:
    """Properties of a producer that puts its records into few batches."""
    ensured = {"enable.idempotence": True} if acks == "idempotent" else {"acks": acks}
    return {**ensured, "compression.type": codec, "linger.ms": 5}


def produced(bootstrap: str, topic: str, acks: str, codec: str) -> list[bytes]:
    """Produce with one of them; return the records, which are compressible and unique."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **properties(acks, codec)})
    sent = [f"{acks} {codec} {number} ".encode() * 40 for number in range(RECORDS)]
    for value in sent:
        producer.produce(topic, value, partition=0)
    assert producer.flush(WITHIN_S) == 0
    return sent


def test_records_arrive_whole_and_in_order(sidecar: MusterProcess, kafka_cluster: Cluster) -> None:
    """With each acks and compression; records read through the sidecar equal those at the brokers."""
    topic = new_topic(kafka_cluster.bootstrap, partitions=1)
    wanted = [produced(sidecar.bootstrap, topic, acks, codec) for acks, codec in product(ACKS, CODECS)]
    flat = [value for sent in wanted for value in sent]
    direct = {"bootstrap.servers": kafka_cluster.bootstrap}
    # With acks=0 there is no notice of the write.
    until_so(lambda: len(values(direct, topic)) >= len(flat), lambda: len(values(direct, topic)))
    there = values(direct, topic)
    assert [[each for each in there if each in set(sent)] for sent in wanted] == wanted
    assert values({"bootstrap.servers": sidecar.bootstrap}, topic) == there


def test_large_messages(sidecar: MusterProcess) -> None:
    """Messages of 20 MB, both ways; one too large for the broker is refused, and the connection stays usable."""
    topic = f"large-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": sidecar.bootstrap})
    wide = NewTopic(topic, 1, config={"max.message.bytes": str(LARGE_BYTES_MAX)})
    admin.create_topics([wide])[topic].result(WITHIN_S)
    refused: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": sidecar.bootstrap,
            "message.max.bytes": 2 * LARGE_BYTES_MAX,
            "enable.idempotence": False,
            "acks": "all",
        }
    )
    sent = [random.Random(number).randbytes(LARGE_BYTES) for number in range(2)]
    for value in (sent[0], sent[0] + bytes(2_000_000), sent[1]):
        producer.produce(topic, value, on_delivery=lambda error, _: refused.append(error) if error else None)
        assert producer.flush(WITHIN_S) == 0
    assert [error.code() for error in refused] == [confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE]
    reader = {"bootstrap.servers": sidecar.bootstrap, "receive.message.max.bytes": 4 * LARGE_BYTES_MAX}
    assert values({**reader, "fetch.message.max.bytes": 2 * LARGE_BYTES_MAX}, topic) == sent


def test_java_producer(sidecar: MusterProcess, kafka_cluster: Cluster) -> None:
    """Kafka's own, which is idempotent by default, with a codec that its library includes."""
    topic = new_topic(kafka_cluster.bootstrap, partitions=3)
    done = run_tool(
        JavaTool.PRODUCER_PERF_TEST,
        *("--topic", topic, "--num-records", "5000", "--record-size", "1000", "--throughput", "-1"),
        *("--bootstrap-server", sidecar.bootstrap, "--command-property", "compression.type=zstd"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(values({"bootstrap.servers": kafka_cluster.bootstrap}, topic)) == 5000
