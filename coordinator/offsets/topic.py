"""Offsets in a compacted topic of their own, beside the event topic, written with the same fencing.

The topic is an `EventLog` of its own, so that a deposed owner can commit no offset either. A record's key is the
partition a commit is for, its value the commit, both JSON with a version, so that any tool can read them; a tombstone
is a deleted offset. Offsets that strangers overwrote are rewritten, as in the event topic
(`coordinator/strangers_watch.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec

from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.load.slices import Yielder
from muster.coordinator.observability.metrics import ENTITIES_REWRITTEN
from muster.coordinator.offsets.base import BetweenWrites, StoredOffset, TopicPartition
from muster.coordinator.offsets.memory import OffsetCache, stored
from muster.coordinator.strangers_watch import StrangersSeen, StrangersWatch, gap_between
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused, EventLog, LogError, LogWriter
from muster.events.log.succession import check_nobody_else_wrote
from muster.events.partitioner import partition_for
from muster.events.records import BrokenRecord, Record, StoredRecord, Transition

VERSION = 1

REWRITTEN_AT_ONCE = 1_000
"""The offsets that are rewritten in one append; others may append before the next one."""

_NOT_OURS = (msgspec.MsgspecError, UnicodeDecodeError)
"""The errors of decoding a key or a value that is none of ours."""


class _Key(msgspec.Struct, frozen=True, kw_only=True):
    """The key of an offset. Never change the fields or their order, since compaction compares the bytes."""

    version: int = VERSION
    group: str
    topic: str
    partition: int


class _Value(StoredOffset, frozen=True, kw_only=True):
    version: int = VERSION


class _Fence(msgspec.Struct, frozen=True, kw_only=True):
    """The fence record, after which no former owner can write."""

    version: int = VERSION
    owner: int


class TopicOffsetStore(OffsetCache):
    """See the module. `new_log` makes the store's own log, with as many partitions as the event log.

    It is called in `open`, when their number is known.
    """

    def __init__(self, new_log: Callable[[], EventLog]) -> None:
        super().__init__()
        self._new_log = new_log
        self._opened: EventLog | None = None
        self._begun: dict[int, LogWriter] = {}
        self._owned: dict[int, _Owned] = {}
        self._strangers = StrangersSeen()

    @property
    def own_log(self) -> EventLog | None:
        return self._opened

    @property
    def _log(self) -> EventLog:
        assert self._opened is not None
        return self._opened

    async def open(self) -> None:
        log = self._new_log()
        await log.open()
        self._opened = log

    async def close(self) -> None:
        for owned in self._owned.values():
            await owned.close()
        if self._opened is not None:
            await self._opened.close()

    async def begin_claim(self, partition: int) -> bool | None:
        writer = self._begun[partition] = await self._log.claim(partition)
        return writer.was_owned

    async def claim(self, partition: int) -> Iterable[GroupId]:
        """Claim a writer, write the fence record, and read all offsets; until then the former ones are visible."""
        writer = self._begun.pop(partition, None) or await self._log.claim(partition)
        await writer.append([(_fence(partition),)])
        was_owned = partition in self._owned
        if was_owned:
            await self._owned[partition].close()
        owned = self._owned[partition] = _Owned(self._log, writer, self._strangers, kept=self)
        read, strangers, overwritten = OffsetCache(), self._strangers.reading(partition), set[bytes]()
        broken: dict[bytes, BrokenRecord] = {}
        yielder = Yielder()
        async for chunk in self._log.read(partition, end=writer.next_offset):
            await yielder.maybe_yield()
            for record in chunk:
                if record.stranger:
                    strangers.note(record)
                    if _offset_at(record.key, read) is not None:  # there may be millions of others
                        overwritten.add(record.key)
                    continue
                overwritten.discard(record.key)
                broken.pop(record.key, None)
                try:
                    _take(read, record, self._log.location)
                except BrokenRecord as error:
                    if record.value is not None:  # else it was repaired
                        broken[record.key] = error
        for first in broken.values():
            raise first
        self._strangers.report(strangers, self._log.location)
        await owned.rewrite(overwritten, read)
        groups = read.group_ids()
        self.replace(await self._known_in(partition) if was_owned else (), read)
        return groups

    async def _known_in(self, partition: int) -> list[GroupId]:
        """Find the partition's groups that have offsets."""
        known, yielder = [], Yielder()
        for group_id in self.group_ids():
            if partition_for(group_id, self._log.partitions) == partition:
                known.append(group_id)
            await yielder.maybe_yield()
        return known

    async def renew(self, partition: int, between_writes: BetweenWrites) -> None:
        """Claim a new writer, and switch to it; its fence must come right behind the former writer's last record."""
        writer = await self._log.claim(partition)
        await between_writes(lambda: self._owned[partition].switch_to(writer))

    async def write(self, changes: Sequence[OffsetsChange]) -> Sequence[AppendRefused | None]:
        transitions = [transition async for transition in self._transitions(changes)]
        owned = self._owned[partition_for(changes[0].group_id, self._log.partitions)]
        return await owned.append(transitions, lambda refused: self.apply_each(changes, refused))

    async def _transitions(self, changes: Sequence[OffsetsChange]) -> AsyncIterator[Transition]:
        """Yield the records of each change; deleting all of a group's offsets includes those of earlier changes."""
        present: dict[GroupId, set[TopicPartition]] = {}
        yielder = Yielder()
        for change in changes:
            of_group = present.setdefault(change.group_id, set(self.committed(change.group_id)))
            deleted = set(change.deleted) | (of_group if change.all_deleted else set())
            of_group -= deleted
            of_group |= {(commit.topic, commit.partition) for commit in change.committed}
            records = []
            for record in _records(change, sorted(deleted)):
                records.append(record)
                await yielder.maybe_yield()
            yield tuple(records)


def unreadable_offset(record: StoredRecord, location: str) -> BrokenRecord | None:
    """Return the error if the record stops its partition; None if it does not."""
    try:
        _take(OffsetCache(), record, location)
    except BrokenRecord as broken:
        return broken
    return None


def _take(cache: OffsetCache, record: StoredRecord, location: str) -> None:
    """Apply a record to the cache. Raises BrokenRecord, which names the offsets topic."""
    try:
        decoded = msgspec.json.decode(record.key, type=dict[str, Any])
        if "owner" in decoded:
            return
        name = msgspec.convert(decoded, _Key)
        partition = (name.topic, name.partition)
        if record.value is None:
            cache.remove(GroupId(name.group), partition)
        else:
            kept = msgspec.structs.asdict(msgspec.json.decode(record.value, type=_Value))
            del kept["version"]
            cache.put(GroupId(name.group), partition, StoredOffset(**kept))
    except _NOT_OURS as error:
        reason = f"this is no committed offset, in {location}: {error}"
        raise BrokenRecord(reason, partition=record.partition, offset=record.offset) from error


class _Owned:
    """An owned partition: its writer, with one append at a time, and its watch for strangers.

    `kept`: the present offsets.
    """

    def __init__(self, log: EventLog, writer: LogWriter, seen: StrangersSeen, *, kept: OffsetCache) -> None:
        self._log = log
        self._writer = writer
        self._kept = kept
        self._appending = asyncio.Lock()
        self._bug: Exception | None = None
        self._watch = StrangersWatch(log, writer.partition, seen, rewrite=self._rewrite, failed=self._failed)

    async def close(self) -> None:
        """Stop watching for strangers."""
        await self._watch.close()

    async def append(
        self, transitions: Sequence[Transition], show: Callable[[Sequence[AppendRefused | None]], Awaitable[None]]
    ) -> Sequence[AppendRefused | None]:
        """Append as LogWriter.append does; `show` makes the changes visible before anything else is appended."""
        async with self._appending:
            verdicts = await self._append(transitions)
            await show(verdicts)
            return verdicts

    async def switch_to(self, writer: LogWriter) -> None:
        """Switch to a newer writer; its fence must come right behind the former writer's last record."""
        async with self._appending:
            await writer.append([(_fence(writer.partition),)])
            await check_nobody_else_wrote(self._log, self._writer, writer)
            self._notice(gap_between(self._writer.next_offset, writer.next_offset, 1))
            self._writer = writer

    async def rewrite(self, keys: Iterable[bytes], kept: OffsetCache) -> None:
        """Rewrite offsets whose last records are strangers', which compaction would keep."""
        left, yielder = iter(keys), Yielder()
        while some := list(islice(left, REWRITTEN_AT_ONCE)):
            async with self._appending:
                again = list(_records_again(some, kept))
                if again:
                    ENTITIES_REWRITTEN.inc(len(again))
                    await self._append(again)
            await yielder.maybe_yield()

    async def _append(self, transitions: Sequence[Transition]) -> Sequence[AppendRefused | None]:
        if self._bug is not None:
            raise self._bug
        before = self._writer.next_offset
        verdicts = await self._writer.append(transitions)
        stored = [each for each, verdict in zip(transitions, verdicts, strict=True) if verdict is None]
        self._notice(gap_between(before, self._writer.next_offset, sum(map(len, stored))))
        return verdicts

    def _notice(self, gap: range | None) -> None:
        if gap is not None:
            self._watch.notice(gap)

    async def _rewrite(self, keys: Collection[bytes]) -> None:
        with suppress(LogError):  # the writer is lost, and the next write raises
            await self.rewrite(keys, self._kept)

    def _failed(self, bug: Exception) -> None:
        self._bug = bug


def _fence(partition: int) -> Record:
    fence = msgspec.json.encode(_Fence(owner=partition))
    return Record(fence, fence)


def _records_again(keys: Iterable[bytes], cache: OffsetCache) -> Iterator[Transition]:
    for key in keys:
        kept = _offset_at(key, cache)
        if kept is not None:
            yield (Record(key, _value(kept)),)


def _offset_at(key: bytes, cache: OffsetCache) -> StoredOffset | None:
    """The offset that has exactly this key; None for any other bytes."""
    try:
        name = msgspec.json.decode(key, type=_Key)
    except _NOT_OURS:
        return None
    kept = cache.committed(GroupId(name.group)).get((name.topic, name.partition))
    return kept if key == _key(GroupId(name.group), name.topic, name.partition) else None


def _records(change: OffsetsChange, deleted: Sequence[TopicPartition]) -> Iterator[Record]:
    for topic, partition in deleted:
        yield Record(_key(change.group_id, topic, partition), None)
    for commit in change.committed:
        yield Record(_key(change.group_id, commit.topic, commit.partition), _value(stored(commit)))


def _value(kept: StoredOffset) -> bytes:
    return msgspec.json.encode(_Value(**msgspec.structs.asdict(kept)))


def _key(group_id: GroupId, topic: str, partition: int) -> bytes:
    return msgspec.json.encode(_Key(group=group_id, topic=topic, partition=partition))
