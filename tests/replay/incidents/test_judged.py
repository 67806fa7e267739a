"""The judge's count of what incidents tell: 300 cases here (6 s of one core), 1,000 by `make judge`."""

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
def test_what_is_told_is_what_was_done(verdicts: list[Verdict]) -> None:
    """All that is recorded, 95 % of what must be inferred, and nothing that is false; today none is missed at all."""
    assert not misses(verdicts)
    assert [described(each) for each in failures(verdicts)] == []


@pytest.mark.slow
def test_the_page_has_the_count(verdicts: list[Verdict]) -> None:
    """`python -m tests.judge --teller ... --seeds 300 --page docs/replay.md` writes it."""
    assert f"{TABLE_BEGIN}\n{markdown(verdicts)}\n{TABLE_END}" in PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_of_an_older_log_nothing_false_is_told() -> None:
    """It recorded less: who held an unused id is missed, and how long it took where the clock jumped. Whether those who
    fell silent together, or often, had died, and who is who where all share a client id, is told as unknown. Without
    their connections, static members that were stopped are told as crashed or cut off, as they always were, and an
    unsubscribe as a restart, or an unsubscribe."""
    judged = all_judged(OLDER, None, SEEDS, 1)
    unknowable = ("static-scale-down", "shutdown-of-both", "unsubscribe-soon")
    older = [each for each in judged if each.scenario not in unknowable]
    assert [described(each) for each in older if each.is_false] == []
    wrong = [each for each in older if each.counts and not each.is_right]
    assert any(each.has_abstained for each in wrong)
    said = [each for each in wrong if not each.has_abstained]
    assert {each.kind if each.is_missed else each.scenario for each in said} <= {"unused-id", "clock-jump"}
