"""`muster adopt` and `muster release` without an upstream cluster, and what they print about a move."""

import json
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from typer.testing import CliRunner

from muster import cli as command
from muster.coordinator.client.commands import members_cli
from muster.coordinator.client.group_admin import ConfigEntry, GroupAdmin
from muster.coordinator.client.group_moves import MOVING, GroupCoordinator
from muster.coordinator.group.configs import COORDINATOR, MEMBERS, MOVE
from muster.coordinator.group.outcomes import GroupMove, ListedMember, MoveState, Standing
from muster.events.ids import MemberId
from tests.coordinator.formed import form_group
from tests.muster_process import running_muster


@pytest.mark.parametrize("verb", ["adopt", "release"])
def test_a_standalone_muster_moves_no_group(verb: str) -> None:
    """It prints one line, and the group is unchanged."""
    with running_muster(log="memory:", topics=["orders:4"]) as muster:
        form_group(muster.bootstrap, "orders", "web-1")
        done = CliRunner().invoke(command.app, [verb, "orders", "--bootstrap", muster.bootstrap], env={"TERM": "dumb"})
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith(f"muster {verb}: group orders: INVALID_CONFIG: members.coordinator: ")
        assert "muster serve --upstream" in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", ["adopt", "release"])
def test_each_command_teaches_by_an_example(verb: str) -> None:
    """In its help text."""
    printed = CliRunner().invoke(command.app, [verb, "--help"], env={"COLUMNS": "160", "TERM": "dumb"}).stdout
    assert f"muster {verb} orders --dry-run" in printed


def test_a_group_that_moves_is_not_listed_as_one_without_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """The members are in neither group; the line says which have rejoined and which are awaited."""
    text = "moving to upstream: of its 2 members 1 has left; waits for web-1 at 10.0.0.1 to rejoin"
    moving = GroupCoordinator(coordinator=MOVING, text=text)
    monkeypatch.setattr(members_cli, "ask", lambda *_: (moving, ()))
    printed = CliRunner().invoke(command.app, ["members", "list", "orders"], env={"COLUMNS": "160", "TERM": "dumb"})
    assert printed.stdout.splitlines() == [f"Group orders is {text}."]


def listed(name: str) -> ListedMember:
    return ListedMember(
        group_instance_id=None,
        member_id=MemberId(name),
        client_id=name,
        client_host="/10.0.0.1",
        standing=Standing.ACTIVE,
        retiring=False,
        is_leader=False,
        session_left_ms=None,
        since_ms=0,
    )


class Sidecar(GroupAdmin):
    """A sidecar with one group, whose members are here; each requested move completes at once."""

    members = msgspec.json.encode((listed("web-1"), listed("web-2"))).decode()
    moved: GroupMove | None = None

    async def describe_group_config(self, group_id: str, names: Sequence[str] = ()) -> tuple[ConfigEntry, ...]:
        move = None if self.moved is None else msgspec.json.encode(self.moved).decode()
        values = {MEMBERS: self.members, MOVE: move}
        return tuple(
            ConfigEntry(name=name, value=value, is_set=True, documentation="")
            for name, value in values.items()
            if value is not None
        )

    async def alter_group_config(
        self, group_id: str, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        if not validate_only:
            to = configs[COORDINATOR]
            assert to is not None
            self.moved = GroupMove(to=to, state=MoveState.DONE, members=2, told=2, back=2, took_ms=1_200)


def test_a_move_is_printed_with_what_the_members_see_and_what_they_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run stops after the first part; with JSON nothing else is printed."""
    monkeypatch.setattr("muster.coordinator.client.group_admin.GroupAdmin", Sidecar)

    def printed(*options: str) -> list[str]:
        done = CliRunner().invoke(command.app, ["release", "orders", *options], env={"TERM": "dumb"})
        assert (done.exit_code, done.stderr) == (0, "")
        return done.stdout.splitlines()

    foretold, moved = printed()
    assert foretold.startswith("orders: its 2 members rejoin at the cluster upstream: each learns of it in the")
    assert moved == (
        "orders: coordinated by the cluster upstream: all its 2 members have rejoined after 1.2 s,"
        " the join phase follows"
    )
    assert printed("--dry-run") == [foretold]
    (reported,) = json.loads("\n".join(printed("--format", "json")))["groups"]
    assert (reported["group_id"], reported["done"], reported["members"], reported["took_ms"]) == (
        "orders",
        True,
        2,
        1_200,
    )
