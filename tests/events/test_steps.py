"""Work in steps: none is long, all of it is counted, and a message has no more entries than allowed."""

import pytest

from muster.events.steps import (
    ENTRIES_PER_STEP,
    ID_LENGTH_PER_ENTRY,
    WAIT,
    Allowance,
    Each,
    Steps,
    TooManyEntries,
    collected,
    entries_of,
    finished,
)


def gone_through(steps: Steps[list[int]]) -> tuple[list[int], list[int]]:
    """The work of each step, and the result."""
    work: list[int] = []
    try:
        while True:
            work.append(next(steps))
    except StopIteration as end:
        return work, end.value


@pytest.mark.parametrize(
    "count", [0, 1, ENTRIES_PER_STEP - 1, ENTRIES_PER_STEP, ENTRIES_PER_STEP + 1, 3 * ENTRIES_PER_STEP + 5]
)
def test_collected_items_are_in_order_and_in_short_steps(count: int) -> None:
    """Items that are left out are examined as well, and count as work."""
    work, found = gone_through(collected(number if number % 3 else None for number in range(count)))
    assert found == [number for number in range(count) if number % 3]
    assert sum(work) == count
    assert max(work) <= ENTRIES_PER_STEP


def test_work_that_is_finished_at_once_gives_its_result() -> None:
    """It must not wait: nothing would return what it waits for."""

    def waiting() -> Steps[None]:
        yield 1
        yield WAIT

    assert finished(collected([1, None, 2])) == [1, 2]
    with pytest.raises(AssertionError, match="nobody else goes on meanwhile"):
        finished(waiting())


def test_a_collection_makes_its_things_when_it_is_gone_through() -> None:
    """Its length is known in advance, and each pass creates them again: nothing is kept."""
    made: list[int] = []

    def double(number: int) -> int:
        made.append(number)
        return 2 * number

    doubled = Each(double, [1, 2, 3])
    assert (len(doubled), made) == (3, [])
    assert next(iter(doubled)) == 2
    assert made == [1]
    assert doubled == [2, 4, 6]
    assert doubled != [2, 4]
    assert doubled != 246
    assert 6 in doubled
    assert 3 not in doubled


def test_the_arrays_of_a_message_share_what_it_is_allowed() -> None:
    """To the last entry; an entry over the limit is refused with both numbers."""
    allowance = Allowance(10)
    allowance.take(4)
    allowance.take(0)
    allowance.take(6)
    with pytest.raises(TooManyEntries, match="it has 11 entries or more, 10 are allowed"):
        allowance.take(1)


def test_a_long_name_is_more_work() -> None:
    """One entry for each block of its characters."""
    lengths = (0, ID_LENGTH_PER_ENTRY - 1, ID_LENGTH_PER_ENTRY, 3 * ID_LENGTH_PER_ENTRY)
    assert [entries_of("g" * length) for length in lengths] == [1, 1, 2, 4]


@pytest.mark.parametrize(("length", "entries"), [(0, 1), (511, 1), (512, 2), (1_023, 2), (1_024, 3), (32_767, 64)])
def test_a_long_id_is_as_much_work_as_several(length: int, entries: int) -> None:
    """A hash over the longest is a millisecond."""
    assert entries_of("x" * length) == entries
