"""Starts `muster` and the judge's clients by forking a process that has imported them already.

The imports of one start take from half a second to a second of a core, and the suite starts over a thousand of these
programs. So each process of the suite keeps one template of a kind (`forked_template.py`) for as long as it runs, and
asks it for a fork: on a leash, as in `brokers/child.py`, with the caller's environment, folder and output. The fork
runs what a new process would run.

A process that has to be started in another way (through a shell, with other variables for what Python or a library
reads when it is imported, not on Linux) is started by `brokers/child.py`.
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
from tempfile import TemporaryFile
from threading import Lock
from typing import IO, Final

from tests.brokers.child import KILLED_WITHIN_S, Leash, as_installed, leashed

ROOT: Final = Path(__file__).parents[1]
MUSTER: Final = (sys.executable, "-m", "muster")
COMMAND: Final = (*MUSTER, "serve")
CLIENT: Final = (sys.executable, "-m", "tests.judge.real.process_main")
READ_AT_IMPORT: Final = {"FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "TERMINAL_WIDTH"}
"""Variables that typer reads when it is imported; Python's own begin with its name."""


@contextmanager
def started(
    command: Sequence[str], *, stdout: IO[bytes], stderr: IO[bytes] | None = None, variables: Mapping[str, str] = {}
) -> Iterator[Leash]:
    """Run `command` as `leashed` does, with these variables too, but by a fork if there is a template for it.

    Without `stderr`, errors go to `stdout`. Raises `OSError`.
    """
    environment = {**as_installed(), **variables}
    kind = _kind_of(command)
    template = None if kind is None else _template(kind)
    if template is None or not template.has_variables_of(environment):
        with leashed(command, stdout=stdout, stderr=stderr or subprocess.STDOUT, variables=variables) as leash:
            yield leash
        return
    with template.forked(command[len(MUSTER) :], environment, stdout, stderr or stdout) as forked:
        yield forked


def run_muster(
    *arguments: str, variables: Mapping[str, str] = {}, within_s: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, and return its exit code and what it printed. Raises `subprocess.TimeoutExpired`."""
    command = (*MUSTER, *arguments)
    with TemporaryFile() as stdout, TemporaryFile() as stderr:
        with started(command, stdout=stdout, stderr=stderr, variables=variables) as leash:
            code = leash.wait(within_s)
        return subprocess.CompletedProcess(command, code, _all_of(stdout), _all_of(stderr))


def _all_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _kind_of(command: Sequence[str]) -> str | None:
    """The kind of template that can run it, if there is one."""
    kinds = {COMMAND: "serve", MUSTER: "command", CLIENT: "client"}
    return next((kind for begin, kind in kinds.items() if tuple(command[: len(begin)]) == begin), None)


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
            raise subprocess.TimeoutExpired("a forked program", timeout or 0)
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

    def __init__(self, kind: str) -> None:
        self._environment = as_installed()
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked_template", kind],
                stdin=theirs.fileno(),
                start_new_session=True,
                cwd=ROOT,
                env=self._environment,
            )
        atexit.register(self._end)

    def has_variables_of(self, environment: Mapping[str, str]) -> bool:
        """Return whether a process with this environment would start Python as the template was started."""
        return _of_python(environment) == _of_python(self._environment)

    @contextmanager
    def forked(
        self, arguments: Sequence[str], environment: dict[str, str], stdout: IO[bytes], stderr: IO[bytes]
    ) -> Iterator[Leash]:
        """A fork that runs the program with these arguments while the block lasts."""
        with ExitStack() as stack:
            # The leash sees the end of `leash_in` when this process closes its side, however it ends.
            leash_in, held = os.pipe()
            reports, reports_to = os.pipe()
            stack.callback(os.close, reports)
            try:
                request = {"arguments": list(arguments), "environment": environment, "folder": str(Path.cwd())}
                with self._lock:
                    descriptors = [leash_in, stdout.fileno(), stderr.fileno(), reports_to]
                    socket.send_fds(self._link, [json.dumps(request).encode()], descriptors)
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
def _template(kind: str) -> _Template | None:
    """One for each process of the suite; None where file descriptors cannot be sent or children not be followed."""
    return _Template(kind) if sys.platform == "linux" else None


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("PYTHON") or name in READ_AT_IMPORT}
