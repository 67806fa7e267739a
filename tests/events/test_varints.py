"""Avro's numbers: written as fastavro does, and read completely, whatever is around them."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from muster.events.records import BrokenRecord
from muster.events.varints import read_block_count, read_int, read_length, read_long, write_int, write_long

Read = Callable[[bytes, int, int], tuple[int, int]]

LONG, INT = (parse_schema({"type": kind}) for kind in ("long", "int"))
LONGS = parse_schema({"type": "array", "items": "long"})
NOW_MS = 1_790_000_000_000
"""A wall clock time: such numbers have a special case."""


def around_powers(bits: int) -> Iterator[int]:
    """Return the numbers of this many bits at which something changes: another byte, the sign, the last one."""
    for power in range(bits):
        for near in (-1, 0, 1):
            number = (1 << power) + near
            yield from (each for each in (number, -number) if -(1 << bits - 1) <= each < 1 << bits - 1)


def by_fastavro(number: int, schema: Any) -> bytes:
    written = io.BytesIO()
    schemaless_writer(written, schema, number)
    return written.getvalue()


def read_amid(read: Read, encoded: bytes, behind: bytes) -> int:
    """The number, which has to end where its bytes end."""
    number, position = read(b"\xff\x80\x00" + encoded + behind, 4, encoded[0])
    assert position == 3 + len(encoded)
    return number


BEHIND = (b"", b"\x00" * 12, b"\xff" * 12, b"\x80\x00\x80\x00\x80\x00")


def is_long(encoded: bytes) -> bool:
    """Return whether there is more than the byte that callers read themselves."""
    return encoded[0] > 127


@pytest.mark.parametrize("behind", BEHIND, ids=["nothing", "zeros", "ones", "both"])
def test_a_number_of_64_bits_is_written_as_by_fastavro_and_read(behind: bytes) -> None:
    """At each length, on both sides of it; what follows is not taken for a part of it."""
    for number in (*around_powers(64), NOW_MS, -NOW_MS, 2**63 - 1, -(2**63)):
        encoded = write_long(number)
        assert encoded == by_fastavro(number, LONG)
        if is_long(encoded):
            assert read_amid(read_long, encoded, behind) == number


@given(number=st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**42), behind=st.binary(max_size=8))
def test_any_number_of_64_bits_is_written_as_by_fastavro_and_read(number: int, behind: bytes) -> None:
    encoded = write_long(number)
    assert encoded == by_fastavro(number, LONG)
    if is_long(encoded):
        assert read_amid(read_long, encoded, behind) == number


@pytest.mark.parametrize("behind", BEHIND, ids=["nothing", "zeros", "ones", "both"])
def test_a_number_of_32_bits_is_written_as_by_fastavro_and_read(behind: bytes) -> None:
    for number in (*around_powers(32), 45_000, 2**31 - 1, -(2**31)):
        encoded = write_int(number)
        assert encoded == by_fastavro(number, INT)
        if is_long(encoded):
            assert read_amid(read_int, encoded, behind) == number


@pytest.mark.parametrize(("write", "bits"), [(write_long, 64), (write_int, 32)])
def test_a_number_of_too_many_bits_is_not_written(write: Callable[[int], bytes], bits: int) -> None:
    """The first on either side."""
    for number in (1 << bits - 1, -(1 << bits - 1) - 1, 1 << 100, -(1 << 100)):
        with pytest.raises(OverflowError, match=f"over {bits} bits"):
            write(number)


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, NOW_MS])
def test_a_number_that_is_over_32_bits_is_not_read_as_one(number: int) -> None:
    """Fastavro, as any writer of Avro, would have refused to write it."""
    encoded = by_fastavro(number, LONG)
    with pytest.raises(BrokenRecord, match=f"{number} is over 32 bits"):
        read_int(encoded, 1, encoded[0])


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        pytest.param(b"\x80" * 10 + b"\x00", "longer than ten bytes", id="a nought of eleven bytes"),
        pytest.param(b"\x80" * 500 + b"\x00", "longer than ten bytes", id="one that goes on and on"),
        pytest.param(b"\xff" * 9 + b"\x02", "over 64 bits", id="one bit too many"),
    ],
)
def test_an_overlong_number_is_refused(encoded: bytes, reason: str) -> None:
    with pytest.raises(BrokenRecord, match=reason):
        read_long(encoded, 1, encoded[0])


def test_a_number_that_is_cut_off_has_no_end() -> None:
    """At any position: the callers know whose bytes have ended."""
    for number, read in ((2**63 - 1, read_long), (NOW_MS, read_long), (2**31 - 1, read_int), (45_000, read_int)):
        encoded = write_long(number)
        for length in range(1, len(encoded)):
            with pytest.raises(IndexError):
                read(encoded[:length], 1, encoded[0])


# ---- lengths, and blocks of items --------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 63, 64, 8_191, 8_192, 2**31])
def test_a_length_is_read_doubled_and_a_negative_one_is_refused(length: int) -> None:
    """With one byte or more."""
    encoded = write_long(length)
    assert read_amid(read_length, encoded, b"\xff") == 2 * length
    negative = write_long(-length - 1)
    with pytest.raises(BrokenRecord, match=f"a length or an index is {-length - 1}"):
        read_length(negative, 1, negative[0])


@pytest.mark.parametrize("items", [1, 2, 63, 64, 65, 5_000])
def test_a_block_of_items_is_counted_with_and_without_its_size(items: int) -> None:
    """Avro leaves it to the writer to put the size in bytes after a negative count; fastavro reads both."""
    content = write_long(7) * items
    untold = write_long(items)
    assert read_amid(read_block_count, untold, content) == 2 * items
    encoded = write_long(-items) + write_long(len(content))
    assert schemaless_reader(io.BytesIO(encoded + content + b"\x00"), LONGS, None) == [7] * items
    assert read_amid(read_block_count, encoded, content) == 2 * items


@pytest.mark.parametrize("size", [-1, -64, -65, -(2**40)])
def test_a_block_with_a_negative_size_is_refused(size: int) -> None:
    broken = write_long(-3) + write_long(size) + bytes(9)
    with pytest.raises(BrokenRecord, match=f"a length or an index is {size}"):
        read_block_count(broken, 1, broken[0])
