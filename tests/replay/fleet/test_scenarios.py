"""Scenarios are reproducible: the same seed gives the same events, on any machine and in any process."""

import pytest

from tests.replay.fleet.played_scenarios import NAMES, STORED, line

LINES = STORED.read_text(encoding="utf-8").splitlines()


def test_each_scenario_has_its_line() -> None:
    """If a change is intended, `python -m tests.replay.fleet.played_scenarios` writes the lines again."""
    assert [each.partition(":")[0].partition(" (")[0] for each in LINES] == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_is_reproducible(name: str) -> None:
    """The times and types of its events, and the truth about it."""
    assert line(name) in LINES
