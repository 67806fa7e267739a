"""A claim that was prepared finds its connections open and its coordinator known, and what has changed since then."""

import asyncio

from muster.events.log.kafka.log import KafkaEventLog
from muster.events.records import Record
from tests.faults.cluster import FIND_COORDINATOR, FakeCluster
from tests.faults.process import TOPIC, story

FENCE = (Record(b"fence", b"of the claim"),)


async def opened(cluster: FakeCluster) -> KafkaEventLog:
    log = KafkaEventLog(cluster.bootstrap, TOPIC, partitions=3, replication=1)
    await log.open()
    return log


def connections(cluster: FakeCluster) -> int:
    return sum(len(broker.connections) for broker in cluster.brokers.values())


@story
async def test_a_prepared_claim_opens_nothing_and_looks_nothing_up() -> None:
    """It is not yet a claim: no owner is deposed by it. A second preparation sends nothing."""
    cluster = FakeCluster(nodes=3)
    cluster.coordinator = 3  # that is queried about nothing else
    log, owners = await opened(cluster), await opened(cluster)
    cluster.stop(3)
    cluster.start(3)  # so that no connection to it is open, as when they were idle for long
    owner = await owners.claim(1)
    await log.prepare_claim(1)
    await log.prepare_claim(2)
    await owner.append([FENCE])
    known = connections(cluster), cluster.asked[FIND_COORDINATOR]
    await log.prepare_claim(2)
    assert (connections(cluster), cluster.asked[FIND_COORDINATOR]) == known
    writer = await log.claim(2)
    await writer.append([FENCE])
    assert [chunk async for chunk in log.read(2)]
    assert (connections(cluster), cluster.asked[FIND_COORDINATOR]) == known
    await log.close()
    await owners.close()


@story
async def test_a_coordinator_that_has_moved_since_is_looked_up_again() -> None:
    """It says so, or does not respond any more."""
    cluster = FakeCluster(nodes=3)
    cluster.coordinator = 3
    log = await opened(cluster)
    for number in range(2):
        await log.prepare_claim(number)
    cluster.coordinator = 1
    await (await log.claim(0)).append([FENCE])
    cluster.stop(3)
    await (await log.claim(1)).append([FENCE])
    await log.close()


@story
async def test_a_lost_coordinator_is_looked_up_while_claims_are_prepared() -> None:
    cluster = FakeCluster(nodes=3)
    cluster.coordinator = 3
    log = await opened(cluster)
    await log.prepare_claim(0)
    cluster.stop(3)
    cluster.fail_over(3)
    await asyncio.sleep(3_600)  # brokers are looked up again
    await log.prepare_claim(0)
    known = cluster.asked[FIND_COORDINATOR]
    await (await log.claim(0)).append([FENCE])
    assert cluster.asked[FIND_COORDINATOR] == known
    await log.close()


@story
async def test_a_failed_preparation_is_left_to_the_claim() -> None:
    cluster = FakeCluster()
    log = await opened(cluster)
    cluster.stop(1)
    await log.prepare_claim(0)
    cluster.start(1)
    await (await log.claim(0)).append([FENCE])
    await log.close()
