"""Records that are kept until they are needed: the same in memory and in a file, with limited memory."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from muster.events.records import StoredRecord
from muster.replay.results import kept_records
from muster.replay.results.kept_records import KeptRecords, NoRoomToKeep
from tests.replay.histories import Script
from tests.replay.written import CountedValue, counted, script

GROUPS = 5


def busy(group_id: str, rejoins: int) -> Script:
    story = script(group_id).created()
    story.start(story.joined(story.member("a"))).complete().stabilize({"a": {"orders": [0]}})
    for _ in range(rejoins):
        story.wait(1_000).advanced(story.rejoined(story.of("a")))
    return story


def records_of(rejoins: int) -> list[list[StoredRecord]]:
    """Return the records of some groups."""
    return [busy(f"g{number}", rejoins).stored_records() for number in range(GROUPS)]


@contextmanager
def no_file_grows() -> Iterator[None]:
    """Let no file of this process grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("in_memory", [1, 7, 10_000])
def test_kept_records_are_returned_in_order(monkeypatch: pytest.MonkeyPatch, in_memory: int) -> None:
    """Group by group, even if some had to go into the file; the second time there is nothing."""
    monkeypatch.setattr(kept_records, "IN_MEMORY_MAX", in_memory)
    kept, groups = KeptRecords(), records_of(20)
    for at in range(0, len(groups[0]), 3):
        for number, records in enumerate(groups):
            kept.add(number, records[at : at + 3])
    for number, records in enumerate(groups):
        reported = [(read.position.offset, read.position.timestamp_ms) for read in kept.take(number)]
        assert reported == [(record.offset, record.timestamp_ms) for record in records]
        assert not list(kept.take(number))


@pytest.mark.parametrize("in_memory", [1, 7, 10_000])
def test_dropped_records_are_not_returned(monkeypatch: pytest.MonkeyPatch, in_memory: int) -> None:
    """Except in a block with a record that is kept."""
    monkeypatch.setattr(kept_records, "IN_MEMORY_MAX", in_memory)
    kept, records = KeptRecords(), records_of(20)[0]
    for record in records:
        kept.add(0, [record])
    kept.drop(0, records[10].offset)
    reported = [read.position.offset for read in kept.take(0)]
    assert reported[-len(records[10:]) :] == [record.offset for record in records[10:]]
    assert len(reported) < len(records[10:]) + 7


def test_the_part_in_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is for all groups together."""
    monkeypatch.setattr(kept_records, "IN_MEMORY_MAX", 50)
    kept, before = KeptRecords(), CountedValue.kept
    for at in range(30):
        for number, records in enumerate(records_of(30)):
            kept.add(number, [counted(records[at])])
            assert CountedValue.kept - before <= 51
    assert [len(list(kept.take(number))) for number in range(GROUPS)] == [30] * GROUPS


def test_a_disk_without_space_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its purpose and its place."""
    monkeypatch.setattr(kept_records, "IN_MEMORY_MAX", 1_000)
    kept = KeptRecords()
    large = [StoredRecord(0, offset, 0, b"", Random(offset).randbytes(10_000)) for offset in range(3_000)]
    with no_file_grows(), pytest.raises(NoRoomToKeep, match=r"temporary file cannot be written: .*; TMPDIR"):
        kept.add(0, large)
