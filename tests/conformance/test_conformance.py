"""Each script on a real Kafka and on Muster: the transcripts are equal."""

import pytest

from tests.conformance.playbook import SCRIPTS
from tests.conformance.playing import Plays, differences
from tests.conformance.script import Script

# The first test waits for all scripts: a minute on an idle machine.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(1_200)]


@pytest.mark.parametrize("script", [each for each in SCRIPTS if not each.long], ids=lambda script: script.name)
def test_both_servers_give_the_same_answers(script: Script, played: Plays) -> None:
    """In each era of the script."""
    wrong = differences(script, played)
    if wrong:
        pytest.fail("\n\n".join(wrong), pytrace=False)
