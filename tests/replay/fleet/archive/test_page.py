"""docs/fleet-archive.md: its commands are run, and its tables match the code."""

import asyncio
import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from muster.cli import app
from muster.replay.archive.manifest import Manifest
from muster.replay.archive.segment import SCHEMA, Segment
from tests.replay.written import script, sqlite_log

PAGE = (Path(__file__).parents[4] / "docs" / "fleet-archive.md").read_text(encoding="utf-8")


def test_the_commands_run_in_their_order(tmp_path: Path) -> None:
    """With a file instead of the topic, and one run instead of an endless one."""
    story = script("orders")
    story.coordinator("coordinator-a:100").created()
    log = asyncio.run(sqlite_log(tmp_path / "muster.db", story))
    commands = re.findall(r"^\$ (.+)$", PAGE, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        here = command.replace("kafka://kafka-1:9092/__muster_events", log).replace("--every 1m", "--once")
        name, *args = shlex.split(here.replace("/archive", str(tmp_path / "archive")))
        assert name == "muster"
        answer = CliRunner().invoke(app, args)
        assert answer.exit_code == 0, (here, answer.output)


def test_the_columns_are_documented() -> None:
    """In order, each with its type."""
    table = PAGE.split("| Column | Type | |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE)
    assert [name for name, _ in rows] == SCHEMA.names
    types = {"bool": "bool", "headers": "list of (`key` string, `value` binary)"}
    assert [kind for _, kind in rows] == [
        types.get(field.name, types.get(str(field.type), str(field.type))) for field in SCHEMA
    ]


def test_the_fields_of_a_manifest_are_documented() -> None:
    """So are those of a segment."""
    table = PAGE.split("**A manifest** is a commit:")[1].split("\n\n")[1]
    assert set(Manifest.__struct_fields__) <= set(re.findall(r"`(\w+)`", table))
    assert set(Segment.__struct_fields__) - {"partition"} <= set(re.findall(r"`(\w+)`", table))
