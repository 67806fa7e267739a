"""The same history is played alike with other settings: each scenario is held against the line that it had."""

import pytest

from tests.replay.whatif.scenarios_otherwise import NAMES, STORED, line

LINES = STORED.read_text(encoding="utf-8").splitlines()


def test_each_scenario_has_its_line() -> None:
    """Written anew by `python -m tests.replay.whatif.scenarios_otherwise`, where one is played otherwise on purpose."""
    assert [each.partition(":")[0] for each in LINES] == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_what_would_have_been_of_a_scenario_is_told_as_it_was(name: str) -> None:
    """The verdicts and their reasons; what the rules decide again; and the state at the end."""
    assert line(name) in LINES
