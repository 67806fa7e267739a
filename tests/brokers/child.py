"""Child processes that never outlive the process that started them.

A child runs on a leash (`leash.py`) in a separate process group. The leash ends with the `with` block, or with this
process, for whatever reason; the group ensures that a terminal's Ctrl-C only reaches this process. Packages that are
only for tests and slow the start are hidden from a child (`as_installed/`).
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, Protocol

LEASH: Final = Path(__file__).with_name("leash.py")
AS_INSTALLED: Final = Path(__file__).with_name("as_installed")
KILLED_WITHIN_S: Final = 10


class Leash(Protocol):
    """The part of `subprocess.Popen` needed for a process on a leash."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


@contextmanager
def leashed(
    command: Sequence[str],
    *,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes] = subprocess.STDOUT,
    variables: Mapping[str, str] = {},
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `command` while the block lasts; it is killed, and gone, when the block is left.

    The value is the leash: its exit code is the command's (128 plus the signal's number if killed by one). Raises
    `OSError` if the leash cannot be started.
    """
    with subprocess.Popen(
        [sys.executable, "-I", str(LEASH), *command],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        env={**as_installed(), **variables},
    ) as leash:
        try:
            yield leash
        finally:
            _end(leash)


def as_installed() -> dict[str, str]:
    """The environment of a process that has the same packages as an installed Muster."""
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": str(AS_INSTALLED) if not path else f"{AS_INSTALLED}{os.pathsep}{path}"}


def signal_group(leash: Leash, number: signal.Signals) -> None:
    """Send a signal to the command; no effect if it has ended."""
    if leash.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(leash.pid, number)


def only_child_of(pid: int) -> int:
    """The process id of the command on a leash. Linux only."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii"))


def _end(leash: subprocess.Popen[bytes]) -> None:
    # Releasing the leash, rather than killing the group, makes it wait for the command: only then may the command's
    # files be deleted.
    assert leash.stdin is not None
    leash.stdin.close()
    try:
        leash.wait(timeout=KILLED_WITHIN_S)
    except subprocess.TimeoutExpired:
        os.killpg(leash.pid, signal.SIGKILL)
