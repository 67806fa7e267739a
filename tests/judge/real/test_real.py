"""Incidents done to real clients, some of each family, side by side: what is told of each is what was done.

The rest is a long form: `python -m tests.judge.real`. A case that the machine has spoiled is skipped, with the reason
(`spoiled.py`), and named in the summary.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.brokers.fixtures import skip_loudly
from tests.judge.count import Verdict, count
from tests.judge.real.case import draw, play, told_of
from tests.judge.real.given import Family
from tests.judge.real.scenarios import SCENARIOS
from tests.judge.real.spoiled import Spoiled
from tests.judge.showing import shown
from tests.judge.table import described, failures

pytestmark = pytest.mark.clients

SIDE_BY_SIDE = 6
CASES = (
    ("crash", Family.LIBRDKAFKA),
    ("leave-and-return", Family.LIBRDKAFKA),
    ("coordinator-away", Family.LIBRDKAFKA),
    ("absorbed-restart", Family.LIBRDKAFKA),
    ("poll-timeout", Family.JAVA),
    ("stopped", Family.JAVA),
    ("removed-by-administrator", Family.JAVA),
    ("rolling-restart", Family.KAFKA_PYTHON),
    ("two-crashes", Family.KAFKA_PYTHON),
    ("deleted", Family.KAFKA_PYTHON),
    ("crash-and-replacement", Family.AIOKAFKA),
    ("scaling-beside-restart", Family.AIOKAFKA),
    ("coordinator-back-soon", Family.AIOKAFKA),
)
SEED = 1

Judged = tuple[list[Verdict], str]


@pytest.fixture(scope="module")
def judged() -> Iterator[dict[tuple[str, Family], "Future[Judged]"]]:
    """The verdicts on each case, and the case for people: all are played at once, since most of the time they wait."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield {(scenario, family): pool.submit(_judged, scenario, family) for scenario, family in CASES}


def _judged(scenario: str, family: Family) -> Judged:
    case = play(draw(SEED, scenario, family))
    return count(case, told_of(case)), shown(case)


@pytest.mark.parametrize(("scenario", "family"), CASES, ids=str)
def test_what_is_told_is_what_was_done(
    request: pytest.FixtureRequest,
    judged: dict[tuple[str, Family], "Future[Judged]"],
    scenario: str,
    family: Family,
) -> None:
    """Kind, processes, span and rebalances; nothing else is told."""
    try:
        verdicts, text = judged[scenario, family].result()
    except Spoiled as why:
        skip_loudly(request, f"{scenario} with {family} is left out: {why}")
    assert [described(each) for each in failures(verdicts)] == [], text


def test_each_scenario_is_for_some_family() -> None:
    """None is never drawn."""
    assert all(each.wanted.families for each in SCENARIOS.values())
