"""A process that is restarted when it ends, and the clients that connect in between."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from structlog.testing import capture_logs

from muster.coordinator.net.kept_sockets import VARIABLE
from muster.coordinator.processes import running, socket_store
from muster.coordinator.processes.children import Child
from muster.coordinator.processes.running import RunningProcess, pause_before_restart_s
from tests.brokers.broker import HOST, lasting_ports
from tests.waiting import until

CHILD = Path(__file__).with_name("child.py")
STOP_WITHIN_S = 30.0


@pytest.fixture(autouse=True)
def _children_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "COMMAND", (sys.executable, str(CHILD)))


@asynccontextmanager
async def kept(folder: Path, *ports: int) -> AsyncIterator[RunningProcess]:
    """A supervised process; it serves on these ports, or does not serve yet."""
    if ports:
        serve_at(folder, *ports)
    process = RunningProcess(Child(name="edge-1", arguments=(str(folder),)))
    keeping = asyncio.create_task(process.keep())
    try:
        if ports:
            await until(lambda: serves(process))
        yield process
    finally:
        await process.stop(STOP_WITHIN_S)
        await keeping


def serve_at(folder: Path, *ports: int) -> None:
    written = folder / "written"
    written.write_text(" ".join(map(str, ports)))
    written.rename(folder / "ports")


def serves(process: RunningProcess) -> bool:
    return process.sockets.metrics_port is not None


def pid_of(process: RunningProcess) -> int:
    assert process._process is not None
    return process._process.pid


async def kill(process: RunningProcess) -> None:
    os.kill(pid_of(process), signal.SIGKILL)
    starts = process.starts
    await until(lambda: process.starts > starts)


async def answered_by(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(STOP_WITHIN_S):
        return int(await reader.readline())


async def refuses(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


async def test_a_client_that_connects_during_a_restart_is_served_by_the_successor(tmp_path: Path) -> None:
    """On each of its ports, however long the successor takes."""
    ports = lasting_ports(2)
    async with kept(tmp_path, *ports) as process:
        first = pid_of(process)
        (tmp_path / "ports").unlink()
        await kill(process)
        assert not serves(process)
        waiting = [await asyncio.open_connection(HOST, port) for port in (*ports, *ports)]
        serve_at(tmp_path, *ports)
        assert pid_of(process) != first
        assert {await answered_by(reader) for reader, _ in waiting} == {pid_of(process)}
        for _, writer in waiting:
            writer.close()


async def test_clients_that_wait_long_are_sent_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address refuses clients until the successor serves."""
    monkeypatch.setattr(socket_store, "QUEUE_WAITS_S", 1.0)
    (port,) = lasting_ports(1)
    async with kept(tmp_path, port) as process:
        (tmp_path / "ports").unlink()
        os.kill(pid_of(process), signal.SIGKILL)
        await until(lambda: process.starts == 2)
        await until(lambda: refuses(port))
        serve_at(tmp_path, port)
        await until(lambda: serves(process))
        reader, writer = await asyncio.open_connection(HOST, port)
        assert await answered_by(reader) == pid_of(process)
        writer.close()


async def test_no_client_is_accepted_before_it_has_served(tmp_path: Path) -> None:
    """Clients would wait for a cluster that is unreachable instead of trying other addresses."""
    (port,) = lasting_ports(1)
    async with kept(tmp_path) as process:
        await until(lambda: process.starts == 1)
        assert await refuses(port)


async def test_a_port_that_its_successor_does_not_want_is_closed(tmp_path: Path) -> None:
    """The port of a broker that was removed. A new broker's port is kept like the others."""
    stays, goes, comes = lasting_ports(3)
    async with kept(tmp_path, stays, goes) as process:
        serve_at(tmp_path, stays, comes)
        await kill(process)
        await until(lambda: serves(process))
        await until(lambda: refuses(goes))
        assert process.sockets._kept.keys() == {(socket.AF_INET, HOST, port) for port in (stays, comes)}


def test_its_sockets_belong_to_no_other_process(tmp_path: Path) -> None:
    """A process started later would keep them open, and clients would wait there in vain.

    The loop is that of the command: asyncio's own closes all other files in a new process.
    """
    folders, ports = (tmp_path / "first", tmp_path / "second"), lasting_ports(2)

    async def scene() -> None:
        for folder in folders:
            folder.mkdir()
        async with kept(folders[0], ports[0]) as first:
            await until(lambda: first.sockets.serves)
            async with kept(folders[1], ports[1]):
                await first.stop(STOP_WITHIN_S)
                assert await refuses(ports[0])
                assert not await refuses(ports[1])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scene())


async def test_a_process_that_soon_ends_again_keeps_no_clients_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sockets are closed, and it is restarted after a pause; the log says how it ended."""
    monkeypatch.setattr(running, "RESTART_PAUSE_S", 3_600)
    monkeypatch.setattr(running, "RESTART_PAUSE_MAX_S", 3_600)
    (port,) = lasting_ports(1)
    with capture_logs() as logged:
        async with kept(tmp_path, port) as process:
            await kill(process)
            await until(lambda: serves(process))
            (tmp_path / "exit").write_text("1")
            os.kill(pid_of(process), signal.SIGKILL)
            await until(lambda: refuses(port))
            await until(lambda: len(logged) == 2)
    assert [(each["process"], each["ended"], each["pause_s"]) for each in logged] == [
        ("edge-1", "SIGKILL", 0),
        ("edge-1", "SIGKILL", 3_600),
    ]


def test_pauses_grow_up_to_half_a_minute() -> None:
    assert [pause_before_restart_s(ends) for ends in range(1, 9)] == [0, 1, 2, 4, 5, 5, 5, 5]
    assert pause_before_restart_s(10_000) == 5


async def test_unusable_settings_end_the_supervisor_before_it_has_served(tmp_path: Path) -> None:
    """The supervisor stops if it has never served; later it counts as one more exit, as when a file is missing for a
    moment.
    """
    (tmp_path / "exit").write_text("2")
    process = RunningProcess(Child(name="edge-1", arguments=(str(tmp_path),)))
    await process.keep()
    assert process.is_unusable
    (tmp_path / "exit").unlink()
    (port,) = lasting_ports(1)
    async with kept(tmp_path, port) as process:
        (tmp_path / "exit").write_text("2")
        await kill(process)
        await until(lambda: process.starts > 2)
        assert not process.is_unusable


async def test_settings_that_become_unusable_while_serving_end_it(tmp_path: Path) -> None:
    """For example its node id, which another host has: restarted, each would end the other."""
    (port,) = lasting_ports(1)
    async with kept(tmp_path, port) as process:
        (tmp_path / "exit").write_text("2")
        os.kill(pid_of(process), signal.SIGTERM)
        await until(lambda: process.is_unusable or process.starts > 1)
        assert (process.is_unusable, process.starts) == (True, 1)


async def test_a_process_that_cannot_be_started_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process limit may be reached for a moment: the others continue, and a log line has the reason."""
    start, fails = asyncio.create_subprocess_exec, [BlockingIOError(11, "Resource temporarily unavailable")]

    async def failing(*command: str, **how: object) -> asyncio.subprocess.Process:
        if fails:
            raise fails.pop()
        return await start(*command, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", failing)
    (port,) = lasting_ports(1)
    with capture_logs() as logged:
        async with kept(tmp_path, port):
            pass
    assert [each["ended"] for each in logged] == [
        "it could not be started: [Errno 11] Resource temporarily unavailable"
    ]


async def test_it_ends_by_a_signal_without_a_name(tmp_path: Path) -> None:
    """It is restarted like any other."""
    (port,) = lasting_ports(1)
    with capture_logs() as logged:
        async with kept(tmp_path, port) as process:
            os.kill(pid_of(process), signal.SIGRTMIN + 5)
            await until(lambda: process.starts == 2)
    assert [each["ended"] for each in logged] == [f"signal {signal.SIGRTMIN + 5}"]


async def test_its_modules_are_not_those_of_the_folder_where_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command `muster` itself does not import them either."""
    monkeypatch.undo()
    (tmp_path / "muster").mkdir()
    (tmp_path / "muster" / "__main__.py").write_text("import sys; sys.exit(77)")
    monkeypatch.chdir(tmp_path)
    process = await asyncio.create_subprocess_exec(*running.COMMAND, "--help", stdout=subprocess.DEVNULL)
    assert await process.wait() == 0


async def test_it_is_stopped_while_it_is_being_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = asyncio.create_subprocess_exec
    starting, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(*command: str, **how: object) -> asyncio.subprocess.Process:
        starting.set()
        await go_on.wait()
        return await start(*command, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slowly)
    process = RunningProcess(Child(name="edge-1", arguments=(str(tmp_path),)))
    keeping = asyncio.create_task(process.keep())
    await starting.wait()
    await process.stop(STOP_WITHIN_S)
    go_on.set()
    async with asyncio.timeout(STOP_WITHIN_S):
        await keeping


def test_it_ends_when_its_supervisor_was_killed(tmp_path: Path) -> None:
    """Even before it serves."""
    ours, theirs = socket.socketpair()
    environment = {**os.environ, VARIABLE: str(theirs.fileno())}
    command = (sys.executable, str(CHILD), str(tmp_path))
    with theirs, subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()]) as child:
        ours.close()
        assert child.wait(STOP_WITHIN_S) == 0
