"""A client's process: starting it, its input, signals, and waiting for its end."""

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.brokers.broker import log_tail

ENDS_WITHIN_S: Final = 30


class ClientEnded(Exception):
    """It ended early; the message has its output."""


class ClientProcess:
    """A process that executes lines of input. It ends with this one, when its input ends.

    It is in its own process group, but in this one's session: if this process is killed while it is stopped, the system
    continues it.
    """

    def __init__(self, command: Sequence[str], output: Path) -> None:
        self._output = output
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT, process_group=0
            )

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def tell(self, line: str) -> None:
        """Send one of the lines of `member.py`. Raises `ClientEnded`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ClientEnded(f"it ended before it could {line!r}: {self.said()}") from None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def said(self) -> str:
        return log_tail(self._output.read_text(encoding="utf-8", errors="replace"))

    def end(self) -> None:
        """End it, and leave nothing behind."""
        self._process.kill()
        self._process.wait(ENDS_WITHIN_S)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # a line that it no longer read
            self._process.stdin.close()


@contextmanager
def client_process(command: Sequence[str], output: Path) -> Iterator[ClientProcess]:
    """A process while the block lasts."""
    process = ClientProcess(command, output)
    try:
        yield process
    finally:
        process.end()
