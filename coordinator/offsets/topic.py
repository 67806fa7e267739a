"""Offsets in a compacted topic of their own, beside the event topic, written with the same fencing.

The topic is an `EventLog` of its own, so that a deposed owner can commit no offset either. A record's key is the
partition a commit is for, its value the commit, both JSON with a version, so that any tool can read them; a tombstone
is a deleted offset.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from coordinator.group.offsets import OffsetsChange
from coordinator.offsets.base import BetweenWrites, StoredOffset, TopicPartition
from coordinator.offsets.memory import OffsetCache, stored
from coordinator.strangers import StrangersSeen
from events.ids import GroupId
from events.log.base import AppendRefused, EventLog, LogWriter
from events.log.succession import check_nobody_else_wrote
from events.partitioner import partition_for
from events.records import BrokenRecord, Record, StoredRecord, Transition

VERSION = 1


class _Key(msgspec.Struct, frozen=True, kw_only=True):
    """The fields in this order make the bytes, and compaction compares bytes: never change it."""

    version: int = VERSION
    group: str
    topic: str
    partition: int


class _Value(StoredOffset, frozen=True, kw_only=True):
    version: int = VERSION


class _Fence(msgspec.Struct, frozen=True, kw_only=True):
    """The first record of an owner: from it on no other one can write."""

    version: int = VERSION
    owner: int


class TopicOffsetStore(OffsetCache):
    """`new_log` makes this store's own log, which is opened and closed here, and has as many partitions as the events'.

    So it is not called before `open`, when their number is known.
    """

    def __init__(self, new_log: Callable[[], EventLog]) -> None:
        super().__init__()
        self._new_log = new_log
        self._opened: EventLog | None = None
        self._writers: dict[int, LogWriter] = {}
        self._strangers = StrangersSeen()

    @property
    def _log(self) -> EventLog:
        assert self._opened is not None
        return self._opened

    async def open(self) -> None:
        log = self._new_log()
        await log.open()
        self._opened = log

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def claim(self, partition: int) -> None:
        """A new writer, its fence, and all that is stored. Until that is read, what was known before is told."""
        writer = await self._log.claim(partition)
        await writer.append([(_fence(partition),)])
        self._writers[partition] = writer
        read, strangers, overwritten = OffsetCache(), self._strangers.reading(partition), set[bytes]()
        async for chunk in self._log.read(partition):
            for record in chunk:
                if record.stranger:
                    strangers.note(record)
                    overwritten.add(record.key)
                else:
                    overwritten.discard(record.key)
                    self._take(read, record)
        self._strangers.tell(strangers, self._log.location)
        await _write_again(writer, read, overwritten)
        known = self.group_ids()
        self.replace([each for each in known if partition_for(each, self._log.partitions) == partition], read)

    async def renew(self, partition: int, between_writes: BetweenWrites) -> None:
        """A new writer, whose fence must come right behind the last record of the one before."""
        writer, before = await self._log.claim(partition), self._writers[partition]

        async def switch() -> None:
            await writer.append([(_fence(partition),)])
            await check_nobody_else_wrote(self._log, before, writer)
            self._writers[partition] = writer

        await between_writes(switch)

    async def write(self, changes: Sequence[OffsetsChange]) -> Sequence[AppendRefused | None]:
        transitions = list(self._transitions(changes))
        writer = self._writers[partition_for(changes[0].group_id, self._log.partitions)]
        verdicts = await writer.append(transitions)
        for change, verdict in zip(changes, verdicts, strict=True):
            if verdict is None:
                self.apply(change)
        return verdicts

    def _take(self, cache: OffsetCache, record: StoredRecord) -> None:
        """Raises BrokenRecord, which names the topic too: it is not the event topic."""
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
        except msgspec.MsgspecError as error:
            reason = f"this is no committed offset, in {self._log.location}: {error}"
            raise BrokenRecord(reason, partition=record.partition, offset=record.offset) from error

    def _transitions(self, changes: Sequence[OffsetsChange]) -> Iterator[Transition]:
        """Records for each change; deleting all of a group's offsets includes those of the changes before it."""
        present: dict[GroupId, set[TopicPartition]] = {}
        for change in changes:
            of_group = present.setdefault(change.group_id, set(self.committed(change.group_id)))
            deleted = set(change.deleted) | (of_group if change.all_deleted else set())
            of_group -= deleted
            of_group |= {(commit.topic, commit.partition) for commit in change.committed}
            yield tuple(_records(change, sorted(deleted)))


def _fence(partition: int) -> Record:
    fence = msgspec.json.encode(_Fence(owner=partition))
    return Record(fence, fence)


async def _write_again(writer: LogWriter, cache: OffsetCache, keys: Iterable[bytes]) -> None:
    """The offsets whose last records are strangers': compaction would keep those, and drop ours."""
    again = []
    for key in keys:
        with suppress(msgspec.MsgspecError):
            name = msgspec.json.decode(key, type=_Key)
            kept = cache.committed(GroupId(name.group)).get((name.topic, name.partition))
            if kept is not None and key == _key(GroupId(name.group), name.topic, name.partition):
                again.append((Record(key, _value(kept)),))
    if again:
        await writer.append(again)


def _records(change: OffsetsChange, deleted: Sequence[TopicPartition]) -> Iterator[Record]:
    for topic, partition in deleted:
        yield Record(_key(change.group_id, topic, partition), None)
    for commit in change.committed:
        yield Record(_key(change.group_id, commit.topic, commit.partition), _value(stored(commit)))


def _value(kept: StoredOffset) -> bytes:
    return msgspec.json.encode(_Value(**msgspec.structs.asdict(kept)))


def _key(group_id: GroupId, topic: str, partition: int) -> bytes:
    return msgspec.json.encode(_Key(group=group_id, topic=topic, partition=partition))
