"""`muster fleet archive`, `verify`, `compact`, `expire`, as users run them."""

import asyncio
import errno
import os
import signal
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from muster.cli import app
from muster.events.log.base import LogMissing, LogUnavailable
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.replay.archive import files, local
from muster.replay.archive.commits import writing
from muster.replay.archive.local import ArchivedRun
from muster.replay.fleet import choice
from muster.replay.fleet.archive import commands
from muster.replay.fleet.asked import EngineName
from muster.replay.fleet.choice import NoSpark, choose_archiver
from muster.replay.text.printable import printable
from tests.replay.written import script, sqlite_log


def fleet(*args: str) -> Result:
    return CliRunner().invoke(app, ["fleet", *args])


def written(tmp_path: Path) -> str:
    """The URL of a log with a group's events."""
    story = script("orders")
    story.coordinator("coordinator-a:100").created()
    return asyncio.run(sqlite_log(tmp_path / "muster.db", story))


def test_from_a_log_to_an_archive_and_back(tmp_path: Path) -> None:
    """Each command reports its result in one line."""
    log, archive = written(tmp_path), str(tmp_path / "a")
    first = fleet("archive", "--log", log, "--to", archive, "--once", "--engine", "local")
    assert first.exit_code == 0, first.output
    assert first.stdout.startswith("3 records archived in 1 segments (3 KB); ")
    found = fleet("verify", "--archive", archive, "--log", log)
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines()[-1] == (
        "whole and unaltered, 2 manifests; 3 records of the log are in it, byte by byte"
    )
    assert fleet("compact", "--archive", archive).stdout == "nothing to join; 0 files of earlier runs removed\n"
    gone = fleet("expire", "--archive", archive, "--before", "2020-01-01")
    assert gone.stdout == "0 records in 0 segments (0 KB) removed for good\n"


def test_auto_names_the_chosen_engine(tmp_path: Path) -> None:
    answer = fleet("archive", "--log", written(tmp_path), "--to", str(tmp_path / "a"))
    assert answer.stdout.endswith("s, local engine (the log is a file)\n")


def test_damage_is_reported_and_sets_the_exit_code(tmp_path: Path) -> None:
    """Also in JSON."""
    fleet("archive", "--log", written(tmp_path), "--to", str(tmp_path / "a"))
    next((tmp_path / "a").glob("day=*/*/*")).write_bytes(b"")
    answer = fleet("verify", "--archive", str(tmp_path / "a"))
    assert answer.exit_code == 3
    assert "\nWRONG:\n" in answer.stdout
    assert "was altered" in answer.stdout
    output = msgspec.json.decode(fleet("verify", "--archive", str(tmp_path / "a"), "--format", "json").stdout)
    assert len(output["damage"]) == 1


@pytest.mark.parametrize(
    "args",
    [
        ("archive", "--log", "sqlite:///none.db", "--to", "a"),
        ("archive", "--log", "ftp:x", "--to", "a"),
        ("archive", "--log", "sqlite:///none.db", "--to", "a", "--engine", "spark"),
        ("archive", "--to", "a", "--kafka-config", "sasl.mechanism"),
        ("verify", "--archive", "a"),
        ("verify", "--archive", "\x1b]0;title\a\n"),
        ("build", "--archive", "\x1b]0;title\a\n", "--to", "tables"),
        ("compact", "--archive", "a"),
        ("expire", "--archive", "a", "--before", "2020-01-01"),
    ],
    ids=lambda args: printable(" ".join(args)),
)
def test_an_impossible_request_is_one_line(
    args: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, and nothing is written; a name's control characters do not affect a terminal."""
    monkeypatch.chdir(tmp_path)
    answer = fleet(*args)
    assert (answer.exit_code, answer.stderr.count("\n")) == (2, 1), answer.output
    assert answer.stderr.startswith("muster fleet: ")
    assert answer.stderr.strip("\n").isprintable()
    assert list(tmp_path.iterdir()) == []


def test_once_and_every_exclude_each_other(tmp_path: Path) -> None:
    assert fleet("archive", "--to", str(tmp_path), "--once", "--every", "1m").exit_code == 2
    for wrong in ("soon", "0s", "9999999d"):
        answer = fleet("archive", "--to", str(tmp_path), "--every", wrong).output
        assert "should be a number with a unit" in answer or "should be from 1ms to 366d" in answer


def test_with_every_it_continues_and_waits_for_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that were appended meanwhile come in the next step; a step without new records prints nothing.

    It waits for another writer, too.
    """
    log, archive = written(tmp_path), str(tmp_path / "a")
    waited: list[float] = []
    others = ExitStack()
    real_sync = files.Disk.sync

    def full(disk: files.Disk, file: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def between_steps(seconds: float) -> None:
        waited.append(seconds)
        monkeypatch.setattr(files.Disk, "sync", full if len(waited) == 2 else real_sync)
        if len(waited) == 2:
            import sqlite3

            with sqlite3.connect(tmp_path / "muster.db") as file:
                file.execute("INSERT INTO records SELECT partition, offset + 3, timestamp_ms, key, value FROM records")
        if len(waited) == 4:
            others.enter_context(writing(tmp_path / "a"))
        if len(waited) == 5:
            others.close()
            raise KeyboardInterrupt

    monkeypatch.setattr(commands, "sleep", between_steps)
    answer = fleet("archive", "--log", log, "--to", archive, "--every", "30s", "--engine", "local")
    assert waited == [30] * 5
    assert [line.split(" archived")[0] for line in answer.stdout.splitlines()] == ["3 records"] * 2
    assert "there is no room" in answer.stderr
    assert answer.stderr.count("; tried again in 30 s\n") == 2
    assert "is written by another process" in answer.stderr


def test_with_every_it_ends_on_sigterm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once and cleanly: process 1 of a container only receives signals that it handles."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(commands, "sleep", lambda _seconds: signal.raise_signal(signal.SIGTERM))
    answer = fleet("archive", "--log", written(tmp_path), "--to", str(tmp_path / "a"), "--every", "1m")
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert answer.stdout.startswith("3 records archived")
    assert signal.getsignal(signal.SIGTERM) == before


def test_with_every_a_log_unavailable_or_missing_at_the_start_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if `auto` has to find out how much there is."""
    steps: list[Exception] = [LogUnavailable("kafka:9092 does not answer"), LogMissing("there is no topic events")]
    log = MemoryEventLog(MemoryStorage(1))

    def open_next(*_: object, **__: object) -> MemoryEventLog:
        if steps:
            raise steps.pop(0)
        return log

    def between_steps(_seconds: float) -> None:
        if (tmp_path / "a").exists():
            raise KeyboardInterrupt

    monkeypatch.setattr(commands, "open_log", open_next)
    monkeypatch.setattr(commands, "sleep", between_steps)
    answer = fleet("archive", "--log", "kafka://kafka:9092/events", "--to", str(tmp_path / "a"), "--every", "30s")
    assert answer.stderr.splitlines()[:2] == [
        "muster fleet: kafka:9092 does not answer; tried again in 30 s",
        "muster fleet: there is no topic events; tried again in 30 s",
    ]
    assert (tmp_path / "a" / "manifests").is_dir()


def test_unreadable_records_are_reported_and_set_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --every it continues, and reports it once."""
    broken = ArchivedRun(
        records=0, segments=0, bytes=0, next_offsets={}, damage=("events, partition 0, offset 6: broken",)
    )
    waited: list[float] = []

    async def archive(*_: object, **__: object) -> ArchivedRun:
        return broken

    def between_steps(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(local, "archive", archive)
    monkeypatch.setattr(commands, "sleep", between_steps)
    args = ("archive", "--log", written(tmp_path), "--to", str(tmp_path / "a"))
    once = fleet(*args)
    assert (once.exit_code, once.stderr) == (3, "muster fleet: events, partition 0, offset 6: broken\n")
    assert fleet(*args, "--every", "30s").stderr.count("offset 6: broken") == 1
    assert len(waited) == 3


def test_the_choice_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark, if it is installed and worth its start; otherwise this process, with the reason."""
    auto, spark, local = EngineName.AUTO, EngineName.SPARK, EngineName.LOCAL
    monkeypatch.setattr(choice, "check_spark", lambda: None)
    assert choose_archiver(auto, 10**9, is_topic=True).engine is spark
    small = choose_archiver(auto, 1_000, is_topic=True)
    assert (small.engine, small.reason) == (local, "1,000 records are too few for Spark to be worth its start")
    assert choose_archiver(auto, 0, is_topic=False).engine is local
    assert choose_archiver(spark, 0, is_topic=True).engine is spark
    with pytest.raises(NoSpark, match="archives a Kafka topic"):
        choose_archiver(spark, 0, is_topic=False)

    def missing() -> None:
        raise NoSpark("Spark needs Java")

    monkeypatch.setattr(choice, "check_spark", missing)
    assert (
        choose_archiver(auto, 10**9, is_topic=True).reason
        == "1,000,000,000 records would be Spark's, but Spark needs Java"
    )
    with pytest.raises(NoSpark, match="Spark needs Java"):
        choose_archiver(spark, 0, is_topic=True)
