"""Random schedules on a real Kafka and on Muster get the same responses; and the fuzzer finds differences."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.brokers.broker import Broker
from tests.brokers.fixtures import OPT_OUT_VARIABLE, OPTED_OUT
from tests.conformance.fuzz.__main__ import FOUND
from tests.conformance.fuzz.generator import generate
from tests.conformance.fuzz.runs import Compared, Runs, Tally, compare_all, differences, run
from tests.conformance.fuzz.schedule import from_text, read, to_text
from tests.conformance.fuzz.servers import SETTINGS, SIZE_MAX, running_kafka
from tests.conformance.servers import Pair, pair_with

# The first test waits for all schedules: a minute on an idle machine.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

SEEDS = 100
STEPS = 60
FEW_STEPS = 12


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker that does one thing at a time."""
    if os.environ.get(OPT_OUT_VARIABLE) == "1":
        pytest.skip(OPTED_OUT)
    with running_kafka() as broker:
        yield broker


@pytest.fixture(scope="module")
def pair(broker: Broker) -> Iterator[Pair]:
    """The two servers."""
    with pair_with(broker, SETTINGS) as pair:
        yield pair


def test_random_schedules_give_equal_responses(pair: Pair) -> None:
    """A hundred schedules of sixty steps show no difference, and contain more than refused requests."""
    results = compare_all(pair, {f"seed {seed}": generate(seed, steps=STEPS) for seed in range(SEEDS)})
    if wrong := differences(results):
        pytest.fail("\n\n".join(wrong), pytrace=False)
    tally: Tally = sum((each.tally for each in results.values()), Counter())
    scarce = {key: tally[key] for key, least in ENOUGH.items() if tally[key] < least}
    assert not scarce


ENOUGH: Tally = Counter(
    {
        ("new generations", 0): 350,
        ("step in Stable", 0): 1_000,
        ("step in PreparingRebalance", 0): 500,
        ("step in CompletingRebalance", 0): 150,
        ("JoinGroup", 0): 1_500,
        ("JoinGroup", 23): 100,
        ("JoinGroup", 25): 100,
        ("JoinGroup", 79): 200,
        ("JoinGroup", 81): 100,
        ("JoinGroup", 82): 20,
        ("SyncGroup", 0): 900,
        ("SyncGroup", 22): 30,
        ("SyncGroup", 23): 5,
        ("SyncGroup", 25): 50,
        ("SyncGroup", 27): 70,
        ("SyncGroup", 82): 20,
        ("Heartbeat", 0): 150,
        ("Heartbeat", 22): 60,
        ("Heartbeat", 25): 60,
        ("Heartbeat", 27): 60,
        ("Heartbeat", 82): 25,
        ("LeaveGroup", 0): 500,
        ("LeaveGroup", 25): 60,
        ("LeaveGroup", 82): 3,
        ("OffsetCommit", 0): 70,
        ("OffsetCommit", 3): 30,
        ("OffsetCommit", 12): 5,
        ("OffsetCommit", 22): 40,
        ("OffsetCommit", 25): 80,
        ("OffsetCommit", 27): 10,
        ("OffsetCommit", 82): 30,
        ("OffsetFetch", 0): 100,
        ("OffsetDelete", 0): 8,
        ("OffsetDelete", 86): 40,
        ("DeleteGroups", 0): 8,
        ("DeleteGroups", 68): 15,
        ("DeleteGroups", 69): 10,
        ("DescribeGroups", 0): 40,
        ("ListGroups", 0): 25,
    }
)
"""Minimum counts of Kafka's responses."""


def test_schedules_that_once_differed_give_equal_responses(pair: Pair) -> None:
    """Each schedule that differed, in its shortest form."""
    results = compare_all(pair, {path.name: read(path) for path in sorted(FOUND.glob("*.json"))})
    if wrong := differences(results):
        pytest.fail("\n\n".join(wrong), pytrace=False)


def test_a_limit_that_differs_is_found_and_shrunk(broker: Broker) -> None:
    """A group that is full one member too early is found within few steps, and the shrunk schedule survives a file."""
    other = {**SETTINGS, "group.max.size": str(SIZE_MAX - 1)}

    async def find(runs: Runs) -> Compared:
        results = await asyncio.gather(*(runs.compare(generate(seed, steps=FEW_STEPS)) for seed in range(24)))
        found = [each for each in results if each.text]
        assert found, "no seed shows it"
        short = await runs.shrink(min(found, key=lambda each: each.step))
        return await runs.compare(from_text(to_text(short.schedule)))

    with pair_with(broker, other) as pair:
        short = run(pair, find)
    assert "81 group_max_size_reached" in short.text
    assert len(short.schedule.steps) <= 6, to_text(short.schedule)
