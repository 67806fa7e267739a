"""Standard error that is not read, or closed: nothing blocks on it, and lost lines are counted."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import structlog

from muster.coordinator.observability.log_lines import LogLines
from tests.brokers.broker import HOST, lasting_ports
from tests.conformance.wire import Connection
from tests.forked import COMMAND
from tests.waiting import until_so

WITHIN_S = 60
LOADING = 14
LINE = b"x" * 999 + b"\n"


class Pipe:
    """A pipe that is full from the start, with a stalled reader."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.writing, False)
        self.filled = 0
        try:
            while True:
                self.filled += os.write(self.writing, b"\n" * 4096)
        except BlockingIOError:
            os.set_blocking(self.writing, True)

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := os.read(self.reading, size - len(data))):
            data += more
        return data

    def reader_goes(self) -> None:
        if self.reading >= 0:
            os.close(self.reading)
            self.reading = -1

    def close(self) -> None:
        self.reader_goes()
        os.close(self.writing)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    with closing(Pipe()) as pipe:
        yield pipe


def test_writing_a_log_line_does_not_wait_for_the_reader(pipe: Pipe) -> None:
    """Lines that find the queue full are counted, and the count is reported once there is room; others are written in
    order.
    """
    lines = LogLines(pipe.writing, queued_bytes_max=10 * len(LINE))
    for _ in range(25):
        lines.write(LINE)
    assert lines.dropped == 15
    assert not lines.wait_until_written(0)
    with structlog.testing.capture_logs() as reported:
        pipe.read(pipe.filled)
        assert pipe.read(10 * len(LINE)) == 10 * LINE
        assert lines.wait_until_written(WITHIN_S)
        until_so(lambda: bool(reported), lambda: "", within_s=WITHIN_S)
    assert [line["lines"] for line in reported] == [15]
    (dropped,) = lines.collect()
    assert [sample.value for sample in dropped.samples] == [15]


def test_a_closed_reader_is_not_an_error(pipe: Pipe) -> None:
    lines = LogLines(pipe.writing)
    lines.write(LINE)
    pipe.reader_goes()
    lines.write(LINE)
    assert lines.wait_until_written(WITHIN_S)
    assert lines.dropped == 2


def stalled(pipe: Pipe) -> None:
    """A reader that stalls."""


@pytest.mark.parametrize("trouble", [stalled, Pipe.reader_goes])
async def test_a_process_with_an_unread_log_serves_and_ends(
    tmp_path: Path, pipe: Pipe, trouble: Callable[[Pipe], None]
) -> None:
    """From its first line on: it gets ready, responds, and stops on SIGTERM with exit code 0."""
    (port,) = lasting_ports(1)
    trouble(pipe)
    command = [*COMMAND, "--listen", f"{HOST}:{port}", "--log", f"sqlite:///{tmp_path / 'muster.db'}"]
    process = await asyncio.create_subprocess_exec(*command, stderr=pipe.writing)
    try:
        async with asyncio.timeout(WITHIN_S):
            await served(port, process)
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()


async def served(port: int, process: asyncio.subprocess.Process) -> None:
    """Return when the process listens, and has loaded its event log."""
    while process.returncode is None:
        try:
            connection = await Connection.open(f"{HOST}:{port}")
        except ConnectionRefusedError:
            await asyncio.sleep(0.05)
            continue
        while (await connection.ask("ListGroups", 0))["error_code"] == LOADING:
            pass
        connection.close()
        return
    raise AssertionError(f"it ended with {process.returncode}")


def test_a_crash_loses_no_line() -> None:
    """Earlier lines, the traceback as one line, and the exit code are there."""
    program = (
        "from muster.coordinator.observability.log_lines import write_lines_beside\n"
        "from muster.coordinator.observability.logs import configure_logs\n"
        "import structlog\n"
        "write_lines_beside(); configure_logs('INFO', 'json')\n"
        "for number in range(2_000): structlog.get_logger().info('a line', number=number)\n"
        "raise ValueError('a bug')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, timeout=WITHIN_S, check=False)
    *logged, last = map(json.loads, done.stderr.decode().splitlines())
    assert (done.returncode, [line["number"] for line in logged]) == (1, list(range(2_000)))
    first, *_, error = last["exception"].splitlines()
    assert (first, error) == ("Traceback (most recent call last):", "ValueError: a bug")
