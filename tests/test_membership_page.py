"""The commands of docs/membership.md, run as written and in their order, on a group of real consumers."""

import re
import shlex
from pathlib import Path

import pytest

from tests.clients.consumers import Confluent
from tests.clients.crew import crew
from tests.clients.probe import until_stable
from tests.forked import run_muster
from tests.muster_process import running_muster
from tests.waiting import until_so

PAGE = (Path(__file__).parents[1] / "docs" / "membership.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (muster .+)$", PAGE, re.MULTILINE)
ENDS_WITHIN_S = 120


@pytest.mark.clients
def test_the_commands_of_the_page() -> None:
    """Each is taken; the processes that it speaks of are there."""
    with running_muster(log="memory:", topics=["orders:6"]) as muster, crew(muster, Confluent) as started:
        started.group_id = "orders"
        for name in ("web-1", "web-2", "web-3", "web-4"):
            started.add(name)
        until_so(lambda: all(consumer.assigned for consumer in started.consumers), started.shares)
        for command in COMMANDS:
            until_stable(muster.bootstrap, "orders", members=len(started.consumers))
            if " promote " in command:
                started.add("web-7")
                until_stable(muster.bootstrap, "orders", members=len(started.consumers))
            _, *arguments = shlex.split(command)
            done = run_muster(*arguments, "--bootstrap", muster.bootstrap)
            assert (done.returncode, done.stderr) == (0, ""), (command, done.stdout, done.stderr)
            if " remove " in command:
                break
        for consumer in list(started.consumers):
            started.consumers.remove(consumer)
            consumer.end()


def test_every_command_has_its_place_on_the_page() -> None:
    """A command that is not documented might as well not exist."""
    shown = {shlex.split(command)[2] for command in COMMANDS}
    help_text = run_muster("members", "--help").stdout
    listed = set(re.findall(r"^│ (\w+) ", help_text, re.MULTILINE))
    assert shown == listed
