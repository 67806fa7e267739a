"""Real clients that leave a group or ask for a newer group protocol: S17 and S20 of known_bugs/."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import confluent_kafka
import pytest

from tests.brokers.java_tools import JavaTool, run_tool
from tests.clients.consumers import KafkaPython
from tests.clients.probe import described, generation_of, until_stable
from tests.muster_process import MusterProcess, running_muster, sqlite_log
from tests.waiting import until_so

TOPIC = "orders"


@pytest.fixture(scope="module")
def muster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MusterProcess]:
    directory: Path = tmp_path_factory.mktemp("muster")
    door = ("--metrics", "127.0.0.1:0")
    with running_muster(log=sqlite_log(directory), topics=[f"{TOPIC}:4"], options=door) as process:
        yield process


@pytest.mark.clients
def test_s17_kafka_python_stays_when_it_is_closed(muster: MusterProcess) -> None:
    """With the unmodified library, a closed static member keeps its place, and its return disturbs no other member."""
    with ExitStack() as stack:
        first, second = (KafkaPython(muster.bootstrap, "s17", TOPIC, instance=name).start() for name in "ab")
        stack.callback(first.end)
        stack.callback(second.end)
        until_stable(muster.bootstrap, "s17", members=2)
        until_so(lambda: len(first.assigned) == len(second.assigned) == 2, lambda: (first.assigned, second.assigned))
        generation = generation_of(muster.bootstrap, "s17")
        second.close()
        assert len(described(muster.bootstrap, "s17")["members"]) == 2
        again = KafkaPython(muster.bootstrap, "s17", TOPIC, instance="b").start()
        stack.callback(again.end)
        until_so(lambda: again.assigned == second.assigned, lambda: again.assigned)
        assert generation_of(muster.bootstrap, "s17") == generation


@pytest.mark.clients
def test_s20_a_java_consumer_gets_a_message_that_the_newer_protocol_is_unsupported(muster: MusterProcess) -> None:
    """It must end and name the setting, and create no group."""
    newer = ("--command-property", "group.protocol=consumer", "--timeout-ms", "10000")
    arguments = ("--bootstrap-server", muster.bootstrap, "--topic", TOPIC, "--group", "s20")
    done = run_tool(JavaTool.CONSOLE_CONSUMER, *arguments, *newer)
    assert "Set group.protocol=classic" in done.stderr
    assert described(muster.bootstrap, "s20")["group_state"] == "Dead"


@pytest.mark.clients
def test_s20_librdkafka_does_not_join_by_the_newer_protocol(muster: MusterProcess) -> None:
    """It stays silent and waits, as with any broker without the protocol: no group may be affected."""
    config = {"bootstrap.servers": muster.bootstrap, "group.id": "s20-c", "group.protocol": "consumer", "log_level": 0}
    before = request_count(muster, "FindCoordinator")
    with closing(confluent_kafka.Consumer(config)) as consumer:
        consumer.subscribe([TOPIC])

        def has_looked_for_its_coordinator() -> bool:
            consumer.poll(0.05)
            return request_count(muster, "FindCoordinator") >= before + 3

        until_so(has_looked_for_its_coordinator, lambda: muster.asked("/metrics"))
        assert consumer.assignment() == []
    assert described(muster.bootstrap, "s20-c")["group_state"] == "Dead"
    assert 'muster_protocol_errors_total{fault="unknown-api"} 0.0' in muster.asked("/metrics")


def request_count(muster: MusterProcess, api: str) -> float:
    """The number of requests of this API."""
    lines = [line for line in muster.asked("/metrics").splitlines() if line.startswith("muster_requests_total{")]
    return sum(float(line.split()[1]) for line in lines if f'api="{api}"' in line)
