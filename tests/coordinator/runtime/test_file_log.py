"""A runtime on a file log, in real time: a disk that hangs or is full, a file that is damaged or moved."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.clock import SystemClock
from muster.coordinator.group.commands import Caller, CommitOffsets, OffsetToCommit
from muster.coordinator.group.outcomes import CommitOffsetsOutcome, Outcome
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.offsets.memory import MemoryOffsetStore
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.runtime.partition.refused_joins import RefusedJoins
from muster.coordinator.runtime.partition.retention_clock import RetentionClock
from muster.coordinator.runtime.runtime import Runtime
from muster.coordinator.settings import file_watch
from muster.coordinator.settings.file_watch import watch_file
from muster.events.ids import GroupId, MemberId
from muster.events.log.base import LogDamaged, LogMismatch
from muster.events.log.sqlite.file import SqliteFile
from muster.events.log.sqlite.log import SqliteEventLog
from tests.waiting import until

PAGE_BYTES = 4096


class Served:
    """Groups served from one file, and the error that ended it."""

    def __init__(self, path: Path, *, impatient: bool = False) -> None:
        self.log = SqliteEventLog(path, partitions=1)
        if impatient:
            self.log.file = SqliteFile(path, call_timeout_s=0.5, slow_after_s=0.1, close_timeout_s=0.5)
        self.lost: list[Exception] = []
        self._clock = SystemClock()
        self._requests = 0
        owner = Owner(
            name="test:1",
            version="test",
            event_log=self.log,
            offsets=MemoryOffsetStore(),
            settings=GroupSettings(),
            effective_settings={},
            clock=self._clock,
            retention_clock=RetentionClock(self._clock, kept_ms=0),
            refused_joins=RefusedJoins(GroupSettings(), self._clock.monotonic_ms),
        )
        self.runtime = Runtime(owner, give_up=self.lost.append)

    def commit(self, group_id: str) -> "asyncio.Future[CommitOffsetsOutcome]":
        """A simple consumer's first commit, which creates its group: an append to the log."""
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._requests += 1
        caller = Caller(
            request_id=self._requests,
            client_id="test",
            client_host="/127.0.0.1",
            principal="User:ANONYMOUS",
            api_key=8,
            api_version=9,
            arrived_ms=self._clock.monotonic_ms(),
            arrived_wall_ms=self._clock.wall_ms(),
        )
        offset = OffsetToCommit(
            topic="orders",
            partition=0,
            offset=1,
            leader_epoch=-1,
            metadata="",
            commit_ms=self._clock.wall_ms(),
            expire_ms=None,
        )
        command = CommitOffsets(
            caller=caller,
            group_id=GroupId(group_id),
            generation_id=-1,
            member_id=MemberId(""),
            group_instance_id=None,
            unknown_group_error=ErrorCode.illegal_generation,
            offsets=(offset,),
        )
        self.runtime.submit(command, answer.set_result)
        return answer  # type: ignore[return-value]

    async def is_committed(self, group_id: str) -> bool:
        """Commit, which may be refused while the disk is slow."""
        return (await self.commit(group_id)).error is ErrorCode.none

    async def write(self, statement: str) -> object:
        return await self.log.file.write(lambda connection: connection.execute(statement).fetchone())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "muster.db"


@pytest.fixture
async def served(path: Path) -> AsyncIterator[Served]:
    async with serving(Served(path)) as served:
        yield served


@pytest.fixture
async def impatient(path: Path) -> AsyncIterator[Served]:
    """Half a second without a response counts as a hanging disk."""
    async with serving(Served(path, impatient=True)) as served:
        yield served


@asynccontextmanager
async def serving(served: Served) -> AsyncIterator[Served]:
    await served.log.open()
    await served.runtime.start()
    yield served
    await served.runtime.stop()
    await served.log.close()


async def test_a_disk_that_hangs_is_waited_for(impatient: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients get COORDINATOR_LOAD_IN_PROGRESS, /readyz and the log have the reason; then service resumes."""
    monkeypatch.setattr(file_watch, "CHECK_INTERVAL_S", 0.02)
    await until(lambda: impatient.is_committed("before"))
    mended = threading.Event()
    with structlog.testing.capture_logs() as reported:
        watching = watch_file(impatient.log.file, lost=impatient.lost.append)
        hanging = asyncio.create_task(impatient.log.file.write(lambda _connection: mended.wait()))
        during = impatient.commit("during")

        await until(lambda: "has not answered for" in (impatient.runtime.not_ready or ""))
        assert (await during).error is ErrorCode.not_coordinator
        assert (await impatient.commit("during")).error is ErrorCode.coordinator_load_in_progress
        await until(lambda: named(reported, "the disk does not respond, waiting for it"))
        assert impatient.lost == []

        mended.set()
        await until(lambda: impatient.runtime.not_ready is None)
        await until(lambda: named(reported, "the disk responds again"))
        watching.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    warning, *_ = named(reported, "the disk does not respond, waiting for it")  # it may be that slow by itself, too
    assert warning["file"] == str(impatient.log.file.path)
    assert "has not answered for" in warning["reason"]
    await until(lambda: impatient.is_committed("after"))
    assert impatient.runtime.has_group(GroupId("before"))


def named(reported: list[structlog.typing.EventDict], event: str) -> list[structlog.typing.EventDict]:
    return [each for each in reported if each["event"] == event]


async def test_a_disk_that_is_full_is_waited_for(served: Served) -> None:
    """Nothing acknowledged is lost, and service resumes by itself when there is space again."""
    assert (await served.commit("before")).error is ErrorCode.none
    await served.write("PRAGMA max_page_count = 1")
    number = 0
    while served.runtime.ready:
        await served.commit(f"group-{number}")
        number += 1
    assert served.lost == []

    await served.write("PRAGMA max_page_count = 1000000")

    await until(lambda: served.runtime.ready)
    assert (await served.commit("after")).error is ErrorCode.none
    assert served.runtime.has_group(GroupId("before"))
    assert served.lost == []


async def test_a_damaged_file_ends_it_with_one_clear_error(served: Served, path: Path) -> None:
    """It is not read again and again, unlike a log that may recover."""
    for number in range(200):
        assert (await served.commit(f"group-{number}")).error is ErrorCode.none
    damage_records(path)
    number = 0
    while not served.lost:
        await served.commit(f"another-{number}")
        number += 1

    (lost,) = served.lost
    assert isinstance(lost, LogDamaged)
    assert str(path) in str(lost)
    assert ".recover" in str(lost)
    assert not served.runtime.ready


def damage_records(path: Path) -> None:
    """Overwrite a page in the middle of the partition's records."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # so that they are in the file itself
        (key,) = connection.execute("SELECT key FROM records WHERE offset = 200").fetchone()
    content = bytearray(path.read_bytes())
    page = content.index(key) // PAGE_BYTES
    content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = os.urandom(PAGE_BYTES)
    path.write_bytes(content)


async def test_a_moved_file_is_closed(served: Served, path: Path) -> None:
    """Soon, even without a pending write; the error has the path and the way out."""
    watching = watch_file(served.log.file, lost=served.lost.append)
    move(path, path.with_name("elsewhere.db"))

    await until(lambda: bool(served.lost))

    watching.cancel()
    (lost,) = served.lost
    assert isinstance(lost, LogMismatch)
    assert str(lost).startswith(
        f"{path} no longer exists while the event log {path} was in use: nothing more is appended"
    )
    assert (await served.commit("after")).error is ErrorCode.not_coordinator


def move(path: Path, to: Path) -> None:
    path.rename(to)
