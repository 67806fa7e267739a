"""Kafka's varints: the same as kio's, of at most five bytes, at any position."""

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import writers
from kio.static.primitive import u32

from muster.events.kafka.codec.primitives import uvarint, varint_at, write_uvarint

AT_EACH_LENGTH = [(1 << power) + near for power in range(33) for near in (-1, 0, 1) if (1 << power) + near < 1 << 32]


def by_kio(number: int) -> bytes:
    written = BytesIO()
    writers.write_unsigned_varint(written, u32(number))
    return written.getvalue()


def check(number: int) -> None:
    """It is written as by kio, after existing content, and read back, whatever is around it."""
    out = bytearray(b"before")
    write_uvarint(out, number)
    assert out == b"before" + by_kio(number)
    assert uvarint(number) == by_kio(number)
    for behind in (b"", b"\x00", b"\xff" * 9):
        assert varint_at(bytes(out) + behind, len(b"before")) == (number, len(out))


@pytest.mark.parametrize("number", AT_EACH_LENGTH)
def test_a_varint_is_kios_at_each_length(number: int) -> None:
    check(number)


@given(st.integers(0, 2**32 - 1))
def test_any_varint_is_kios(number: int) -> None:
    check(number)


@pytest.mark.parametrize("bytes_before_the_last", [5, 9, 1_000])
def test_a_varint_of_more_than_five_bytes_is_refused(bytes_before_the_last: int) -> None:
    """A few hundred bytes could name a number of thousands of digits."""
    assert varint_at(b"\x80" * 4 + b"\x00", 0) == (0, 5)
    with pytest.raises(IndexError, match="more than 5 bytes"):
        varint_at(b"\x80" * bytes_before_the_last + b"\x00", 0)


def test_a_varint_that_is_cut_off_has_no_end() -> None:
    for length in range(5):
        with pytest.raises(IndexError):
            varint_at(uvarint(2**32 - 1)[:length], 0)
