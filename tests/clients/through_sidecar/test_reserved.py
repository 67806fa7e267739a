"""Real clients use Muster's own topics and transactional ids through the sidecar: all are refused."""

from typing import Final

import confluent_kafka
import pytest

from tests.brokers.cluster import Cluster
from tests.brokers.java_tools import JavaTool, run_tool
from tests.brokers.probes import WITHIN_S
from tests.clients.transactions import values
from tests.forked import run_muster
from tests.muster_process import MusterProcess

pytestmark = pytest.mark.clients

EVENTS: Final = "__muster_events"
FORGED: Final = b"a record that no owner wrote"
SIZE: Final = 77
AVRO: Final = b"\xc3\x01"
"""Events begin with it, and the producer's own values do not."""
NOT_AN_OWNER: Final = f"muster-{EVENTS}-events"


def test_a_sidecar_is_not_a_cluster_for_another_sidecar(sidecar: MusterProcess) -> None:
    """Not even with a separate event log, which the cluster does not show."""
    arguments = ["--listen", "127.0.0.1:0", "--upstream", sidecar.bootstrap, "--log", "memory:"]
    done = run_muster("serve", *arguments)
    assert done.returncode == 2
    assert f"--upstream {sidecar.bootstrap}: a Muster runs there, not a broker" in done.stderr


def test_nor_is_it_one_for_an_event_log(sidecar: MusterProcess) -> None:
    """Nor for a log with another name than its own, for which nothing is reserved."""
    arguments = ["--listen", "127.0.0.1:0", "--log", f"kafka://{sidecar.bootstrap}/events_elsewhere"]
    done = run_muster("serve", *arguments)
    assert done.returncode == 2
    assert f"{sidecar.bootstrap} is a Muster, not a broker" in done.stderr


def test_no_client_writes_the_event_topic(sidecar: MusterProcess, kafka_cluster: Cluster) -> None:
    """Producing to it by name, as librdkafka does, is refused; records for other topics arrive."""
    reported: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": sidecar.bootstrap, "linger.ms": 0})
    producer.produce(EVENTS, FORGED, partition=0, on_delivery=lambda error, _: reported.append(error))
    assert producer.flush(WITHIN_S) == 0
    assert [error and error.code() for error in reported] == [confluent_kafka.KafkaError.TOPIC_EXCEPTION]
    assert FORGED not in values({"bootstrap.servers": kafka_cluster.bootstrap}, EVENTS)


def test_nor_by_its_id(sidecar: MusterProcess, kafka_cluster: Cluster) -> None:
    """Kafka's own producer uses ids from Produce v13 on."""
    done = run_tool(
        JavaTool.PRODUCER_PERF_TEST,
        *("--topic", EVENTS, "--num-records", "10", "--record-size", str(SIZE), "--throughput", "-1"),
        *("--bootstrap-server", sidecar.bootstrap),
    )
    assert "InvalidTopicException" in done.stdout + done.stderr
    written = values({"bootstrap.servers": kafka_cluster.bootstrap}, EVENTS)
    assert [value for value in written if len(value) == SIZE and not value.startswith(AVRO)] == []


def test_no_client_deposes_an_owner(sidecar: MusterProcess) -> None:
    """With the owner's transactional id; a similar id is allowed."""
    for transactional_id in (f"muster-{EVENTS}-0", NOT_AN_OWNER):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": sidecar.bootstrap, "transactional.id": transactional_id}
        )
        if transactional_id == NOT_AN_OWNER:
            producer.init_transactions(WITHIN_S)
            continue
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            producer.init_transactions(WITHIN_S)
        code = raised.value.args[0].code()
        assert code == confluent_kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
