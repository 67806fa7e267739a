"""Counting of strangers' records, each once over several readings."""

from muster.events.records import ForeignRecords, StoredRecord


def test_a_reading_counts_from_the_first_offset_that_was_not_counted_before() -> None:
    strangers = ForeignRecords(counted_to=5)
    for offset in (4, 5, 6):
        strangers.note(StoredRecord(0, offset, 0, b"", None, is_foreign=True))
    assert (strangers.records, strangers.first, strangers.next_offset) == (2, {0: 5}, 7)


def test_owners_records_are_given_and_the_others_counted() -> None:
    """They are told by the first one, of the first partition."""
    strangers = ForeignRecords()
    chunk = [StoredRecord(1, offset, 0, b"", None, is_foreign=offset > 0) for offset in range(3)]
    assert list(strangers.without(chunk)) == chunk[:1]
    strangers.note(StoredRecord(0, 9, 0, b"", None, is_foreign=True))
    assert (strangers.records, strangers.first) == (3, {1: 1, 0: 9})
    assert strangers.report("here") == (
        "here: records that this cluster's Muster did not write were skipped (3); the first stands in partition 0 at"
        " offset 9"
    )
    assert ForeignRecords().report("here") is None
