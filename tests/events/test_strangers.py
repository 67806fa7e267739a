"""Counting of strangers' records, each once over several readings."""

from muster.events.records import StoredRecord
from muster.events.strangers import Strangers


def test_a_reading_counts_from_the_first_offset_that_was_not_counted_before() -> None:
    strangers = Strangers(counted_to=5)
    for offset in (4, 5, 6):
        strangers.note(StoredRecord(0, offset, 0, b"", None, stranger=True))
    assert (strangers.records, strangers.first, strangers.next_offset) == (2, {0: 5}, 7)
