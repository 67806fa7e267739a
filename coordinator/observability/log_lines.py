"""Writes log lines to standard error without blocking, since it may be a pipe that is not read.

Code that logs never waits: lines go into a queue of `QUEUED_BYTES_MAX`, which a thread writes. If the queue is full or
a line cannot be written (the reader is gone, the disk is full), it is counted, and the count is logged when lines can
be written again. When the process exits it waits briefly for the queue.

Python's own QueueListener only handles `logging` records, does not limit bytes, and can block without limit at the end.
"""

import atexit
import io
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Iterable

import structlog
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

QUEUED_BYTES_MAX = 4 * 1024 * 1024
CLOSE_TIMEOUT_S = 2.0
"""How long the process waits for the queue when it ends."""


class LogLines(io.RawIOBase, Collector):
    """Writes to a descriptor in a thread of its own. Thread-safe, and never blocks."""

    def __init__(self, descriptor: int, *, queued_bytes_max: int = QUEUED_BYTES_MAX) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._queued_bytes_max = queued_bytes_max
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0  # including what is being written
        self._dropped = self._untold = 0
        # Reentrant, as is Condition's default lock: garbage collection may run a finalizer that logs at any point.
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name="log-lines", daemon=True).start()

    @property
    def dropped(self) -> int:
        """The number of lines that were not written."""
        return self._dropped

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(
            "muster_log_lines_dropped",
            "Log lines dropped because standard error was blocked or failed",
            value=self._dropped,
        )

    def write(self, data: bytes) -> int:  # type: ignore[override]  # the TextIOWrapper around it writes bytes alone
        """Queue the line; drop and count it if the queue is full."""
        with self._changed:
            if self._queued_bytes + len(data) > self._queued_bytes_max:
                self._drop(data)
            else:
                self._queue.append(data)
                self._queued_bytes += len(data)
                self._changed.notify_all()
        return len(data)

    def wait_until_written(self, within_s: float) -> bool:
        """Wait until the queue is empty; return whether it became empty in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queued_bytes, within_s)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def _drop(self, data: bytes) -> None:
        lines = max(1, data.count(b"\n"))
        self._dropped += lines
        self._untold += lines

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue)
                data = self._queue.popleft()
            try:
                self._write_out(data)
            except OSError:
                is_written = False
            else:
                is_written = True
            self._done(data, is_written=is_written)

    def _done(self, data: bytes, *, is_written: bool) -> None:
        with self._changed:
            if not is_written:
                self._drop(data)
            self._queued_bytes -= len(data)
            untold = 0
            if is_written and self._queued_bytes <= self._queued_bytes_max // 2:
                untold, self._untold = self._untold, 0
            self._changed.notify_all()
        if untold:
            log.warning("log lines dropped: standard error was blocked", lines=untold)

    def _write_out(self, data: bytes) -> None:
        """Write all data, however long it takes. Raises OSError."""
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # the parent process made the descriptor non-blocking
                select.select((), (self._descriptor,), ())


def write_lines_beside() -> LogLines | None:
    """From now on, queue everything written to `sys.stderr`, including Python's own tracebacks.

    Returns None if standard error is not a file, as in some tests.
    """
    try:
        descriptor = sys.stderr.fileno()
    except (OSError, AttributeError):  # AttributeError: it was closed before we started, and is None
        return None
    sys.stderr.flush()
    lines = LogLines(descriptor)
    sys.stderr = io.TextIOWrapper(lines, encoding="utf-8", errors="backslashreplace", line_buffering=True)
    atexit.register(_end, lines)
    return lines


def _end(lines: LogLines) -> None:
    sys.stderr.flush()
    lines.wait_until_written(CLOSE_TIMEOUT_S)
