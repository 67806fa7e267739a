"""`--log archive:DIR`: all readers of a log can read its archive, with the same results."""

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from muster.cli import app
from muster.events.ids import GroupId
from muster.events.kafka.security import NOT_SECURED
from muster.events.keys import prefix_of
from muster.events.log.base import EventLog, LogMismatch, OwnersMarks, RawLog, SearchableLog, SignOfLife
from muster.replay.logs.opening import open_for_reading
from tests.events.log.transitions import read_all
from tests.replay.archive.logs import MARK, archived, filled, opened
from tests.replay.stories import a_night
from tests.replay.whole import read_histories
from tests.replay.written import script, sqlite_log

COMMANDS = (
    ["groups"],
    ["history", "orders"],
    ["why", "orders", "--all", "--format", "json"],
    ["state", "orders", "--at", "12", "--seq"],
    ["verify"],
    ["digest", "--since", "2026-11-21T00:00:00Z", "--until", "2026-11-21T23:00:00Z"],
)


async def written(tmp_path: Path) -> tuple[str, str]:
    """The URLs of a SQLite log and of its archive."""
    night = a_night()
    story = script("orders")
    story.transitions = night.transitions
    url = await sqlite_log(tmp_path / "muster.db", story)
    log = open_for_reading(url, security=NOT_SECURED)
    await log.open()
    await archived(log, tmp_path / "archive", now_ms=None)
    await log.close()
    return url, f"archive:{tmp_path / 'archive'}"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_replay_gives_the_same_results_for_an_archive(tmp_path: Path, command: list[str]) -> None:
    """Except for the log's name."""
    log, archive = asyncio.run(written(tmp_path))
    name, runner = str(tmp_path / "muster.db"), CliRunner(env={"COLUMNS": "500"})  # the paths differ in length
    of_log = runner.invoke(app, ["replay", *command, "--log", log])
    of_archive = runner.invoke(app, ["replay", *command, "--log", archive])
    assert of_archive.exit_code == of_log.exit_code < 2
    assert of_archive.stdout.replace(archive, name) == of_log.stdout


async def test_an_archive_has_the_histories_of_its_log(tmp_path: Path) -> None:
    """Item by item, including positions."""
    found = []
    for url in await written(tmp_path):
        log = open_for_reading(url, security=NOT_SECURED)
        await log.open()
        history = (await read_histories(log))[GroupId("orders")]
        found.append(msgspec.structs.replace(history, log=""))
        await log.close()
    assert found[0] == found[1]
    assert len(found[0].items) > 20


async def test_only_wanted_keys_are_read(tmp_path: Path) -> None:
    """And keys that do not belong to Muster."""
    log = await filled(1, 0)
    for key in (prefix_of("a") + b"\x00\x00", prefix_of("b") + b"\x00\x00", b"strange", None):
        log.write(0, key=key)
    await archived(log, tmp_path)
    archive = await opened(tmp_path)
    assert isinstance(archive, SearchableLog)
    chunks = [chunk async for chunk in archive.read_wanted(0, [prefix_of("b")], start=0, end=4)]
    assert [record.offset for chunk in chunks for record in chunk] == [1, 2, 3]


async def test_foreign_records_are_reported_as_in_the_topic(tmp_path: Path) -> None:
    """They are recognized by their headers, and by the producer if it is known, which Spark's source does not have."""
    log = await filled(1, 1)
    log.write(0, headers=())
    log.write(0, producer_id=8)
    log.write(0, producer_id=None, transactional=None)
    log.write(0, headers=(("muster", b"4 elsewhere 7"),))
    log.write(0, transactional=True)
    await archived(log, tmp_path)
    stored = await read_all(await opened(tmp_path))
    assert [record.is_foreign for record in stored] == [False, True, True, False, True, True]
    assert {record.value for record in stored if record.is_foreign} == {None}


async def test_a_part_can_be_read(tmp_path: Path) -> None:
    await archived(await filled(2, 10), tmp_path)
    archive = await opened(tmp_path)
    assert [record.offset for record in await read_all(archive, 1, start=3, end=7)] == [3, 4, 5, 6]
    assert await archive.end_offset(1) == 10
    assert await read_all(archive, start=10) == []
    assert [record.offset for record in await read_all(archive, start=4, end=400)] == [4, 5, 6, 7, 8, 9]


async def test_an_archive_identifies_its_log_and_has_no_writer(tmp_path: Path) -> None:
    await archived(await filled(), tmp_path)
    archive: EventLog = await opened(tmp_path)
    assert isinstance(archive, RawLog)
    assert (archive.identity, archive.partitions, archive.warnings) == ("topic-1", 2, ())
    assert await archive.owners_marks(1) == OwnersMarks(since=0, native_from=0, home="home")
    assert await archive.has_owners_record(0)
    for refused in (
        archive.claim(0),
        archive.raise_format_level(),
        archive.leave_sign_of_life(SignOfLife(owner="a", wall_ms=0), timeout_ms=1),
    ):
        with pytest.raises(LogMismatch, match="only be read"):
            await refused


async def test_an_archive_can_be_archived(tmp_path: Path) -> None:
    """It is a log like others: a copy of a copy has the same records, including headers."""
    await archived(await filled(), tmp_path / "a")
    await archived(await opened(tmp_path / "a"), tmp_path / "b")
    copies = [[chunk async for chunk in (await opened(tmp_path / name)).read_raw(0)] for name in ("a", "b")]
    assert copies[0] == copies[1]
    assert copies[0][0][0].headers == (MARK,)


@pytest.mark.parametrize("name", ["none", "file"])
def test_a_path_that_is_not_an_archive_is_named(tmp_path: Path, name: str) -> None:
    """In one line, with exit code 2."""
    (tmp_path / "file").write_text("x")
    answer = CliRunner().invoke(app, ["replay", "groups", "--log", f"archive:{tmp_path / name}"])
    assert (answer.exit_code, answer.stderr.count("\n")) == (2, 1)
    assert f"{tmp_path / name} is no archive" in answer.stderr


def test_an_archive_is_read_without_pandas(tmp_path: Path) -> None:
    """pyarrow imports it when it gets a number or a list, which takes a second and 50 MB."""
    _, archive = asyncio.run(written(tmp_path))
    for more in ([], ["--since", "3", "--seq"]):
        message = (
            "import sys\nfrom muster.cli import app\n"
            f"app({['replay', 'history', 'orders', *more, '--log', archive]!r}, standalone_mode=False)\n"
            "assert 'pyarrow' in sys.modules and 'pandas' not in sys.modules"
        )
        ran = subprocess.run([sys.executable, "-c", message], capture_output=True, text=True, check=False, timeout=120)
        assert ran.returncode == 0, ran.stderr
