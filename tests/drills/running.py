"""`muster drill ...` as a child process: started as a user does, its report, and what it leaves in a cluster."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient

from muster.drills.names import PREFIX

ENDS_WITHIN_S: Final = 300
BEGINS_WITHIN_S: Final = 240
SMALL: Final = ("--groups", "6", "--members", "3", "--partitions", "4", "--interval", "250ms", "--before", "500ms")
QUICK: Final = (*SMALL, "--after", "500ms", "--owner-session", "3s")
GENEROUS: Final = ("--heartbeats-within", "2m", "--joins-within", "2m", "--commits-within", "2m")
"""No time limits: the machine may be slow."""


class Drill:
    """One run, until `ended`. Its page goes to a file in this directory."""

    def __init__(self, kind: str, *options: str, directory: Path) -> None:
        self.page = directory / f"{kind}-{len(list(directory.iterdir()))}.html"
        self._output = self.page.with_suffix(".out")
        self._errors = self.page.with_suffix(".err")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        command = [sys.executable, "-m", "muster", "drill", kind, *options, "-o", str(self.page)]
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, start_new_session=True
            )

    def ended(self) -> int:
        """Wait for its end; return the exit code."""
        return self.process.wait(ENDS_WITHIN_S)

    @property
    def output(self) -> str:
        return self._output.read_text(encoding="utf-8")

    @property
    def errors(self) -> str:
        """Its output on stderr so far."""
        return self._errors.read_text(encoding="utf-8")

    @property
    def report(self) -> dict[str, Any]:
        """Its report, from `--format json`."""
        report: dict[str, Any] = json.loads(self.output)
        return report

    def close(self) -> None:
        """End it, if it is still running; it cleans up."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(ENDS_WITHIN_S)


def left_of(run: str, admin: AdminClient) -> Sequence[str]:
    """The topics and groups in a cluster that have the name of a run."""
    topics: Iterable[str] = admin.list_topics(timeout=30).topics
    groups = [group.group_id for group in admin.list_consumer_groups(request_timeout=30).result().valid]
    return [name for name in (*topics, *groups) if f"{PREFIX}{run}" in name]


def processes_of(run: str) -> list[int]:
    """The ids of processes whose command line has the name of a run. Linux only."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            command = (directory / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended meanwhile
        if f"{PREFIX}{run}".encode() in command:
            found.append(int(directory.name))
    return found


def lives(pid: int) -> bool:
    """Return whether there is such a process; a zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
