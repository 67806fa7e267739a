"""Incidents done to real clients, some of each family, side by side: what is reported of each is what was done.

The rest is a long form: `python -m tests.judge.real`. A case that the machine has spoiled is skipped, with the reason
(`spoiled.py`), and listed in the summary.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.brokers.broker import Broker
from tests.brokers.fixtures import skip_loudly
from tests.coordinator.sidecar.admin_stage import until_coordinated
from tests.judge.count import Verdict, count
from tests.judge.real.case import draw, play, reports_of
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
    ("refused", Family.LIBRDKAFKA),
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
BEHIND = (("crash", Family.KAFKA_PYTHON), ("coordinator-back-soon", Family.LIBRDKAFKA))
SEED = 1

Judged = tuple[list[Verdict], str]


@pytest.fixture(scope="module")
def judged() -> Iterator[dict[tuple[str, Family], "Future[Judged]"]]:
    """The verdicts on each case, and the case as text: all are played at once, since most of the time they wait."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield {(scenario, family): pool.submit(_judged, scenario, family) for scenario, family in CASES}


def _judged(scenario: str, family: Family, broker: str | None = None) -> Judged:
    case = play(draw(SEED, scenario, family), broker=broker)
    return count(case, reports_of(case)), shown(case)


@pytest.mark.parametrize(("scenario", "family"), CASES, ids=str)
def test_reports_match_the_ground_truth(
    request: pytest.FixtureRequest,
    judged: dict[tuple[str, Family], "Future[Judged]"],
    scenario: str,
    family: Family,
) -> None:
    """Kind, processes, span and rebalances; nothing else is reported."""
    assert_is_so(request, f"{scenario} with {family}", judged[scenario, family])


@pytest.mark.broker
def test_reports_of_a_sidecar_match_the_ground_truth(request: pytest.FixtureRequest, kafka_broker: Broker) -> None:
    """The log is a topic at the broker."""
    asyncio.run(until_coordinated(kafka_broker.bootstrap))
    with ThreadPoolExecutor(len(BEHIND)) as pool:
        played = [pool.submit(_judged, *each, kafka_broker.bootstrap) for each in BEHIND]
    for (scenario, family), each in zip(BEHIND, played, strict=True):
        assert_is_so(request, f"{scenario} with {family}, behind a sidecar", each)


def assert_is_so(request: pytest.FixtureRequest, what: str, judged: "Future[Judged]") -> None:
    """Check that everything reported is right; a spoiled case is skipped."""
    try:
        verdicts, text = judged.result()
    except Spoiled as why:
        skip_loudly(request, f"{what} is left out: {why}")
    assert [described(each) for each in failures(verdicts)] == [], text


def test_each_scenario_is_for_some_family() -> None:
    """None is never drawn."""
    assert all(each.wanted.families for each in SCENARIOS.values())
