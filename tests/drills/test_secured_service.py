"""A drill of a sidecar whose clients need credentials for the brokers behind it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers.probes import make_topics
from tests.brokers.secured import SecuredBroker, secured_broker
from tests.drills.running import GENEROUS, SMALL, Drill
from tests.muster_process import MusterProcess, running_muster

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

LISTENER = "SASL_PLAINTEXT"


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker() as running:
        yield running


def properties(broker: SecuredBroker) -> list[str]:
    return [f"{name}={value}" for name, value in broker.client(LISTENER).items() if name != "bootstrap.servers"]


def as_options(option: str, given: list[str]) -> list[str]:
    return [part for each in given for part in (option, each)]


@pytest.fixture(scope="module")
def sidecar(broker: SecuredBroker) -> Iterator[MusterProcess]:
    make_topics(broker.client(LISTENER), "drilled", partitions=3)
    address = broker.address(LISTENER)
    options = ["--upstream", address, "--log-replication", "1", *as_options("--upstream-config", properties(broker))]
    with running_muster(log=f"kafka://{address}/drilled-events", options=options) as running:
        yield running


def test_members_bring_the_credentials_that_they_are_given(
    broker: SecuredBroker, sidecar: MusterProcess, tmp_path: Path
) -> None:
    """Without them one line says what is missing."""
    service = ["--bootstrap", sidecar.bootstrap, "--log", sidecar.log, "--topic", "drilled", "--by", "true", "--yes"]
    load = [*SMALL[:4], *SMALL[6:], "--after", "500ms", *GENEROUS, "--format", "json"]
    to_log = as_options("--kafka-config", properties(broker))
    refused = Drill("restart", *service, *to_log, *load, directory=tmp_path)
    assert refused.ended() == 2, refused.errors
    assert "where it wants TLS or credentials of its clients, give --client-config" in refused.errors
    as_client = as_options("--client-config", properties(broker))
    drill = Drill("restart", *service, *to_log, *as_client, *load, directory=tmp_path)
    assert drill.ended() == 0, drill.errors
    assert drill.report["noticed"] == drill.report["rebalances"] == drill.report["left"] == []
