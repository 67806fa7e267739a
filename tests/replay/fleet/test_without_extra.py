"""Without the extra `fleet` all other commands work, and those of the fleet report the missing packages."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.replay.written import script, sqlite_log

HIDDEN = """
import json, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyarrow", "duckdb", "pyspark", "pandas"):
            raise ModuleNotFoundError(name, name=name)
import importlib.util
found = importlib.util.find_spec
def find_spec(name, package=None):
    return None if name in ("pyarrow", "duckdb", "pyspark", "pandas") else found(name, package)
importlib.util.find_spec = find_spec
sys.meta_path.insert(0, Hidden())
from typer.testing import CliRunner
from muster.cli import app
told = []
for command in json.loads(sys.argv[1]):
    answer = CliRunner().invoke(app, command)
    told.append([answer.exit_code, answer.stdout, answer.stderr, repr(answer.exception)])
print(json.dumps(told))
"""
"""A program that runs commands while these modules cannot be found."""


def test_other_commands_work_and_fleet_commands_report_what_is_missing(tmp_path: Path) -> None:
    """In one line, with the way to get it, and exit code 2."""
    story = script("orders")
    story.coordinator("coordinator-a:100").created()
    log = asyncio.run(sqlite_log(tmp_path / "muster.db", story))
    here, page = str(tmp_path / "fleet"), str(tmp_path / "page.html")
    works = [
        ["replay", "groups", "--log", log],
        ["replay", "history", "orders", "--log", log],
        ["replay", "digest", "--log", log],
        ["replay", "report", "orders", "--log", log, "-o", page],
        ["fleet", "--help"],
        ["fleet", "report", "--help"],
    ]
    refused = [
        ["fleet", "build", "--log", log, "--to", here],
        *(["fleet", name, "--tables", here] for name in ("top", "causes", "storms", "incidents")),
        ["fleet", "group", "orders", "--tables", here],
        ["fleet", "report", "--tables", here, "-o", page],
        ["fleet", "archive", "--log", log, "--to", here],
    ]
    command = [sys.executable, "-c", HIDDEN, json.dumps([*works, *refused])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    answers = json.loads(done.stdout.splitlines()[-1])
    assert len(answers) == len(works) + len(refused)
    for requested, answer in zip([*works, *refused], answers, strict=True):
        if requested in works:
            assert answer[0] == 0, (requested, answer)
        else:
            assert (answer[0], answer[2].count("\n")) == (2, 1), (requested, answer)
            assert "missing: pip install '.[fleet]'" in answer[2], (requested, answer)


@pytest.mark.parametrize("name", ["pyarrow", "duckdb"])
def test_the_modules_are_hidden_where_the_commands_run(name: str) -> None:
    """The test above would otherwise prove nothing."""
    program = HIDDEN.split("from typer", maxsplit=1)[0] + f"import {name}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "ModuleNotFoundError" in done.stderr
