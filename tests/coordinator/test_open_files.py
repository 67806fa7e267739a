"""The limit of open files: it is raised, and connections are refused before it is reached."""

import asyncio
import json
import os
import resource
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from muster.coordinator.assembly import Readiness
from muster.coordinator.clock import SystemClock
from muster.coordinator.open_files import connections_within, reserve_of
from muster.coordinator.wire.registry import APIS
from muster.events.kafka import shortage as told
from tests.brokers.broker import HOST
from tests.brokers.child import leashed
from tests.conformance.wire import Connection, ms
from tests.coordinator.serving import join_body
from tests.forked import COMMAND
from tests.muster_process import running_muster
from tests.waiting import until_so

WITHIN_S = 60
OPEN_FILES = 256
FITTING = OPEN_FILES - 64


@pytest.mark.parametrize("limit", [80, 256, 1_024, 4_096, 20_000, 1_048_576])
@pytest.mark.parametrize("each", [1, 2])
def test_connections_and_the_reserve_fit(limit: int, each: int) -> None:
    fitting = connections_within(limit, each=each)
    assert fitting * each + reserve_of(limit) <= limit
    assert (fitting + 1) * each + reserve_of(limit) > limit


@contextmanager
def serving(tmp_path: Path, limits: str) -> Iterator[dict[str, dict[str, Any]]]:
    """The log lines by event of a process that runs under these limits."""
    output = tmp_path / "output"
    address = f"{HOST}:0"
    command = [*COMMAND, "--listen", address, "--metrics", address, "--log", "memory:", "--log-format", "json"]

    def events() -> dict[str, dict[str, Any]]:
        lines = [json.loads(line) for line in output.read_text().splitlines() if line.startswith("{")]
        return {line["event"]: line for line in lines}

    with (
        output.open("wb") as written_to,
        leashed(["sh", "-c", f'{limits}; exec "$@"', "sh", *command], stdout=written_to),
    ):
        until_so(lambda: "serving" in events(), output.read_text, within_s=WITHIN_S)
        yield events()


async def test_more_clients_than_files_leave_the_side_door_open(tmp_path: Path) -> None:
    """Excess clients are closed, one line at the start has announced it, and connected clients are served."""
    with serving(tmp_path, f"ulimit -n {OPEN_FILES}") as events:
        host, _, port = events["serving"]["listen"].rpartition(":")
        clients = [await asyncio.open_connection(host, int(port)) for _ in range(OPEN_FILES + 100)]
        metrics = events["metrics"]["listen"]
        assert await asyncio.to_thread(fetch, f"http://{metrics}/healthz") == "ok\n"
        async with asyncio.timeout(WITHIN_S):  # the last ones may not have been accepted yet
            text = ""
            while f"muster_connections {FITTING}.0" not in text:
                text = await asyncio.to_thread(fetch, f"http://{metrics}/metrics")
        for _, writer in clients:
            writer.close()
    lowered = events["serving fewer connections than --connections-max: the limit of open files is too low"]
    assert (lowered["connections_max"], lowered["served"], lowered["open_files_max"]) == (10_000, FITTING, OPEN_FILES)


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:
        text: str = answer.read().decode()
    return text


def test_the_soft_limit_is_raised(tmp_path: Path) -> None:
    """Shells and containers often have a soft limit of 1,024 below a sufficient hard one."""
    hard = int(subprocess.run(["sh", "-c", "ulimit -Hn"], capture_output=True, text=True, check=True).stdout)
    with serving(tmp_path, f"ulimit -Sn {OPEN_FILES}") as events:
        lowered = [line for line in events.values() if "open_files_max" in line]
    assert [line["open_files_max"] for line in lowered] in ([], [hard])


@pytest.fixture
def no_file_is_free() -> Iterator[Callable[[], None]]:
    """Leave no free file descriptor to this process from now on."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def fill() -> None:
        lowest_free = os.open(os.devnull, os.O_RDONLY)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, before[1]))

    yield fill
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_exhausted_file_descriptors_are_logged_once_a_minute_and_by_readyz(
    no_file_is_free: Callable[[], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The event loop accepts and disconnects at once, without a message."""
    monkeypatch.setattr(told, "_logged_s", {})
    readiness = Readiness(SystemClock())
    readiness.reason = lambda: "the event log is away"
    no_file_is_free()
    for _ in range(3):
        readiness.free_files.check()
    (line,) = caplog.messages
    assert line.startswith("cannot accept connections: this process has reached its limit of open files (`ulimit -n`")
    assert readiness() == f"{readiness.free_files.shortage}; the event log is away"
    assert "this process has reached its limit of open files" in str(readiness())


def test_once_a_file_is_free_all_is_well(no_file_is_free: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "_logged_s", {})
    readiness = Readiness(SystemClock())
    readiness.reason = lambda: None
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    no_file_is_free()
    readiness.free_files.check()
    assert readiness() is not None
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    readiness.free_files.check()
    assert readiness() is None


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="another process's limit can be set on Linux alone")
async def test_without_a_free_file_members_are_answered_on_the_connections_that_they_have() -> None:
    """Even for the first such request."""
    body: dict[str, Any] = {
        **join_body(group_id=""),
        "generation_id": 1,
        "protocol_name": "range",
        "assignments": [],
        "members": [],
        "topics": [],
        "groups": [],
        "require_stable": False,
        "retention_time_ms": ms(-1),
        "generation_id_or_member_epoch": 1,
    }
    with running_muster(log="memory:") as muster:
        connection = await Connection.open(muster.bootstrap, client_id="app")
        await connection.ask("ApiVersions", 0)  # it is accepted by then
        before = resource.prlimit(muster.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(muster.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        try:
            for key in (11, 14, 12, 13, 8, 9):
                for version in APIS[key].versions:
                    assert await connection.ask(APIS[key].name, version, **body)
        finally:
            resource.prlimit(muster.pid, resource.RLIMIT_NOFILE, before)
            connection.close()
