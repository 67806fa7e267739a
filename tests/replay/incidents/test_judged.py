"""The judge's score for incidents: 300 cases here (6 s on one core), 1,000 with `make judge`."""

from pathlib import Path

import pytest

from tests.judge.__main__ import TABLE_BEGIN, TABLE_END, all_judged
from tests.judge.count import Verdict
from tests.judge.table import described, failures, markdown, misses

TELLER = "tests.replay.incidents.telling:tell"
OLDER = "tests.replay.incidents.telling:tell_older"
SEEDS = range(300)
PAGE = Path(__file__).parents[3] / "docs" / "replay.md"


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    """The verdicts on all cases."""
    return all_judged(TELLER, None, SEEDS, 1)


@pytest.mark.slow
def test_reports_match_the_ground_truth(verdicts: list[Verdict]) -> None:
    """The goals: all recorded facts, 95 % of inferred ones, nothing false; currently nothing is missed at all."""
    assert not misses(verdicts)
    assert [described(each) for each in failures(verdicts)] == []


@pytest.mark.slow
def test_the_page_has_the_count(verdicts: list[Verdict]) -> None:
    """`python -m tests.judge --teller ... --seeds 300 --page docs/replay.md` writes it."""
    assert f"{TABLE_BEGIN}\n{markdown(verdicts)}\n{TABLE_END}" in PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_nothing_false_is_reported_for_an_older_log() -> None:
    """An older log recorded less: the holder of an unused id is missed, and durations if the clock jumped.

    The grade is unknown for whether members that fell silent together, or often, had died, and for identities if all
    share a client id. Without connections, stopped static members and members killed together are reported as
    crashed or cut off, as before, and an unsubscribe as a restart or an unsubscribe.
    """
    judged = all_judged(OLDER, None, SEEDS, 1)
    unknowable = ("static-scale-down", "shutdown-of-both", "killed-together", "unsubscribe-soon")
    older = [each for each in judged if each.scenario not in unknowable]
    assert [described(each) for each in older if each.is_false] == []
    wrong = [each for each in older if each.counts and not each.is_right]
    assert any(each.has_abstained for each in wrong)
    reported = [each for each in wrong if not each.has_abstained]
    assert {each.kind if each.is_missed else each.scenario for each in reported} <= {"unused-id", "clock-jump"}
