"""A log that is followed or read by `muster replay` while its brokers hang, are away, or were just elected."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from muster.events.events import MemberJoined
from muster.events.log.kafka.log import KafkaEventLog
from muster.events.partitioner import partition_for
from muster.replay.history.items import Happened, Item
from muster.replay.logs.reading import Reading
from muster.replay.logs.sources import from_the_beginning, items
from tests.faults.cluster import FakeCluster
from tests.faults.process import TOPIC, ProcessOnKafka, story
from tests.simulation.process import GROUP
from tests.waiting import until

PARTITION = partition_for(GROUP, 3)


class Follower:
    """The items of a group as they come, and the lines that are said meanwhile."""

    def __init__(self, log: KafkaEventLog) -> None:
        self.said: list[str] = []
        self.items: list[Item] = []
        self._reading = Reading(log=log, say=self.said.append)
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async for item in items(self._reading, from_the_beginning(GROUP), goes_on=True):
            self.items.append(item)

    @property
    def joined(self) -> list[str]:
        """The members that have joined, by instance id."""
        events = [item.event for item in self.items if isinstance(item, Happened)]
        return [str(event.member.group_instance_id) for event in events if isinstance(event, MemberJoined)]

    async def ends(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        assert self._task.cancelled(), self._task.exception()


@asynccontextmanager
async def followed(cluster: FakeCluster) -> AsyncIterator[Follower]:
    log = KafkaEventLog(cluster.bootstrap, TOPIC, read_only=True)
    await log.open()
    follower = Follower(log)
    yield follower
    await follower.ends()
    await log.close()


@story
async def test_a_follower_waits_for_a_broker_that_hangs_and_says_so_once() -> None:
    """After 5 s, however long it takes; then it goes on where it was. A second one does the same."""
    cluster = FakeCluster()
    process = await ProcessOnKafka(cluster.bootstrap).start()
    await process.join("a")
    async with followed(cluster) as one, followed(cluster) as other:
        await until(lambda: one.joined == other.joined == ["a"], "what is there is told")
        cluster.hang(1)
        await asyncio.sleep(6)
        assert one.said == [f"{TOPIC} has not answered for 5 s; waiting for it"]
        await asyncio.sleep(600)
        cluster.go_on(1)
        await until(lambda: process.runtime.ready, "the process serves again")
        await process.join("b")
        await until(lambda: one.joined == other.joined == ["a", "b"], "it goes on")
        assert one.said == other.said == [f"{TOPIC} has not answered for 5 s; waiting for it", f"{TOPIC} answers again"]
    await process.stop()


@story
async def test_a_follower_waits_for_a_broker_that_is_gone() -> None:
    """No broker answers: there is nobody who could say that the log is gone."""
    cluster = FakeCluster()
    process = await ProcessOnKafka(cluster.bootstrap).start()
    await process.join("a")
    async with followed(cluster) as follower:
        await until(lambda: follower.joined == ["a"], "what is there is told")
        cluster.stop(1)
        await asyncio.sleep(300)
        cluster.start(1)
        await until(lambda: process.runtime.ready, "the process serves again")
        await process.join("b")
        await until(lambda: follower.joined == ["a", "b"], "it goes on")
        assert len(follower.said) == 2
    await process.stop()


@story
async def test_a_new_leader_that_does_not_know_of_the_end_yet_takes_nothing_from_a_reader() -> None:
    """The end that was told before stands: a read up to it waits for the records, and leaves none out."""
    cluster = FakeCluster()
    process = await ProcessOnKafka(cluster.bootstrap).start()
    await process.join("a")
    log = KafkaEventLog(cluster.bootstrap, TOPIC, read_only=True)
    await log.open()
    end = await log.end_offset(PARTITION)
    cluster.partition(TOPIC, PARTITION).high_watermark = end - 3

    async def read(raw: bool) -> list[int]:
        chunks = (log.read_raw if raw else log.read)(PARTITION, start=0, end=end)
        return [record.offset async for chunk in chunks for record in chunk]

    reads = [asyncio.create_task(read(raw)) for raw in (False, True)]
    await asyncio.sleep(3)
    assert not any(each.done() for each in reads)
    cluster.partition(TOPIC, PARTITION).high_watermark = None
    assert [await each for each in reads] == [[*range(end)], [*range(end)]]
    await log.close()
    await process.stop()
