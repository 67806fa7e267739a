"""A claim that was prepared finds its connections open and its coordinator known, and what has changed since then."""

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
    """Nor is a claim more than that: nobody is deposed by it. A second preparation asks nothing."""
    cluster = FakeCluster(nodes=3)
    cluster.coordinator = 3  # of which nothing else is asked
    log, owners = await opened(cluster), await opened(cluster)
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
    """It says so, whether its broker is still there or not."""
    cluster = FakeCluster(nodes=2)
    log = await opened(cluster)
    for number in range(2):
        await log.prepare_claim(number)
    cluster.coordinator = 2
    await (await log.claim(0)).append([FENCE])
    cluster.stop(2)
    cluster.fail_over(2)
    await (await log.claim(1)).append([FENCE])
    await log.close()


@story
async def test_what_cannot_be_prepared_is_left_to_the_claim() -> None:
    cluster = FakeCluster()
    log = await opened(cluster)
    cluster.stop(1)
    await log.prepare_claim(0)
    cluster.start(1)
    await (await log.claim(0)).append([FENCE])
    await log.close()
