"""Declared topics hold no data: consumers wait for it without spinning, producers get an error."""

import confluent_kafka
import pytest

from tests.clients.conftest import PARTITIONS, TOPIC
from tests.clients.consumers import LIBRARIES, RunningConsumer
from tests.muster_process import MusterProcess, running_muster
from tests.waiting import until_so

pytestmark = pytest.mark.clients


def fetches(muster: MusterProcess) -> float:
    """The number of Fetch requests, of all versions."""
    lines = [line for line in muster.asked("/metrics").splitlines() if line.startswith("muster_requests_total{")]
    return sum(float(line.split()[1]) for line in lines if 'api="Fetch"' in line)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__)
def test_a_consumer_waits_for_data(library: type[RunningConsumer]) -> None:
    """Its Fetch is answered after its maximum wait: librdkafka spins if it cannot use Fetch."""
    with running_muster(
        log="memory:", topics=[f"{TOPIC}:{PARTITIONS}"], options=["--metrics", "127.0.0.1:0"]
    ) as muster:
        consumer = library(muster.bootstrap, "waiting", TOPIC).start()
        until_so(lambda: fetches(muster) >= 2, lambda: muster.asked("/metrics"))
        consumer.close()


def test_a_producer_gets_the_reason(muster: MusterProcess) -> None:
    """At once, not after its own timeout."""
    reported: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": muster.bootstrap, "log_level": 0})
    producer.produce(TOPIC, b"value", partition=0, on_delivery=lambda error, _message: reported.append(error))
    assert producer.flush(30) == 0
    assert [error and error.code() for error in reported] == [confluent_kafka.KafkaError.POLICY_VIOLATION]
