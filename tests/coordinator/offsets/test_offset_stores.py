"""One contract for all offset stores: writes are visible when they are durable, and after a restart."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from muster.coordinator.group.commands import OffsetToCommit
from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.offsets.base import OffsetStore, StoredOffset
from muster.coordinator.offsets.memory import MemoryOffsetStore
from muster.coordinator.offsets.sqlite import SqliteOffsetStore
from muster.coordinator.offsets.topic import REWRITTEN_AT_ONCE, TopicOffsetStore
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused, Deposed, LogUnavailable
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.records import BrokenRecord, Record, StoredRecord, Transition
from tests.coordinator.longest_callback import longest_callback

COMMITS = 50_000
OTHERS_TURNS = 3
OVERWRITTEN = 20_000
OF_NOBODY = 200_000
HELD_S_MAX = 0.1
"""The limit in processor time."""
ORDERS, PAYMENTS = GroupId("orders"), GroupId("payments")
PARTITION = 0


def commit(
    topic: str, partition: int, offset: int, *, metadata: str = "", expire_ms: int | None = None
) -> OffsetToCommit:
    return OffsetToCommit(
        topic=topic,
        partition=partition,
        offset=offset,
        leader_epoch=3,
        metadata=metadata,
        commit_ms=1_700_000_000_000,
        expire_ms=expire_ms,
    )


def kept(offset: int, *, metadata: str = "", expire_ms: int | None = None) -> StoredOffset:
    return StoredOffset(
        offset=offset, leader_epoch=3, metadata=metadata, commit_ms=1_700_000_000_000, expire_ms=expire_ms
    )


async def claimed(store: OffsetStore) -> None:
    """Claim the only partition."""
    await store.open()
    await store.claim(PARTITION)


class OffsetStoreContract:
    """`reopen` closes the open store, if any, and opens another one on the same storage."""

    survives_restarts = True

    @pytest.fixture
    @abstractmethod
    def reopen(self) -> Callable[[], OffsetStore]: ...

    async def test_committed_offsets_are_stored(self, reopen: Callable[[], OffsetStore]) -> None:
        """Each partition has its last commit, complete."""
        store = reopen()
        await claimed(store)
        await store.write(
            [
                OffsetsChange(group_id=ORDERS, committed=(commit("t", 0, 5), commit("t", 1, -7, metadata="größe 🐘"))),
                OffsetsChange(group_id=PAYMENTS, committed=(commit("t", 0, 9, expire_ms=17),)),
                OffsetsChange(group_id=ORDERS, committed=(commit("t", 0, 6),)),
            ]
        )
        assert store.committed(ORDERS) == {("t", 0): kept(6), ("t", 1): kept(-7, metadata="größe 🐘")}
        assert store.committed(PAYMENTS) == {("t", 0): kept(9, expire_ms=17)}
        assert store.group_ids() == {ORDERS, PAYMENTS}
        await store.close()

    async def test_many_offsets_do_not_block_others(self, reopen: Callable[[], OffsetStore]) -> None:
        """They are from all groups of a partition, which may have waited for one write."""
        store = reopen()
        await claimed(store)
        changes = [OffsetsChange(group_id=GroupId(f"g{n}"), committed=(commit("t", 0, n),)) for n in range(COMMITS)]
        writing, turns = asyncio.create_task(store.write(changes)), 0
        while not writing.done():
            turns += 1
            await asyncio.sleep(0)
        assert set(writing.result()) == {None}
        assert turns > OTHERS_TURNS
        await store.close()

    async def test_a_restart_changes_nothing(self, reopen: Callable[[], OffsetStore]) -> None:
        """Commits as well as deletions."""
        store = reopen()
        await claimed(store)
        several = (*(commit("t", p, p) for p in range(50)), commit("u", 0, 9, expire_ms=17))
        await store.write([OffsetsChange(group_id=ORDERS, committed=several)])
        await store.write([OffsetsChange(group_id=ORDERS, deleted=(("t", 7), ("t", 99)))])
        await store.write([OffsetsChange(group_id=PAYMENTS, committed=(commit("t", 0, 1),))])
        await store.write([OffsetsChange(group_id=PAYMENTS, all_deleted=True)])
        if self.survives_restarts:
            await store.close()
            store = reopen()
            await claimed(store)
        expected = {("t", p): kept(p) for p in range(50) if p != 7}
        assert store.committed(ORDERS) == expected | {("u", 0): kept(9, expire_ms=17)}
        assert store.committed(PAYMENTS) == {}
        assert store.group_ids() == {ORDERS}
        await store.close()

    async def test_a_group_deleted_and_committed_for_in_one_write_has_the_new_offsets(
        self, reopen: Callable[[], OffsetStore]
    ) -> None:
        """Changes are applied in order."""
        store = reopen()
        await claimed(store)
        await store.write([OffsetsChange(group_id=ORDERS, committed=(commit("old", 0, 1), commit("both", 0, 1)))])
        await store.write(
            [
                OffsetsChange(group_id=ORDERS, all_deleted=True),
                OffsetsChange(group_id=ORDERS, committed=(commit("both", 0, 2),)),
            ]
        )
        await store.write(
            [
                OffsetsChange(group_id=PAYMENTS, committed=(commit("t", 0, 1),)),
                OffsetsChange(group_id=PAYMENTS, all_deleted=True),
            ]
        )
        if self.survives_restarts:
            await store.close()
            store = reopen()
            await claimed(store)
        assert store.committed(ORDERS) == {("both", 0): kept(2)}
        assert store.committed(PAYMENTS) == {}
        await store.close()


class TestMemoryOffsetStore(OffsetStoreContract):
    survives_restarts = False

    @pytest.fixture
    def reopen(self) -> Callable[[], OffsetStore]:
        return MemoryOffsetStore


class _WithItsFile(SqliteOffsetStore):
    """In the process the file is the event log's; here the store has it alone."""

    def __init__(self, path: Path) -> None:
        self._log = SqliteEventLog(path)
        super().__init__(self._log.file)

    async def open(self) -> None:
        await self._log.open()
        await super().open()

    async def close(self) -> None:
        await self._log.close()


class TestSqliteOffsetStore(OffsetStoreContract):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], OffsetStore]:
        return lambda: _WithItsFile(tmp_path / "muster.db")


class CountedAppends(MemoryEventLog):
    """`appended`: the number of transitions of each append."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self.appended: list[int] = []

    async def append(
        self, partition: int, epoch: int, transitions: Sequence[Transition]
    ) -> Sequence[AppendRefused | None]:
        self.appended.append(len(transitions))
        return await super().append(partition, epoch, transitions)


class TestTopicOffsetStore(OffsetStoreContract):
    @pytest.fixture
    def storage(self) -> MemoryStorage:
        return MemoryStorage(partitions=1)

    @pytest.fixture
    def reopen(self, storage: MemoryStorage) -> Callable[[], OffsetStore]:
        return lambda: TopicOffsetStore(lambda: MemoryEventLog(storage))

    async def test_the_store_of_an_older_process_cannot_write(self, storage: MemoryStorage) -> None:
        """A deposed owner's offset never lands after the new owner's."""
        older, newer = [TopicOffsetStore(lambda: MemoryEventLog(storage)) for _ in range(2)]
        await claimed(older)
        await claimed(newer)
        change = OffsetsChange(group_id=ORDERS, committed=(commit("t", 0, 1),))
        with pytest.raises(Deposed):
            await older.write([change])
        assert older.committed(ORDERS) == {}
        await newer.write([change])

    async def test_a_deletion_is_a_tombstone(self, storage: MemoryStorage) -> None:
        """Compaction then removes that offset, and only it."""
        store = TopicOffsetStore(lambda: MemoryEventLog(storage))
        await claimed(store)
        await store.write([OffsetsChange(group_id=ORDERS, committed=(commit("t", 0, 1),))])
        await store.write([OffsetsChange(group_id=ORDERS, deleted=(("t", 0),))])
        first, second = storage.records[PARTITION][-2:]
        assert first.key == second.key
        assert second.value is None

    async def test_a_record_that_is_not_an_offset_is_named(self, storage: MemoryStorage) -> None:
        """With topic and offset; nothing is guessed."""
        log = MemoryEventLog(storage)
        await log.open()
        writer = await log.claim(PARTITION)
        await writer.append([(Record(b"garbage", b"x"),)])
        with pytest.raises(BrokenRecord, match="partition 0, offset 0: this is no committed offset, in memory: "):
            await claimed(TopicOffsetStore(lambda: log))

    async def test_foreign_records_are_skipped_and_overwritten_offsets_rewritten(self, storage: MemoryStorage) -> None:
        """A foreign tombstone deletes no offset; ours is rewritten after it, so compaction keeps it."""
        store = TopicOffsetStore(lambda: MemoryEventLog(storage))
        await claimed(store)
        await store.write([OffsetsChange(group_id=ORDERS, committed=(commit("t", 0, 1), commit("t", 1, 2)))])
        key = storage.records[PARTITION][-2].key
        foreign_keys = (b"garbage", key, key.replace(b"orders", b"nobody"), b"", key.replace(b"orders", b"\xff"))
        for foreign in foreign_keys:
            end = storage.end_offset(PARTITION)
            storage.records[PARTITION].append(StoredRecord(PARTITION, end, 0, foreign, None, is_foreign=True))

        again = TopicOffsetStore(lambda: MemoryEventLog(storage))
        await claimed(again)

        assert again.committed(ORDERS) == {("t", 0): kept(1), ("t", 1): kept(2)}
        last = [record for record in storage.records[PARTITION] if record.key == key][-1]
        assert not last.is_foreign
        assert [record.is_foreign for record in storage.records[PARTITION]][-7:] == [True] * 5 + [False] * 2
        end = storage.end_offset(PARTITION)
        await claimed(TopicOffsetStore(lambda: MemoryEventLog(storage)))
        assert storage.end_offset(PARTITION) == end + 1, "nothing but the fence: it stands in its place"

    async def test_a_partition_that_is_claimed_again_is_watched_once(self, storage: MemoryStorage) -> None:
        """The former claim's reader of foreign records ends."""
        store = TopicOffsetStore(lambda: MemoryEventLog(storage))
        await claimed(store)
        end = storage.end_offset(PARTITION)
        storage.records[PARTITION].append(StoredRecord(PARTITION, end, 0, b"x", None, is_foreign=True))
        await store.write([OffsetsChange(group_id=ORDERS, committed=(commit("t", 0, 1),))])

        def watching() -> list[str]:
            return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("foreign-records-")]

        assert watching() == ["foreign-records-0"]
        await store.claim(PARTITION)
        assert watching() == []
        await store.close()

    async def test_foreign_keys_do_not_delay_a_takeover(self, storage: MemoryStorage) -> None:
        """However many: keys that are not ours are not kept, and overwritten offsets are rewritten in batches."""
        store = TopicOffsetStore(lambda: MemoryEventLog(storage))
        await claimed(store)
        several = tuple(commit("t", p, p) for p in range(OVERWRITTEN))
        await store.write([OffsetsChange(group_id=ORDERS, committed=several)])
        records = storage.records[PARTITION]
        ours = [record.key for record in records if b"orders" in record.key]
        for key in [*ours, *(ours[0].replace(b"orders", b"%d" % n) for n in range(OF_NOBODY))]:
            records.append(StoredRecord(PARTITION, len(records), 0, key, None, is_foreign=True))
        written = CountedAppends(storage)
        again = TopicOffsetStore(lambda: written)
        with longest_callback() as longest:
            await claimed(again)
        assert longest.seconds < HELD_S_MAX, longest
        assert again.committed(ORDERS) == {("t", p): kept(p) for p in range(OVERWRITTEN)}
        assert sorted(record.key for record in records[-OVERWRITTEN:]) == sorted(ours)
        assert max(written.appended) <= REWRITTEN_AT_ONCE

    @pytest.mark.parametrize("by", ["the next write", "a renewal"])
    async def test_offsets_overwritten_meanwhile_are_rewritten(self, storage: MemoryStorage, by: str) -> None:
        """The next append shows the gap in the offsets, and the records in between are read."""
        log = MemoryEventLog(storage)
        store = TopicOffsetStore(lambda: log)
        await claimed(store)
        await store.write([OffsetsChange(group_id=ORDERS, committed=(commit("t", 0, 1), commit("t", 1, 2)))])
        key = storage.records[PARTITION][-2].key
        end = storage.end_offset(PARTITION)
        storage.records[PARTITION].append(StoredRecord(PARTITION, end, 0, key, b"x", is_foreign=True))
        if by == "a renewal":
            await store.renew(PARTITION, lambda step: step())
        else:
            await store.write([OffsetsChange(group_id=PAYMENTS, committed=(commit("t", 0, 3),))])
        async with asyncio.timeout(20):
            while [each for each in storage.records[PARTITION] if each.key == key][-1].is_foreign:  # noqa: ASYNC110 -- nobody tells
                await asyncio.sleep(0)
        await store.write([OffsetsChange(group_id=ORDERS, committed=(commit("t", 0, 4),))])
        await store.close()

        again = TopicOffsetStore(lambda: MemoryEventLog(storage))
        await claimed(again)
        assert again.committed(ORDERS) == {("t", 0): kept(4), ("t", 1): kept(2)}

    async def test_a_renewal_behind_which_another_owner_wrote_is_none(self, storage: MemoryStorage) -> None:
        """The other owner's commits were never read here, so the partition has to be loaded again."""
        store = TopicOffsetStore(lambda: MemoryEventLog(storage))
        await claimed(store)
        await store.write([OffsetsChange(group_id=ORDERS, committed=(commit("t", 0, 1),))])
        another = TopicOffsetStore(lambda: MemoryEventLog(storage))
        await claimed(another)
        await another.write([OffsetsChange(group_id=ORDERS, committed=(commit("t", 0, 2),))])
        with pytest.raises(LogUnavailable, match="another muster serve wrote at offset 2 while this one"):
            await store.renew(PARTITION, lambda step: step())

    async def test_a_partition_is_written_again_after_it_was_claimed_again(self, storage: MemoryStorage) -> None:
        """An append with an unknown outcome ends its writer, not the store; the stored records are read back."""
        log = MemoryEventLog(storage)
        store = TopicOffsetStore(lambda: log)
        await claimed(store)
        log.lose_next_acknowledgement()
        with pytest.raises(LogUnavailable):
            await store.write([OffsetsChange(group_id=ORDERS, committed=(commit("t", 0, 1),))])
        await store.claim(PARTITION)
        assert store.committed(ORDERS) == {("t", 0): kept(1)}
        await store.write([OffsetsChange(group_id=ORDERS, committed=(commit("t", 0, 2),))])
        assert store.committed(ORDERS) == {("t", 0): kept(2)}

    async def test_known_offsets_are_served_while_the_partition_is_claimed_again(self, storage: MemoryStorage) -> None:
        """Clients are served while a claim is renewed: an offset that seems missing makes a consumer start over."""

        class Watched(MemoryEventLog):
            """Checks the offsets after each chunk that was read."""

            async def read(
                self, partition: int, *, start: int = 0, end: int | None = None
            ) -> AsyncIterator[Sequence[StoredRecord]]:
                async for chunk in super().read(partition, start=start, end=end):
                    seen.append(dict(store.committed(ORDERS)))
                    yield chunk

        seen: list[dict[tuple[str, int], StoredOffset]] = []
        store = TopicOffsetStore(lambda: Watched(storage))
        await claimed(store)
        await store.write([OffsetsChange(group_id=ORDERS, committed=(commit("t", 0, 1), commit("u", 0, 2)))])
        seen.clear()
        await store.claim(PARTITION)
        assert seen
        assert seen == [{("t", 0): kept(1), ("u", 0): kept(2)}] * len(seen)
        assert store.committed(ORDERS) == seen[0]

    async def test_a_commit_that_is_too_large_is_refused_alone(self, storage: MemoryStorage) -> None:
        """The others in the same write are stored."""
        store = TopicOffsetStore(lambda: MemoryEventLog(storage, batch_bytes_max=1_000))
        await claimed(store)
        large = OffsetsChange(group_id=ORDERS, committed=(commit("t", 0, 1, metadata="m" * 2_000),))
        small = OffsetsChange(group_id=PAYMENTS, committed=(commit("t", 0, 2),))
        verdicts = await store.write([large, small])
        assert [isinstance(verdict, AppendRefused) for verdict in verdicts] == [True, False]
        assert (store.committed(ORDERS), store.committed(PAYMENTS)) == ({}, {("t", 0): kept(2)})
