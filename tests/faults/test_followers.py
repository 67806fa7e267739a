"""A log that is followed or read by `muster replay` while its brokers hang, are down, or were just elected."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import typer

from muster.events.events import MemberJoined
from muster.events.kafka.security import NOT_SECURED
from muster.events.log.base import LogDenied, LogMissing, LogReplaced
from muster.events.log.kafka.log import KafkaEventLog
from muster.events.partitioner import partition_for
from muster.replay.commands.opening import CANNOT_READ, Source, opened, run
from muster.replay.history.items import Happened, Item
from muster.replay.history.window import AtSeq, Window
from muster.replay.logs.sources import find_start, from_the_beginning, items
from muster.replay.logs.waiting import LogWait
from tests.faults.cluster import HOST, FakeCluster
from tests.faults.process import TOPIC, ProcessOnKafka, story
from tests.simulation.process import GROUP
from tests.waiting import until

PARTITION = partition_for(GROUP, 3)
LOG = f"kafka://{HOST}:1/{TOPIC}"
AWAY = f"{LOG} has not answered for 5 s; waiting for it"
BACK = f"{LOG} answers again"


def source_at(cluster: FakeCluster) -> Source:
    (bootstrap,) = cluster.bootstrap
    return Source(url=f"kafka://{bootstrap}/{TOPIC}", security=NOT_SECURED)


class Follower:
    """The items of a group, as `history --follow` gets them."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.items: list[Item] = []
        self._source = source_at(cluster)
        self.task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async with opened(self._source, waits=True) as reading:
            async for item in items(reading, from_the_beginning(GROUP), goes_on=True):
                self.items.append(item)

    @property
    def joined(self) -> list[str]:
        """The members that have joined, by instance id."""
        events = [item.event for item in self.items if isinstance(item, Happened)]
        return [str(event.member.group_instance_id) for event in events if isinstance(event, MemberJoined)]

    async def ends(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        assert self.task.cancelled(), self.task.exception()


@asynccontextmanager
async def followed(cluster: FakeCluster) -> AsyncIterator[Follower]:
    follower = Follower(cluster)
    yield follower
    await follower.ends()


def stderr_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines on stderr since the previous call."""
    return [line.removeprefix("muster replay: ") for line in capsys.readouterr().err.splitlines()]


@story
async def test_a_follower_waits_for_a_hanging_broker_and_logs_it_once(capsys: pytest.CaptureFixture[str]) -> None:
    """After 5 s, however long it takes; then it continues where it was. A second outage works the same."""
    cluster = FakeCluster()
    process = await ProcessOnKafka(cluster.bootstrap).start()
    await process.join("a")
    async with followed(cluster) as one, followed(cluster) as other:
        await until(lambda: one.joined == other.joined == ["a"], "what is there is told")
        cluster.hang(1)
        await asyncio.sleep(6)
        assert stderr_lines(capsys) == [AWAY] * 2
        await asyncio.sleep(600)
        cluster.go_on(1)
        await until(lambda: process.runtime.ready, "the process serves again")
        await process.join("b")
        await until(lambda: one.joined == other.joined == ["a", "b"], "it goes on")
        assert stderr_lines(capsys) == [BACK] * 2
    await process.stop()


@story
async def test_a_follower_waits_for_a_broker_that_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    """No broker responds: none could say that the log is gone."""
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
        assert len(stderr_lines(capsys)) == 2
    await process.stop()


@story
async def test_a_follower_waits_for_a_broker_that_is_gone_or_hangs_when_it_begins(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It reports that once, and begins when the broker responds."""
    cluster = FakeCluster()
    process = await ProcessOnKafka(cluster.bootstrap).start()
    await process.join("a")
    begins, ends = (cluster.stop, cluster.hang), (cluster.start, cluster.go_on)
    for begin, end in zip(begins, ends, strict=True):
        begin(1)
        async with followed(cluster) as follower:
            await asyncio.sleep(300)
            (line,) = stderr_lines(capsys)
            assert line.startswith("no broker answers at ")
            assert line.endswith("; waiting for it")
            end(1)
            await until(lambda: follower.joined == ["a"], "what is there is told")
            assert stderr_lines(capsys) == [BACK]
    await process.stop()


@story
async def test_a_missing_topic_is_not_awaited() -> None:
    """Its name may be mistyped."""
    cluster = FakeCluster()
    follower = Follower(cluster)
    with pytest.raises(LogMissing):
        await follower.task


async def test_a_right_that_is_missing_is_not_waited_for_at_the_start() -> None:
    """A missing right is reported when following starts."""
    reported: list[str] = []

    async def ask() -> None:
        raise LogDenied("reading partition 0 of events: TOPIC_AUTHORIZATION_FAILED")

    with pytest.raises(LogDenied):
        await LogWait(LOG, reported.append).answer(ask, unless=LogDenied)
    assert reported == []


@story
async def test_a_part_that_a_window_leaves_out_is_waited_for_too(capsys: pytest.CaptureFixture[str]) -> None:
    """The broker hangs while the beginning of the window is looked for."""
    cluster = FakeCluster()
    process = await ProcessOnKafka(cluster.bootstrap).start()
    await process.join("a")
    async with opened(source_at(cluster), waits=True) as reading:
        cluster.hang(1)
        starting = asyncio.create_task(find_start(reading, GROUP, Window(since=AtSeq(2))))
        await asyncio.sleep(600)
        assert stderr_lines(capsys) == [AWAY]
        cluster.go_on(1)
        start = await starting
        assert start.is_reached
        assert stderr_lines(capsys) == [BACK]
    await process.stop()


@story
async def test_a_new_leader_that_does_not_know_of_the_end_yet_takes_nothing_from_a_reader() -> None:
    """The end reported before stays: a read up to it waits for the records, and skips none."""
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


@pytest.mark.parametrize("what", ["deleted", "made anew", "made anew and written to"])
@story
async def test_a_topic_deleted_while_it_is_followed_ends_the_command(what: str) -> None:
    """Nothing would ever arrive; and a new topic of that name is no part of this history."""
    cluster = FakeCluster()
    process = await ProcessOnKafka(cluster.bootstrap).start()
    await process.join("a")
    follower = Follower(cluster)
    await until(lambda: follower.joined == ["a"], "told")
    await process.stop()
    cluster.delete(TOPIC) if what == "deleted" else cluster.recreate(TOPIC)
    if what == "made anew and written to":
        process = await ProcessOnKafka(cluster.bootstrap).start()
        for instance in "bcd":
            await process.join(instance)
        await process.stop()
    await until(follower.task.done, "it has ended")
    error = follower.task.exception()
    assert isinstance(error, LogReplaced)
    assert f"topic {TOPIC} " in error.what
    assert ("was deleted while it was in use" if what == "deleted" else "was deleted and recreated") in error.what
    assert follower.joined == ["a"]


def test_a_reader_learns_of_a_replaced_topic_without_advice_for_owners(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The log cannot be read on: that is the exit code, too."""

    async def read() -> None:
        raise LogReplaced("topic events was deleted and recreated", "Delete the new one")

    with pytest.raises(typer.Exit) as ended:
        run(read())
    assert ended.value.exit_code == CANNOT_READ
    assert stderr_lines(capsys) == [
        "topic events was deleted and recreated. The output ends there; run the command again to read the current log"
    ]
