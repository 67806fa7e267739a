"""The scripts that take minutes, because a rule of Kafka's does: `pytest tests/conformance/long_conformance.py`.

It is not named like a test module, so that no other run collects it.
"""

import pytest

from tests.conformance.playbook import SCRIPTS
from tests.conformance.playing import Plays, differences
from tests.conformance.script import Script

pytestmark = [pytest.mark.broker, pytest.mark.timeout(1_800)]


@pytest.mark.parametrize("script", [each for each in SCRIPTS if each.long], ids=lambda script: script.name)
def test_both_servers_give_the_same_answers(script: Script, played: Plays) -> None:
    """In each era of the script; they run in parallel, so that all together take as long as the longest."""
    wrong = differences(script, played)
    if wrong:
        pytest.fail("\n\n".join(wrong), pytrace=False)
