"""Random schedules on a real Kafka, and through a sidecar in front of another one, get the same responses."""

import os
from collections.abc import Iterator

import pytest

from tests.brokers.fixtures import OPT_OUT_VARIABLE, OPTED_OUT
from tests.conformance.fuzz.__main__ import FOUND
from tests.conformance.fuzz.generator import generate
from tests.conformance.fuzz.runs import compare_all, differences
from tests.conformance.fuzz.schedule import read
from tests.conformance.fuzz.servers import running_pair
from tests.conformance.servers import Pair

# The first test waits for all schedules: a minute on an idle machine.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

SEEDS = 10
STEPS = 60


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """The two servers, and a Kafka behind the second."""
    if os.environ.get(OPT_OUT_VARIABLE) == "1":
        pytest.skip(OPTED_OUT)
    with running_pair(sidecar=True) as pair:
        yield pair


def test_random_schedules_give_equal_responses(pair: Pair) -> None:
    """Some; `python -m tests.conformance.fuzz --sidecar` plays more."""
    schedules = {f"seed {seed}": generate(seed, steps=STEPS) for seed in range(SEEDS)}
    if wrong := differences(compare_all(pair, schedules, in_front=True)):
        pytest.fail("\n\n".join(wrong), pytrace=False)


def test_schedules_that_once_differed_give_equal_responses(pair: Pair) -> None:
    """Each schedule that differed, in its shortest form."""
    schedules = {path.name: read(path) for path in sorted(FOUND.glob("*.json"))}
    if wrong := differences(compare_all(pair, schedules, in_front=True)):
        pytest.fail("\n\n".join(wrong), pytrace=False)
