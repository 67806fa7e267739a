"""Real clients with partitions that are assigned to no member, and the config by which Muster asks for a rebalance."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from muster.admin import GroupAdmin
from tests.clients.consumers import Aiokafka, Confluent, KafkaPython, RunningConsumer
from tests.clients.test_refused_clients import configured, why_incidents
from tests.muster_process import MusterProcess, running_muster, sqlite_log
from tests.waiting import until_so

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

SIDE_BY_SIDE = 3

GROUP = "grown"
KNOWN_WITHIN_MS = 2_000
SOON_MS = 5_000
"""Long enough: a leader that requests no Metadata when it joins would not know the new partitions earlier."""
WITHIN_S = 120
FRESH: Mapping[type[RunningConsumer], dict[str, Any]] = {
    Aiokafka: {"metadata_max_age_ms": KNOWN_WITHIN_MS},
    KafkaPython: {"metadata_max_age_ms": KNOWN_WITHIN_MS},
    Confluent: {"topic.metadata.refresh.interval.ms": KNOWN_WITHIN_MS},
}


def two_static(muster: MusterProcess, library: type[RunningConsumer]) -> tuple[RunningConsumer, RunningConsumer]:
    """The first one leads, as it joins before the second."""
    one = library(muster.bootstrap, GROUP, "orders", instance="one").start()
    until_so(lambda: len(one.assigned) == 6, lambda: repr(one.error))
    two = library(muster.bootstrap, GROUP, "orders", instance="two").start()
    until_so(lambda: len(one.assigned) == len(two.assigned) == 3, lambda: repr((one.error, two.error)))
    return one, two


def configure(muster: MusterProcess) -> None:
    async def set_delay() -> None:
        async with GroupAdmin(muster.bootstrap) as admin:
            await admin.set_unassigned_rebalance_delay(GROUP, SOON_MS)

    asyncio.run(set_delay())


def asked_by_muster(muster: MusterProcess) -> list[str]:
    """The rebalances that Muster asked for. On a busy machine a leader of kafka-python rejoins for new metadata."""
    return [each for each in incidents(muster, "enforced") if each.startswith("Muster asked")]


def incidents(muster: MusterProcess, kind: str) -> list[str]:
    return [each["headline"] for each in why_incidents(muster, GROUP) if each["kind"] == kind]


def grown_topic(directory: Path, library: type[RunningConsumer]) -> None:
    """The leader may not know that it leads (KIP-345); whichever member notices first, all eight have a consumer."""
    with running_muster(log=sqlite_log(directory), topics=["orders:6"]) as muster:
        fresh = configured(library, FRESH[library])
        one, two = two_static(muster, fresh)
        configure(muster)
        one.close()
        one = fresh(muster.bootstrap, GROUP, "orders", instance="one").start()
        until_so(lambda: one.assignments > 0, lambda: repr(one.error))
        muster.restart(topics=["orders:8"])
        until_so(
            lambda: one.assigned | two.assigned == set(range(8)), lambda: muster.output[-2_000:], within_s=WITHIN_S
        )
        one.close()
        two.close()
        if library is not Confluent:  # librdkafka's leader knows that it leads
            asked_for = "Muster asked the group to rebalance (members.unassigned.rebalance.delay.ms), since orders grew"
            assert asked_by_muster(muster) == [f"{asked_for} from 6 to 8 partitions"]


def another_topic(directory: Path, library: type[RunningConsumer]) -> None:
    """None of the client families requests it; without the config it is reported (test_refused_clients.py)."""
    with running_muster(log=sqlite_log(directory), topics=["orders:6", "payments:2"]) as muster:
        one, two = two_static(muster, library)
        configure(muster)
        two.close()
        both = configured(library, {}, ("orders", "payments"))
        two = both(muster.bootstrap, GROUP, "orders", instance="two").start()
        until_so(lambda: len(two.assigned) > 0, lambda: repr(two.error))
        asked_for = (
            "Muster asked the group to rebalance (members.unassigned.rebalance.delay.ms), since payments was"
            " subscribed, and none of its 2 partitions was assigned"
        )
        until_so(lambda: two.assignments > 1, lambda: muster.output[-2_000:], within_s=WITHIN_S)
        # kafka-python's leader may have asked for the second assignment itself, before Muster did.
        until_so(
            lambda: incidents(muster, "unassigned-topic")[0].endswith("until the next assignment"),
            lambda: repr(why_incidents(muster, GROUP)),
            within_s=WITHIN_S,
        )
        assert len(incidents(muster, "unassigned-topic")) == 1
        assert asked_by_muster(muster) == [asked_for]
        two.close()
        one.close()


Case = Callable[[Path, type[RunningConsumer]], None]


@pytest.fixture(scope="module")
def played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[tuple[Case, type[RunningConsumer]], "Future[None]"]]:
    """Play the selected cases, some at a time: most of the time they wait for Metadata and delays."""
    items = [item for item in request.session.items if item.path == request.path]
    asked_for = [(each.callspec.params["case"], each.callspec.params["library"]) for each in items]  # type: ignore[attr-defined]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield {
            (case, library): pool.submit(case, tmp_path_factory.mktemp(case.__name__), library)
            for case, library in asked_for
        }


@pytest.mark.parametrize("case", [grown_topic, another_topic], ids=lambda case: case.__name__)
def test_unassigned_partitions_cause_a_rebalance_with_the_config(
    played: Mapping[tuple[Case, type[RunningConsumer]], "Future[None]"], case: Case, library: type[RunningConsumer]
) -> None:
    played[case, library].result()
