"""A real `muster serve` as a child process, for tests that talk to it over a socket.

Starts it on a free port, knows its address, and can end it in every way. It runs on a leash (`brokers/child.py`) and
never outlives the tests.

    with running_muster(log="memory:", topics=["orders:3"]) as muster:
        client = connect(muster.bootstrap)
        muster.kill()      # kill -9
        muster.start()     # on the same log, at the same address
"""

import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.brokers.broker import HOST, log_tail
from tests.brokers.child import Leash, only_child_of, signal_group
from tests.forked import COMMAND, started

SERVES_WITHIN_S: Final = 90
ENDS_WITHIN_S: Final = 15
CHECK_INTERVAL_S: Final = 0.01

# The settings of the test broker: groups form in 50 ms, sessions may be as short as a test needs, and no sweep removes
# empty groups ten minutes after the start.
TEST_CONFIG: Final[Mapping[str, str]] = {
    "group.initial.rebalance.delay.ms": "50",
    "group.min.session.timeout.ms": "100",
    "offsets.retention.check.interval.ms": "86400000",
}


def last_words(stderr: str) -> list[str]:
    """The lines in which a process logged why it ended, or what is wrong with its settings, in any format."""
    result = []
    for line in stderr.splitlines():
        if line.startswith("muster: "):
            result.append(line)
        elif line.startswith("{") and (reported := json.loads(line))["event"] == "muster ends":
            result.append(f"muster: {reported['reason']}")
    return result


class MusterEnded(Exception):
    """The process ended, or kept running, when it should not have; the message has the end of its log."""


class MusterProcess:
    """One address and one event log, with at most one process that serves them."""

    def __init__(
        self,
        *arguments: str,
        output: Path,
        port: int = 0,
        command: Sequence[str] = COMMAND,
        serves_within_s: float = SERVES_WITHIN_S,
    ) -> None:
        """`port`: where it listens; 0: where it likes at first. `command`: another Muster than this one."""
        self._arguments = arguments
        self.log = arguments[arguments.index("--log") + 1] if "--log" in arguments else ""
        """The URL of its event log."""
        self._output = output
        self._port = port
        self._command = command
        self._serves_within_s = serves_within_s
        self._seen = 0  # bytes of the output that belong to processes that have ended
        self._held: AbstractContextManager[Leash] | None = None
        self._leash: Leash | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port`, the same over all restarts."""
        return f"{HOST}:{self._port}"

    @property
    def output(self) -> str:
        """All that its processes logged so far."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    @property
    def pid(self) -> int:
        """The id of the serving process: the leash's only child. Linux only."""
        assert self._leash is not None
        return only_child_of(self._leash.pid)

    def start(self, until: str = "serving") -> None:
        """Start a process and wait until it serves, or logs another event that has its address (`until`).

        Raises `MusterEnded`.
        """
        assert self._leash is None
        self._seen = self._output.stat().st_size if self._output.exists() else 0
        command = [*self._command, "--listen", f"{HOST}:{self._port}", "--log-format", "json", *self._arguments]
        with self._output.open("ab") as output:
            self._held = started(command, stdout=output)
            self._leash = self._held.__enter__()
        try:
            serving = self.wait_for_event(until, where=lambda event: "listen" in event, within_s=self._serves_within_s)
        except MusterEnded:
            self._let_go()
            raise
        self._port = int(serving["listen"].rpartition(":")[2])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal to stop, and wait for its exit code. Raises `MusterEnded` if it keeps running."""
        assert self._leash is not None
        signal_group(self._leash, number)
        return self.wait()

    def kill(self) -> None:
        """End it as `kill -9` does, and wait until it is gone."""
        assert self._leash is not None
        self._let_go()

    def wait(self) -> int:
        """Wait until it ends by itself, and return its exit code. Raises `MusterEnded` if it keeps running."""
        assert self._leash is not None
        try:
            return self._leash.wait(timeout=ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise MusterEnded(f"it goes on after {ENDS_WITHIN_S} s\n{self._tail()}") from None
        finally:
            self._let_go()

    def asked(self, path: str) -> str:
        """Get a path of its metrics endpoint (`--metrics 127.0.0.1:0`). Raises `urllib.error.HTTPError`."""
        address = self.wait_for_event("metrics")["listen"]
        with urllib.request.urlopen(f"http://{address}{path}", timeout=ENDS_WITHIN_S) as answer:
            text: str = answer.read().decode()
        return text

    def restart(self, *, topics: Sequence[str] | None = None) -> None:
        """Stop it cleanly, and start it again on the same log at the same address, perhaps with other topics."""
        if topics is not None:
            at = [place for place, argument in enumerate(self._arguments) if argument == "--topic"]
            kept = [each for place, each in enumerate(self._arguments) if place not in at and place - 1 not in at]
            self._arguments = (*kept, *(argument for topic in topics for argument in ("--topic", topic)))
        code = self.stop()
        if code != 0:
            raise MusterEnded(f"it stopped with exit code {code}\n{self._tail()}")
        self.start()

    def end(self) -> None:
        """End every process and remove its files."""
        if self._leash is not None:
            self._let_go()

    def wait_for_event(
        self, name: str, *, where: Callable[[dict[str, Any]], bool] = lambda _: True, within_s: float = ENDS_WITHIN_S
    ) -> dict[str, Any]:
        """The first line of this process's log with that event. Raises `MusterEnded` when it ended, or time is over."""
        assert self._leash is not None
        deadline = time.monotonic() + within_s
        while True:
            ended = self._leash.poll() is not None
            for event in self._events():
                if event.get("event") == name and where(event):
                    return event
            if ended:
                raise MusterEnded(f"it ended before it logged {name!r}\n{self._tail()}")
            if time.monotonic() >= deadline:
                raise MusterEnded(f"it did not log {name!r} within {within_s} s\n{self._tail()}")
            time.sleep(CHECK_INTERVAL_S)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log lines of this process with that event so far, the oldest first."""
        return [event for event in self._events() if event.get("event") == name]

    def _events(self) -> Iterator[dict[str, Any]]:
        with self._output.open("rb") as output:
            output.seek(self._seen)
            lines = output.read().decode(errors="replace").splitlines()
        for line in lines:
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                continue  # a warning of Python's, or a line that is not whole yet
            if isinstance(event, dict):
                yield event

    def _let_go(self) -> None:
        assert self._held is not None
        self._held.__exit__(None, None, None)
        self._held = self._leash = None

    def _tail(self) -> str:
        return f"the end of its log:\n{log_tail(self.output)}"


@contextmanager
def running_muster(
    *,
    log: str,
    topics: Sequence[str] = (),
    config: Mapping[str, str] = TEST_CONFIG,
    options: Sequence[str] = (),
    serves_within_s: float = SERVES_WITHIN_S,
) -> Iterator[MusterProcess]:
    """Muster on this event log while the block lasts; it is killed when the block is left. Raises `MusterEnded`."""
    arguments = ["--log", log]
    for topic in topics:
        arguments += ["--topic", topic]
    for name, value in config.items():
        arguments += ["--config", f"{name}={value}"]
    with TemporaryDirectory(prefix="muster-") as directory:
        output = Path(directory) / "output"
        muster = MusterProcess(*arguments, *options, output=output, serves_within_s=serves_within_s)
        muster.start()
        try:
            yield muster
        finally:
            muster.end()


def sqlite_log(directory: Path) -> str:
    """The URL of an event log in a file of this directory."""
    return f"sqlite:///{directory / 'muster.db'}"
