"""`muster adopt` and `muster release` where there is no cluster upstream."""

import pytest
from typer.testing import CliRunner

from muster import cli as command
from muster.coordinator.admin.moving import MOVING, GroupCoordinator
from muster.coordinator.commands.members import cli as members_cli
from tests.coordinator.formed import form_group
from tests.muster_process import running_muster


@pytest.mark.parametrize("verb", ["adopt", "release"])
def test_a_muster_that_stands_alone_moves_no_group(verb: str) -> None:
    """It says so in one line, and the group is as it was."""
    with running_muster(log="memory:", topics=["orders:4"]) as muster:
        form_group(muster.bootstrap, "orders", "web-1")
        done = CliRunner().invoke(command.app, [verb, "orders", "--bootstrap", muster.bootstrap], env={"TERM": "dumb"})
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith(f"muster {verb}: group orders: INVALID_CONFIG: members.coordinator: ")
        assert "muster serve --upstream" in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", ["adopt", "release"])
def test_each_command_teaches_by_an_example(verb: str) -> None:
    """In its help."""
    printed = CliRunner().invoke(command.app, [verb, "--help"], env={"COLUMNS": "160", "TERM": "dumb"}).stdout
    assert f"muster {verb} orders --dry-run" in printed


def test_a_group_that_moves_is_not_listed_as_one_without_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in neither group; the line says who has let go, and who is waited for."""
    text = "moving to upstream: of its 2 members 1 has left; waits for web-1 at 10.0.0.1 to let go"
    moving = GroupCoordinator(coordinator=MOVING, text=text)
    monkeypatch.setattr(members_cli, "ask", lambda *_: (moving, ()))
    printed = CliRunner().invoke(command.app, ["members", "list", "orders"], env={"COLUMNS": "160", "TERM": "dumb"})
    assert printed.stdout.splitlines() == [f"Group orders is {text}."]
