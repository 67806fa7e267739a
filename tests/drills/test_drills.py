"""Each kind of drill on a real broker, as a user runs it: its effect, its report, and that nothing remains of it.

All are started at once, and checked one after another: each takes half a minute, most of it waiting.
"""

import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.brokers.broker import Broker
from tests.drills.running import BEGINS_WITHIN_S, GENEROUS, QUICK, Drill, left_of, processes_of
from tests.waiting import until_so

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

SIDECARS = "takeover of a sidecar"
CUT_SIDECAR = "partition of a sidecar"
KINDS: Mapping[str, tuple[str, ...]] = {
    "takeover": (),
    SIDECARS: ("--mode", "sidecar"),
    "restart": (),
    "fence": (),
    "partition": ("--for", "6s"),
    CUT_SIDECAR: ("--mode", "sidecar", "--for", "6s"),
    "slow-broker": ("--for", "2s", "--delay", "300ms"),
}


@pytest.fixture(scope="module", autouse=True)
def interrupted(kafka_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    """A drill that measures for minutes before its fault, started before all others."""
    options = ("--local", "--kafka", kafka_broker.bootstrap, *QUICK, "--before", "10m")
    drill = Drill("takeover", *options, directory=tmp_path_factory.mktemp("interrupted"))
    yield drill
    drill.close()


@pytest.fixture(scope="module", autouse=True)
def noticed(kafka_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    """A drill that members have to notice: they are cut off for longer than their sessions. Started before the
    others.
    """
    options = ("--local", "--kafka", kafka_broker.bootstrap, *QUICK, *GENEROUS, "--format", "json")
    cut = ("--between", "clients", "--for", "9s", "--session-timeout", "6s")
    drill = Drill("partition", *options, *cut, directory=tmp_path_factory.mktemp("noticed"))
    yield drill
    drill.close()


@pytest.fixture(scope="module")
def drills(kafka_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Drill]]:
    directory = tmp_path_factory.mktemp("drills")
    with ExitStack() as stack:
        begun = {}
        for kind, own in KINDS.items():
            options = ("--local", "--kafka", kafka_broker.bootstrap, *QUICK, *GENEROUS, "--format", "json", *own)
            begun[kind] = Drill(kind.split()[0], *options, directory=directory)
            stack.callback(begun[kind].close)
        yield begun


@pytest.fixture(scope="module")
def admin(kafka_broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_broker.bootstrap})


@pytest.fixture(scope="module")
def reports(drills: Mapping[str, Drill], kafka_broker: Broker) -> Mapping[str, dict[str, Any]]:
    """The reports of all, which have ended, and have met their goals."""
    for kind, drill in drills.items():
        assert drill.ended() == 0, f"{kind}: {drill.errors}\n{drill.output}"
    return {kind: drill.report for kind, drill in drills.items()}


def goals(report: Mapping[str, Any]) -> dict[str, int]:
    return {goal["name"]: goal["measured"] for goal in report["goals"]}


@pytest.mark.parametrize("kind", KINDS)
def test_a_drill_loses_nothing_and_no_member_notices(reports: Mapping[str, dict[str, Any]], kind: str) -> None:
    """Members were answered before and after the fault, and their acknowledgements are in the log."""
    report = reports[kind]
    assert report["is_met"], report["goals"]
    assert report["noticed"] == []
    assert goals(report)["rebalances caused"] == goals(report)["events lost"] == goals(report)["commits lost"] == 0
    assert {each["kind"] for each in report["waits"] if each["before"] and each["asked"]} >= {"heartbeats", "commits"}
    assert report["compared"]["commits"] > 18
    assert report["compared"]["joins"] > 18


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_a_drill_stays(reports: Mapping[str, dict[str, Any]], admin: AdminClient, kind: str) -> None:
    """No topic, no group, no process."""
    run = reports[kind]["run"]
    assert reports[kind]["left"] == []
    assert processes_of(run) == []
    until_so(lambda: left_of(run, admin) == [], lambda: left_of(run, admin))


@pytest.mark.parametrize("kind", ["takeover", SIDECARS])
def test_a_kill_is_a_takeover_without_a_hand_over(reports: Mapping[str, dict[str, Any]], kind: str) -> None:
    """Another process takes all partitions of the killed one."""
    report = reports[kind]
    (killed,) = [each for each in report["done"] if each["is_fault"]]
    assert killed["text"].startswith("kill -9")
    assert {each["former_owner"] for each in report["takeovers"]} == {killed["process"]}
    assert {each["owner"] for each in report["takeovers"]}.isdisjoint({killed["process"]})
    assert len(report["takeovers"]) == 2
    assert all(each["handing_over_ms"] is None for each in report["takeovers"])
    assert {each["error"] for each in report["hidden"]} & {"NO_ANSWER", "COORDINATOR_LOAD_IN_PROGRESS"}


def test_a_restart_hands_every_partition_over(reports: Mapping[str, dict[str, Any]]) -> None:
    """Each process was stopped and started; each partition was released before it was taken."""
    report = reports["restart"]
    assert [each["process"] for each in report["done"] if "SIGTERM" in each["text"]] == ["process 1", "process 2"]
    assert {each["partition"] for each in report["takeovers"]} == {0, 1, 2, 3}
    assert all(each["handing_over_ms"] is not None for each in report["takeovers"])


def test_a_fence_deposes_a_running_owner(reports: Mapping[str, dict[str, Any]]) -> None:
    """Its partitions are taken over again, with a newer claim."""
    report = reports["fence"]
    assert len({each["partition"] for each in report["takeovers"]}) == 2
    assert all(each["epoch"] >= 2 for each in report["takeovers"])


@pytest.mark.parametrize("kind", ["partition", CUT_SIDECAR])
def test_a_process_that_is_cut_off_from_its_log_is_replaced(reports: Mapping[str, dict[str, Any]], kind: str) -> None:
    """While it is cut off, since its session in the ownership group expires before."""
    report = reports[kind]
    cut, healed = report["done"]
    assert "nothing passes" in cut["text"]
    first = [each for each in report["takeovers"] if each["former_owner"] == cut["process"]]
    assert first
    assert healed["process"] == cut["process"]


def test_a_slow_broker_makes_commits_wait(reports: Mapping[str, dict[str, Any]]) -> None:
    """Commits wait as long as the broker does; heartbeats that store nothing are answered meanwhile."""
    (commits,) = [each for each in reports["slow-broker"]["waits"] if each["kind"] == "commits"]
    assert commits["longest_ms"] >= 300
    assert reports["slow-broker"]["takeovers"] == []


def test_its_page_is_written_and_shows_the_verdict(
    drills: Mapping[str, Drill], reports: Mapping[str, dict[str, Any]]
) -> None:
    for kind, drill in drills.items():
        page = drill.page.read_text(encoding="utf-8")
        assert f"<title>Muster drill: {kind.split()[0]}</title>" in page
        assert "all goals met" in page
        assert reports[kind]["run"] in page


def test_an_effect_that_members_notice_is_reported_and_is_a_missed_goal(noticed: Drill) -> None:
    """A member that is silent for a session expires, so its group rebalances, and it has to rejoin."""
    assert noticed.ended() == 1, noticed.errors
    report = noticed.report
    assert not report["is_met"]
    missed = {each["name"] for each in report["goals"] if not each["is_met"]}
    assert missed == {"rebalances caused", "errors that members noticed"}
    assert all(each["why"] and each["at"] >= report["fault_at"] for each in report["rebalances"])
    assert {each["error"] for each in report["noticed"]} & {"UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS"}
    assert report["takeovers"] == report["left"] == []
    assert goals(report)["events lost"] == goals(report)["commits lost"] == 0
    assert "not met" in noticed.page.read_text(encoding="utf-8")


def test_ctrl_c_leaves_nothing_behind(interrupted: Drill, admin: AdminClient) -> None:
    """During the load."""
    until_so(
        lambda: "measuring before the fault" in interrupted.errors,
        lambda: interrupted.errors,
        within_s=BEGINS_WITHIN_S,
    )
    (run,) = re.findall(r"run (\w+)", interrupted.errors)
    assert len(processes_of(run)) == 2
    interrupted.process.send_signal(signal.SIGINT)
    assert interrupted.ended() == 130, interrupted.errors
    assert "interrupted; nothing of the drill is left" in interrupted.errors
    assert not interrupted.page.exists()
    assert processes_of(run) == []
    until_so(lambda: left_of(run, admin) == [], lambda: left_of(run, admin))


def test_a_process_that_ends_at_once_gives_the_reason(kafka_broker: Broker, tmp_path: Path) -> None:
    """The drill does not wait for it, and repeats its last message."""
    options = ("--local", "--kafka", kafka_broker.bootstrap, *QUICK, "--owner-session", "45m")
    drill = Drill("takeover", *options, directory=tmp_path)
    assert drill.ended() == 1
    assert "--owner-session-timeout-ms=2700000: should be less than or equal to 1800000" in drill.errors
    assert "nothing of the drill is left" in drill.errors
