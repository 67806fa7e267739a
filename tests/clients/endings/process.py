"""A process of a client.

It starts the process, has its input, sends it signals, and waits for its end.
"""

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.brokers.broker import log_tail

ENDS_WITHIN_S: Final = 30


class ClientEnded(Exception):
    """It ended before it was to; the message has what it said."""


class ClientProcess:
    """A process that obeys lines. It ends when this one does, as its input ends then.

    It is in a process group of its own, but in this one's session: should this process be killed while it is stopped,
    the system continues it.
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
        """One of the lines of `member.py`. Raises `ClientEnded`."""
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
        """Leave nothing behind."""
        self._process.kill()
        self._process.wait(ENDS_WITHIN_S)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # a line that it did not live to read
            self._process.stdin.close()


@contextmanager
def client_process(command: Sequence[str], output: Path) -> Iterator[ClientProcess]:
    """A process while the block lasts."""
    process = ClientProcess(command, output)
    try:
        yield process
    finally:
        process.end()
