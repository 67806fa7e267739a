"""The demo as a child process, and the processes and files that it leaves behind.

Starts it as a user does, collects its output, and finds its processes: every process of a run inherits a unique
variable in its environment, by which `/proc` identifies it. Linux only.
"""

import os
import pty
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parents[2]
ENDS_WITHIN_S: Final = 150
SEEN_WITHIN_S: Final = 60
CHECK_INTERVAL_S: Final = 0.02

COLOUR_VARIABLES: Final = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "COLORTERM")


IN_THE_BACKGROUND: Final = ("sh", "-c", """trap '' INT; exec "$@\"""", "sh")
"""A shell's background job: with Ctrl-C ignored, which must not prevent a run from being stopped."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    exit_code: int
    output: str
    errors: str


class Run:
    """`python -m demo` with these options; its output is read all the time, so it never blocks on us."""

    def __init__(self, *options: str) -> None:
        self._word = f"DEMO_RUN_{secrets.token_hex(8)}"
        self.process = subprocess.Popen(
            [*IN_THE_BACKGROUND, sys.executable, "-m", "demo", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=plain_environment() | {self._word: "1"},
            start_new_session=True,
        )
        self._said: dict[str, bytes] = {}
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        streams = {"output": self.process.stdout, "errors": self.process.stderr}
        self._readers = [threading.Thread(target=self._read, args=each) for each in streams.items()]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str, stream: Iterator[bytes]) -> None:
        self._said[name] = b""
        for line in stream:
            self._said[name] += line

    def ended(self) -> Ended:
        """Wait for its end."""
        exit_code = self.process.wait(ENDS_WITHIN_S)
        for reader in self._readers:
            reader.join(SEEN_WITHIN_S)
        return Ended(exit_code=exit_code, output=self._said["output"].decode(), errors=self._said["errors"].decode())

    def processes(self, *, of: str = "") -> list[int]:
        """The ids of running processes whose command line begins with `of`, including itself.

        Not those that have it further on: a child's leash has the child's whole command line.
        """
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                environment, command = ((directory / name).read_bytes() for name in ("environ", "cmdline"))
            except OSError:
                continue  # it has ended meanwhile
            if self._word.encode() in environment and command.replace(b"\0", b" ").decode().startswith(of):
                found.append(int(directory.name))
        return found

    def wait_for_process(self, *, of: str) -> int:
        """The id of a process whose command line begins with `of`."""
        deadline_s = time.monotonic() + SEEN_WITHIN_S
        while not (found := self.processes(of=of)):
            assert self.process.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(CHECK_INTERVAL_S)
        return found[0]

    def close(self) -> None:
        """End it, if it is still running."""
        if self.process.poll() is None:
            self.process.terminate()
        self.ended()


@contextmanager
def running_demo(*options: str) -> Iterator[Run]:
    """A run while the block lasts."""
    run = Run(*options)
    try:
        yield run
    finally:
        run.close()


def plain_environment() -> dict[str, str]:
    """This process's environment, without the variables that affect colours."""
    environment = {name: value for name, value in os.environ.items() if name not in COLOUR_VARIABLES}
    return environment | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}


def terminal_output(*options: str, environment: Mapping[str, str]) -> str:
    """The demo's output on a terminal; for short runs, whose output fits the terminal's buffer."""
    ours, its = pty.openpty()
    try:
        command = [sys.executable, "-m", "demo", *options]
        everything = {**plain_environment(), **environment}
        subprocess.run(
            command, check=False, stdin=its, stdout=its, stderr=its, cwd=ROOT, env=everything, timeout=SEEN_WITHIN_S
        )
        return os.read(ours, 65_536).decode()
    finally:
        os.close(its)
        os.close(ours)
