"""Partitions that an administrator adds to a topic of a real cluster, and groups that the cluster has."""

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from uuid import uuid4

import msgspec
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from muster.admin import GroupAdmin
from muster.coordinator.client.commands.status_asking import Asked
from muster.coordinator.client.commands.status_findings import findings
from muster.coordinator.observability.status import ProcessStatus
from tests.brokers.cluster import Cluster
from tests.clients.consumers import LIBRARIES, RunningConsumer
from tests.clients.test_refused_clients import configured
from tests.clients.test_unassigned import FRESH, SOON_MS
from tests.clients.through_sidecar.sidecar import new_topic
from tests.muster_process import MusterProcess
from tests.waiting import until_so

pytestmark = pytest.mark.clients

WITHIN_S = 240
"""Muster requests Metadata of the cluster every half a minute."""


@pytest.fixture(scope="module")
def played(
    request: pytest.FixtureRequest, sidecar: MusterProcess, kafka_cluster: Cluster
) -> Iterator[Mapping[type[RunningConsumer], "Future[None]"]]:
    """Add partitions for the consumers of all libraries at once: most of the time they wait for Muster's Metadata."""
    items = [item for item in request.session.items if item.path == request.path]
    asked_for = [each.callspec.params["library"] for each in items if "played" in each.fixturenames]  # type: ignore[attr-defined]
    with ThreadPoolExecutor(len(LIBRARIES)) as pool:
        yield {library: pool.submit(add_partitions, sidecar, kafka_cluster, library) for library in asked_for}


def test_partitions_that_were_added_behind_a_restarted_static_leader_are_consumed_with_the_config(
    played: Mapping[type[RunningConsumer], "Future[None]"], library: type[RunningConsumer]
) -> None:
    played[library].result()


def add_partitions(sidecar: MusterProcess, kafka_cluster: Cluster, library: type[RunningConsumer]) -> None:
    topic = new_topic(kafka_cluster.bootstrap)
    group_id, fresh = f"grown-{uuid4().hex[:8]}", configured(library, FRESH[library])
    one = fresh(sidecar.bootstrap, group_id, topic, instance="one").start()
    until_so(lambda: len(one.assigned) == 6, lambda: repr(one.error))
    two = fresh(sidecar.bootstrap, group_id, topic, instance="two").start()
    until_so(lambda: len(one.assigned) == len(two.assigned) == 3, lambda: repr((one.error, two.error)))

    async def configure() -> None:
        async with GroupAdmin(sidecar.bootstrap) as admin:
            await admin.set_unassigned_rebalance_delay(group_id, SOON_MS)

    asyncio.run(configure())
    one.close()
    one = fresh(sidecar.bootstrap, group_id, topic, instance="one").start()
    until_so(lambda: one.assignments > 0, lambda: repr(one.error))
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap})
    for added in admin.create_partitions([NewPartitions(topic, 8)]).values():
        added.result()
    until_so(lambda: one.assigned | two.assigned == set(range(8)), lambda: sidecar.output[-2_000:], within_s=WITHIN_S)
    one.close()
    two.close()


def test_the_status_names_a_group_that_the_cluster_has(
    sidecar: MusterProcess, kafka_cluster: Cluster, topic: str, library: type[RunningConsumer]
) -> None:
    """A client that joins it through the sidecar is relayed; the log line is not the only sign."""
    group_id = f"theirs-{uuid4().hex[:8]}"
    there = library(kafka_cluster.bootstrap, group_id, topic).start()
    until_so(lambda: len(there.assigned) == 6, lambda: repr(there.error))
    here = library(sidecar.bootstrap, group_id, topic).start()
    until_so(lambda: len(here.assigned) == len(there.assigned) == 3, lambda: repr((here.error, there.error)))
    status = msgspec.json.decode(sidecar.asked("/status"), type=ProcessStatus)
    (found,) = [each for each in findings([Asked(address="here", answer=status)]) if group_id in each.what]
    assert found.what.startswith(f"Muster does not coordinate group {group_id}: upstream it has ")
    assert f"muster adopt {group_id}" in found.way_out
    here.close()
    there.close()
