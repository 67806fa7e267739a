"""Kafka's own command-line tools, run as child processes against any address that speaks its protocol.

It runs a tool to its end, or for a while with access to its output, against a broker or Muster. A tool needs no running
broker of ours, only the jars (`jars.py`).

    done = run_tool(JavaTool.CONSUMER_GROUPS, "--bootstrap-server", bootstrap, "--list")
    print(done.stdout)

    with running_tool(JavaTool.VERIFIABLE_CONSUMER, "--bootstrap-server", bootstrap, ...) as consumer:
        line = consumer.wait_for(lambda line: line.event.get("name") == "partitions_assigned", within_s=30)
        consumer.signal(signal.SIGTERM)
"""

import json
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import IO, Any, Final

import msgspec

from tests.brokers.broker import SHORT_LIVED_JVM_OPTIONS, log_tail
from tests.brokers.child import leashed, signal_group
from tests.brokers.jars import resolved_libs
from tests.brokers.process import LOG4J_CONFIGURATION

ENDS_WITHIN_S: Final = 60
# A tool's output is on standard output, so its log goes to the other stream.
LOG_OPTIONS: Final = (
    f"-Dlog4j2.configurationFile={LOG4J_CONFIGURATION}",
    "-Dlog.level=WARN",
    "-Dlog.target=SYSTEM_ERR",
)


class JavaTool(StrEnum):
    """The main classes of the Kafka tools used in tests, named like the scripts that wrap them."""

    ACLS = "org.apache.kafka.tools.AclCommand"
    CONFIGS = "kafka.admin.ConfigCommand"
    CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    CONSUMER_PERF_TEST = "org.apache.kafka.tools.ConsumerPerformance"
    CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
    GROUPS = "org.apache.kafka.tools.GroupsCommand"
    PRODUCER_PERF_TEST = "org.apache.kafka.tools.ProducerPerformance"
    STREAMS_RESET = "org.apache.kafka.tools.StreamsResetter"
    TRANSACTIONAL_MESSAGE_COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
    TOPICS = "org.apache.kafka.tools.TopicCommand"
    VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
    VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"


class ToolLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a tool's standard output."""

    text: str
    event: dict[str, Any]
    """The line as a JSON object, as the verifiable tools write them; empty if it is none."""


class ToolEnded(Exception):
    """The tool ended before it printed the awaited line; the message has its output."""


class RunningTool:
    """A running tool, and its output."""

    def __init__(self, leash: subprocess.Popen[bytes]) -> None:
        assert leash.stdout is not None
        assert leash.stderr is not None
        self._leash = leash
        self._arrived: queue.SimpleQueue[ToolLine | None] = queue.SimpleQueue()
        self._seen: list[ToolLine] = []
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_lines, args=(leash.stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(leash.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def seen(self) -> tuple[ToolLine, ...]:
        """The lines returned by `next_line` and `wait_for` so far."""
        return tuple(self._seen)

    def next_line(self, *, within_s: float = ENDS_WITHIN_S) -> ToolLine | None:
        """The next line, or None if the tool has ended. Raises `TimeoutError`."""
        try:
            line = self._arrived.get(timeout=max(within_s, 0))
        except queue.Empty:
            raise TimeoutError(f"the tool printed no line for {within_s:.1f} s\n{self._report()}") from None
        if line is None:
            self._arrived.put(None)  # for the next call
        else:
            self._seen.append(line)
        return line

    def wait_for(self, wanted: Callable[[ToolLine], bool], *, within_s: float = ENDS_WITHIN_S) -> ToolLine:
        """The next matching line; earlier ones stay in `seen`. Raises `TimeoutError`, `ToolEnded`."""
        deadline = time.monotonic() + within_s
        while (line := self.next_line(within_s=deadline - time.monotonic())) is not None:
            if wanted(line):
                return line
        raise ToolEnded(f"the tool ended first\n{self._report()}")

    def signal(self, number: signal.Signals) -> None:
        """Send the tool a signal: SIGTERM lets it leave its group cleanly, SIGSTOP and SIGCONT pause it."""
        signal_group(self._leash, number)

    def kill(self) -> None:
        """Kill the tool, and wait until it has ended."""
        assert self._leash.stdin is not None
        self._leash.stdin.close()
        self._leash.wait(timeout=ENDS_WITHIN_S)

    def wait(self, *, within_s: float = ENDS_WITHIN_S) -> int:
        """Its exit code, once it has ended. Raises `TimeoutError`."""
        try:
            return self._leash.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the tool did not end within {within_s:.1f} s\n{self._report()}") from None

    def join_readers(self) -> None:
        """Wait until all output is read; call it when the tool has ended."""
        for reader in self._readers:
            reader.join(timeout=ENDS_WITHIN_S)

    def _read_lines(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._arrived.put(tool_line(line.decode(errors="replace").rstrip("\r\n")))
        self._arrived.put(None)

    def _read_errors(self, stream: IO[bytes]) -> None:
        self._errors.extend(line.decode(errors="replace").rstrip("\r\n") for line in stream)

    def _report(self) -> str:
        printed = [line.text for line in self._seen]
        return log_tail("\n".join([*printed, *self._errors]))


def run_tool(tool: JavaTool, *arguments: str, within_s: float = ENDS_WITHIN_S) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end, and return its output and its exit code.

    Raises `JarsMissing`, and `subprocess.TimeoutExpired` after killing the tool.
    """
    command = resolved_libs().command(tool.value, *arguments, options=(*SHORT_LIVED_JVM_OPTIONS, *LOG_OPTIONS))
    return subprocess.run(
        command, capture_output=True, text=True, timeout=within_s, stdin=subprocess.DEVNULL, check=False
    )


@contextmanager
def running_tool(tool: JavaTool, *arguments: str) -> Iterator[RunningTool]:
    """Run a tool while the block lasts; it is killed when the block is left. Raises `JarsMissing`."""
    command = resolved_libs().command(tool.value, *arguments, options=(*SHORT_LIVED_JVM_OPTIONS, *LOG_OPTIONS))
    with leashed(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as leash:
        running = RunningTool(leash)
        try:
            yield running
        finally:
            running.kill()
            running.join_readers()


def tool_line(text: str) -> ToolLine:
    """A line of output, with its JSON object if it is one."""
    try:
        event = json.loads(text)
    except json.JSONDecodeError:
        event = {}
    return ToolLine(text=text, event=event if isinstance(event, dict) else {})
