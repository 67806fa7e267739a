"""`muster members` as a user types it, against `muster serve`: outputs, exit codes, a line for each reason."""

import os
import pty
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from typer.testing import CliRunner, Result

from muster import cli as command
from muster.coordinator.client.commands.members_cli import app
from tests.coordinator.formed import SESSION_MS, form_group
from tests.muster_process import MusterProcess, running_muster

WIDE = {"COLUMNS": "160", "TERM": "dumb", "MUSTER_BOOTSTRAP": ""}
NEVER_THERE = "it-never-was"


@pytest.fixture(scope="module")
def muster() -> Iterator[MusterProcess]:
    """A coordinator for this module."""
    with running_muster(log="memory:", topics=["orders:4"]) as running:
        yield running


class Group:
    """A stable group of these instances (None: a dynamic member), whose sessions outlast the test."""

    def __init__(self, muster: MusterProcess, *instances: str | None) -> None:
        self.group_id = f"orders-{uuid4().hex[:8]}"
        self.bootstrap = muster.bootstrap
        self.member_ids = form_group(muster.bootstrap, self.group_id, *instances)

    def run(self, command: str, *arguments: str) -> Result:
        """`muster members COMMAND GROUP ARGUMENTS...`"""
        return run(command, self.group_id, *arguments, "--bootstrap", self.bootstrap)

    def told(self, command: str, *arguments: str, code: int = 0) -> Any:
        """The same, parsed from `--json`."""
        result = self.run(command, *arguments, "--format", "json")
        assert result.exit_code == code, result.output
        return msgspec.json.decode(result.stdout)

    def standings(self) -> dict[str, str]:
        """The standing by instance id or member id."""
        members = self.told("list")["members"]
        return {each["group_instance_id"] or each["member_id"]: each["standing"] for each in members}

    def settings(self) -> dict[str, str]:
        """The configs set for this group."""
        return {each["name"]: each["value"] for each in self.told("config")["configs"] if each["is_set"]}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments], env=WIDE)


def assert_fails(result: Result, code: int, *parts: str) -> None:
    """One line on stderr, nothing on stdout, no traceback."""
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    assert result.stderr.count("\n") == 1, result.stderr
    for part in ("muster members: ", *parts):
        assert part in result.stderr


@pytest.fixture
def group(muster: MusterProcess) -> Group:
    """Two static members."""
    return Group(muster, "web-1", "web-2")


def test_members_are_listed_for_eyes(muster: MusterProcess) -> None:
    """The table has ids, hosts, standing, time left of the session, and the time of joining."""
    group = Group(muster, "web-1", None)
    assert group.run("add", "web-9").exit_code == 0
    result = group.run("list")
    assert (result.exit_code, result.stderr) == (0, "")
    head, _, *rows, last = result.stdout.splitlines()
    assert last == f"Group {group.group_id} is coordinated by this Muster."
    assert head.split("  ")[0] == "Instance"
    for column in ("Member id", "Client", "Host", "Standing", "Session left", "Since (UTC)"):
        assert column in head
    cells = {row.split()[0]: " ".join(row.split()[1:]) for row in rows}
    assert set(cells) == {"web-1", "-", "web-9"}
    for name, member_id in zip(("web-1", "-"), group.member_ids, strict=True):
        assert cells[name].startswith(f"{member_id} shop 127.0.0.1 Active")
        assert re.search(r" (4 min 5\d|5 min 00) s 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d$", cells[name])
    assert sum("Active, leader" in row for row in rows) == 1
    assert cells["web-9"].startswith("- - - Expected - 20")


def test_a_member_has_two_lines_on_a_narrow_terminal(muster: MusterProcess) -> None:
    """No id is split: a member id of the usual length fits on one line."""
    group = Group(muster, "web-1", None)
    arguments = ["list", group.group_id, "--bootstrap", muster.bootstrap]
    head, rule, *rows, _ = (
        CliRunner().invoke(app, arguments, env={**WIDE, "COLUMNS": "80", "TTY_COMPATIBLE": "1"}).stdout.splitlines()
    )
    assert (head.split("  ")[0], len(rule)) == ("Member, since (UTC)", len(rule.rstrip()))
    assert len(rows) == 4
    assert max(map(len, rows)) <= 80
    printed = "\n".join(rows)
    for member_id in group.member_ids:
        assert re.search(rf"^{member_id} +127\.0\.0\.1 +\d min \d\d s *$", printed, re.MULTILINE)
    assert re.search(r"^web-1  20\d\d-\d\d-\d\d \d\d:\d\d:\d\d +shop +Active, leader", printed, re.MULTILINE)


def test_members_are_listed_for_programs(group: Group) -> None:
    found = group.told("list")
    assert (found["group_id"], found["coordinator"]) == (group.group_id, "muster")
    assert [each["group_instance_id"] for each in found["members"]] == ["web-1", "web-2"]
    first = found["members"][0]
    assert (first["member_id"], first["client_id"], first["client_host"]) == (group.member_ids[0], "shop", "/127.0.0.1")
    assert (first["standing"], first["retiring"]) == ("Active", False)
    assert 0 < first["session_left_ms"] <= SESSION_MS


def test_instances_are_added_and_withdrawn(group: Group) -> None:
    result = group.run("add", "web-3", "web-4", "--timeout", "10m")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "web-3: expected\nweb-4: expected\n", "")
    assert group.settings() == {"members.registered": "web-3,web-4", "members.registration.timeout.ms": "600000"}
    assert group.run("withdraw", "web-3").stdout == "web-3: no longer expected\n"
    assert group.standings() == {"web-1": "Active", "web-2": "Active", "web-4": "Expected"}


def test_a_refused_batch_has_a_line_for_each_instance(group: Group) -> None:
    """Nothing is changed."""
    result = group.run("add", "web-3", "web-1", "no good", "--timeout", "10m")
    assert (result.exit_code, result.stdout) == (1, "")
    alone, member, bad = result.stderr.splitlines()
    assert alone == "muster members: web-3: not done because others of the batch were refused; it could be done alone"
    assert member.startswith("muster members: web-1: DUPLICATE_RESOURCE: ")
    assert group.member_ids[0] in member
    assert bad.startswith("muster members: no good: INVALID_CONFIG: ")
    assert group.settings() == {}


def test_a_refused_batch_for_programs(group: Group) -> None:
    found = group.told("add", "web-3", "web-1", code=1)
    assert (found["group_id"], found["done"]) == (group.group_id, False)
    assert [(each["member"], each["done"], each["error"]) for each in found["members"]] == [
        ("web-3", False, "NONE"),
        ("web-1", False, "DUPLICATE_RESOURCE"),
    ]
    assert "web-1" in found["members"][1]["message"]
    assert group.told("add", "web-3")["done"] is True


def test_members_retire_and_are_kept(group: Group) -> None:
    assert group.run("retire", "web-1", "--timeout", "1h").stdout == "web-1: retiring\n"
    assert group.settings() == {"members.retired": "web-1", "members.retirement.timeout.ms": "3600000"}
    assert re.search(r"web-1 .* retiring ", group.run("list").stdout)
    assert group.run("keep", "web-1").stdout == "web-1: kept\n"
    assert "members.retired" not in group.settings()
    again = group.run("keep", "web-1")
    assert_fails(again, 1, "web-1: INVALID_REQUEST: members.retired: 'web-1' is not retiring: it is an active member")


def test_members_are_removed_each_for_itself(muster: MusterProcess) -> None:
    """Instance id or member id; an unknown member does not block the others."""
    group = Group(muster, "web-1", "web-2", None)
    result = group.run("remove", "web-1", "web-7", group.member_ids[2], "--reason", "disk full")
    assert result.exit_code == 1
    assert result.stdout == f"web-1: removed\n{group.member_ids[2]}: removed\n"
    assert (
        result.stderr == "muster members: web-7: UNKNOWN_MEMBER_ID: the group has no such member; did you mean web-2?\n"
    )
    assert set(group.standings()) == {"web-2"}
    group.run("add", "web-9")
    expected = (
        "web-9: UNKNOWN_MEMBER_ID: it is not a member: it is expected, and has not joined (muster members withdraw)"
    )
    assert_fails(group.run("remove", "web-9"), 1, expected)


def test_a_rebalance_is_requested(muster: MusterProcess) -> None:
    """With dynamic members it needs --force; during a rebalance it is refused."""
    group = Group(muster, "web-1", None)
    assert_fails(group.run("rebalance"), 1, group.group_id, "INVALID_REQUEST", group.member_ids[1])
    done = group.run("rebalance", "--force")
    assert (done.exit_code, done.stdout) == (0, f"{group.group_id}: rebalances now\n")
    assert_fails(group.run("rebalance", "--force"), 1, "REBALANCE_IN_PROGRESS", "PreparingRebalance")


def test_settings_are_shown_changed_and_deleted(group: Group) -> None:
    """All or none; durations as text or in ms."""
    result = group.run("config", "target.group.size=6", "members.expansion.delay.ms=30s")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{group.group_id}: target.group.size=6",
        f"{group.group_id}: members.expansion.delay.ms=30000",
    ]
    assert group.settings() == {"target.group.size": "6", "members.expansion.delay.ms": "30000"}
    rows = [line.split() for line in group.run("config").stdout.splitlines()]
    assert ["target.group.size", "6", "this", "group"] in [row[:4] for row in rows]
    assert ["members.registration.timeout.ms", "300000", "default"] in [row[:3] for row in rows]
    assert_fails(group.run("config", "target.group.size=2", "members.expansion.delay.ms=-1"), 1, "INVALID_CONFIG", "-1")
    assert group.settings()["target.group.size"] == "6"
    result = group.run("config", "target.group.size=", "members.expansion.delay.ms=1500")
    assert result.stdout.splitlines()[0] == f"{group.group_id}: target.group.size is back to its default"
    assert group.settings() == {"members.expansion.delay.ms": "1500"}
    assert group.told("config", "members.expansion.delay.ms=") == {"group_id": group.group_id, "done": True}


def test_configs_of_a_group_without_members_are_explained(muster: MusterProcess) -> None:
    """Otherwise a typo looks like a group with the defaults."""
    printed = run("config", "orrders", "--bootstrap", muster.bootstrap).stdout
    assert printed.splitlines()[-1].startswith("Group orrders is not created yet: ")


def test_learners_are_promoted(group: Group) -> None:
    """With no learners "all" promotes none; a member that is not a learner is not reported as unknown."""
    assert_fails(group.run("promote", "web-1"), 1, "'web-1' is not a learner: it is an active member")
    assert_fails(group.run("promote", "web-11"), 1, "has no member 'web-11'; did you mean web-1 or web-2?")
    assert group.run("promote", "--all").stdout == f"{group.group_id}: its learners are promoted\n"


@pytest.mark.parametrize(
    "arguments",
    [["list"], ["add", "a", "b"], ["retire", "a"], ["remove", "a"], ["rebalance"], ["config", "target.group.size=1"]],
)
def test_a_group_that_does_not_exist_is_named_once(muster: MusterProcess, arguments: list[str]) -> None:
    command, *others = arguments
    result = run(command, NEVER_THERE, *others, "--bootstrap", muster.bootstrap)
    assert_fails(result, 1, f"group {NEVER_THERE}: GROUP_ID_NOT_FOUND")


@pytest.mark.parametrize("arguments", [["list"], ["add", "a"], ["promote", "a"], ["rebalance"], ["remove", "a"]])
def test_a_group_of_a_similar_name_is_named(group: Group, arguments: list[str]) -> None:
    command, *others = arguments
    result = run(command, f"{group.group_id}s", *others, "--bootstrap", group.bootstrap)
    assert_fails(result, 1, f"; did you mean {group.group_id}")
    printed = run("config", f"{group.group_id}s", "--bootstrap", group.bootstrap).stdout
    assert f"did you mean {group.group_id}" in printed


def test_a_group_of_a_similar_name_is_named_when_there_is_nothing_to_repair(group: Group) -> None:
    """The other commands of `muster members` suggest similar names, too."""
    arguments = ["groups", "repair", f"{group.group_id}s", "--bootstrap", group.bootstrap]
    result = CliRunner().invoke(command.app, arguments, env=WIDE)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"muster groups repair: group {group.group_id}s: ")
    assert f"; did you mean {group.group_id}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["config", "g", "target.group.size"], "'target.group.size' should be KEY=VALUE"),
        (["config", "g", "=1"], "'=1' should be KEY=VALUE"),
        (["config", "g", "a=1", "a=2"], "a is given twice"),
        (["config", "g", "members.expansion.delay.ms=5x"], "=5x: should be a duration, such as 30s, 5m or 1500ms, or"),
        (["config", "g", "members.coordinator.timeout.ms=1.5"], "ms=1.5: should be a duration, such as 30s"),
        (["promote", "g"], "name the learners to promote, or give --all"),
        (["promote", "g", "a", "--all"], "name learners, or give --all, not both"),
        (["add", "g", "a", "a"], "'a' is named twice"),
        (["list", "g", "--bootstrap", "9092"], "'9092' should be HOST:PORT"),
        (["list", "g", "--kafka-config", "sasl.pasword=a"], "did you mean sasl.password?"),
        (["list", "g", "--kafka-config", "sasl.password=a"], "sasl.password has no effect with security.protocol="),
    ],
)
def test_a_wrong_use_is_named(arguments: list[str], part: str) -> None:
    assert_fails(run(*arguments), 2, part)


def test_a_wrong_duration_is_a_wrong_use() -> None:
    result = run("add", "g", "a", "--timeout", "10")
    assert result.exit_code == 2
    assert "250ms" in result.stderr


def test_an_address_that_does_not_respond_is_named_with_advice() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    result = CliRunner().invoke(app, ["list", "orders"], env={**WIDE, "MUSTER_BOOTSTRAP": address})
    assert_fails(result, 2, address, "group orders", "muster serve", "--bootstrap", "MUSTER_BOOTSTRAP")


@pytest.mark.parametrize("command", [each.name or "" for each in app.registered_commands])
def test_each_command_teaches_by_an_example(command: str) -> None:
    printed = run(command, "--help").stdout
    assert f"muster members {command} orders" in printed
    assert "--bootstrap" in printed


def test_colours_are_for_terminals(group: Group) -> None:
    """Not for pipes; run as a separate process."""
    command = [sys.executable, "-m", "muster", "members", "list", group.group_id, "--bootstrap", group.bootstrap]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160"}
    piped = subprocess.run(command, capture_output=True, timeout=60, env=environment, check=True)
    assert b"\x1b" not in piped.stdout
    primary, replica = pty.openpty()
    with os.fdopen(primary, "rb", buffering=0) as terminal:
        with os.fdopen(replica, "wb") as output:
            subprocess.run(command, stdout=output, timeout=60, env=environment, check=True)
        assert b"\x1b[" in terminal.read(65_536)
