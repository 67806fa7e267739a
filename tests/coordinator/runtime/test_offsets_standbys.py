"""A process follows the committed offsets of others, and takes over by reading only the new ones; in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Self

import msgspec
import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.offsets.topic import TopicOffsetStore
from muster.coordinator.runtime.ownership.followed_topic import CHECK_INTERVAL_S, DELETIONS_KEPT_MS
from muster.coordinator.runtime.runtime import Runtime
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused, LogUnavailable
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.records import StoredRecord, Transition
from tests.coordinator.offsets.test_offset_stores import commit
from tests.coordinator.runtime.test_runtime import story
from tests.coordinator.runtime.test_standbys import ALONE, Peer, restart_reasons
from tests.simulation.committed import Offsets, offsets_in, offsets_of
from tests.waiting import until

COMMITS = 30


class _OfOffsets(MemoryEventLog):
    """The log of one process's offsets. `starts`: the first offset of each reading."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self.starts: list[int] = []
        self.is_away = False

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        if self.is_away:
            raise LogUnavailable("no broker")
        self.starts.append(start)
        async for chunk in super().read(partition, start=start, end=end):
            yield chunk


class OffsetsPeer(Peer):
    """One of several processes, with the offsets in a topic."""

    def __init__(self, storage: MemoryStorage, of_offsets: MemoryStorage) -> None:
        super().__init__(storage)
        self.of_offsets = _OfOffsets(of_offsets)
        self.store = TopicOffsetStore(lambda: self.of_offsets)
        owner = msgspec.structs.replace(self.runtime._owner, offsets=self.store)
        self.runtime = self.process.runtime = Runtime(
            owner, give_up=self.process.lost.append, deposed=self.deposed.append, stands_by=True
        )

    async def start(self, *numbers: int) -> Self:
        await self.store.open()
        return await super().start(*numbers)

    async def commits(self, *offsets: int, topic: str = "orders") -> None:
        for offset in offsets:
            reported = await self.process.commit(offset, group_id=GroupId("simple"), topic=topic)
            assert reported.error is ErrorCode.none

    @property
    def committed(self) -> Offsets:
        return offsets_in(self.store)


async def pair(partitions: int = ALONE) -> tuple[OffsetsPeer, OffsetsPeer]:
    """The owner of everything, with commits; and a standby that has read it all."""
    storages = MemoryStorage(partitions), MemoryStorage(partitions)
    owner = await OffsetsPeer(*storages).start(*range(partitions))
    await owner.commits(*range(COMMITS))
    standby = await OffsetsPeer(*storages).start()
    await standby.until_ready()
    return owner, standby


def in_topic(peer: OffsetsPeer) -> Offsets:
    storage = peer.of_offsets.storage
    return {
        group_id: each
        for records in storage.records
        for group_id, each in offsets_of([record for record in records if not record.is_foreign]).items()
    }


async def stopped(*peers: OffsetsPeer) -> None:
    for peer in peers:
        await peer.runtime.stop()
        await peer.store.close()


@story
async def test_a_takeover_reads_of_the_offsets_what_is_new() -> None:
    """All of them are there, including those since the last reading."""
    owner, standby = await pair()
    await owner.commits(1_000, topic="new")
    read_to = standby.of_offsets.storage.end_offset(0) - 1
    standby.of_offsets.starts.clear()
    await standby.runtime.assign([0])
    assert standby.of_offsets.starts
    assert min(standby.of_offsets.starts) >= read_to - 1 > 0
    assert standby.committed == in_topic(standby) == {"simple": {("orders", 0): COMMITS - 1, ("new", 0): 1_000}}
    await stopped(standby, owner)


@story
async def test_releasing_a_partition_drops_its_offsets_and_follows_them() -> None:
    """They are in memory once, and taking the partition back reads only new ones, too."""
    owner, standby = await pair()
    before = owner.committed
    await owner.runtime.release([0])
    assert not owner.committed
    await standby.runtime.assign([0])
    assert standby.committed == before
    await owner.until_ready()
    await standby.commits(7)
    await standby.runtime.release([0])
    await asyncio.sleep(2 * CHECK_INTERVAL_S)
    owner.of_offsets.starts.clear()
    await owner.runtime.assign([0])
    assert min(owner.of_offsets.starts) > 0
    assert owner.committed == in_topic(owner) == {"simple": {("orders", 0): 7}}
    assert not standby.committed
    await stopped(owner, standby)


@story
async def test_a_deposed_process_drops_the_offsets() -> None:
    """Once it has noticed."""
    owner, standby = await pair()
    await standby.runtime.assign([0])
    owner.process.commit(1, group_id=GroupId("simple"))
    await until(lambda: owner.deposed == [0])
    await until(lambda: not owner.committed)
    await owner.until_ready()
    await stopped(standby, owner)


@story
async def test_a_standby_is_as_far_as_the_topic_that_is_further_behind() -> None:
    """A takeover waits for both topics."""
    owner, standby = await pair()
    assert (standby.figures.ready, standby.figures.behind_max) == (1, 0)
    standby.of_offsets.is_away = True
    await owner.commits(1, 2, 3)
    await until(lambda: standby.figures.behind_max == 3)
    await asyncio.sleep(5)
    assert standby.figures.oldest_ms >= 5_000
    (status,) = standby.runtime.status().standbys
    assert (status.partition, status.lag_records) == (0, 3)
    standby.of_offsets.is_away = False
    await until(lambda: standby.figures.behind_max == 0)
    await stopped(standby, owner)


async def _truncated(records: list[StoredRecord], standby: OffsetsPeer) -> None:
    del records[-2:]


async def _written_anew(records: list[StoredRecord], standby: OffsetsPeer) -> None:
    last = records.pop()
    records.append(msgspec.structs.replace(last, timestamp_ms=last.timestamp_ms + 1))
    records.append(msgspec.structs.replace(last, offset=last.offset + 1, timestamp_ms=last.timestamp_ms + 1))


async def _suspended(records: list[StoredRecord], standby: OffsetsPeer) -> None:
    standby.suspended_ms += DELETIONS_KEPT_MS


async def _unreadable(records: list[StoredRecord], standby: OffsetsPeer) -> None:
    end = records[-1].offset + 1
    records.append(StoredRecord(0, end, records[-1].timestamp_ms, b"no key", b"x"))
    records.append(StoredRecord(0, end + 1, records[-1].timestamp_ms, b"no key", None))


@pytest.mark.parametrize("happens", [_truncated, _written_anew, _suspended, _unreadable])
@pytest.mark.parametrize("when", ["followed", "taken over"])
def test_unusable_offsets_are_dropped(happens: Callable[[list[StoredRecord], OffsetsPeer], Any], when: str) -> None:
    """They are read again after a pause, or by a takeover, which reads all of them. The result is that of the topic."""

    @story
    async def run() -> None:
        owner, standby = await pair()
        await asyncio.sleep(CHECK_INTERVAL_S / 2)
        with capture_logs() as logs:
            await happens(standby.of_offsets.storage.records[0], standby)
            standby.of_offsets.starts.clear()
            if when == "followed":
                await until(lambda: restart_reasons(logs))
                assert standby.figures.ready == 0
                await standby.until_ready()
            await standby.runtime.assign([0])
        assert 0 in standby.of_offsets.starts
        assert offsets_in(standby.store)[GroupId("simple")] == {("orders", 0): standby_says(standby)}
        await stopped(standby)
        await owner.runtime.stop()

    run()


def standby_says(peer: OffsetsPeer) -> int:
    """The last offset in the topic, from a full reading."""
    usable = [record for record in peer.of_offsets.storage.records[0] if record.key != b"no key"]
    reported: Mapping[tuple[str, int], int] = offsets_of(usable)[GroupId("simple")]
    return reported["orders", 0]


@pytest.mark.parametrize("failing", ["the fence of the offsets", "the reading of the offsets", "the last record"])
def test_read_offsets_are_kept_for_the_next_attempt(failing: str) -> None:
    """A retried takeover reads only new records, wherever it has failed."""

    @story
    async def run() -> None:
        owner, standby = await pair()
        await owner.commits(99)
        standby.of_offsets.starts.clear()
        if failing == "the fence of the offsets":
            standby.of_offsets.fail_next_append()
        elif failing == "the reading of the offsets":
            standby.of_offsets.is_away = True
        else:
            _fail_append(standby.process.log, 2)
        await standby.runtime.assign([0])
        assert 0 not in standby.runtime._owned
        assert not standby.committed
        standby.of_offsets.is_away = False
        await standby.runtime.all_owned()
        assert 0 not in standby.of_offsets.starts
        assert standby.committed == in_topic(standby) == {"simple": {("orders", 0): 99}}
        await stopped(standby)
        await owner.runtime.stop()

    run()


@story
async def test_offsets_changed_by_a_takeover_are_not_kept_for_the_next_attempt() -> None:
    """It created groups that the events lack, which no standby has read; so everything is read again."""
    owner, standby = await pair()
    unknown = OffsetsChange(group_id=GroupId("unknown"), committed=(commit("orders", 0, 5),))
    await owner.store.write([unknown])
    _fail_append(standby.process.log, 3)  # after the fence record, and the group's record
    standby.reads.clear()
    standby.of_offsets.starts.clear()
    await standby.runtime.assign([0])
    assert 0 not in standby.runtime._owned
    await standby.runtime.all_owned()
    assert (0, 0) in standby.reads
    assert 0 in standby.of_offsets.starts
    groups = [group.group_id for group in standby.runtime._owned[0].partition.groups()]
    assert sorted(groups) == ["simple", "unknown"]
    assert standby.committed == in_topic(standby)
    await stopped(standby)
    await owner.runtime.stop()


def _fail_append(log: MemoryEventLog, number: int) -> None:
    usual, appends = log.append, 0

    async def append(partition: int, epoch: int, transitions: Sequence[Transition]) -> Sequence[AppendRefused | None]:
        nonlocal appends
        appends += 1
        if appends == number:
            raise LogUnavailable("no broker")
        return await usual(partition, epoch, transitions)

    log.append = append  # type: ignore[method-assign]
