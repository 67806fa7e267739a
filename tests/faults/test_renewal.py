"""Claims are renewed each minute here: what that costs concurrent requests, and brokers that are down meanwhile."""

import asyncio

from kio.schema.errors import ErrorCode

from muster.events.log.base import Deposed
from tests.faults.cluster import INIT_PRODUCER_ID, PRODUCER_ID_EXPIRATION_MS, FakeCluster
from tests.faults.process import TOPIC, ProcessOnKafka, groups_in, seconds, story
from tests.waiting import until

RENEWAL_S = PRODUCER_ID_EXPIRATION_MS / 4_000


@story
async def test_a_renewal_reads_nothing_again() -> None:
    """Neither events nor offsets, however many there are; and the next owner of the partition deposes its writer."""
    cluster = FakeCluster()
    process = await ProcessOnKafka(cluster.bootstrap, with_offsets=True).start()
    for offset in range(50):
        assert (await process.commit(offset)).error is ErrorCode.none
    claims, fetched = cluster.asked[INIT_PRODUCER_ID], cluster.fetched.copy()
    await until(lambda: cluster.asked[INIT_PRODUCER_ID] >= claims + 12, "renewed twice", within_s=3 * RENEWAL_S)
    assert (await process.commit(50)).error is ErrorCode.none
    # Each claim reads the newest record of each partition, to see which process wrote it.
    for topic in (TOPIC, f"{TOPIC}_offsets"):
        assert cluster.fetched[topic] - fetched[topic] <= 6
    assert process.lost == []
    successor = await ProcessOnKafka(cluster.bootstrap, with_offsets=True).start()
    assert successor.offsets.committed(process.group_id)["orders", 0].offset == 50
    assert (await process.commit(51)).error is ErrorCode.not_coordinator
    assert isinstance(process.lost[0], Deposed)
    for each in (process, successor):
        await each.stop()


@story
async def test_a_renewal_that_has_to_wait_for_a_broker_keeps_no_request_waiting() -> None:
    """The coordinator of the transactional ids hangs; its partitions are led elsewhere by then."""
    cluster = FakeCluster(3)
    process = await ProcessOnKafka(cluster.bootstrap).start()
    coordinator = cluster.coordinator
    cluster.fail_over(coordinator)
    cluster.coordinator = coordinator
    cluster.alive.add(coordinator)
    await asyncio.sleep(10)  # the leader is known
    cluster.hang(coordinator)
    groups = groups_in(0, 3)
    slowest = 0.0
    for _ in range(round(3 * RENEWAL_S)):
        began = seconds()
        assert (await process.join("a", group_id=next(groups))).error is ErrorCode.none
        slowest = max(slowest, seconds() - began)
        await asyncio.sleep(1)
    assert slowest < 0.1
    cluster.go_on(coordinator)
    claims = cluster.asked[INIT_PRODUCER_ID]
    await until(lambda: cluster.asked[INIT_PRODUCER_ID] > claims, "claims are renewed", within_s=2 * RENEWAL_S)
    assert process.lost == []
    await process.stop()


@story
async def test_a_broker_that_is_gone_while_claims_are_renewed_ends_nothing() -> None:
    """A rolling restart of three."""
    cluster = FakeCluster(3)
    process = await ProcessOnKafka(cluster.bootstrap).start()
    for node in (1, 2, 3):
        cluster.stop(node)
        await asyncio.sleep(5)
        cluster.fail_over(node)
        await asyncio.sleep(2 * RENEWAL_S)
        cluster.start(node)
        await until(lambda: process.runtime.ready, "served", within_s=5)
    assert process.lost == []
    await process.stop()
