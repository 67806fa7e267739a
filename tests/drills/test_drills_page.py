"""docs/drills.md: its commands and options exist, and its goals and limits are those of the code."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from muster.cli import app
from muster.drills.plan import Fault
from muster.drills.start import HEARTBEATS_WITHIN_MS, OTHERS_WITHIN_MS

PAGE = (Path(__file__).parents[2] / "docs" / "drills.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (muster drill (?:.*\\\n)*.*)$", PAGE, re.MULTILINE)
WIDE = {"COLUMNS": "200", "TERM": "dumb"}


def help_of(kind: str) -> str:
    shown = CliRunner().invoke(app, ["drill", kind, "--help"], env=WIDE)
    assert shown.exit_code == 0, shown.output
    return shown.output


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_takes_these_options(command: str) -> None:
    kind = command.split()[2]
    for option in re.findall(r" (--[\w-]+|-o) ", f"{command} "):
        assert re.search(rf"{option}\b", help_of(kind)), option


def test_the_page_has_every_kind_and_every_option_that_it_names() -> None:
    """Each `muster drill KIND` of the code, and options of at least one of them."""
    assert set(re.findall(r"`muster drill ([\w-]+)`", PAGE)) == set(Fault)
    every = "".join(map(help_of, Fault))
    for option in set(re.findall(r"`(--[\w-]+)", PAGE)):
        assert re.search(rf"{option}\b", every), option


def test_the_goals_are_those_of_the_page() -> None:
    assert f"at most {HEARTBEATS_WITHIN_MS // 1000} s, a heartbeat interval" in PAGE
    assert f"at most {OTHERS_WITHIN_MS // 1000} s, an auto-commit interval" in PAGE
