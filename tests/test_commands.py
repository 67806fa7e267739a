"""`muster` itself: its lines of --help, and what asking for help imports."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from muster.cli import COMMANDS, app, main

WIDE = {"COLUMNS": "400", "TERM": "dumb"}

SLOW = {
    "aiokafka", "cramjam", "duckdb", "fastavro", "jinja2", "kio", "pandas", "prometheus_client", "pyarrow", "pyspark",
    "sqlite3", "structlog", "uvloop",
}  # fmt: skip
"""The modules that take longest to import, and that no --help needs."""
SETTINGS = {"pydantic_settings"}
"""The modules that only `muster serve` needs. pydantic itself is imported by typer, too."""

SUBCOMMANDS = [
    [], ["members"], ["members", "list"], ["members", "add"], ["members", "config"], ["groups"], ["groups", "repair"],
    ["groups", "shadows"], ["log"], ["log", "repair"], ["log", "upgrade"], ["replay"], ["replay", "groups"],
    ["replay", "history"], ["replay", "why"], ["replay", "state"], ["replay", "report"], ["fleet"], ["fleet", "build"],
    ["fleet", "archive"], ["fleet", "verify"], ["fleet", "compact"], ["fleet", "expire"], ["fleet", "top"],
    ["fleet", "group"], ["fleet", "report"], ["adopt"], ["release"], ["status"], ["drill"], ["drill", "takeover"],
    ["drill", "partition"],
]  # fmt: skip


def imported_by(*commands: list[str]) -> set[str]:
    """The packages that a process has imported that was asked for the help of these commands."""
    asking = (
        "import json, sys\n"
        "from typer.testing import CliRunner\n"
        "from muster.cli import app\n"
        "for command in json.loads(sys.argv[1]):\n"
        "    said = CliRunner().invoke(app, [*command, '--help'])\n"
        "    assert said.exit_code == 0 and 'Usage' in said.output, said.output\n"
        "print(json.dumps([*sys.modules]))\n"
    )
    command = [sys.executable, "-c", asking, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


def test_help_imports_nothing_that_takes_long() -> None:
    """So help is shown immediately, whatever the command itself needs."""
    assert imported_by(*SUBCOMMANDS) & (SLOW | SETTINGS) == set()


def test_the_help_of_serve_imports_its_settings_alone() -> None:
    """Neither logs, metrics nor Kafka's messages."""
    assert imported_by(["serve"], ["config"], ["config", "check"]) & (SLOW | SETTINGS) == SETTINGS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_with_its_own_first_sentence(name: str) -> None:
    """The list is there before the command is imported, so the sentence is there twice."""
    line = COMMANDS[name][1]
    assert line in CliRunner().invoke(app, [name, "--help"], env=WIDE).stdout
    assert line[:60] in CliRunner().invoke(app, ["--help"], env=WIDE).stdout


def test_a_system_that_is_not_posix_gets_the_requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of a module that cannot be imported."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match="muster: needs a POSIX system"):
        main()


def test_an_unknown_command_is_reported_with_the_nearest() -> None:
    """As before, without importing any of them."""
    result = CliRunner().invoke(app, ["replya"], env=WIDE)
    assert (result.exit_code, "Did you mean 'replay'" in result.output) == (2, True), result.output


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["replay", "groups", "--format", "xml"], "Invalid value for '--format': 'xml' is not one of 'table',"),
        (["members", "list", "orders", "--format", "xml"], "Invalid value for '--format': 'xml' is not one of 'table'"),
        (
            ["replay", "why", "orders", "--generation", "x"],
            "Invalid value for '--generation': should be a valid integer",
        ),
    ],
)
def test_a_wrong_value_is_refused_without_the_words_of_a_library(command: list[str], said: str) -> None:
    result = CliRunner().invoke(app, command, env=WIDE)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize(("variable", "meant"), [("MUSTER_BOOTSTRP", "BOOTSTRAP"), ("MUSTER_TABLE", "TABLES")])
def test_a_mistyped_variable_is_reported_by_each_command_without_an_error(variable: str, meant: str) -> None:
    result = CliRunner().invoke(app, ["replay", "groups", "--log", "memory:"], env={**WIDE, variable: "x"})
    assert result.stderr.splitlines()[0] == f"muster: {variable} sets nothing: did you mean MUSTER_{meant}?"
    assert "inside the muster serve process" in result.stderr


def test_the_variables_of_kubernetes_are_passed_over() -> None:
    kubernetes = {"MUSTER_PORT": "tcp://10.0.0.1:9092", "MUSTER_SERVICE_HOST": "10.0.0.1"}
    result = CliRunner().invoke(app, ["replay", "groups", "--log", "memory:"], env={**WIDE, **kubernetes})
    assert "sets nothing" not in result.stderr


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("--to=~/x", "{home}/x"),
        ("--to=~", "{home}"),
        ("-o~/x.html", "{home}/x.html"),
        ("--to=x~/y", "x~/y"),
        ("--to=~nobody-here/x", "~nobody-here/x"),
    ],
)
def test_a_path_behind_an_equals_sign_is_in_the_users_home(
    given: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the shell does if the path is a word of its own; otherwise a folder named ~ would be created here."""
    taken: list[Path | None] = []
    command = typer.Typer()

    @command.command()
    def take(to: Annotated[Path | None, typer.Option("--to", "-o")] = None) -> None:
        taken.append(to)

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("muster.cli._imported", lambda _place: typer.main.get_command(command))
    assert CliRunner().invoke(app, ["fleet", given]).exit_code == 0
    assert taken == [Path(path.format(home=tmp_path))]


@pytest.mark.parametrize("command", [*SUBCOMMANDS, ["serve"], ["config", "check"]], ids=" ".join)
def test_a_flag_shows_no_type(command: list[str]) -> None:
    """A flag takes no value; an option that takes one shows its type."""
    output = CliRunner().invoke(app, [*command, "--help"], env=WIDE).stdout
    assert "--help" in output
    assert "bool" not in output
