"""Each script on a real Kafka, and through a sidecar in front of that same Kafka: the transcripts are equal.

In its first, middle and last era: versions only differ in the rules, which are tested without a sidecar. In every era
it is played by `long_through_sidecar.py`.
"""

from collections.abc import Iterator, Sequence

import msgspec
import pytest

from tests.brokers.broker import Broker
from tests.brokers.choice import running_broker
from tests.conformance.playbook import SCRIPTS
from tests.conformance.playing import Plays, differences
from tests.conformance.script import Script
from tests.conformance.servers import NARROW, Pair, pair_through_sidecar

# The first test waits for all scripts: a minute on an idle machine.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(1_200)]


@pytest.fixture(scope="module")
def usual(kafka_broker: Broker) -> Iterator[Pair]:
    """In front of the broker shared by all tests."""
    with pair_through_sidecar(kafka_broker, {}) as pair:
        yield pair


@pytest.fixture(scope="module")
def narrow(kafka_broker: Broker) -> Iterator[Pair]:
    """In front of a separate broker."""
    with running_broker(how="process", settings=NARROW) as broker, pair_through_sidecar(broker, NARROW) as pair:
        yield pair


# Behind the sidecar is the Kafka that it is compared with, and there is only one group without a name.
SHARED = {"the_group_without_a_name_keeps_offsets"}
PLAYABLE = [each for each in SCRIPTS if not each.long and each.name not in SHARED]


def few_eras(script: Script) -> Script:
    """The script, in three of its eras at most."""
    first, middle, last = script.eras[0], script.eras[len(script.eras) // 2], script.eras[-1]
    return msgspec.structs.replace(script, eras=sorted({first, middle, last}))


FEW = [few_eras(each) for each in PLAYABLE]


@pytest.fixture(scope="module")
def scripts() -> Sequence[Script]:
    """In few eras."""
    return FEW


@pytest.mark.parametrize("script", FEW, ids=lambda script: script.name)
def test_a_sidecar_changes_no_answer(script: Script, played: Plays) -> None:
    """In these eras of the script."""
    wrong = differences(script, played)
    if wrong:
        pytest.fail("\n\n".join(wrong), pytrace=False)
