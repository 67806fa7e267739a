"""The goals of a drill."""

from muster.drills.measuring.answers import Goal, Kind, goals, waits
from muster.drills.plan import Limits
from tests.drills.measuring.asking import request

LIMITS = Limits(heartbeats_ms=500, joins_ms=1_000, commits_ms=2_000)
ASKED = [request(1_000, 1_500), request(1_000, 3_001, Kind.COMMIT)]


def verdicts(**counts: int) -> dict[str, bool]:
    given = {"rebalances": 0, "noticed": 0, "events_lost": 0, "commits_lost": 0} | counts
    measured = [waits(ASKED, kind, fault_ms=1_000, end_ms=4_000) for kind in Kind]
    return {each.name: each.is_met for each in goals(measured, LIMITS, **given)}


def test_each_kind_has_the_limit_of_its_own() -> None:
    """At most that; a kind without requests has no goal."""
    reported = verdicts()
    assert reported["heartbeats: longest time without an answer"]
    assert not reported["commits: longest time without an answer"]
    assert "joins: longest time without an answer" not in reported


def test_a_single_one_of_what_is_to_be_none_is_too_many() -> None:
    for name, goal in {
        "rebalances": "rebalances caused",
        "noticed": "errors that members noticed",
        "events_lost": "events lost",
        "commits_lost": "commits lost",
    }.items():
        assert verdicts()[goal]
        assert not verdicts(**{name: 1})[goal]


def test_a_kind_without_requests_since_the_fault_is_a_missed_goal() -> None:
    """Members sent such requests before, so the kind should have been measured."""
    measured = waits([request(1_000, 1_500)], Kind.HEARTBEAT, fault_ms=2_000, end_ms=4_000)
    (reported,) = [
        each
        for each in goals([measured], LIMITS, rebalances=0, noticed=0, events_lost=0, commits_lost=0)
        if each.is_time
    ]
    assert (reported.measured, reported.is_met) == (None, False)


def test_an_unmeasured_goal_is_missed() -> None:
    """Members may have waited all the time."""
    assert not Goal(name="x", measured=None, at_most=5, is_time=True).is_met
