"""Starts `muster serve` by forking a process that has imported it already.

An import costs half a second of a core, and the suite starts a thousand servers. So each process of the suite keeps one
template (`forked_muster_template.py`) for as long as it runs, and asks it for a fork: on a leash, as in
`brokers/child.py`, with the caller's environment, folder and output. The fork runs `muster.cli.main` as a new process
would.

A process that has to be started in another way (through a shell, with other variables for Python, not on Linux) is
started by `brokers/child.py`.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import IO, Final

from tests.brokers.child import KILLED_WITHIN_S, Leash, as_installed, leashed

TEMPLATE: Final = Path(__file__).with_name("forked_muster_template.py")
COMMAND: Final = (sys.executable, "-m", "muster", "serve")


@contextmanager
def leashed_muster(command: Sequence[str], *, stdout: IO[bytes]) -> Iterator[Leash]:
    """Run `command` as `leashed` does, but by a fork if it is a plain `muster serve`. Raises `OSError`."""
    environment = as_installed()
    template = _template() if tuple(command[: len(COMMAND)]) == COMMAND else None
    if template is None or not template.has_variables_of(environment):
        with leashed(command, stdout=stdout) as leash:
            yield leash
        return
    with template.forked(command[len(COMMAND) - 1 :], environment, stdout) as forked:
        yield forked


class _ForkedLeash:
    """The leash of a forked process. It writes its process id, and at its end its exit code, to `reports`."""

    def __init__(self, reports: int) -> None:
        self._reports = reports
        self._code: int | None = None
        self._read = b""
        while b"\n" not in self._read:
            self._read_on()
        line, _, self._read = self._read.partition(b"\n")
        self.pid = int(line)

    def poll(self) -> int | None:
        return self._wait_ms(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._wait_ms(None if timeout is None else int(timeout * 1000))
        if code is None:
            raise subprocess.TimeoutExpired("muster serve", timeout or 0)
        return code

    def _wait_ms(self, timeout_ms: int | None) -> int | None:
        if self._code is None and _is_readable(self._reports, timeout_ms):
            self._read_on()
            self._code = int(self._read)
        return self._code

    def _read_on(self) -> None:
        self._read += (read := os.read(self._reports, 64))
        if not read:  # the leash itself was killed
            self._read += b"137\n"


def _is_readable(descriptor: int, timeout_ms: int | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_ms))


class _Template:
    """The process that is forked."""

    def __init__(self) -> None:
        self._environment = as_installed()
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(TEMPLATE)], stdin=theirs.fileno(), start_new_session=True, env=self._environment
            )
        atexit.register(self._end)

    def has_variables_of(self, environment: Mapping[str, str]) -> bool:
        """Return whether a process with this environment would start Python as the template was started."""
        return _of_python(environment) == _of_python(self._environment)

    @contextmanager
    def forked(self, arguments: Sequence[str], environment: dict[str, str], stdout: IO[bytes]) -> Iterator[Leash]:
        """A fork that runs `muster` with these arguments while the block lasts."""
        with ExitStack() as stack:
            # The leash sees the end of `leash_in` when this process closes its side, however it ends.
            leash_in, held = os.pipe()
            reports, reports_to = os.pipe()
            stack.callback(os.close, reports)
            try:
                asked = {"arguments": list(arguments), "environment": environment, "folder": str(Path.cwd())}
                with self._lock:
                    descriptors = [leash_in, stdout.fileno(), reports_to]
                    socket.send_fds(self._link, [json.dumps(asked).encode()], descriptors)
            finally:
                os.close(leash_in)
                os.close(reports_to)
            closing = stack.enter_context(ExitStack())
            closing.callback(os.close, held)
            leash = _ForkedLeash(reports)
            try:
                yield leash
            finally:
                closing.close()
                try:
                    leash.wait(timeout=KILLED_WITHIN_S)
                except subprocess.TimeoutExpired:
                    os.killpg(leash.pid, signal.SIGKILL)

    def _end(self) -> None:
        self._link.close()
        self._process.wait()


@cache
def _template() -> _Template | None:
    """One for each process of the suite; None where file descriptors cannot be sent or children not be followed."""
    return _Template() if sys.platform == "linux" else None


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}
