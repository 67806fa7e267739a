"""Reading around damage: whatever can be read on its own is read."""

from collections.abc import Sequence

import pytest

from muster.events.log.base import LogDamaged
from muster.events.log.sqlite.salvage import read_around
from muster.events.records import StoredRecord

RECORDS = 1_000


@pytest.mark.parametrize(
    "damaged", [set(), {0}, {0, 1}, {7}, {RECORDS - 1}, {3, 500, 501, 999}], ids=lambda each: f"{sorted(each)}"
)
async def test_all_records_but_those_that_are_damaged_are_read_in_order(damaged: set[int]) -> None:
    """The first and the last, too."""

    async def read_range(start: int, end: int) -> Sequence[StoredRecord]:
        offsets = range(start, min(end, RECORDS))
        if damaged.intersection(offsets):
            raise LogDamaged("it was")
        return [StoredRecord(0, offset, 0, b"k", None) for offset in offsets]

    read = [record.offset async for chunk in read_around(read_range, 0, RECORDS) for record in chunk]
    assert read == [offset for offset in range(RECORDS) if offset not in damaged]
