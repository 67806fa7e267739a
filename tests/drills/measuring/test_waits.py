"""How long requests waited, before the fault and after it."""

import pytest

from muster.drills.measuring.answers import Kind, percentile, waits
from tests.drills.measuring.asking import GROUP, request


def test_a_request_that_was_over_before_the_fault_counts_as_before() -> None:
    """Its wait has nothing to do with the fault."""
    reported = waits([request(0, 900), request(1_000, 1_010)], Kind.HEARTBEAT, fault_ms=1_000, end_ms=2_000)
    assert (reported.before, reported.before_longest_ms) == (1, 900)
    assert (reported.asked, reported.longest_ms) == (1, 10)


def test_a_request_in_flight_at_the_fault_counts_from_its_beginning() -> None:
    """It had no response for that long, for whatever reason."""
    reported = waits([request(900, 1_700, member="member-3")], Kind.HEARTBEAT, fault_ms=1_000, end_ms=2_000)
    assert reported.longest_ms == 800
    assert (reported.longest_group, reported.longest_member, reported.longest_from_ms) == (GROUP, "member-3", 900)


def test_a_request_that_was_never_answered_waited_until_the_end() -> None:
    """It is counted as such."""
    reported = waits([request(1_200, None), request(1_100, 1_150)], Kind.HEARTBEAT, fault_ms=1_000, end_ms=5_000)
    assert (reported.longest_ms, reported.unanswered, reported.asked) == (3_800, 1, 2)


def test_only_requests_of_the_kind_are_measured() -> None:
    reported = waits([request(1_000, 9_000, Kind.COMMIT)], Kind.JOIN, fault_ms=1_000, end_ms=9_000)
    assert (reported.before, reported.asked, reported.p50_ms, reported.longest_ms, reported.longest_group) == (
        0,
        0,
        None,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([], 50, None), ([7], 99, 7), ([1, 2], 50, 1), ([1, 2, 3], 50, 2), (list(range(1, 101)), 99, 99)],
)
def test_percentiles(values: list[int], percent: int, expected: int | None) -> None:
    """The smallest value that this many do not exceed."""
    assert percentile(values, percent) == expected
