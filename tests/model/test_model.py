"""Explores the small worlds: the rules break no invariant, and each invariant is broken by some wrong rules.

Bounded by depth, not by time, so that every machine explores the same states. `python -m tests.model` goes deeper.
"""

import pytest

from tests.model.__main__ import text_of
from tests.model.broken import BROKEN
from tests.model.scopes import BEYOND, SCOPES
from tests.model.search import Search

DEPTHS = {"new clients": 4, "old clients": 3} | dict.fromkeys(BEYOND, 2)
STATES = {"new clients": 20_000, "old clients": 4_000} | dict.fromkeys(BEYOND, 500)
INVARIANTS = 17
JOBS = 2


@pytest.mark.timeout(1_200)  # under a minute, of which a busy machine gives little
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "new clients" else ()) for name in SCOPES]
)
def test_no_interleaving_breaks_an_invariant(name: str) -> None:
    """Every state within some steps of a group's usual path is checked, and none violates an invariant."""
    report = Search(SCOPES[name], jobs=JOBS).run(depth=DEPTHS[name])
    assert report.violation is None, text_of(report)
    assert report.depth == DEPTHS[name]
    assert report.states >= STATES[name]


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.slow if each == "does not look who is there" else ()) for each in BROKEN],
)
def test_broken_rules_are_found(name: str) -> None:
    """Rules that are wrong in one way break the invariant that is there for it."""
    number, rules = BROKEN[name]
    report = Search(SCOPES["new clients"], rules=rules).run(depth=3)
    assert report.violation is not None, f"nothing was found in {report.states} states"
    assert report.violation.number == number, text_of(report)


def test_every_invariant_has_rules_that_break_it() -> None:
    """Each number of the list has broken rules that show that it is checked."""
    assert {number for number, _ in BROKEN.values()} == set(range(1, INVARIANTS + 1))


@pytest.mark.slow
def test_search_is_the_same_each_time() -> None:
    """The same states in the same order, in one process or shared by two."""
    one, other = (Search(SCOPES["old clients"], jobs=jobs).run(depth=3) for jobs in (1, 2))
    assert (one.states, one.levels, one.violation) == (other.states, other.levels, other.violation)
