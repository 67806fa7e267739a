"""`muster groups repair` as a user types it, against a `muster serve` with a group that it cannot read."""

import asyncio
import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import msgspec
import pytest
from typer.testing import CliRunner, Result

from muster import cli as muster_command
from tests.clients.probe import described
from tests.muster_process import MusterProcess, running_muster
from tests.replay import written

WIDE = {"COLUMNS": "160", "TERM": "dumb", "MUSTER_BOOTSTRAP": ""}
LOADING = 14
GROUPS = ("orders", "payments", "healthy")


@pytest.fixture(scope="module")
def muster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MusterProcess]:
    """A process with three groups; the newest record of two of them cannot be read."""
    path = tmp_path_factory.mktemp("log") / "muster.db"
    url = asyncio.run(written.sqlite_log(path, *(written.script(name).created() for name in GROUPS)))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for name in GROUPS[:2]:
            connection.execute("UPDATE records SET value = x'00' WHERE instr(key, ?)", (name.encode(),))
    with running_muster(log=url, options=["--metrics", "127.0.0.1:0"]) as running:
        yield running


def run(muster: MusterProcess, *arguments: str) -> Result:
    return CliRunner().invoke(
        muster_command.app, ["groups", "repair", *arguments, "--bootstrap", muster.bootstrap], env=WIDE
    )


def test_it_says_what_would_be_lost_and_does_it_when_told_to(muster: MusterProcess) -> None:
    """The log has the very command; without --yes nothing is changed; with it the group is served at once."""
    named = muster.events("group quarantined: a record of it cannot be read")
    (event,) = (each for each in named if each["group_id"] == "orders")
    assert event["way_out"] == "muster groups repair orders --bootstrap ADDRESS"  # it took a free port

    said = run(muster, "orders")
    assert said.exit_code == 0, said.output
    partition = written.script("orders").partition
    assert f"orders: quarantined; 1 record in partition {partition} cannot be read" in said.stdout
    assert "lost: the group's own record (generation, state, protocol), offset 0: " in said.stdout
    assert "kept: its id, and its committed offsets" in said.stdout
    assert said.stdout.endswith("Nothing was changed; --yes does it.\n")
    assert described(muster.bootstrap, "orders")["error_code"] == LOADING

    told = run(muster, "orders", "--format", "json")
    assert msgspec.json.decode(told.stdout)["done"] is False

    done = run(muster, "orders", "--yes")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("orders: repaired, its members join again\n")
    assert described(muster.bootstrap, "orders")["group_state"] == "Empty"
    assert muster.wait_for_event("group repaired")["group_id"] == "orders"


def test_on_a_terminal_it_asks(muster: MusterProcess) -> None:
    """No is no."""
    command = [sys.executable, "-m", "muster", "groups", "repair", "payments", "--bootstrap", muster.bootstrap]
    primary, replica = pty.openpty()
    with os.fdopen(primary, "r+b", buffering=0) as terminal, os.fdopen(replica, "r+b", buffering=0) as of_command:
        terminal.write(b"n\n")
        subprocess.run(command, stdin=of_command, stdout=of_command, timeout=60, env={**os.environ, **WIDE}, check=True)
        shown = terminal.read(65_536).decode()
    assert "Make it anew? [y/N]" in shown
    assert "Nothing was changed" in shown
    assert described(muster.bootstrap, "payments")["error_code"] == LOADING


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ("healthy", "group healthy is not quarantined: there is nothing to repair"),
        ("nobody", "group nobody: GROUP_ID_NOT_FOUND: Group nobody not found."),
    ],
)
def test_there_is_nothing_to_repair(muster: MusterProcess, group: str, said: str) -> None:
    """The group is well, or does not exist: one line, exit code 1."""
    result = run(muster, group, "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"muster groups repair: {said}\n"


def test_a_coordinator_that_is_not_there() -> None:
    """Exit code 2."""
    result = CliRunner().invoke(muster_command.app, ["groups", "repair", "x", "--bootstrap", "127.0.0.1:1"], env=WIDE)
    assert result.exit_code == 2
    assert "--bootstrap" in result.stderr
