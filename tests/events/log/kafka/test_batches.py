"""Transitions as record batches, and back."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from muster.events.log.kafka.batches import (
    BATCH_OVERHEAD_BYTES,
    EPOCH_BASE,
    MARKED_FROM,
    NATIVE_FROM,
    PARTITIONS,
    Stamp,
    encode_batch,
    pack,
    uncompressed_bytes,
)
from muster.events.log.kafka.decoding import decode_batches, writers_of
from muster.events.log.kafka.marks import LastOwnerSearch, Marks
from muster.events.records import BrokenRecord, Record, StoredRecord, Transition

STAMP = Stamp(producer_id=7, producer_epoch=3, epoch_base=0)
NOW_MS = 1_700_000_000_000

records = st.builds(Record, st.binary(max_size=40), st.none() | st.binary(max_size=3000))
transitions = st.lists(st.lists(records, min_size=1, max_size=4).map(tuple), min_size=1, max_size=8)


def encoded(*each: Transition, stamp: Stamp = STAMP) -> bytes:
    return encode_batch(each, stamp, base_sequence=0, timestamp_ms=NOW_MS)


def decoded(fetched: bytes, partition: int, *, start: int, end: int) -> tuple[list[StoredRecord], int]:
    """The records of all batches, and the offset after the last."""
    batches = list(decode_batches(fetched, partition, start=start, end=end, marks=Marks()))
    return [record for records, _ in batches for record in records], batches[-1][1] if batches else start


def at_offset(batch: bytes, base_offset: int) -> bytes:
    """The batch as a broker stores it: the base offset precedes what the checksum covers."""
    return base_offset.to_bytes(8, "big") + batch[8:]


@given(transitions)
def test_encoded_batches_are_decoded(each: list[Transition]) -> None:
    """Compressed or not, tombstones and empty values included."""
    flat = [record for transition in each for record in transition]

    found, position = decoded(at_offset(encoded(*each), 100), 4, start=0, end=10_000)

    assert found == [StoredRecord(4, 100 + n, NOW_MS, one.key, one.value) for n, one in enumerate(flat)]
    assert position == 100 + len(flat)


@given(transitions, st.integers(0, 40), st.integers(0, 40))
def test_only_the_requested_records_are_decoded(each: list[Transition], start: int, end: int) -> None:
    """A batch may begin before the start and reach beyond the end."""
    found, _ = decoded(encoded(*each), 0, start=start, end=end)

    assert [one.offset for one in found] == list(range(start, min(end, sum(map(len, each)))))


@given(transitions, st.integers(100, 10_000))
def test_neighbours_share_batches_that_fit(each: list[Transition], limit_bytes: int) -> None:
    """All are in one range each, in order; only a range of one may be over the limit; no two ranges fit in one."""
    ranges = list(pack(each, limit_bytes=limit_bytes))

    assert [index for indices in ranges for index in indices] == list(range(len(each)))
    for indices in ranges:
        if len(indices) > 1:
            assert len(encoded(*each[indices.start : indices.stop])) <= limit_bytes
    for before, after in pairwise(ranges):
        assert sum(uncompressed_bytes(each[n]) for n in [*before, after.start]) + BATCH_OVERHEAD_BYTES > limit_bytes


def test_records_that_fit_to_the_last_byte_share_a_batch() -> None:
    """One byte less, and it is two."""
    each = [(Record(b"a", b"1" * size),) for size in (10, 20, 30)]
    exactly = BATCH_OVERHEAD_BYTES + sum(map(uncompressed_bytes, each))
    assert list(pack(each, limit_bytes=exactly)) == [range(3)]
    assert list(pack(each, limit_bytes=exactly - 1)) == [range(2), range(2, 3)]
    assert list(pack([], limit_bytes=exactly)) == []


@given(transitions)
@example([(Record(b"a", None),)])
def test_the_estimate_is_an_upper_bound(each: list[Transition]) -> None:
    """Even with all possible headers at their longest, so that no packed batch exceeds the limit."""
    stamp = Stamp(
        producer_id=2**63 - 1,
        producer_epoch=32_767,
        epoch_base=2**31,
        origin=b"3 5L6g3nShT-eMCtK--X86sw",
        marked_from=2**63 - 1,
        native_from=2**63 - 1,
        partitions=2**31 - 1,
    )

    assert len(encoded(*each, stamp=stamp)) <= BATCH_OVERHEAD_BYTES + sum(map(uncompressed_bytes, each))


def test_a_record_is_counted_with_what_it_takes_and_little_more() -> None:
    """A batch that was estimated far too large would be cut in many."""
    assert BATCH_OVERHEAD_BYTES < 200
    assert uncompressed_bytes((Record(b"a", b"1" * 1_000),)) < 1_200


def test_a_batch_that_was_cut_off_is_left_for_the_next_fetch() -> None:
    """A fetch ends where its size does."""
    first = encoded((Record(b"a", b"1"), Record(b"b", b"2")))
    second = at_offset(encoded((Record(b"c", b"3"),)), 2)
    for cut in range(len(second)):
        found, position = decoded(first + second[:cut], 0, start=0, end=10)
        assert ([one.key for one in found], position) == ([b"a", b"b"], 2)
        assert [position for _, position in writers_of(first + second[:cut], end=10)] == [2]


@pytest.mark.parametrize("value", [b"1", b"1" * 10_000], ids=["plain", "compressed"])
def test_a_damaged_batch_is_named(value: bytes) -> None:
    """With its position, so that it can be looked up."""
    batch = bytearray(at_offset(encoded((Record(b"a", value),)), 5))
    batch[-1] ^= 1

    with pytest.raises(BrokenRecord) as broken:
        list(decode_batches(bytes(batch), 3, start=5, end=6, marks=Marks()))
    assert (broken.value.partition, broken.value.offset) == (3, 5)


def test_large_batches_are_compressed() -> None:
    """Small ones are not: it would take longer than it saves."""
    assert len(encoded((Record(b"a", b"orders-0" * 1000),))) < 1000
    assert len(encoded((Record(b"a", b"orders-0" * 100),))) > 800


def test_a_batch_is_compressed_from_its_size_on() -> None:
    """The estimate counts, to the byte."""
    beside = uncompressed_bytes((Record(b"a", b""),))
    sizes = {size: len(encoded((Record(b"a", b"0" * (size - beside)),))) for size in (4_095, 4_096)}
    assert sizes[4_095] > 3_900
    assert sizes[4_096] < 200


def newest(fetched: bytes) -> Stamp | None:
    """The last writer's stamp, found from the end backwards."""
    found = LastOwnerSearch()
    found.look_back([written for written, _ in writers_of(fetched, end=100) if written is not None])
    return found.stamp


def test_the_writer_of_the_last_batch_is_returned() -> None:
    """With the base that its epoch is counted from, if it has one, where it was written, and since when all mark."""
    counted = Stamp(
        producer_id=9, producer_epoch=1, epoch_base=40_000, origin=b"2 cluster", marked_from=17, native_from=17
    )
    batches = encoded((Record(b"a", b"1"),)) + encoded((Record(b"b", b"2"),), stamp=counted)

    assert newest(batches) == counted
    assert newest(b"") is None


def test_only_the_last_record_of_a_batch_carries_what_is_noted_for_readers() -> None:
    """It is found from the end backwards; in thousands of records it would be bytes for nothing."""
    noting = msgspec.structs.replace(STAMP, epoch_base=4, marked_from=17, native_from=16, partitions=8)
    batch = encoded(tuple(Record(b"%d" % number, b"1") for number in range(3)), stamp=noting)
    assert batch.count(EPOCH_BASE.encode()) == 3
    assert [batch.count(name.encode()) for name in (MARKED_FROM, NATIVE_FROM, PARTITIONS)] == [1, 1, 1]


def test_the_first_marked_batch_says_itself_where_marking_began() -> None:
    """Its writer did not know its offset yet."""
    batches = at_offset(encoded((Record(b"a", b"1"),)), 7) + at_offset(encoded((Record(b"b", b"2"),)), 8)

    assert newest(batches) == msgspec.structs.replace(STAMP, marked_from=7)
