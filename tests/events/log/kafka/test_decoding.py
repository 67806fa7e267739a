"""Distinguishing owners' records from foreign ones in fetched bytes, from before owners marked theirs and since."""

import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.events.log.kafka.batches import MARK, UNCOMPRESSED_BYTES_MAX, Stamp, encode_batch
from muster.events.log.kafka.decoding import decode_batches, writers_of
from muster.events.log.kafka.marks import KEY_PREFIXES, LastOwnerSearch, Marks
from muster.events.log.limits import CHUNK_RECORDS_MAX
from muster.events.records import FORMAT_LEVEL, BrokenRecord, Record, StoredRecord
from tests.events.log.kafka import foreign_batches as foreign

STAMP = Stamp(producer_id=7, producer_epoch=3, epoch_base=0, origin=b"3 here", marked_from=0, native_from=0)
ONE = [Record(b"a", b"1")]
MIB = 1024 * 1024
CODECS = (foreign.GZIP, foreign.SNAPPY, foreign.LZ4, foreign.ZSTD)
XERIAL = b"\x82SNAPPY\x00" + bytes((0, 0, 0, 1)) * 2
"""The beginning of snappy as Java writes it: blocks follow, each after its size."""


def ours(records: list[Record], base_offset: int, stamp: Stamp = STAMP) -> bytes:
    batch = encode_batch([tuple(records)], stamp, base_sequence=0, timestamp_ms=1)
    return foreign.at_offset(batch, base_offset)


def decoded(fetched: bytes, since: int | None = 0) -> list[StoredRecord]:
    pieces = decode_batches(fetched, 4, start=0, end=2**40, marks=Marks(since=since))
    return [record for records, _ in pieces for record in records]


def offsets_by_writer(records: list[StoredRecord]) -> tuple[list[int], list[int]]:
    """The offsets of owners' records, and of foreign ones."""
    return [one.offset for one in records if not one.is_foreign], [one.offset for one in records if one.is_foreign]


def test_each_record_of_an_owner_carries_the_format_level() -> None:
    """In a header that any consumer can see, the first one; also in compressed batches, and on tombstones."""
    for records in ([Record(b"a", b"1"), Record(b"a", None)], [Record(b"a", b"x" * 5_000), Record(b"b", b"2")]):
        (written,) = [batch for batch, _ in writers_of(ours(records, 0), end=9)]
        assert written is not None
        assert written.marked
        assert offsets_by_writer(decoded(ours(records, 0))) == ([0, 1], [])
        with_headers = foreign.batch(records, headers=[("other", b""), (MARK, str(FORMAT_LEVEL - 1).encode())])
        assert offsets_by_writer(decoded(with_headers)) == ([0, 1], []), "a copy, or another version's"


@pytest.mark.parametrize("codec", [0, *CODECS])
@pytest.mark.parametrize("transactional", [False, True])
def test_an_unmarked_record_is_foreign(*, codec: int, transactional: bool) -> None:
    """With any codec, and in a transaction; its key is reported, its value is not kept."""
    records = [Record(b"key", b"value" * 100), Record(b"", b"a null key"), Record(b"gone", None)]
    foreign_records = foreign.batch(records, base_offset=5, codec=codec, transactional=transactional)

    found = decoded(ours(ONE, 4) + foreign_records + ours(ONE, 8))

    assert offsets_by_writer(found) == ([4, 8], [5, 6, 7])
    assert [(one.key, one.value) for one in found if one.is_foreign] == [(b"key", None), (b"", None), (b"gone", None)]


@pytest.mark.parametrize("codec", [foreign.GZIP, foreign.SNAPPY, foreign.LZ4])
def test_an_owners_batch_recompressed_by_the_broker_is_an_owners(codec: int) -> None:
    """According to compression.type, or by a mirror's producer: the mark counts, whatever the codec."""
    copied = foreign.batch([Record(b"a", b"1" * 500)], codec=codec, headers=[(MARK, b"3")])
    assert offsets_by_writer(decoded(copied)) == ([0], [])


def test_a_transaction_is_foreign_whatever_it_contains() -> None:
    """Owners write none, and it may have been aborted. The marker at its end is ignored."""
    copied = foreign.batch(ONE, base_offset=3, transactional=True, headers=[(MARK, b"3")])
    found = list(decode_batches(copied + foreign.control_batch(4), 0, start=0, end=9, marks=Marks(since=0)))
    assert offsets_by_writer([record for records, _ in found for record in records]) == ([], [3])
    assert found[-1] == ([], 5)


def test_before_owners_marked_their_records_all_are_taken_for_owners() -> None:
    """A log of an earlier version reads as it did, up to the first mark that is met, or that was noted."""
    before = foreign.batch(ONE, base_offset=1) + foreign.batch(ONE, base_offset=2, codec=foreign.LZ4)
    foreign_records = foreign.batch(ONE, base_offset=9)

    assert offsets_by_writer(decoded(before + ours(ONE, 8) + foreign_records, since=None)) == ([1, 2, 8], [9])
    assert offsets_by_writer(decoded(before + ours(ONE, 8) + foreign_records, since=2)) == ([1, 8], [2, 9])
    assert decoded(before, since=None)[0].value == b"1"


def test_unmarked_records_are_foreign_from_the_offset_where_marking_began() -> None:
    """Including that offset itself, in one batch with what precedes it."""
    unmarked = foreign.batch([Record(b"a", b"1")] * 4, base_offset=3)
    assert offsets_by_writer(decoded(unmarked, since=5)) == ([3, 4], [5, 6])


def test_a_mark_before_the_noted_one_counts() -> None:
    """Owners began to mark no later than at any marked record, whatever was noted or met first."""
    marked, unmarked = ours(ONE, 3), foreign.batch(ONE, base_offset=4)
    assert offsets_by_writer(decoded(marked + unmarked, since=8)) == ([3], [4])
    assert offsets_by_writer(decoded(foreign.batch(ONE, base_offset=2) + marked + ours(ONE, 5), since=8)) == (
        [2, 3, 5],
        [],
    )


# ---- hostile ones --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unreadable",
    [
        *(foreign.with_records(foreign.batch(ONE, base_offset=1), b"not packed", codec) for codec in CODECS),
        foreign.with_records(foreign.batch(ONE, base_offset=1), XERIAL + b"cut", foreign.SNAPPY),
        foreign.with_records(foreign.batch(ONE, base_offset=1), b"\xff" * 40, 0),
        foreign.with_attributes(foreign.batch(ONE, base_offset=1), 7),
        foreign.of_an_old_format(1),
    ],
    ids=["not gzip", "not snappy", "not lz4", "not zstd", "snappy cut off", "garbage", "no such codec", "old format"],
)
def test_an_unreadable_foreign_batch_is_skipped(unreadable: bytes) -> None:
    """Before owners marked theirs, it may be one of theirs: it is named."""
    assert offsets_by_writer(decoded(unreadable + ours(ONE, 2))) == ([2], [1])
    with pytest.raises(BrokenRecord, match="partition 4, offset 1: the batch cannot be read: "):
        decoded(unreadable, since=None)
    assert list(writers_of(unreadable, end=9)) == [(None, 2)]


@pytest.mark.parametrize(
    "last",
    [
        foreign.with_records(foreign.batch(ONE, base_offset=1), b"\xff" * 40, 0),
        foreign.of_an_old_format(1),
        foreign.control_batch(1),
        foreign.batch(ONE, base_offset=1),
        ours(ONE, 1),
    ],
    ids=["garbage", "old format", "control", "a stranger's", "ours"],
)
def test_the_next_read_begins_behind_what_was_read(last: bytes) -> None:
    """Even if it is foreign or unreadable: otherwise the same bytes would be fetched again forever."""
    found = list(decode_batches(ours(ONE, 0) + last, 0, start=0, end=9, marks=Marks(since=0)))
    assert [position for _, position in found] == [1, 2]
    assert [each for _, each in writers_of(ours(ONE, 0) + last, end=9)] == [1, 2]


@pytest.mark.parametrize(("start", "end"), [(0, 6), (0, 2), (1, 5), (2, 3), (3, 3), (4, 6)])
@pytest.mark.parametrize("codec", [0, foreign.ZSTD])
def test_the_records_between_two_offsets_are_returned_from_whole_batches(start: int, end: int, codec: int) -> None:
    """A broker sends batches, and a reader that continues starts in the middle of one, for any writer."""
    three = [Record(bytes([each]), b"1") for each in range(3)]
    foreign_records = foreign.batch(three, base_offset=3, codec=codec)
    pieces = decode_batches(ours(three, 0) + foreign_records, 0, start=start, end=end, marks=Marks(since=0))
    found = [record for records, _ in pieces for record in records]
    assert [record.offset for record in found] == list(range(start, end))
    assert [record.is_foreign for record in found] == [offset >= 3 for offset in range(start, end)]


def test_a_bomb_is_not_unpacked() -> None:
    """A few KiB that claim to be 2 GiB take no more memory than the limit."""
    small = foreign.bomb(1, 2 * 1024 * MIB)
    assert len(small) < MIB // 4
    tracemalloc.start()
    assert offsets_by_writer(decoded(small + ours(ONE, 2))) == ([2], [1])
    assert tracemalloc.get_traced_memory()[1] < 2 * UNCOMPRESSED_BYTES_MAX
    tracemalloc.stop()


def test_headers_are_not_made_objects_of_by_the_million() -> None:
    """A header of two bytes would take 70 bytes of memory."""
    record = b"\x00\x00\x00" + b"\x02a" + b"\x01" + varint(3_000_000) + b"\x00\x01" * 3_000_000
    many = foreign.with_records(foreign.batch(ONE, base_offset=1), varint(len(record)) + record, 0)
    tracemalloc.start()
    assert offsets_by_writer(decoded(many + ours(ONE, 2))) == ([2], [1])
    assert tracemalloc.get_traced_memory()[1] < 50 * MIB
    tracemalloc.stop()
    thousands = foreign.batch(ONE, base_offset=1, headers=[("h", b"")] * 5_000)
    assert offsets_by_writer(decoded(thousands + ours(ONE, 2))) == ([2], [1])


def test_a_search_for_the_last_owner_keeps_no_record() -> None:
    """A batch may have a million of them."""
    batch = ours([Record(b"k" * 50, b"v" * 50)] * 40_000, 0)
    tracemalloc.start()
    ((written, after),) = writers_of(batch, end=2**40)
    assert tracemalloc.get_traced_memory()[1] < 2 * MIB
    tracemalloc.stop()
    assert (written is not None, after) == (True, 40_000)


def test_headers_that_are_packed_are_counted_when_they_are_unpacked() -> None:
    """A few KiB may have millions of them."""
    record = b"\x00\x00\x00" + b"\x02a" + b"\x01" + varint(3_000_000) + b"\x00\x01" * 3_000_000
    packed = bytes(cramjam.zstd.compress(varint(len(record)) + record))
    many = foreign.with_records(foreign.batch(ONE, base_offset=1), packed, foreign.ZSTD)
    assert len(many) < MIB // 16
    tracemalloc.start()
    assert offsets_by_writer(decoded(many + ours(ONE, 2))) == ([2], [1])
    assert tracemalloc.get_traced_memory()[1] < 50 * MIB
    tracemalloc.stop()


def test_a_number_that_does_not_end_is_not_read_on() -> None:
    """Millions of continuation bytes would be one number, with quadratic cost."""
    endless = foreign.with_records(foreign.batch(ONE, base_offset=1), b"\x80" * 5 * MIB, 0)
    with pytest.raises(BrokenRecord, match="a number that does not end"):
        decoded(endless, since=None)


def test_a_record_that_ends_before_it_begins_is_not_counted_for_ever() -> None:
    """The next one would be where it was, two billion times."""
    backwards = foreign.with_records(foreign.batch(ONE, base_offset=1), b"\x01" * 5 * MIB, 0)
    with pytest.raises(BrokenRecord, match="a record of -1 bytes"):
        decoded(backwards, since=None)


@pytest.mark.parametrize("is_longer", [False, True])
def test_a_number_of_ten_bytes_is_the_longest(*, is_longer: bool) -> None:
    """For a time long before 1970, in a batch that is large enough for its headers to be counted."""
    time = b"\xff" * (9 + is_longer) + b"\x01"
    record = b"\x00" + time + b"\x00" + b"\x02a" + varint(5 * MIB) + bytes(5 * MIB) + b"\x00"
    large = foreign.with_records(foreign.batch(ONE, base_offset=1), varint(len(record)) + record, 0)
    if not is_longer:
        assert [(one.offset, one.key) for one in decoded(large, since=None)] == [(1, b"a")]
    else:
        with pytest.raises(BrokenRecord, match="a number that does not end"):
            decoded(large, since=None)


@pytest.mark.parametrize(("over", "reason"), [(0, "it is not snappy"), (1, "8388609 bytes of snappy may be too many")])
def test_snappy_is_unpacked_up_to_a_size_that_cannot_be_over_the_limit(over: int, reason: str) -> None:
    """Its unpacked size need not be stated, and is at most 32 times as large."""
    size = UNCOMPRESSED_BYTES_MAX // 32 + over
    of_snappy = foreign.with_records(foreign.batch(ONE, base_offset=1), bytes(size), foreign.SNAPPY)
    with pytest.raises(BrokenRecord, match=reason):
        decoded(of_snappy, since=None)


@pytest.mark.parametrize("codec", [0, foreign.ZSTD])
def test_large_records_are_read_with_as_many_headers_as_any(codec: int) -> None:
    """A thousand each, counted at any position after long keys and values; one more is too many."""
    large = [Record(b"k" * 9_000, bytes(3 * MIB)), Record(b"gone", None), Record(b"b", bytes(3 * MIB))]
    for count, is_read in ((1_000, True), (1_001, False)):
        batch = foreign.batch(large, base_offset=1, codec=codec, headers=[("h", b"")] * count)
        if is_read:
            keys = [(one.offset, one.key) for one in decoded(batch, since=None)]
            assert keys == [(1, large[0].key), (2, b"gone"), (3, b"b")]
        else:
            with pytest.raises(BrokenRecord, match=f"a record with {count} headers"):
                decoded(batch, since=None)


def varint(number: int) -> bytes:
    number, encoded = number * 2, bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes((*encoded, number))


def test_a_deep_batch_comes_in_pieces() -> None:
    """Others are served between them."""
    deep = foreign.batch([Record(b"a", b"")] * (2 * CHUNK_RECORDS_MAX), codec=foreign.ZSTD)
    pieces = list(decode_batches(deep, 0, start=0, end=2**40, marks=Marks(since=0)))
    assert [(len(records), position) for records, position in pieces] == [(2_000, 2_000), (2_000, 4_000)]


def test_a_batch_that_begins_as_an_owners_is_named_when_the_rest_is_unreadable() -> None:
    """The unreadable rest is an owner's, too."""
    batch = foreign.batch([Record(b"a", b"")] * (CHUNK_RECORDS_MAX + 2), headers=[(MARK, b"3")])
    damaged = foreign.with_records(batch, batch[61:-4] + b"\xff" * 4, 0)
    pieces = decode_batches(damaged, 4, start=0, end=2**40, marks=Marks(since=0))
    records, _ = next(pieces)
    assert {one.is_foreign for one in records} == {False}
    with pytest.raises(BrokenRecord, match="partition 4, offset 0: the batch cannot be read: "):
        next(pieces)


def test_a_long_foreign_key_is_not_kept() -> None:
    """It cannot be one of ours."""
    (found,) = decoded(foreign.batch([Record(b"k" * MIB, b"v" * MIB)]))
    assert (found.key, found.value, found.is_foreign) == (b"", None, True)


@pytest.mark.parametrize(("size", "is_kept"), [(128 * 1024, True), (128 * 1024 + 1, False)])
def test_a_foreign_key_is_kept_up_to_the_size_of_ours(size: int, is_kept: bool) -> None:
    (found,) = decoded(foreign.batch([Record(b"k" * size, b"v")]))
    assert len(found.key) == (size if is_kept else 0)


def test_an_owner_may_have_the_first_producer_id_of_a_cluster() -> None:
    """Its number is 0."""
    stamp = Stamp(producer_id=0, producer_epoch=0, epoch_base=0, origin=b"3 here", marked_from=0, native_from=0)
    marks = Marks(since=0, native_from=0, home="here")
    assert foreign_among(ours(ONE, 0, stamp), played_again(1, mark=b"3 here 0"), marks=marks) == [False, True]
    one_by_one = ours([Record(b"a", b"1"), Record(b"b", b"2")], 0, stamp)
    assert foreign_among(one_by_one, marks=marks) == [False, False]
    assert newest(ours(ONE, 0, stamp)) == stamp


def test_a_wrong_checksum_is_named_for_any_writer() -> None:
    """The broker had seen a correct one: its disk is damaged, and the batch may be ours."""
    damaged = bytearray(ours(ONE, 5))
    damaged[-1] ^= 1
    with pytest.raises(BrokenRecord, match="checksum"):
        decoded(bytes(damaged))


# ---- the law -------------------------------------------------------------------------------------

records = st.builds(Record, st.binary(min_size=1, max_size=10), st.none() | st.binary(max_size=40))
batches = st.lists(records, min_size=1, max_size=5)


@given(
    parts=st.lists(st.tuples(st.booleans(), batches, st.sampled_from([0, 1, 2, 3, 4]), st.booleans()), max_size=8),
    earlier=st.lists(batches, max_size=3),
)
def test_owners_records_are_the_same_among_foreign_ones(
    parts: list[tuple[bool, list[Record], int, bool]], earlier: list[list[Record]]
) -> None:
    """For any records of other producers, at any place, once owners mark their records: only the foreign ones are
    sorted out.
    """
    offset, fetched = 0, b""
    expected: list[tuple[int, bytes, bytes | None]] = []
    for some in earlier:  # by an owner of an earlier version
        fetched += foreign.batch(some, base_offset=offset)
        expected += [(offset + n, one.key, one.value) for n, one in enumerate(some)]
        offset += len(some)
    since = offset
    for is_ours, some, codec, transactional in parts:
        if is_ours:
            fetched += ours(some, offset)
            expected += [(offset + n, one.key, one.value) for n, one in enumerate(some)]
        else:
            fetched += foreign.batch(some, base_offset=offset, codec=codec, transactional=transactional)
        offset += len(some)

    found = decoded(fetched, since)

    assert [(one.offset, one.key, one.value) for one in found if not one.is_foreign] == expected
    assert len(found) == offset


# ---- the last writer -----------------------------------------------------------------------------


def newest(*windows: bytes) -> Stamp | None:
    """Looked for in these, the last one first."""
    found = LastOwnerSearch()
    for window in reversed(windows):
        found.look_back([written for written, _ in writers_of(window, end=100) if written is not None])
    return found.stamp


def test_foreign_records_are_skipped() -> None:
    """Their epochs and producer ids are none of ours; a transaction is theirs even with our headers."""
    foreign_records = foreign.batch(ONE, base_offset=2) + foreign.batch(
        ONE, base_offset=3, transactional=True, headers=[(MARK, b"3")]
    )
    assert newest(ours(ONE, 1), foreign_records, foreign_records) == STAMP


def test_an_owner_of_an_earlier_version_is_known_by_what_it_noted() -> None:
    """It marked nothing, so no owner marks yet."""
    noted = foreign.batch(ONE, base_offset=1, headers=[("muster.origin", b"2 here")])
    found = newest(noted, foreign.batch(ONE, base_offset=2))
    assert found is not None
    assert (found.producer_id, found.origin, found.marked_from) == (77, b"2 here", None)


@pytest.mark.parametrize("key", KEY_PREFIXES)
def test_an_owner_of_the_first_version_is_known_by_its_keys(key: bytes) -> None:
    """It wrote no headers at all."""
    found = newest(foreign.batch([Record(key, b"1")], base_offset=1), foreign.batch(ONE, base_offset=2))
    assert found is not None
    assert (found.producer_id, found.origin, found.marked_from) == (77, b"", None)


def test_the_beginning_of_marking_is_found_further_back_if_compaction_removed_the_note() -> None:
    """It is in the last record of a batch, which may be gone; the mark is in each record."""
    without_note = ours(ONE, 30, Stamp(producer_id=8, producer_epoch=1, epoch_base=0))
    found = newest(ours(ONE, 20, Stamp(producer_id=7, producer_epoch=0, epoch_base=0, marked_from=11)), without_note)
    assert found is not None
    assert (found.producer_id, found.marked_from) == (8, 11)


@pytest.mark.parametrize("headers", [[("muster.origin", b"2 there")], [("muster.epoch-base", b"0")]])
def test_a_foreign_copy_of_an_owners_note_is_skipped(headers: list[tuple[str, bytes]]) -> None:
    """Owners mark already, further back."""
    assert newest(ours(ONE, 1), foreign.batch(ONE, base_offset=2, headers=headers)) == STAMP


@pytest.mark.parametrize("name", ["muster.epoch-base", "muster.marked-from"])
def test_an_impossible_number_in_a_note_is_ignored(name: str) -> None:
    found = newest(foreign.batch(ONE, base_offset=1, headers=[("muster.origin", b"2 here"), (name, b"9" * 5_000)]))
    assert found is not None
    assert (found.epoch_base, found.marked_from) == (0, None)


@pytest.mark.parametrize(("digits", "noted"), [(19, 10**19 - 1), (20, None)])
def test_a_number_has_as_many_digits_as_an_offset_may_have(digits: int, noted: int | None) -> None:
    headers = [("muster.origin", b"2 here"), ("muster.marked-from", b"9" * digits)]
    found = newest(foreign.batch(ONE, base_offset=1, headers=[(MARK, b"2 here 77"), *headers]))
    assert found is not None
    assert found.marked_from == (1 if noted is None else noted)


# ---- owners' records that were played again ----------------------------------------------------------


def played_again(base_offset: int, *, mark: bytes = b"3 here 7") -> bytes:
    """Like a restored export: all headers, and another producer."""
    return foreign.batch(ONE, base_offset=base_offset, headers=[(MARK, mark)])


def foreign_among(*batches: bytes, marks: Marks) -> list[bool]:
    return [each.is_foreign for each in read_all(b"".join(batches), marks)]


def read_all(fetched: bytes, marks: Marks) -> list[StoredRecord]:
    return [each for piece, _ in decode_batches(fetched, 0, start=0, end=99, marks=marks) for each in piece]


def test_a_replayed_owners_record_is_foreign() -> None:
    """Its batch has another producer than its mark names; the owner's own batch has the named one."""
    marks = Marks(since=0, native_from=0, home="here")
    assert foreign_among(ours(ONE, 0), played_again(1), ours(ONE, 2), marks=marks) == [False, True, False]


@pytest.mark.parametrize("mark", [b"3 here 7", b"3 here", b"3"], ids=["restored", "of an earlier version", "a level"])
def test_before_the_first_native_record_every_mark_is_believed(mark: bytes) -> None:
    """A restored topic, or one whose marks named no producer, is read and continued."""
    marks = Marks(since=0, native_from=1, home="here")
    assert foreign_among(played_again(0, mark=mark), ours(ONE, 1), marks=marks) == [False, False]
    assert foreign_among(played_again(2, mark=mark), marks=marks) == [True]


def test_replayed_records_do_not_hide_the_last_writer() -> None:
    """Else the next epoch would be counted from an old one."""
    again = foreign.batch(ONE, base_offset=2, headers=[(MARK, b"3 here 7"), ("muster.marked-from", b"5")])
    assert newest(ours(ONE, 0), ours(ONE, 1) + again, played_again(3)) == STAMP


def test_without_native_records_the_last_mark_counts() -> None:
    """A topic that was restored; from which offset on records are native is not noted there."""
    again = foreign.batch(ONE, base_offset=2, headers=[(MARK, b"3 here 7"), ("muster.marked-from", b"5")])
    found = newest(played_again(1), again)
    assert found is not None
    assert (found.producer_id, found.origin, found.marked_from, found.native_from) == (77, b"3 here", 5, None)
