"""Numbers of partitions as ranges."""

from collections.abc import Iterable

import pytest

from muster.ranges import ranges_of, ranges_text


@pytest.mark.parametrize(
    ("numbers", "ranges", "text"),
    [
        ((), [], ""),
        ((7,), [range(7, 8)], "7"),
        ((5, 2, 1, 0), [range(3), range(5, 6)], "0 to 2, 5"),
        ({8, 9, 11, 12, 14}, [range(8, 10), range(11, 13), range(14, 15)], "8 to 9, 11 to 12, 14"),
    ],
)
def test_neighbours_are_one_range(numbers: Iterable[int], ranges: list[range], text: str) -> None:
    """In any order, and as people read them."""
    assert ranges_of(numbers) == ranges
    assert ranges_text(ranges) == text
