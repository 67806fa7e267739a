"""Foreign records are counted, each once over several readings."""

from muster.events.records import ForeignRecords, StoredRecord


def test_a_reading_counts_from_the_first_offset_that_was_not_counted_before() -> None:
    foreign_records = ForeignRecords(counted_to=5)
    for offset in (4, 5, 6):
        foreign_records.note(StoredRecord(0, offset, 0, b"", None, is_foreign=True))
    assert (foreign_records.records, foreign_records.first, foreign_records.next_offset) == (2, {0: 5}, 7)


def test_owners_records_are_given_and_the_others_counted() -> None:
    """The report names the first one, of the first partition."""
    foreign_records = ForeignRecords()
    chunk = [StoredRecord(1, offset, 0, b"", None, is_foreign=offset > 0) for offset in range(3)]
    assert list(foreign_records.without(chunk)) == chunk[:1]
    foreign_records.note(StoredRecord(0, 9, 0, b"", None, is_foreign=True))
    assert (foreign_records.records, foreign_records.first) == (3, {1: 1, 0: 9})
    assert foreign_records.report("here") == (
        "here: records that this cluster's Muster did not write were skipped (3); the first is in partition"
        " 0 at offset 9"
    )
    assert ForeignRecords().report("here") is None
