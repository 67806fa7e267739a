"""The replay page (docs/replay.md): its commands are run as written, and so is the completion that it promises."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from muster.replay.cli import app
from tests.replay.stories import a_night
from tests.replay.written import sqlite_log

PAGE = (Path(__file__).parents[3] / "docs" / "replay.md").read_text(encoding="utf-8")
COMMANDS = [shlex.split(command) for command in re.findall(r"^\$ muster replay (.+)$", PAGE, re.MULTILINE)]


def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, on the log of one night; each reports something about it."""
    asyncio.run(sqlite_log(tmp_path / "muster.db", a_night()))
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        result = CliRunner().invoke(app, command, env={"COLUMNS": "140", "TERM": "dumb"})
        code = 1 if command[0] == "verify" else 0  # the night is written by hand, not by the rules
        assert (result.exit_code, result.stderr) == (code, ""), (command, result.output)
        assert "orders" in result.stdout or "billing" in result.stdout or "muster.db" in result.stdout, command


def test_each_command_has_an_example_there() -> None:
    """And the page has each option of `why`."""
    names = {each.name for each in app.registered_commands}
    assert {command[0] for command in COMMANDS} == names
    for option in ("--all", "--last", "--at", "--generation", "--since", "--until"):
        assert f"`{option}" in PAGE


@pytest.mark.parametrize(
    ("words", "completed"), [("replay wh", {"why", "whatif"}), ("replay why --la", {"--last"}), ("repl", {"replay"})]
)
def test_the_shell_completes_commands_and_options(words: str, completed: set[str]) -> None:
    """As bash requests it; this includes a command whose module has not been imported yet."""
    request = {
        "_MUSTER_COMPLETE": "complete_bash",
        "COMP_WORDS": f"muster {words}",
        "COMP_CWORD": f"{len(words.split())}",
    }
    result = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv = ['muster']; from muster.cli import main; main()"],
        capture_output=True,
        text=True,
        env={**os.environ, **request},
        timeout=120,
        check=True,
    )
    assert set(result.stdout.split()) == completed
