"""Detects whether another owner wrote between two claims of one owner."""

from dataclasses import dataclass

import pytest

from muster.events.log.base import LogUnavailable
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.log.succession import check_no_other_writer
from muster.events.records import StoredRecord


@dataclass
class Writer:
    """The part of a LogWriter that is used here."""

    next_offset: int | None
    partition: int = 0
    epoch: int = 1
    was_owned: bool = True

    async def append(self, transitions: object) -> list[None]:
        raise NotImplementedError


async def checked(*foreign_records: bool, before: int | None = 2, after: int | None = None) -> None:
    """With these records between `before` and the fence record."""
    storage = MemoryStorage(partitions=1)
    first = 2
    for offset in range(first + len(foreign_records) + 1):
        is_foreign = first <= offset < first + len(foreign_records) and foreign_records[offset - first]
        storage.records[0].append(StoredRecord(0, offset, 0, b"key", b"value", is_foreign=is_foreign))
    log = MemoryEventLog(storage)
    await log.open()
    await check_no_other_writer(
        log, Writer(before), Writer(first + len(foreign_records) + 1 if after is None else after)
    )


async def test_nothing_was_written_right_after_the_last_append() -> None:
    await checked()


async def test_right_behind_the_last_append_nothing_is_read() -> None:
    """The log is not even open."""
    await check_no_other_writer(MemoryEventLog(), Writer(next_offset=2), Writer(next_offset=3))


@pytest.mark.parametrize("foreign_records", [(True,), (True, True, True)])
async def test_foreign_records_do_not_matter(foreign_records: tuple[bool, ...]) -> None:
    await checked(*foreign_records)


@pytest.mark.parametrize(
    ("foreign_records", "offset"), [((False,), 2), ((True, False), 3), ((False, True), 2), ((True, True, False), 4)]
)
async def test_one_record_of_another_owner_is_enough(foreign_records: tuple[bool, ...], offset: int) -> None:
    """At any position up to the one before the fence record."""
    with pytest.raises(LogUnavailable, match=f"another muster serve wrote at offset {offset} while this one"):
        await checked(*foreign_records)


async def test_without_an_offset_it_is_not_known() -> None:
    """A broker need not return one."""
    with pytest.raises(LogUnavailable, match="it is not known where the last append ended"):
        await checked(before=None)
