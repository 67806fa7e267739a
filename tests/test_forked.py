"""A forked `muster` does as a new process does: what it prints where, its exit code, its folder, and its variables."""

import subprocess
from pathlib import Path

import pytest

from tests.brokers.child import as_installed
from tests.forked import MUSTER, run_muster


@pytest.mark.parametrize(
    "arguments",
    [("serve", "--lissen", "here"), ("replay", "groups", "--log", "nothing.jsonl"), ("config", "check")],
    ids=" ".join,
)
def test_a_fork_does_as_a_new_process(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    variables = {"COLUMNS": "77", "LINES": "50", "TERM": "dumb", "TTY_COMPATIBLE": "1", "MUSTER_LISTEN": "127.0.0.1:1"}
    environment = as_installed() | variables
    new = subprocess.run(
        [*MUSTER, *arguments], capture_output=True, text=True, env=environment, timeout=60, check=False
    )
    forked = run_muster(*arguments, variables=variables)
    assert (forked.returncode, forked.stdout, forked.stderr) == (new.returncode, new.stdout, new.stderr)
    assert new.stdout + new.stderr


def test_a_command_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_muster("serve", "--listen", "127.0.0.1:0", "--log", f"sqlite:///{tmp_path / 'muster.db'}", within_s=0)
