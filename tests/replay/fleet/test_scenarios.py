"""Each scenario is played as it was: the same seed gives the same events, on any machine and in any process."""

import pytest

from tests.replay.fleet.played_scenarios import NAMES, STORED, line

LINES = STORED.read_text(encoding="utf-8").splitlines()


def test_each_scenario_has_its_line() -> None:
    """Written anew by `python -m tests.replay.fleet.played_scenarios`, where one was changed on purpose."""
    assert [each.partition(":")[0].partition(" (")[0] for each in LINES] == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_is_played_as_it_was(name: str) -> None:
    """The times and types of its events, and the truth of what was done."""
    assert line(name) in LINES
