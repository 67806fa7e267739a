"""A drill of a running service: groups on its partitions are named first, and a command does the hand-over."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex

import pytest
from confluent_kafka.admin import AdminClient

from tests.brokers.broker import Broker
from tests.clients.consumers import Confluent
from tests.drills.running import BEGINS_WITHIN_S, GENEROUS, SMALL, Drill, left_of, lives
from tests.muster_process import MusterProcess
from tests.sharing_processes import sharing_process, until_shared
from tests.waiting import until_so

pytestmark = [pytest.mark.broker, pytest.mark.clients, pytest.mark.timeout(600)]

PARTITIONS = 2
"""The drill's six groups are on both of them."""

DRILL = (*SMALL[:4], *SMALL[6:], "--after", "500ms", *GENEROUS, "--format", "json")


@pytest.fixture(scope="module")
def service(kafka_broker: Broker) -> Iterator[list[MusterProcess]]:
    """Two processes on one log, with a group that is not the drill's."""
    log = f"kafka://{kafka_broker.bootstrap}/drilled-{token_hex(4)}"
    with ExitStack() as stack:
        processes = [
            stack.enter_context(sharing_process(log, node_id, partitions=PARTITIONS, topics=["orders:3"]))
            for node_id in (1, 2)
        ]
        until_shared(*processes, partitions=PARTITIONS)
        yield processes


@pytest.fixture(scope="module")
def options(service: list[MusterProcess]) -> Mapping[str, str]:
    return {"--bootstrap": ",".join(each.bootstrap for each in service), "--log": service[0].log, "--topic": "orders"}


def given(options: Mapping[str, str]) -> list[str]:
    return [part for option in options.items() for part in option]


def test_a_hand_over_is_drilled_among_the_groups_of_others(
    service: list[MusterProcess], options: Mapping[str, str], tmp_path: Path
) -> None:
    """They are named, and nothing is done without a yes. Then their members notice as little as the drill's."""
    consumer = Confluent(service[0].bootstrap, "payments", "orders").start()
    until_so(lambda: len(consumer.assigned) == 3, lambda: consumer.error)
    assigned = consumer.assignments
    command = f"kill -TERM {service[1].pid}"

    asking = Drill("takeover", *given(options), "--by", command, *DRILL, directory=tmp_path)
    assert asking.ended() == 2, asking.errors
    assert "1 other group share the 2 partitions of 2 that the drill's groups are on" in asking.errors
    assert "payments" in asking.errors
    assert "Nothing was done; say --yes to go on" in asking.errors
    assert service[1].events("stopping") == []

    drill = Drill("takeover", *given(options), "--by", command, *DRILL, "--yes", directory=tmp_path)
    assert drill.ended() == 0, drill.errors
    report = drill.report
    assert report["done"][0]["text"] == f"$ {command}"
    assert report["noticed"] == report["rebalances"] == report["left"] == []
    assert {each["partition"] for each in report["takeovers"]} == set(_owned(service[1]))
    assert all(each["handing_over_ms"] is not None for each in report["takeovers"])
    groups = AdminClient({"bootstrap.servers": service[0].bootstrap})
    assert left_of(report["run"], groups) == []
    assert consumer.assignments == assigned
    consumer.close()


def _owned(process: MusterProcess) -> list[int]:
    shared = [event for event in process.events("partitions shared") if not event["moving"] and event["ours"]]
    return list(shared[-1]["ours"])


def test_a_service_that_cannot_be_drilled_is_left_alone(options: Mapping[str, str], tmp_path: Path) -> None:
    """One line has the reason."""
    cases: Sequence[tuple[dict[str, str], str]] = [
        ({"--topic": "nowhere"}, "--topic nowhere: UNKNOWN_TOPIC_OR_PARTITION"),
        ({"--members": "4"}, "--topic orders has 3 partitions, and --members 4 need one each"),
        ({"--log": "sqlite:///nowhere.db", "--members": "3"}, "nowhere.db"),
        ({"--bootstrap": "127.0.0.1:1"}, "nobody answers at --bootstrap 127.0.0.1:1"),
    ]
    drills = [
        Drill("restart", *given({**options, **changed}), "--by", "false", "--yes", directory=tmp_path)
        for changed, _ in cases
    ]
    for drill, (_, reported) in zip(drills, cases, strict=True):
        assert drill.ended() == 2, drill.errors
        assert reported in drill.errors
        assert drill.output == ""


def test_a_command_that_fails_ends_the_drill_and_its_groups(
    service: list[MusterProcess], options: Mapping[str, str], tmp_path: Path
) -> None:
    """With the command's output."""
    by = ("--by", "echo it is not there; exit 3")
    drill = Drill("restart", *given(options), *by, *DRILL, "--yes", directory=tmp_path)
    assert drill.ended() == 1
    assert "ended with exit code 3: it is not there; nothing of the drill is left" in drill.errors
    run = drill.errors.partition("run ")[2][:10]
    assert left_of(run, AdminClient({"bootstrap.servers": service[0].bootstrap})) == []


def test_ctrl_c_removes_the_groups_from_the_service(
    service: list[MusterProcess], options: Mapping[str, str], tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    by = f"sh -c 'echo $$ > {pid}; exec sleep 600'; true"
    drill = Drill("restart", *given(options), "--by", by, *DRILL, "--yes", directory=tmp_path)
    until_so(lambda: pid.exists() and pid.read_text().strip(), lambda: drill.errors, within_s=BEGINS_WITHIN_S)
    drill.process.send_signal(signal.SIGINT)
    assert drill.ended() == 130, drill.errors
    assert "interrupted; nothing of the drill is left" in drill.errors
    until_so(lambda: not lives(int(pid.read_text())), "the command's own child goes on")
    run = drill.errors.partition("run ")[2][:10]
    assert left_of(run, AdminClient({"bootstrap.servers": service[0].bootstrap})) == []
