"""A running client in another language, and its events.

It has the process, its input and output lines, and its end; it does not interpret events.
"""

import json
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.brokers.broker import log_tail
from tests.clients.foreign.programs import Program

ANSWERS_WITHIN_S: Final = 30
ENDS_WITHIN_S: Final = 20


class ClientEnded(Exception):
    """It ended before the awaited event; the message has its error output."""


class Refused(Exception):
    """It could not execute a request; the message is its library's."""


class ForeignClient:
    """See the module. For use by one thread."""

    def __init__(self, program: Program, **settings: Any) -> None:
        command = [*program.command(), json.dumps(settings)]
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 -- it is open as long as the process runs
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
        )
        self._told: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._put_by: list[dict[str, Any]] = []
        self._asked = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def next_event(self, *, within_s: float) -> dict[str, Any] | None:
        """Return its next event; None if there is none in time. Raises `ClientEnded`."""
        if self._put_by:
            return self._put_by.pop(0)
        return self._heard(within_s)

    def wait_for(self, event: str, *, within_s: float = ANSWERS_WITHIN_S) -> dict[str, Any]:
        """Return the next event of that name, dropping earlier ones. Raises `ClientEnded`, `TimeoutError`."""
        deadline = time.monotonic() + within_s
        while (reported := self.next_event(within_s=max(0, deadline - time.monotonic()))) is not None:
            if reported["event"] == event:
                return reported
        raise TimeoutError(f"it did not tell of {event!r} within {within_s} s\n{self._complained()}")

    def ask(self, what: str, **details: Any) -> Any:
        """Send a request, and wait for its result; other events are kept for later.

        Raises `Refused`, `ClientEnded`, `TimeoutError`.
        """
        assert self._process.stdin is not None
        self._asked += 1
        self._process.stdin.write(json.dumps({"id": self._asked, "do": what, **details}).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._answer_to(self._asked, what)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def close(self) -> None:
        """Have it close cleanly, and exit. Raises `ClientEnded` if it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise ClientEnded(f"it goes on\n{self._complained()}") from None
        if code:
            raise ClientEnded(f"it closed with exit code {code}\n{self._complained()}")

    def kill(self) -> None:
        """Kill it, if it is still running. Leaves nothing behind."""
        self._process.kill()
        self._process.wait(ENDS_WITHIN_S)
        self._reader.join(ENDS_WITHIN_S)
        for stream in (self._process.stdin, self._process.stdout, self._complaints):
            assert stream is not None
            stream.close()

    def _answer_to(self, number: int, what: str) -> dict[str, Any]:
        deadline = time.monotonic() + ANSWERS_WITHIN_S
        while (reported := self._heard(max(0, deadline - time.monotonic()))) is not None:
            if reported["event"] == "done" and reported["id"] == number:
                return reported
            self._put_by.append(reported)
        raise TimeoutError(f"it did not {what} within {ANSWERS_WITHIN_S} s\n{self._complained()}")

    def _heard(self, within_s: float) -> dict[str, Any] | None:
        try:
            reported = self._told.get(timeout=within_s)
        except queue.Empty:
            return None
        if reported is None:
            self._told.put(None)  # for the next call
            raise ClientEnded(f"it ended\n{self._complained()}")
        return reported

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._told.put(json.loads(line))
        self._told.put(None)

    def _complained(self) -> str:
        self._complaints.seek(0)
        return log_tail(self._complaints.read().decode(errors="replace"))


@contextmanager
def running_client(program: Program, *, bootstrap: str, topic: str) -> Iterator[ForeignClient]:
    """A client without a group, for producing, while the block lasts. Raises `ToolMissing`, `BuildFailed`."""
    client = ForeignClient(program, bootstrap=bootstrap, topic=topic)
    try:
        yield client
        client.close()
    finally:
        client.kill()
