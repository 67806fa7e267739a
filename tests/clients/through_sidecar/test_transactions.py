"""Consuming, transforming and producing in transactions through the sidecar: as on Kafka, and the group is owned."""

import asyncio
from collections.abc import Iterator

import pytest

from muster.events.ids import GroupId
from muster.events.log.url import open_log
from tests.brokers.cluster import Cluster
from tests.clients import test_transactions
from tests.clients.through_sidecar.sidecar import offsets_at
from tests.muster_process import MusterProcess
from tests.replay.whole import read_histories

pytestmark = pytest.mark.clients


@pytest.fixture
def story(sidecar: MusterProcess, kafka_cluster: Cluster) -> Iterator[test_transactions.Story]:
    """Through the sidecar. The group's history is in the sidecar's log, and its offsets are in the cluster."""
    running = test_transactions.Story(sidecar.bootstrap)
    yield running
    group_id = running.settings["group_id"]
    assert asyncio.run(has_history(sidecar.log, GroupId(group_id)))
    through, direct = (
        offsets_at(bootstrap, group_id, running.settings["source"], partitions=1)
        for bootstrap in (sidecar.bootstrap, kafka_cluster.bootstrap)
    )
    assert through == direct


async def has_history(url: str, group_id: GroupId) -> bool:
    """True if the group's members are in the event log."""
    log = open_log(url, read_only=True)
    await log.open()
    try:
        return bool((await read_histories(log, group=group_id))[group_id].items)
    finally:
        await log.close()


class TestCopier(test_transactions.TestCopier):
    """confluent-kafka's: committed, aborted, and refused for a past generation."""


class TestJava(test_transactions.TestJava):
    """Kafka's own tool, with random aborts."""
