"""Numbers of partitions as ranges: 0, 1, 2 and 5 are two of them."""

from collections.abc import Iterable


def ranges_of(numbers: Iterable[int]) -> list[range]:
    """Return the ranges, in order, that neighbouring numbers make; none is empty."""
    ranges: list[range] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1].stop:
            ranges[-1] = range(ranges[-1].start, number + 1)
        else:
            ranges.append(range(number, number + 1))
    return ranges


def ranges_text(ranges: Iterable[range]) -> str:
    """Write ranges for people: '0 to 3, 5'."""
    return ", ".join(f"{each[0]} to {each[-1]}" if len(each) > 1 else f"{each[0]}" for each in ranges)


def partitions_text(numbers: Iterable[int]) -> str:
    """Format as `partition 3` or `partitions 0 to 3, 5`."""
    text = ranges_text(ranges_of(numbers))
    return f"partition {text}" if text.isdecimal() else f"partitions {text}"
