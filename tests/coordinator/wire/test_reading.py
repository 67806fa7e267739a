"""Tagged fields, which are stepped over: how many there may be, and how far each may reach."""

import pytest
from kio.serial.errors import BufferUnderflow

from muster.coordinator.wire.codec.primitives import TAGGED_FIELDS_MAX, tagged_fields_size

EMPTY = b"\x07\x00"
"""A field without content."""


@pytest.mark.parametrize("count", [0, 1, TAGGED_FIELDS_MAX])
def test_so_many_tagged_fields_are_stepped_over(count: int) -> None:
    fields = bytes([count]) + count * EMPTY
    assert tagged_fields_size(b"before" + fields + b"behind", 6) == len(fields)


def test_more_are_not_even_looked_at() -> None:
    """A request of a megabyte would have half a million."""
    with pytest.raises(BufferUnderflow, match=f"said to have {TAGGED_FIELDS_MAX + 1} tagged fields"):
        tagged_fields_size(bytes([TAGGED_FIELDS_MAX + 1]) + 2 * TAGGED_FIELDS_MAX * EMPTY, 0)


def test_a_field_that_reaches_beyond_the_end_is_refused() -> None:
    assert tagged_fields_size(b"\x01\x07\x02xx", 0) == 5
    with pytest.raises(BufferUnderflow, match="said to have 3 bytes"):
        tagged_fields_size(b"\x01\x07\x03xx", 0)
