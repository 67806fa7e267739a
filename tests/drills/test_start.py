"""The permitted combinations of options, and the resulting plan."""

from typing import Any

import pytest
from typer.testing import CliRunner

from muster.cli import app
from muster.coordinator.client.commands.answer import AnswerFormat
from muster.drills.plan import Between, Fault, Given, Mode
from muster.drills.start import plan_of

KAFKA = ("--kafka", "127.0.0.1:1")
SERVICE = ("--bootstrap", "127.0.0.1:1", "--log", "kafka://127.0.0.1:1/x", "--topic", "orders", "--by", "true")


def given(**changes: Any) -> Given:
    reported: dict[str, Any] = {
        "groups": 7,
        "members": 3,
        "session_timeout": 9_000,
        "interval": 250,
        "before": 1,
        "after": 2,
        "within": 3,
        "heartbeats_within": None,
        "joins_within": None,
        "commits_within": None,
        "out": None,
        "form": AnswerFormat.TABLE,
    }
    return Given(**reported | changes)


def limits(fault: Fault, **changes: Any) -> tuple[int, int, int]:
    found = plan_of(fault, given(**changes)).limits
    return found.heartbeats_ms, found.joins_ms, found.commits_ms


def test_the_options_are_the_plan() -> None:
    plan = plan_of(Fault.TAKEOVER, given())
    assert (plan.load.groups, plan.load.members, plan.load.session_timeout_ms) == (7, 3, 9_000)
    assert (plan.load.heartbeat_interval_ms, plan.load.commit_interval_ms) == (250, 250)
    assert (plan.before_ms, plan.after_ms, plan.within_ms) == (1, 2, 3)


def test_goals_are_what_clients_do_not_feel_unless_they_are_given() -> None:
    assert limits(Fault.TAKEOVER) == limits(Fault.RESTART) == limits(Fault.FENCE) == (3_000, 5_000, 5_000)
    assert limits(Fault.TAKEOVER, heartbeats_within=500, joins_within=0, commits_within=1) == (500, 0, 1)


def test_the_goals_allow_for_time_without_any_owner() -> None:
    """Until others take over, or until the network is healed, whichever is first."""
    assert limits(Fault.PARTITION, lasts=15_000, owner_session=10_000) == (13_000, 15_000, 15_000)
    assert limits(Fault.PARTITION, lasts=4_000, owner_session=10_000) == (7_000, 9_000, 9_000)
    assert limits(Fault.PARTITION, lasts=15_000, between=Between.CLIENTS) == (18_000, 20_000, 20_000)
    assert limits(Fault.PARTITION, lasts=15_000, mode=Mode.SIDECAR) == (18_000, 20_000, 20_000)
    assert limits(Fault.SLOW_BROKER, delay=200) == (3_200, 5_200, 5_200)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["takeover"], "say where: --local --kafka HOST:PORT starts processes of the drill's own; --bootstrap"),
        (["fence"], "say where: --local --kafka HOST:PORT starts processes of the drill's own"),
        (["takeover", "--local"], "--local needs --kafka HOST:PORT"),
        (["takeover", "--local", "--kafka", "there"], "--kafka 'there' should be HOST:PORT"),
        (["takeover", "--local", *KAFKA, *SERVICE], "--local and --bootstrap exclude each other"),
        (["takeover", "--local", *KAFKA, "--by", "true"], "--by is for a running service"),
        (["takeover", *KAFKA, *SERVICE], "--kafka is for --local"),
        (["restart", *SERVICE[:6]], "--bootstrap needs --by COMMAND"),
        (["restart", *SERVICE[:2], *SERVICE[4:]], "--bootstrap needs --log URL"),
        (["restart", *SERVICE[:4], *SERVICE[6:]], "--bootstrap needs --topic NAME"),
        (["restart", "--local", *KAFKA, "--kafka-config", "sasl.user=x"], "unknown property 'sasl.user'"),
        (["takeover", "--local", *KAFKA, "--client-config", "sasl.user=x"], "--client-config is for a running service"),
        (["takeover", *SERVICE, "--client-config", "sasl.user=x"], "--client-config: unknown property 'sasl.user'"),
        (["slow-broker", "--local", *KAFKA, "--kafka-config", "security.protocol=SSL"], "cannot with TLS"),
        (["partition", "--local", *KAFKA, "--kafka-config", "security.protocol=SSL"], "cannot with TLS"),
        (
            ["partition", "--local", *KAFKA, "--mode", "sidecar", "--between", "clients"],
            "--between clients is for --mode standalone",
        ),
        (
            ["takeover", "--local", *KAFKA, "--mode", "sidecar", "--kafka-config", "security.protocol=SSL"],
            "for a cluster without TLS",
        ),
        (["takeover", "--local", *KAFKA, "-o", "/nowhere/at/all.html"], "there is no folder /nowhere/at"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_an_impossible_request_is_one_line(arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the option, and begins with the command; nothing is started."""
    monkeypatch.delenv("MUSTER_LOG", raising=False)
    ended = CliRunner().invoke(app, ["drill", *arguments])
    assert ended.exit_code == 2, ended.output
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith(f"muster drill {arguments[0]}: ")
    assert said in ended.stderr


@pytest.mark.parametrize("kind", ["fence", "partition", "slow-broker"])
@pytest.mark.parametrize("option", ["--bootstrap", "--by", "--yes", "--log"])
def test_other_faults_are_for_processes_of_the_drills_own(kind: str, option: str) -> None:
    """They have no option for a running service."""
    ended = CliRunner().invoke(app, ["drill", kind, option, "x"])
    assert ended.exit_code == 2
    assert "No such option" in ended.output


@pytest.mark.parametrize(
    "wrong", [("--groups", "0"), ("--members", "1"), ("--processes", "1"), ("--interval", "5"), ("--within", "soon")]
)
def test_numbers_and_durations_are_checked(wrong: tuple[str, str]) -> None:
    ended = CliRunner().invoke(app, ["drill", "takeover", "--local", *KAFKA, *wrong])
    assert ended.exit_code == 2
    assert wrong[0] in ended.output
