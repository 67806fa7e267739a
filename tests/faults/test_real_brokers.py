"""The same faults on real brokers: stopped for longer than every timeout, one of three hung, killed and restarted.

The timeouts are a tenth of the usual ones, so that each fault lasts seconds. Virtual time shows how soon service
resumes; these tests show that it does with real brokers, and that nothing is lost.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.events.ids import GroupId
from muster.events.log.kafka.client.link import Timeouts
from tests.brokers.broker import HOST, Broker
from tests.brokers.cluster import Cluster, running_cluster
from tests.clients.consumers import Confluent
from tests.clients.probe import described, until_stable
from tests.clients.through_sidecar.sidecar import new_topic, produce, running_sidecar
from tests.faults.process import ProcessOnKafka, groups_in
from tests.waiting import until, until_so

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(os.environ.get("MUSTER_TEST_NO_KAFKA") == "1", reason="no Kafka is wanted"),
]

SHORT = Timeouts(
    connect_timeout_ms=500,
    request_timeout_ms=500,
    produce_timeout_ms=1_000,
    fetch_timeout_ms=1_000,
    delivery_timeout_ms=3_000,
    metadata_max_age_ms=500,
)
LONGER_THAN_EACH_S = 5
WITHIN_S = 60
PARTITIONS = 3
IS_AWAY = {ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress}


@pytest.fixture(scope="module")
def one_node() -> Iterator[Cluster]:
    with running_cluster(1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Cluster]:
    with running_cluster(3) as cluster:
        yield cluster


@asynccontextmanager
async def serving(cluster: Cluster) -> AsyncIterator[ProcessOnKafka]:
    """A process that has lost nothing and given nothing up when the block is left."""
    topic = f"events-{uuid4().hex[:8]}"
    bootstrap = cluster.bootstrap.split(",")
    process = ProcessOnKafka(bootstrap, topic=topic, partitions=PARTITIONS, with_offsets=True, timeouts=SHORT)
    await process.start()
    yield process
    await until(lambda: process.runtime.ready, "every partition is served", within_s=WITHIN_S)
    assert process.lost == []
    await process.stop()


async def joined(process: ProcessOnKafka, group_id: GroupId) -> JoinGroupOutcome:
    """Return the outcome for a member that retries while the log is unavailable."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            outcome = await process.join("a", group_id=group_id)
            if outcome.error not in IS_AWAY:
                return outcome
            await asyncio.sleep(0.1)


async def commits_are_there(process: ProcessOnKafka, groups: list[GroupId]) -> None:
    """Check that offsets committed before a fault are known after it."""
    for group_id in groups:
        assert process.offsets.committed(group_id)["orders", 0].offset == 7


async def committed(process: ProcessOnKafka) -> list[GroupId]:
    """One group in each partition, each with an offset."""
    groups = [next(groups_in(partition, PARTITIONS)) for partition in range(PARTITIONS)]
    for group_id in groups:
        assert (await process.commit(7, group_id=group_id)).error is ErrorCode.none
    return groups


async def test_the_only_broker_hangs_for_longer_than_every_limit(one_node: Cluster) -> None:
    """Clients get the loading error, and the log has the reason; service resumes without intervention."""
    async with serving(one_node) as process:
        groups = await committed(process)
        one_node.pause(1)
        waiting = [process.join("a", group_id=group_id) for group_id in groups]
        await asyncio.sleep(LONGER_THAN_EACH_S)
        assert {(await each).error for each in waiting} == {ErrorCode.not_coordinator}
        why = process.runtime.not_ready
        one_node.resume(1)
        assert "unavailable" in (why or "")
        for group_id in groups:
            assert (await joined(process, group_id)).error is ErrorCode.none
        await commits_are_there(process, groups)


async def test_the_only_broker_is_killed_and_restarted(one_node: Cluster) -> None:
    """As when it hangs."""
    async with serving(one_node) as process:
        groups = await committed(process)
        one_node.kill(1)
        waiting = process.join("a", group_id=groups[0])
        assert (await waiting).error is ErrorCode.not_coordinator
        await asyncio.to_thread(one_node.start, 1)
        for group_id in groups:
            assert (await joined(process, group_id)).error is ErrorCode.none
        await commits_are_there(process, groups)


def test_a_sidecar_relays_while_its_log_is_gone(kafka_broker: Broker, one_node: Cluster) -> None:
    """It is healthy meanwhile, and owns groups again afterwards; requests for one get the loading error."""
    log = ["--log", f"kafka://{one_node.bootstrap}/events-{uuid4().hex[:8]}", "--metrics", f"{HOST}:0"]
    topic = new_topic(kafka_broker.bootstrap)
    group = f"group-{uuid4().hex[:8]}"
    with running_sidecar(kafka_broker.bootstrap, nodes=[1], options=log) as muster:
        produce(muster.bootstrap, topic, "before")
        one_node.kill(1)
        produce(muster.bootstrap, topic, "meanwhile")
        assert muster.asked("/healthz") == "ok\n"
        one_node.start(1)
        consumer = Confluent(muster.bootstrap, group, topic).start()
        try:
            until_stable(muster.bootstrap, group, members=1)
        finally:
            consumer.close()


def test_a_sidecar_relays_though_its_log_is_unavailable_at_the_start(kafka_broker: Broker, one_node: Cluster) -> None:
    """Groups with members upstream continue there; others get the loading error until the log is loaded."""
    log = ["--log", f"kafka://{one_node.bootstrap}/events-{uuid4().hex[:8]}", "--metrics", f"{HOST}:0"]
    topic, direct = new_topic(kafka_broker.bootstrap), f"group-{uuid4().hex[:8]}"
    with running_sidecar(kafka_broker.bootstrap, nodes=[1], options=log) as muster:
        owned = Confluent(muster.bootstrap, "owned", topic).start()
        until_stable(muster.bootstrap, "owned", members=1)
        muster.kill()
        one_node.kill(1)
        theirs = Confluent(kafka_broker.bootstrap, direct, topic).start()
        until_stable(kafka_broker.bootstrap, direct, members=1)
        muster.start(until="listening")
        produce(muster.bootstrap, topic, "meanwhile")
        assert described(muster.bootstrap, "owned")["error_code"] == ErrorCode.coordinator_load_in_progress
        also_theirs = Confluent(muster.bootstrap, direct, topic).start()
        until_stable(kafka_broker.bootstrap, direct, members=2)
        until_so(lambda: bool(also_theirs.assigned), lambda: also_theirs.error)
        also_theirs.commit(min(also_theirs.assigned), 1)
        assert not muster.events("serving")
        one_node.start(1)
        muster.wait_for_event("serving", within_s=WITHIN_S)
        until_stable(muster.bootstrap, "owned", members=1)
        for consumer in (owned, theirs, also_theirs):
            consumer.close()


@pytest.mark.parametrize("fault", ["hung", "killed"])
async def test_one_broker_of_three(three_nodes: Cluster, fault: str) -> None:
    """Its partitions continue at their new leaders; the others only waited for their replicas."""
    async with serving(three_nodes) as process:
        groups = await committed(process)
        node = process.kafka._link._view.leader(process.kafka.location, 0)
        assert node is not None
        (three_nodes.pause if fault == "hung" else three_nodes.kill)(node)
        for group_id in groups:
            assert (await joined(process, group_id)).error is ErrorCode.none
        await commits_are_there(process, groups)
        if fault == "hung":
            three_nodes.resume(node)
        else:
            await asyncio.to_thread(three_nodes.start, node)
