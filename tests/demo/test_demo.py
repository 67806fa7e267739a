"""The demo as a child process: its output, its event log, how it fails, and what it leaves behind.

The whole story takes half a minute; it starts first, and the short runs are checked meanwhile.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.demo.running import ROOT, Ended, Run, plain_environment, running_demo, terminal_output

pytestmark = pytest.mark.clients

FORMED: Final = "Four consumers form a group."
STEPS: Final = [
    (FORMED, "rebalance", 1),
    ("Rolling restart of the static members.", "no rebalance", 1),
    ("kill -9 of the dynamic member.", "rebalance", 2),
    ("A new dynamic member.", "rebalance", 3),
    ("Two processes with one instance id.", "no rebalance", 3),
    ("kill -9 of the coordinator.", "no rebalance", 3),
]
STEP: Final = re.compile(
    r"^\d  (?P<heading>[^.]+\.).*\n +[↻✓] (?P<verdict>\w+(?: \w+)?).*\n +generation (?P<id>\d)", re.M
)
SHARES: Final = re.compile(r"↻ rebalance +(?P<names>.*)\n +generation \d +(?P<partitions>.*)")
COMMAND: Final = re.compile(r"^\$ (?P<command>(?:.*\\\n)*.*)$", re.M)
COLOUR: Final = re.compile(r"\x1b\[[\d;]*3\d")


@pytest.fixture(scope="module", autouse=True)
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The whole story, started."""
    with running_demo("--keep", str(tmp_path_factory.mktemp("demo") / "kept")) as run:
        yield run


@pytest.fixture(scope="module")
def run_output(whole_run: Run) -> Ended:
    """The output of the whole story."""
    return whole_run.ended()


@pytest.fixture(scope="module")
def commands(run_output: Ended) -> list[list[str]]:
    """The commands that it shows, in shell syntax."""
    return [shlex.split(match["command"].replace("\\\n", "")) for match in COMMAND.finditer(run_output.output)]


def muster(*arguments: str) -> str:
    command = [sys.executable, "-m", "muster", *arguments]
    # On a dumb terminal rich takes COLUMNS only together with LINES.
    size = {"COLUMNS": "100", "LINES": "50"}
    environment = plain_environment() | size | {"TERM": "dumb", "TTY_COMPATIBLE": "1"}
    return subprocess.run(
        command, stdout=subprocess.PIPE, check=True, cwd=ROOT, env=environment, timeout=60, text=True
    ).stdout


def culprits(incidents: list[dict[str, Any]], kind: str) -> list[list[str]]:
    """The client ids of the culprits of each incident of a kind."""
    found = [each["culprits"] for each in incidents if each["kind"] == kind]
    return [sorted({member["client_id"] for member in members}) for members in found]


# ---- short runs ------------------------------------------------------------------------------------


class TestWhatGoesWrong:
    def test_a_directory_that_is_not_empty_is_one_clear_line(self, tmp_path: Path) -> None:
        (tmp_path / "muster.db").touch()
        with running_demo("--keep", str(tmp_path)) as run:
            ended = run.ended()
        assert (ended.exit_code, ended.output) == (2, "")
        assert ended.errors.split("\n") == [
            "",
            f"The demo cannot begin: {tmp_path} is not empty; name another directory",
            "",
        ]

    def test_a_terminal_has_colours_unless_it_wants_none(self, tmp_path: Path) -> None:
        (tmp_path / "muster.db").touch()
        options = ("--keep", str(tmp_path))
        assert COLOUR.search(terminal_output(*options, environment={}))
        assert not COLOUR.search(terminal_output(*options, environment={"NO_COLOR": "1"}))

    def test_a_member_that_ends_early_fails_the_demo(self, tmp_path: Path) -> None:
        with running_demo("--keep", str(tmp_path / "kept")) as run:
            os.kill(run.wait_for_process(of=f"{sys.executable} -m demo.static_member "), signal.SIGKILL)
            ended = run.ended()
        assert ended.exit_code == 1
        assert f"The story did not go as told, step 1, '{FORMED}': billing-" in ended.errors
        assert "The event log says last:\n" in ended.errors
        assert "Traceback" not in ended.errors
        assert run.processes() == []

    @pytest.mark.parametrize(
        ("number", "program"), [(signal.SIGTERM, "muster serve"), (signal.SIGINT, "demo.dynamic_member")]
    )
    def test_nothing_is_left_running_when_it_is_interrupted(
        self, tmp_path: Path, number: signal.Signals, program: str
    ) -> None:
        with running_demo("--keep", str(tmp_path / "kept")) as run:
            run.wait_for_process(of=f"{sys.executable} -m {program} ")
            run.process.send_signal(number)
            ended = run.ended()
        assert ended.exit_code == 130
        assert ended.errors == "\nInterrupted; nothing is left running.\n"
        assert run.processes() == []


# ---- the whole story -------------------------------------------------------------------------------


class TestWhatItShows:
    def test_the_demo_runs_as_described(self, run_output: Ended) -> None:
        assert (run_output.exit_code, run_output.errors) == (0, "")

    def test_each_step_has_its_outcome(self, run_output: Ended) -> None:
        seen = [(step["heading"], step["verdict"], int(step["id"])) for step in STEP.finditer(run_output.output)]
        assert seen == STEPS

    def test_all_partitions_are_shared_after_each_rebalance(self, run_output: Ended) -> None:
        shares = [(match["names"].split(), match["partitions"].split()) for match in SHARES.finditer(run_output.output)]
        static = ["billing-0", "billing-1", "billing-2"]
        assert [names for names, _ in shares] == [[*static, "extra-1"], static, [*static, "extra-2"]]
        for _, partitions in shares:
            assert partitions == [str(number) for number in range(12)]

    def test_the_fence_is_named(self, run_output: Ended) -> None:
        assert "the older one got FENCED_INSTANCE_ID and ended" in run_output.output

    def test_there_are_no_colours_without_a_terminal(self, run_output: Ended) -> None:
        assert "\x1b" not in run_output.output

    def test_nothing_is_left_running(self, run_output: Ended, whole_run: Run) -> None:
        assert whole_run.processes() == []


class TestWhatTheLogSays:
    def test_every_rebalance_has_its_reason_and_avoided_ones_are_shown(self, commands: list[list[str]]) -> None:
        (why,) = (command for command in commands if command[1:3] == ["replay", "why"])
        incidents: list[dict[str, Any]] = json.loads(muster(*why[1:], "--format", "json"))["incidents"]
        rebalances = [rebalance for incident in incidents for rebalance in incident["rebalances"]]
        first, expiry, growth = (each["trigger"] for each in sorted(rebalances, key=lambda each: each["first_seq"]))
        assert first["cause"] in {"new-static-member", "new-dynamic-member"}
        assert (expiry["cause"], expiry["who"][0]["client_id"]) == ("session-expired", "extra-1")
        assert (growth["cause"], growth["who"][0]["client_id"]) == ("new-dynamic-member", "extra-2")
        static = ["billing-0", "billing-1", "billing-2"]
        assert culprits(incidents, "start") == [[*static, "extra-1"]]
        assert culprits(incidents, "crash") == [["extra-1"]]
        assert culprits(incidents, "scale-up") == [["extra-2"]]
        quiet = [each for each in incidents if not each["rebalances"]]
        assert culprits(quiet, "deployment") == [static]
        assert sum(each["cost"]["restarts_absorbed"] for each in quiet) == 4
        assert sum("took over" in each["headline"] for each in quiet) == 1
        chains = [reported["text"] for each in quiet for reported in each["chain"]]
        assert any("'billing-1' was alive" in text and "fenced" in text for text in chains)

    def test_why_is_shown_as_the_command_prints_it(self, run_output: Ended, commands: list[list[str]]) -> None:
        (why,) = (command for command in commands if command[1:3] == ["replay", "why"])
        printed = [line.rstrip() for line in muster(*why[1:]).rstrip().split("\n")]
        assert len(printed) > 40
        assert "\n".join(printed) in "\n".join(line.rstrip() for line in run_output.output.split("\n"))

    def test_the_suggested_next_commands_work(self, commands: list[list[str]]) -> None:
        to_go_on = [command for command in commands if "/" in command[0]]
        assert [command[1] for command in to_go_on] == ["replay", "replay", "serve"]
        for command in to_go_on[:2]:
            assert (ROOT / command[0]).is_file()
            assert "billing-1" in muster(*command[1:])
