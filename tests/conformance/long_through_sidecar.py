"""Each script through a sidecar, in every era: `pytest tests/conformance/long_through_sidecar.py`.

It is not named like a test module, so that no other run collects it.
"""

import pytest

from tests.conformance.playing import Plays, differences
from tests.conformance.script import Script
from tests.conformance.test_through_sidecar import PLAYABLE, narrow, usual

__all__ = ["narrow", "usual"]

pytestmark = [pytest.mark.broker, pytest.mark.timeout(1_800)]


@pytest.mark.parametrize("script", PLAYABLE, ids=lambda script: script.name)
def test_a_sidecar_changes_no_answer(script: Script, played: Plays) -> None:
    """In each era of the script."""
    wrong = differences(script, played)
    if wrong:
        pytest.fail("\n\n".join(wrong), pytrace=False)
