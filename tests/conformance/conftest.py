"""The pairs of servers as fixtures, and one run of all selected scripts."""

import asyncio
import os
from collections.abc import Iterator, Sequence

import pytest

from tests.brokers.broker import Broker
from tests.brokers.choice import running_broker
from tests.brokers.fixtures import OPT_OUT_VARIABLE, OPTED_OUT
from tests.brokers.restartable import RestartableBroker, restartable_broker
from tests.conformance.playbook import SCRIPTS
from tests.conformance.playing import Plays, play_all
from tests.conformance.script import Script
from tests.conformance.servers import EXPIRING, NARROW, Pair, pair_with


@pytest.fixture(scope="module")
def usual(kafka_broker: Broker) -> Iterator[Pair]:
    """The broker shared by all tests."""
    with pair_with(kafka_broker, {}) as pair:
        yield pair


@pytest.fixture(scope="module")
def narrow(kafka_broker: Broker) -> Iterator[Pair]:
    """A separate broker with a Muster, since these settings do not suit all scripts."""
    with running_broker(how="process", settings=NARROW) as broker, pair_with(broker, NARROW) as pair:
        yield pair


@pytest.fixture(scope="module")
def expiring(kafka_broker: Broker) -> Iterator[Pair]:
    """A separate broker with a Muster, for the same reason."""
    with running_broker(how="process", settings=EXPIRING) as broker, pair_with(broker, EXPIRING) as pair:
        yield pair


@pytest.fixture(scope="session")
def restartable_kafka() -> Iterator[RestartableBroker]:
    """A separate broker that may be killed, and whose log can be read."""
    if os.environ.get(OPT_OUT_VARIABLE) == "1":
        pytest.skip(OPTED_OUT)
    with restartable_broker({}) as broker:
        yield broker


@pytest.fixture(scope="module")
def scripts() -> Sequence[Script]:
    """All scripts; a module may override this."""
    return SCRIPTS


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, scripts: Sequence[Script]) -> Plays:
    """All scripts selected for this module, many at a time."""
    items = [item for item in request.session.items if item.path == request.path]
    asked_for = {item.name.partition("[")[2].removesuffix("]") for item in items}
    wanted = [script for script in scripts if script.name in asked_for]
    setups = sorted({script.setup for script in wanted})
    return asyncio.run(play_all(wanted, {setup: request.getfixturevalue(setup) for setup in setups}))
