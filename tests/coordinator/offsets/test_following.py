"""A takeover from a standby gives the same offsets as reading the whole topic, whatever happened before.

Owners change, commit and delete; other producers write; records become unreadable, and are repaired; the log is
compacted and truncated; a reading is interrupted, and a takeover fails.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.offsets.offsets_reading import FollowedOffsets, OffsetsReading
from muster.coordinator.offsets.topic import TopicOffsetStore
from muster.coordinator.partition_reading import Standby, folded, read_on
from muster.events.ids import GroupId
from muster.events.loading import MustReadAnew
from muster.events.log.base import AppendRefused, LogUnavailable
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.records import BrokenRecord, EventsError, ForeignRecords, StoredRecord, Transition
from tests.coordinator.offsets.test_offset_stores import commit

LOCATION = "memory"
PIECE = 3
"""Records in a chunk; a reading can fail between any two."""
GROUPS = [GroupId(f"group-{number}") for number in range(3)]
TOPICS = [("t", 0), ("t", 1), ("u", 0)]
STEPS_MAX = 25
BROKEN_SHARE = 0.2
KEPT_MS = 1_000_000


class Stumbling(MemoryEventLog):
    """Reads in small chunks, and fails at random. `starts`: the first offset of each reading."""

    def __init__(self, storage: MemoryStorage, wall_ms: "Ticks", dice: random.Random) -> None:
        super().__init__(storage, wall_ms=wall_ms)
        self.dice = dice
        self.fails_share = 0.0
        self.ends_early = False
        self.starts: list[int] = []

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        self.starts.append(start)
        if self.ends_early:
            end = self.storage.end_offset(partition) - 2
        async for chunk in super().read(partition, start=start, end=end):
            for first in range(0, len(chunk), PIECE):
                self._may_fail()
                yield chunk[first : first + PIECE]

    async def append(
        self, partition: int, epoch: int, transitions: Sequence[Transition]
    ) -> Sequence[AppendRefused | None]:
        self._may_fail()
        return await super().append(partition, epoch, transitions)

    def _may_fail(self) -> None:
        if self.dice.random() < self.fails_share:
            raise LogUnavailable("the dice say so")


class Ticks:
    """A clock that gives each record a different time."""

    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


class Topic:
    """One partition of the offsets topic, its history, and its standby."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.clock = Ticks()
        self.storage = MemoryStorage(1)
        self.owner: TopicOffsetStore | None = None
        self.log = Stumbling(self.storage, self.clock, dice)
        self.follower = TopicOffsetStore(lambda: self.log)
        self.standby: Standby[OffsetsReading] | None = None
        self.suspended_ms = 0
        self.was_cut = False
        """Since the last reading; until the next one nothing is compacted, or the truncation might go unnoticed."""
        self.compacted_to = 0
        """The log is not truncated before this offset: superseded records are gone, so a follower would know more than
        the log.
        """

    @property
    def records(self) -> list[StoredRecord]:
        return self.storage.records[0]

    def boot_ms(self) -> int:
        return self.suspended_ms

    async def new_owner(self) -> None:
        self.owner = TopicOffsetStore(lambda: MemoryEventLog(self.storage, wall_ms=self.clock))
        await self.owner.open()
        try:
            await self.owner.claim(0)
        except BrokenRecord:
            self.owner = None

    async def writes(self) -> None:
        if self.owner is None:
            await self.new_owner()
        if self.owner is not None:
            await self.owner.write([self._change() for _ in range(self.dice.randint(1, 3))])

    def _change(self) -> OffsetsChange:
        dice, some = self.dice, self.dice.sample(TOPICS, self.dice.randint(1, len(TOPICS)))
        kind, group_id = dice.random(), dice.choice(GROUPS)
        if kind < 0.15:
            return OffsetsChange(group_id=group_id, all_deleted=True)
        if kind < 0.4:
            return OffsetsChange(group_id=group_id, deleted=tuple(some))
        offsets = tuple(commit(topic, partition, dice.randrange(1_000)) for topic, partition in some)
        return OffsetsChange(group_id=group_id, committed=offsets)

    async def stranger_writes(self) -> None:
        key = self.dice.choice([b"", b"foreign", *(record.key for record in self.records)])
        self._append(key, self.dice.choice([None, b"x"]), is_foreign=True)

    async def something_unreadable_comes(self) -> None:
        if self.dice.random() < BROKEN_SHARE and self.records:
            key = self.dice.choice([b"no key", *(record.key for record in self.records if not record.is_foreign)])
            self._append(key, b"\xff no value")
            if self.dice.random() < 0.8:
                await self.follows()
                self._append(key, None)  # as `muster log repair` does
            self.owner = None

    def _append(self, key: bytes, value: bytes | None, *, is_foreign: bool = False) -> None:
        at = self.storage.end_offset(0)
        self.records.append(StoredRecord(0, at, self.clock(), key, value, is_foreign))

    async def is_compacted(self) -> None:
        """Up to a random offset, for some keys; recent tombstones, foreign records and the last record stay."""
        if self.was_cut:
            return
        up_to = self.dice.randint(0, len(self.records))
        if up_to:
            self.compacted_to = max(self.compacted_to, self.records[up_to - 1].offset + 1)
        read_to = 0 if self.standby is None else self.standby.loading.next_offset
        last = {record.key: record.offset for record in self.records[:up_to] if not record.is_foreign}
        left = {key for key in sorted(last) if self.dice.random() < 0.3}
        self.records[: max(up_to - 1, 0)] = [
            record
            for record in self.records[: max(up_to - 1, 0)]
            if record.is_foreign
            or record.key in left
            or (last[record.key] == record.offset and (record.value is not None or record.offset >= read_to))
        ]

    async def is_cut(self) -> None:
        """Truncate the log, by a leader that lacks the end; the owner is gone."""
        may_go = sum(record.offset >= self.compacted_to for record in self.records)
        if may_go and self.dice.random() < 0.3:
            del self.records[-self.dice.randint(1, may_go) :]
            self.owner, self.was_cut = None, True
            self.storage.epochs[0] += 1
            if self.dice.random() < 0.7:
                await self.new_owner()

    async def follows(self) -> None:
        """Read on to the current end, as a standby does, unless that fails or the standby is discarded."""
        end = self.storage.end_offset(0)
        if self.standby is None:
            self.standby = Standby(
                loading=self.follower.new_reading(0), at_end_ms=0, boot_ms=self.boot_ms, deletions_kept_ms=KEPT_MS
            )
            self.was_cut = False
        loading = self.standby.loading
        self.log.fails_share = self.dice.choice([0, 0, 0.3])
        try:
            if end < loading.next_offset:
                raise MustReadAnew
            await read_on(self.log, 0, loading, end=end)
            await folded(loading)
            self.was_cut = False
        except LogUnavailable:
            pass
        except (MustReadAnew, EventsError):
            self.standby = None
        self.log.fails_share = 0

    async def is_taken_over(self) -> None:
        """Take over from what was read before, and compare the offsets with those of a full reading."""
        begun = None if self.standby is None else self.standby.loading.last
        broken = False
        for fails_share in (*self.dice.choices([0, 0.2, 0.6], k=2), 0.0):
            self.log.fails_share = fails_share
            self.log.starts.clear()
            try:
                if self.standby is None:
                    await self.follower.claim(0)
                else:
                    await self.follower.claim_by(0, self.standby)
            except LogUnavailable:
                await self.follower.give_up(0)
            except BrokenRecord:
                broken = True
                await self.follower.give_up(0)
            else:
                break
            if self.standby is not None and self.standby.is_spent:
                self.standby = None
        self.log.fails_share = 0
        self._holds(broken=broken)
        if self.standby is not None and not self.standby.is_spent and begun is not None:
            event("read on")
            assert min(self.log.starts) >= begun.offset
        else:
            event("read from the beginning")
        self.owner, self.standby = self.follower if not broken else None, None
        if not broken and self.dice.random() < 0.5:
            await self.writes()
        self.owner = None
        await self.follower.give_up(0)

    def _holds(self, *, broken: bool) -> None:
        (whole,) = [OffsetsReading(LOCATION, ForeignRecords())]
        whole.read(self.records)
        if broken:
            with pytest.raises(BrokenRecord):
                list(whole.fold())
            return
        list(whole.fold())
        assert self.follower.group_ids() == whole.offsets.group_ids()
        for group_id in GROUPS:
            assert dict(self.follower.committed(group_id)) == dict(whole.offsets.committed(group_id))
        assert not whole.overwritten, "all that strangers overwrote is written again"


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(min_value=0, max_value=2**32), steps=st.integers(min_value=1, max_value=STEPS_MAX))
def test_a_takeover_from_followed_offsets_equals_a_full_read(seed: int, steps: int) -> None:
    """For any history, wherever the standby is."""

    async def run() -> None:
        topic = Topic(random.Random(seed))
        await topic.follower.open()
        happens = [topic.writes] * 6 + [topic.follows] * 3 + [topic.stranger_writes, topic.is_compacted]
        happens += [topic.something_unreadable_comes, topic.is_cut, topic.new_owner, topic.is_taken_over]
        for each in topic.dice.choices(happens, k=steps):
            await each()
        await topic.is_taken_over()

    asyncio.run(run())


async def followed(records: int) -> Topic:
    """This many commits, all of them read by the standby."""
    topic = Topic(random.Random(0))
    await topic.follower.open()
    await topic.new_owner()
    assert topic.owner is not None
    for number in range(records):
        await topic.owner.write([OffsetsChange(group_id=GROUPS[0], committed=(commit("t", number, number),))])
    await topic.follows()
    return topic


async def test_a_claim_reads_on_up_to_its_own_fence_record() -> None:
    """It starts with the last record read before, to check that the log is the same."""
    topic = await followed(20)
    standby = topic.standby
    assert standby is not None
    topic.log.starts.clear()
    claimed = await topic.follower.claim_by(0, standby)
    assert set(claimed.groups) == {GROUPS[0]}
    assert claimed.records_read == 1  # the fence record
    assert topic.log.starts == [20]
    assert len(topic.follower.committed(GROUPS[0])) == 20


@pytest.mark.parametrize("by", ["the clock of leases", "the times of the log"])
async def test_a_standby_that_was_not_read_for_long_is_not_used(by: str) -> None:
    """A deletion and its tombstone may have been compacted meanwhile. The wall clock may have been set."""
    topic = await followed(3)
    standby = topic.standby
    assert standby is not None
    gone = topic.records.pop(1)  # compaction has removed the tombstone too
    if by == "the times of the log":
        standby.is_of_wall_clock = True
        topic.clock.now_ms += KEPT_MS
    else:
        topic.suspended_ms += KEPT_MS
    await topic.follower.claim_by(0, standby)
    assert standby.is_spent
    assert [offset.offset for offset in topic.follower.committed(GROUPS[0]).values()] == [1, 2], gone


async def test_a_claim_reads_on_after_a_long_time_without_commits() -> None:
    """A process that kept asking for the end offset has missed nothing."""
    topic = await followed(3)
    standby = topic.standby
    assert standby is not None
    topic.clock.now_ms += KEPT_MS
    claimed = await topic.follower.claim_by(0, standby)
    assert not standby.is_spent
    assert claimed.records_read == 1  # the fence record


@pytest.mark.parametrize("has_standby", [True, False])
async def test_a_read_that_ends_before_the_fence_record_is_incomplete(*, has_standby: bool) -> None:
    """There may be a commit after that end, which the standby would never see."""
    topic = await followed(3)
    assert topic.owner is not None
    await topic.owner.write([OffsetsChange(group_id=GROUPS[0], committed=(commit("t", 0, 99),))])
    standby = topic.standby if has_standby else None
    topic.log.ends_early = True
    with pytest.raises(LogUnavailable, match="the reading ended before"):
        await topic.follower.claim_by(0, standby)
    assert standby is None or standby.is_spent
    topic.log.ends_early = False
    await topic.follower.claim_by(0, None)
    assert topic.follower.committed(GROUPS[0])["t", 0].offset == 99


async def test_a_released_partition_leaves_no_offsets() -> None:
    """Those of other partitions stay; a late write is refused."""
    storage = MemoryStorage(2)
    store = TopicOffsetStore(lambda: MemoryEventLog(storage))
    assert isinstance(store, FollowedOffsets)
    await store.open()
    groups = [GroupId("a"), GroupId("b")]  # of partitions 1 and 0
    changes = [OffsetsChange(group_id=group_id, committed=(commit("t", 0, 1),)) for group_id in groups]
    for number in range(2):
        await store.claim(number)
    for change in changes:
        await store.write([change])
    await store.give_up(1)
    assert set(store.group_ids()) == {groups[1]}
    assert not store.committed(groups[0])
    with pytest.raises(LogUnavailable, match="no longer owned here"):
        await store.write([changes[0]])
    await store.give_up(1)  # nothing of it is left
    assert set(await store.claim(1)) == {groups[0]}


def test_an_unreadable_record_counts_at_once_behind_a_first_reading() -> None:
    """In a first reading it counts at the end, unless a later record has its key."""
    broken, repaired = StoredRecord(0, 0, 0, b"no key", b"x"), StoredRecord(0, 1, 0, b"no key", None)
    reading = OffsetsReading(LOCATION, ForeignRecords())
    reading.read([broken])
    with pytest.raises(BrokenRecord):
        list(reading.fold())
    reading.read([repaired])
    list(reading.fold())
    with pytest.raises(BrokenRecord):
        reading.read([StoredRecord(0, 2, 0, b"no key", b"x")])
