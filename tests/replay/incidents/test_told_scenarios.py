"""Each scenario's incidents are compared with the recorded line."""

import pytest

from tests.replay.incidents.told_scenarios import NAMES, STORED, line

LINES = STORED.read_text(encoding="utf-8").splitlines()


def test_each_scenario_has_its_line() -> None:
    """If a change is intended, `python -m tests.replay.incidents.told_scenarios` writes the lines again."""
    assert [each.partition(":")[0] for each in LINES] == list(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_incidents_of_a_scenario_match_their_checksums(name: str) -> None:
    """Their kinds, members, rebalances and costs, and the sentences."""
    assert line(name) in LINES
