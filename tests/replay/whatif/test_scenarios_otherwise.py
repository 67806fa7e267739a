"""Each scenario with other settings is compared with the recorded line."""

import pytest

from tests.replay.whatif.scenarios_otherwise import NAMES, STORED, line

LINES = STORED.read_text(encoding="utf-8").splitlines()


def test_each_scenario_has_its_line() -> None:
    """If a change is intended, `python -m tests.replay.whatif.scenarios_otherwise` writes the lines again."""
    assert [each.partition(":")[0] for each in LINES] == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_alternative_outcome_of_a_scenario_matches_its_checksum(name: str) -> None:
    """The verdicts and their reasons, the repeated decisions, and the state at the end."""
    assert line(name) in LINES
