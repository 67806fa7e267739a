"""A sidecar in front of the shared test cluster."""

from collections.abc import Iterator

import pytest

from tests.brokers.cluster import Cluster
from tests.clients.through_sidecar.sidecar import new_topic, running_sidecar
from tests.muster_process import MusterProcess


@pytest.fixture(scope="package")
def sidecar(kafka_cluster: Cluster) -> Iterator[MusterProcess]:
    """For tests that end neither it nor a broker."""
    options = ["--metrics", "127.0.0.1:0"]
    with running_sidecar(kafka_cluster.bootstrap, nodes=kafka_cluster.nodes, options=options) as running:
        yield running


@pytest.fixture
def topic(kafka_cluster: Cluster) -> str:
    """A topic for one test."""
    return new_topic(kafka_cluster.bootstrap)
