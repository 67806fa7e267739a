"""Records of any writer, byte for byte: the input for copies of a topic."""

import pytest

from muster.events.log.kafka.batches import Stamp, encode_batch
from muster.events.log.kafka.decoding import decode_raw
from muster.events.log.kafka.marks import Marks, is_foreign
from muster.events.records import BrokenBatch, RawRecord, Record
from tests.events.log.kafka.foreign_batches import at_offset, batch, bomb, control_batch

OWNERS = Stamp(producer_id=7, producer_epoch=0, epoch_base=0, origin=b"4 home", marked_from=0, partitions=3)


def owners_batch(base_offset: int = 0) -> bytes:
    """Two records of an owner."""
    transition = (Record(b"a", b"1"), Record(b"b", None))
    return at_offset(encode_batch([transition], OWNERS, base_sequence=0, timestamp_ms=5), base_offset)


def raw(fetched: bytes, *, start: int = 0, end: int = 1_000, marks: Marks | None = None) -> list[RawRecord]:
    pieces = decode_raw(fetched, 1, start=start, end=end, marks=marks or Marks())
    return [record for piece, _ in pieces for record in piece]


def test_a_record_has_all_that_it_carries() -> None:
    """Its headers, and the producer of its batch, which identifies foreign records."""
    mark = ("muster", b"4 home 7")
    last = (mark, ("muster.marked-from", b"0"), ("muster.partitions", b"3"))
    assert raw(owners_batch()) == [
        RawRecord(1, 0, 5, b"a", b"1", (mark,), 7, transactional=False),
        RawRecord(1, 1, 5, b"b", None, last, 7, transactional=False),
    ]


def test_a_foreign_record_is_returned_byte_for_byte() -> None:
    """Its value, which other readers drop, and a key and header values that are null."""
    strange = batch([Record(b"", b"x")], base_offset=2, transactional=True, headers=[("h", None)])
    assert raw(owners_batch() + strange)[2:] == [RawRecord(1, 2, 1, None, b"x", (("h", None),), 77, transactional=True)]


def test_records_outside_the_offsets_and_marks_of_transactions_are_left_out() -> None:
    fetched = owners_batch() + control_batch(2) + owners_batch(3)
    assert [record.offset for record in raw(fetched, start=1, end=4)] == [1, 3]
    pieces = list(decode_raw(owners_batch() + control_batch(2), 1, start=0, end=9, marks=Marks()))
    assert pieces[-1] == ([], 3)


def test_an_unreadable_batch_stops_reading_unless_it_is_foreign() -> None:
    """Where owners mark their records, a batch that cannot be unpacked is not an owner's."""
    broken = bomb(2, 2**29)
    with pytest.raises(BrokenBatch, match="offset 2"):
        raw(owners_batch() + broken)
    assert [record.offset for record in raw(owners_batch() + broken, marks=Marks(since=0))] == [0, 1]


def test_the_rule_holds_for_records_of_an_unknown_batch() -> None:
    """A mark counts then; a record without one after the first mark is foreign."""
    marks = Marks(since=0, native_from=0, home="home")
    mark = [("muster", b"4 home 8")]
    assert not is_foreign(5, mark, marks, producer_id=None, transactional=False)
    assert is_foreign(5, mark, marks, producer_id=7, transactional=False)
    assert not is_foreign(5, mark, marks, producer_id=8, transactional=False)
    assert is_foreign(5, [], marks, producer_id=None, transactional=False)
    assert is_foreign(5, [("muster", b"4 away 8")], marks, producer_id=None, transactional=False)
