"""Errors that reach a member, and those that its client hides."""

from muster.drills.measuring.answers import NO_ANSWER, Kind, Noticed, hidden, noticed
from tests.drills.measuring.asking import request

ASKED = [
    request(100, 200, error="REBALANCE_IN_PROGRESS"),
    request(1_100, 1_200, Kind.COMMIT, error="ILLEGAL_GENERATION", member="member-1"),
    request(1_200, 1_300, error="REBALANCE_IN_PROGRESS", retried=(NO_ANSWER, "NOT_COORDINATOR", NO_ANSWER)),
    request(1_400, 1_500, error="REBALANCE_IN_PROGRESS", group="muster-drill-0123456789-dynamic-1"),
    request(1_400, None, retried=(NO_ANSWER,)),
]


def test_errors_are_counted_by_kind_from_the_fault_on() -> None:
    """With the number of members and groups that had them."""
    assert noticed(ASKED, fault_ms=1_000) == (
        Noticed(kind=Kind.HEARTBEAT, error="REBALANCE_IN_PROGRESS", times=2, members=2, groups=2),
        Noticed(kind=Kind.COMMIT, error="ILLEGAL_GENERATION", times=1, members=1, groups=1),
    )


def test_attempts_that_were_made_again_are_hidden() -> None:
    """Each attempt counts."""
    assert hidden(ASKED, fault_ms=1_000) == (
        Noticed(kind=Kind.HEARTBEAT, error="NOT_COORDINATOR", times=1, members=1, groups=1),
        Noticed(kind=Kind.HEARTBEAT, error=NO_ANSWER, times=3, members=1, groups=1),
    )


def test_a_member_that_noticed_nothing_has_nothing_to_report() -> None:
    assert noticed([request(1_000, 1_001)], fault_ms=0) == hidden([request(1_000, 1_001)], fault_ms=0) == ()
