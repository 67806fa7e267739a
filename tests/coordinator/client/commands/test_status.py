"""`muster status`: problems reported by processes, the tables, and processes that do not respond."""

import io
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from rich.console import Console
from typer.testing import CliRunner, Result

from muster.cli import app
from muster.coordinator.client.commands.status_asking import Asked, Unanswered, ask
from muster.coordinator.client.commands.status_findings import Finding, Severity, findings
from muster.coordinator.client.commands.status_table import print_status
from muster.coordinator.observability.metrics_endpoint import MetricsEndpoint
from muster.coordinator.observability.status import (
    ElsewhereStatus,
    LinksStatus,
    LinkStatus,
    MissingShadowStatus,
    OwnedStatus,
    OwnershipStatus,
    PeerStatus,
    ProcessStatus,
    QuarantinedStatus,
    ShadowStatus,
    StandbyStatus,
    UnassignedStatus,
    UpstreamGroupStatus,
    WaitingPartition,
)
from tests.brokers.broker import HOST
from tests.clients.consumers import Confluent
from tests.muster_process import running_muster, sqlite_log
from tests.waiting import until_so

MISSING = [MissingShadowStatus(group_id="a", error="no")]
PAGE = Path(__file__).parents[4] / "docs" / "status.md"


def owned(*partitions: int, lease_left_ms: int | None = 1_500) -> list[OwnedStatus]:
    return [
        OwnedStatus(partition=number, epoch=3, lease_left_ms=lease_left_ms, groups=2, members=20)
        for number in partitions
    ]


def process(
    node_id: int | None = 1,
    *,
    ownership: OwnershipStatus | None = None,
    elsewhere: list[ElsewhereStatus] | None = None,
    **others: object,
) -> ProcessStatus:
    plain = ProcessStatus(
        version="1.0",
        mode="standalone",
        node_id=node_id,
        listen="10.0.0.1:9092",
        log="kafka://b:9092/groups",
        upstream=None,
        uptime_ms=3_600_000,
        not_ready=None,
        not_well=None,
        ownership=ownership or ownership_of(0, 1),
        elsewhere=elsewhere or (),
    )
    return msgspec.structs.replace(plain, **others)


def ownership_of(*partitions: int, log_partitions: int = 2, lease_left_ms: int | None = 1_500) -> OwnershipStatus:
    return OwnershipStatus(
        owner="host:1",
        log_identity="log-1",
        log_partitions=log_partitions,
        owned=owned(*partitions, lease_left_ms=lease_left_ms),
        groups={"muster": {"Stable": 4, "Empty": 1}},
        members={"muster": 40},
    )


def waited_for(ownership: OwnershipStatus, oldest_ms: int, group_id: str) -> OwnershipStatus:
    return msgspec.structs.replace(ownership, oldest_parked_ms=oldest_ms, oldest_parked_group=group_id)


def found(*statuses: ProcessStatus | Unanswered) -> list[Finding]:
    return findings([Asked(address=f"p{number}:1", answer=each) for number, each in enumerate(statuses, 1)])


def severities(*statuses: ProcessStatus | Unanswered) -> list[tuple[str, str]]:
    return [(each.severity.value, each.what) for each in found(*statuses)]


def test_all_is_well() -> None:
    """One process that owns the whole log, and two that share one."""
    assert severities(process()) == []
    assert severities(process(ownership=ownership_of(0)), process(2, ownership=ownership_of(1))) == []


def test_an_unserved_partition_is_a_problem() -> None:
    """None of the responding processes serves it; the process that does not respond is named too."""
    ((severity, what),) = severities(process(ownership=ownership_of(0, log_partitions=4)))
    assert (severity, what) == ("problem", "partitions 1 to 3: served by none of those that answer; their groups wait")
    gone = Unanswered(reason="nothing listens there", way_out="start it")
    first, second = found(process(ownership=ownership_of(0)), gone)
    assert (first.severity, first.process, first.what) == (Severity.UNANSWERED, "p2:1", "nothing listens there")
    assert (second.severity, second.what.startswith("partition 1: served by none")) == (Severity.PROBLEM, True)


def test_a_partition_that_waits_for_a_full_disk_misses_no_process() -> None:
    """The process that has it says why it is not ready; no other one has to be started."""
    waiting = [WaitingPartition(partition=1, reason="the disk is full")]
    full = msgspec.structs.replace(ownership_of(0), waiting=waiting)
    not_ready, not_served = found(process(ownership=full, not_ready="the disk is full"))
    assert not_ready.what == "not ready: the disk is full"
    assert not_served.what == "partition 1: not served yet by p1:1; their groups wait"
    assert "start" not in not_served.way_out


def test_a_partition_of_an_unqueried_process_is_a_note_with_its_address() -> None:
    elsewhere = [ElsewhereStatus(partition=1, node_id=2, address="10.0.0.2:9092")]
    (note,) = found(process(ownership=ownership_of(0), elsewhere=elsewhere))
    assert (note.severity, "owned by a process that was not asked" in note.what) == (Severity.NOTE, True)
    assert "10.0.0.2:9092" in note.way_out


def test_a_partition_with_two_owners_is_a_problem_that_names_both() -> None:
    ((severity, what),) = severities(process(ownership=ownership_of(0, 1)), process(2, ownership=ownership_of(1)))
    assert (severity, what) == ("problem", "partition 1 is served by p1:1 and p2:1, as both report")


def test_the_same_problem_of_many_partitions_is_one_problem() -> None:
    """A broker that hangs stops the appends of all partitions; a log has 50 of them."""
    slow = msgspec.structs.replace(
        ownership_of(0, 1, 2, 4, log_partitions=5),
        owned=[
            OwnedStatus(partition=number, epoch=3, lease_left_ms=500, append_waits_ms=13_000 + number)
            for number in (0, 1, 2, 4)
        ],
    )
    problems = severities(process(ownership=slow), process(2, ownership=ownership_of(2, 3, 4, log_partitions=5)))
    assert problems == [
        ("problem", "appends of partitions 0 to 2, 4 have had no response for 13.0 s"),
        ("problem", "partitions 2, 4 are served by p1:1 and p2:1, as both report"),
    ]


def test_processes_of_two_logs_are_checked_separately() -> None:
    """Each log has its own partition 0."""
    other = msgspec.structs.replace(ownership_of(0, 1), log_identity="log-2")
    assert severities(process(), process(ownership=other)) == []


UNASSIGNED = UnassignedStatus(
    group_id="orders", topic="orders", partitions=2, numbers="6 to 7", unassigned_ms=430_000, way_out="rebalance it"
)


@pytest.mark.parametrize(
    ("changed", "severity", "what"),
    [
        ({"not_ready": "the event log is away"}, "problem", "not ready: the event log is away"),
        ({"not_well": "the event loop has been blocked for 9 s"}, "problem", "the event loop has been blocked for 9 s"),
        (
            {"ownership": ownership_of(0, 1, lease_left_ms=0)},
            "problem",
            "its lease has expired for partitions 0 to 1: it answers no requests for their groups",
        ),
        (
            {"peers": [PeerStatus(node_id=2, address="b:9092", connected=False)]},
            "note",
            "it has no connection to node 2 at b:9092",
        ),
        (
            {"links": LinksStatus(to=[LinkStatus(node_id=2, address="b:9500", reached=False, error="no secret")])},
            "problem",
            "it cannot reach node 2 at b:9500: no secret",
        ),
        (
            {"links": LinksStatus(no_owner_reached_ms=12_000)},
            "problem",
            "it has reached no owner of any partition for 12.0 s",
        ),
        (
            {"shadows": ShadowStatus(present=1, missing_count=1, missing=MISSING)},
            "problem",
            "group a has no shadow upstream: no",
        ),
        (
            {"unassigned": [UNASSIGNED], "unassigned_count": 1},
            "problem",
            "group orders: partitions 6 to 7 of orders have been unassigned for 7 min",
        ),
        (
            {
                "upstream_groups": [
                    UpstreamGroupStatus(group_id="bills", reason="upstream it has 1 member", way_out="adopt it")
                ]
            },
            "note",
            "Muster does not coordinate group bills: upstream it has 1 member",
        ),
        (
            {"ownership": waited_for(ownership_of(0, 1), 400_000, "orders")},
            "problem",
            "a member of group orders has waited 6 min 40 s for the others",
        ),
    ],
)  # fmt: skip
def test_problems_reported_by_a_process_are_shown(changed: dict[str, object], severity: str, what: str) -> None:
    assert severities(process(**changed)) == [(severity, what)]  # type: ignore[arg-type]


def test_a_quarantined_group_is_shown_with_the_repair_command() -> None:
    """With the number of quarantined groups that are not listed by name."""
    way_out = "muster groups repair orders"
    group = QuarantinedStatus(group_id="orders", partition=0, reason="offset 4: torn", way_out=way_out)
    ownership = msgspec.structs.replace(ownership_of(0, 1), quarantined=[group], quarantined_count=3)
    first, second = found(process(ownership=ownership))
    assert ("orders" in first.what, first.way_out) == (True, way_out)
    assert second.what == "2 more groups are not served"


def test_different_versions_are_a_note() -> None:
    ((severity, what),) = severities(
        process(ownership=ownership_of(0)), process(2, ownership=ownership_of(1), version="1.1")
    )
    assert (severity, what) == ("note", "the processes run different versions: 1.0, 1.1")


def shown(*statuses: ProcessStatus | Unanswered, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    requested = [Asked(address=f"10.100.200.{number}:9100", answer=each) for number, each in enumerate(statuses, 1)]
    print_status(requested, findings(requested), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_one_shadow_is_singular() -> None:
    assert "10.100.200.1:9100: 1 shadow in the cluster" in shown(
        process(shadows=ShadowStatus(present=1, missing_count=0))
    )


def test_the_tables_fit_80_columns_and_what_is_wrong_comes_first() -> None:
    """One table with everything that can occur."""
    standbys = [StandbyStatus(partition=1, lag_records=12, lag_ms=300)]
    waiting = [WaitingPartition(partition=1, reason="it is being taken over")]
    busy = msgspec.structs.replace(ownership_of(0), standbys=standbys, waiting=waiting)
    shadows = ShadowStatus(present=3, missing_count=0)
    text = shown(
        process(ownership=busy, shadows=shadows, not_ready="partitions are being read"),
        Unanswered(reason="no answer within 5 s", way_out="see whether it runs there"),
    )
    assert max(map(len, text.splitlines())) <= 80
    lines = text.splitlines()
    assert lines[0] == "UNANSWERED  10.100.200.2:9100: no answer within 5 s"
    assert lines[1] == "  -> see whether it runs there"
    reported = re.sub(r" +", " ", text)
    for row in (
        "10.100.200.1:9100 1 not ready 01:00:00 1 of 2 5 40 1.0",
        "10.100.200.2:9100 no answer",
        "0 10.100.200.1:9100 3 1.5 s 2 20 0",
        "1 10.100.200.1:9100 it is being taken over",
        "1 10.100.200.1:9100 12 records 0.3 s",
        "3 shadows in the cluster",
    ):
        assert row in reported, reported


@contextmanager
def answering(status: bytes) -> Iterator[str]:
    """A process that returns this status, and its address."""
    endpoint = MetricsEndpoint(
        "127.0.0.1", 0, CollectorRegistry(), not_ready=lambda: None, not_well=lambda: None, status=lambda: status
    )
    try:
        yield f"127.0.0.1:{endpoint.port}"
    finally:
        endpoint.close()


def run_status(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["status", *arguments], env={"COLUMNS": "80", "TERM": "dumb", "TTY_COMPATIBLE": "1"})


def test_the_status_of_a_healthy_process_is_shown() -> None:
    """JSON has the process's own status and the findings."""
    with answering(msgspec.json.encode(process())) as address:
        done = run_status(address)
        assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "All is well.")
        document = json.loads(run_status(f"http://{address}/metrics", "--format", "json").stdout)
    assert document["findings"] == []
    (requested,) = document["processes"]
    assert (requested["address"], requested["answered"], requested["status"]["ownership"]["log_partitions"]) == (
        address,
        True,
        2,
    )


def test_an_address_without_a_port_is_named() -> None:
    done = run_status("localhost")
    assert (done.exit_code, "'localhost' should be HOST:PORT" in done.stderr) == (2, True)


def test_something_that_is_wrong_is_exit_code_1() -> None:
    with answering(msgspec.json.encode(process(not_ready="starting"))) as address:
        done = run_status(address)
    assert (done.exit_code, "not ready: starting" in done.stdout) == (1, True)


def test_a_process_that_does_not_answer_is_exit_code_2_with_what_to_do() -> None:
    """The process that does respond is shown too."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with answering(msgspec.json.encode(process())) as address:
        done = run_status(address, f"127.0.0.1:{port}")
    assert done.exit_code == 2
    assert f"UNANSWERED  127.0.0.1:{port}: nothing listens there" in done.stdout
    assert "is muster serve running there" in done.stdout
    assert f"{address}" in done.stdout


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"{}", "the server there is not Muster"),
        (b"\xff", "the server there is not Muster"),
        (b'{"level": 9}', "its /status has another form (level 9; this command knows 1)"),
    ],
)
def test_an_unreadable_response_is_reported(answer: bytes, reason: str) -> None:
    with answering(answer) as address:
        unanswered = ask(address, 5.0)
    assert isinstance(unanswered, Unanswered)
    assert unanswered.reason == reason


def test_another_http_server_and_a_hanging_server_are_distinguished() -> None:
    """Neither blocks the command for long."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        hung = ask(address, 0.2)
        assert isinstance(hung, Unanswered)
        assert hung.reason == "no answer within 0.2 s"
        server.accept()[0].close()

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        other = ask(address, 5.0)
        thread.join()
        assert isinstance(other, Unanswered)
        assert "has no /status" in other.reason


def test_the_kafka_listener_is_distinguished_from_a_closed_port() -> None:
    """Muster closes a connection on which something else than Kafka's protocol is spoken."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def close() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)

        thread = threading.Thread(target=close)
        thread.start()
        unanswered = ask(f"127.0.0.1:{server.getsockname()[1]}", 5.0)
        thread.join()
    assert isinstance(unanswered, Unanswered)
    assert unanswered.reason == "it closed the connection without a response"
    assert "Kafka clients" in unanswered.way_out


def test_an_invalid_address_is_a_usage_error() -> None:
    done = run_status("nowhere")
    assert (done.exit_code, done.stderr.startswith("muster status: ")) == (2, True), done.stderr


@pytest.mark.clients
def test_a_running_process_reports_what_it_serves(tmp_path: Path) -> None:
    """Its partitions, groups and members, and that there are no problems."""
    metrics = ["--metrics", f"{HOST}:0"]
    with running_muster(log=sqlite_log(tmp_path), topics=["orders:4"], options=metrics) as muster:
        consumer = Confluent(muster.bootstrap, "orders", "orders").start()
        until_so(lambda: len(consumer.assigned) == 4, lambda: consumer.error)
        address = muster.wait_for_event("metrics")["listen"]
        done = run_status(address, "--format", "json")
        assert done.exit_code == 0, done.stdout
        (output,) = json.loads(done.stdout)["processes"]
        status = output["status"]
        ownership = status["ownership"]
        assert len(ownership["owned"]) == ownership["log_partitions"] == 8
        assert (ownership["groups"]["muster"]["Stable"], ownership["members"]["muster"]) == (1, 1)
        assert sum(each["members"] for each in ownership["owned"]) == 1
        assert (status["mode"], status["not_ready"], status["shadows"]) == ("standalone", None, None)
        assert run_status(address).stdout.startswith("All is well.")
        consumer.close()


def test_the_page_names_every_column_and_exit_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    columns = set(re.findall(r"[A-Z][a-z]+", shown(process()).partition("well.")[2]))
    assert {"Process", "Lease"} <= columns
    assert [column for column in columns if f"| {column} |" not in page] == []
    assert all(f"| {code} |" in page for code in (0, 1, 2))


def test_a_wrong_event_topic_config_is_a_problem() -> None:
    """In the process's own words, which include the command to run."""
    answer = process(log_flaws=["topic t has cleanup.policy=delete: run `x`"])
    (found,) = (each for each in findings([Asked(address="a:1", answer=answer)]) if "cleanup.policy" in each.what)
    assert (found.severity, found.process) == (Severity.PROBLEM, "a:1")
    assert "mustereventlogflaws" in found.way_out
