"""An archive's files and a log's records make the same tables, however they were cut.

Builds wait for unavailable sources.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from muster.cli import app
from muster.events.log.base import LogDamaged, LogUnavailable
from muster.events.log.memory import MemoryStorage
from muster.replay.archive.compact import compact
from muster.replay.fleet.building import build as builds_module
from muster.replay.fleet.building.build import Built, make_build
from muster.replay.fleet.building.local import LocalEngine
from muster.replay.fleet.building.pieces import of_groups, survey
from muster.replay.fleet.building.stage import stage
from muster.replay.fleet.tables.builds import CannotBuild, current, last_build, locked
from muster.replay.fleet.tables.parts import Role
from muster.replay.progress import unwatched
from tests.replay.archive import logs as archives
from tests.replay.archive.logs import NOON, RawMemoryLog, archived
from tests.replay.fleet.fleets import all_tables, built, judged, opened, rows_of, sqlite_copy, up_to
from tests.waiting import until_so

SEEDS = range(0, 1_000, 200)


_WRONG: Final[list[dict[str, Any]]] = [{"headers": ()}, {"producer_id": 8}, {"transactional": True}]
"""The marks of a foreign record."""


async def built_of(root: Path, to: Path) -> Built:
    """Bring the tables up to date with an archive."""
    return await make_build(await archives.opened(root), to, lambda _bytes: LocalEngine())


# ---- the same tables --------------------------------------------------------------------------------------------


async def test_an_archive_makes_the_tables_of_its_log(tmp_path: Path) -> None:
    """In one build; in steps, between which files were joined; and if the log was read before."""
    storage, root = judged(SEEDS), tmp_path / "archive"
    records = storage.records[0]
    records[20] = msgspec.structs.replace(records[20], value=(records[20].value or b"")[:-1])
    await built(storage, tmp_path / "log")
    await built(up_to(storage, 0.3), tmp_path / "both")
    for share in (0.3, 0.31, 1.0):
        await archived(await opened(up_to(storage, share)), root)
        await built_of(root, tmp_path / "steps")
        compact(root, watch=unwatched, now_ms=NOON)
    for name in ("whole", "both"):
        await built_of(root, tmp_path / name)
    reported = all_tables(tmp_path / "log")
    assert reported["quarantine"]
    for name in ("steps", "whole", "both"):
        assert all_tables(tmp_path / name) == reported, name


async def test_an_archives_files_are_read_where_they_are(tmp_path: Path) -> None:
    """A continued build only reads those after the previous one."""
    storage, root = judged(SEEDS[:2]), tmp_path / "archive"
    found: list[dict[int, int]] = []
    for share in (0.5, 1.0):
        log = await opened(up_to(storage, share))
        await archived(log, root)
        ends = {partition: await log.end_offset(partition) for partition in range(log.partitions)}
        since = {} if not found else found[0]
        staged = await stage(await archives.opened(root), tmp_path, since=since, ends=ends, watch=unwatched)
        assert all(Path(piece.path).is_relative_to(root) for piece in staged.pieces)
        assert survey(staged.pieces, unwatched).records == sum(ends[each] - since.get(each, 0) for each in ends) - sum(
            len(reads) for reads in survey(staged.pieces, unwatched).shared.values()
        )
        found.append(ends)


async def test_foreign_records_in_an_archive_are_recognized_by_their_marks(tmp_path: Path) -> None:
    """Without a header, from another producer, or in a transaction: they are counted, and change nothing else."""
    storage = judged(SEEDS[:2])
    log = RawMemoryLog(partitions=len(storage.records))
    await log.open()
    for number, records in enumerate(storage.records):
        for at, record in enumerate(records):
            wrong = _WRONG[at % 3]
            log.write(number, at_ms=record.timestamp_ms, key=record.key, value=record.value)
            if at % 5 == 0:
                log.write(number, **{"key": record.key, "value": record.value, **wrong})
    await archived(log, tmp_path / "archive")
    of_archive = await built_of(tmp_path / "archive", tmp_path / "tables")
    alone = await built(storage, tmp_path / "alone")
    foreign_records = sum((len(records) + 4) // 5 for records in storage.records)
    assert of_archive.foreign_records[0].count(f"({foreign_records})") == 1
    assert of_archive.events == alone.events
    assert rows_of(tmp_path / "tables", "incidents") == rows_of(tmp_path / "alone", "incidents")


@settings(max_examples=6, deadline=None)
@given(seed=st.sampled_from(range(0, 1_000, 7)), cuts=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4))
def test_builds_are_a_full_one_wherever_the_log_is_cut_and_closed_rows_stay(seed: int, cuts: list[float]) -> None:
    """Cuts are anywhere: within transitions, rebalances, incidents; some steps have no records."""

    async def run(folder: Path) -> None:
        storage = judged([seed])
        closed: set[object] = set()
        for share in (*sorted(cuts), 1.0):
            build = (await built(up_to(storage, share), folder / "steps")).build
            assert closed <= set(build.closed)
            closed = {part for part in build.parts if part.role is Role.CLOSED}
        await built(storage, folder / "full")
        assert all_tables(folder / "steps") == all_tables(folder / "full")

    with TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


async def test_records_come_to_the_fold_with_their_groups_and_without_tombstones(tmp_path: Path) -> None:
    """Their values are those of the log."""
    storage = judged([3])
    staged = await stage(
        await opened(storage), tmp_path, since={0: 2}, ends={0: len(storage.records[0]) - 3}, watch=unwatched
    )
    found = [row for batch in of_groups(staged.pieces) for row in batch.to_pylist()]
    of_group = [each for each in storage.records[0][2:-3] if b"group-3" in each.key and each.value is not None]
    assert [(row["offset"], row["value"]) for row in found] == [(each.offset, each.value) for each in of_group]
    assert {row["group_id"] for row in found} == {"group-3"}


# ---- sources that are not as they should be ------------------------------------------------------------------------


async def test_an_archive_of_another_topic_is_refused(tmp_path: Path) -> None:
    """The identity is that of the archived log, wherever the archive is."""
    for name, identity in (("one", "topic-1"), ("other", "topic-2")):
        log = RawMemoryLog(identity=identity)
        await log.open()
        archives.more(log, 3)
        await archived(log, tmp_path / name)
    await built_of(tmp_path / "one", tmp_path / "tables")
    with pytest.raises(CannotBuild, match=r"identity topic-1.*identity topic-2.*--rebuild"):
        await built_of(tmp_path / "other", tmp_path / "tables")


async def test_an_archive_of_an_empty_topic_makes_empty_tables(tmp_path: Path) -> None:
    """And the first records that come later are included."""
    storage = judged([3])
    await archived(await opened(up_to(storage, 0.0)), tmp_path / "archive")
    await built_of(tmp_path / "archive", tmp_path / "tables")
    assert not any(all_tables(tmp_path / "tables").values())
    await archived(await opened(storage), tmp_path / "archive")
    assert (await built_of(tmp_path / "archive", tmp_path / "tables")).events > 0


async def test_a_file_that_has_gone_or_is_damaged_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the survey, and in the fold; there is no build then, and the next one leaves no file of it."""
    storage, root = judged([3]), tmp_path / "archive"
    await archived(await opened(storage), root)
    (file,) = (root / path for path in sorted(archives.named(root))[:1])
    whole = file.read_bytes()
    surveyed = survey

    def then_remove(*given: object) -> object:
        found = surveyed(*given)  # type: ignore[arg-type]
        file.unlink()
        return found

    monkeypatch.setattr(builds_module, "survey", then_remove)
    with pytest.raises(LogUnavailable, match=r"archive:.* a file has gone while it was read .*build again"):
        await built_of(root, tmp_path / "tables")
    monkeypatch.setattr(builds_module, "survey", surveyed)
    file.write_bytes(whole[:-100])
    with pytest.raises(LogDamaged, match=r"is not the file that was archived: .*; see fleet verify"):
        await built_of(root, tmp_path / "tables")
    assert last_build(tmp_path / "tables") is None
    file.write_bytes(whole)
    await built_of(root, tmp_path / "tables")


# ---- from a shell ------------------------------------------------------------------------------------------------


def fleet(*args: str) -> Result:
    return CliRunner().invoke(app, ["fleet", *args])


def test_from_a_log_to_the_tables_in_two_commands(tmp_path: Path) -> None:
    """And a third one that has nothing to do."""
    url = asyncio.run(sqlite_copy(judged([3]), tmp_path / "muster.db"))
    assert fleet("archive", "--log", url, "--to", str(tmp_path / "a")).exit_code == 0
    build = ("build", "--archive", str(tmp_path / "a"), "--to", str(tmp_path / "t"))
    first = fleet(*build)
    assert first.exit_code == 0, first.output
    assert "new events folded\nengine local (" in first.output
    assert fleet(*build).output.endswith("nothing new\n")
    assert fleet(*build, "--every", "1m", "--rebuild").exit_code == 2


@pytest.fixture
def forever(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Run `build --every` on an archive that does not exist yet, and capture its output."""
    words = tmp_path / "words"
    command = [sys.executable, "-m", "muster", "fleet", "build", "--archive", str(tmp_path / "a")]
    with words.open("w") as output:
        process = subprocess.Popen(
            [*command, "--to", str(tmp_path / "t"), "--every", "1s"],
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
    yield process, words
    process.kill()
    process.wait()


def test_every_waits_for_the_archive_and_for_another_build_and_ends_at_sigterm(
    forever: tuple[subprocess.Popen[str], Path], tmp_path: Path
) -> None:
    """Both are reported; later records are built."""
    process, words = forever
    until_so(lambda: "is no archive" in words.read_text())
    with locked(tmp_path / "t"):
        storage = judged([3])
        asyncio.run(_archive(storage, tmp_path / "a"))
        until_so(
            lambda: (
                re.search("another build of .*t is running \\(.*\\); tried again in 1 s", words.read_text()) is not None
            )
        )
    until_so(lambda: "new events folded" in words.read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    assert current(tmp_path / "t").number == 1


async def _archive(storage: MemoryStorage, root: Path) -> None:
    await archived(await opened(storage), root)
