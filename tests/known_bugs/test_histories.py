"""Histories that cannot be read as usual: gaps, short reads, unknown and broken records. L1 to L4, L6, L8."""

import random
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.record.util import calc_crc32c
from kio.schema.errors import ErrorCode

from muster.events.avro.codec import decode
from muster.events.events import MemberAssigned
from muster.events.ids import GroupId
from muster.events.kafka.security import KafkaSecurity
from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.loading import Loading
from muster.events.log.base import LogUnavailable
from muster.events.log.kafka import reader as kafka_reader
from muster.events.log.kafka.batches import Stamp, encode_batch
from muster.events.log.kafka.client.link import KafkaLink, Timeouts
from muster.events.log.kafka.reader import FETCH_BYTES
from muster.events.log.memory import MemoryStorage
from muster.events.projector import Projector
from muster.events.records import BrokenRecord, Record, StoredRecord
from muster.events.state import GroupState
from muster.replay.history.items import Broken, Unreadable
from tests.coordinator.group.harness import Harness
from tests.events.log.kafka.kafka_messages import fetch_response, place_of, request_in
from tests.known_bugs.odd_logs import CutShort, process_on
from tests.replay.whole import read_histories
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate
from tests.waiting import until

OF_THE_FUTURE = bytes.fromhex("c301 0123456789abcdef") + b"what a newer version wrote"
TOPIC = "events"
OTHER = GroupId("other")


def projected(records: Sequence[StoredRecord]) -> Projector:
    """Project the records, as an owner does."""
    loading = Loading()
    loading.read(records)
    for _ in loading.fold():
        pass
    return loading.projector


def test_l1_tombstones_of_missing_entities_and_any_order_are_accepted() -> None:
    """A tombstone for something that compaction had removed stopped the load, and so did a record that came before the
    one it builds on: each must be a no-op or wait for its group, and the groups must be the same in any legal order.
    """
    h = Harness()
    h.stable_group(h.static("a"), h.dynamic("b"))
    last = {record.key: record for record in h.records if record.value is not None}
    foreign_records = [
        Record(encode_key(RecordKey(group_id, kind, "ghost")), None)
        for group_id in (h.group_id, "never-was")
        for kind in (EntityKind.STATIC_MEMBER, EntityKind.DYNAMIC_MEMBER)
    ]
    foreign_records.append(Record(encode_key(RecordKey("never-was", EntityKind.GROUP, "")), None))
    for seed in range(30):
        shuffled = [*foreign_records, *(Record(record.key, record.value) for record in last.values())]
        random.Random(seed).shuffle(shuffled)
        records = [StoredRecord(0, offset, 0, record.key, record.value) for offset, record in enumerate(shuffled)]
        one_by_one = Projector()
        for record in records:
            one_by_one.feed(record)
        for groups in (projected(records).groups, one_by_one.groups):
            assert groups.keys() == {h.group_id}
            group = groups[h.group_id]
            assert (group.image, group.members, group.instances) == (h.live.image, h.live.members, h.live.instances)


# ---- the leader of a partition, as a reader sees it --------------------------------------------------


class OneLeader(KafkaLink):
    """A broker that leads one partition with the given batches: it answers Fetch as brokers do.

    `cuts_batches`: like brokers before KIP-74, which sent no more than the requested size, even half a batch.
    """

    def __init__(
        self, batches: Sequence[tuple[int, bytes]], *, high_watermark: int, cuts_batches: bool = False
    ) -> None:
        super().__init__([], KafkaSecurity(), Timeouts())
        self._batches, self._high_watermark, self._cuts_batches = batches, high_watermark, cuts_batches
        self.fetches = 0

    async def ask_leader(
        self, topic: str, partition: int, request: Any, *, lane: object, timeout_ms: int | None = None
    ) -> Any:
        self.fetches += 1
        position, size = place_of(request_in(request))
        found = [batch for end, batch in self._batches if end > position]
        content = b"".join(found)[: size if self._cuts_batches or not found else max(size, len(found[0]))]
        return fetch_response(topic, partition, self._high_watermark, content)


def batch_at(offset: int, *records: Record) -> tuple[int, bytes]:
    """A batch at this offset, as stored, and the offset after it."""
    stamp = Stamp(producer_id=7, producer_epoch=3, epoch_base=0)
    content = encode_batch([records], stamp, base_sequence=0, timestamp_ms=1)
    return offset + len(records), offset.to_bytes(8, "big") + content[8:]


def emptied(batch: tuple[int, bytes]) -> tuple[int, bytes]:
    """Empty a batch as compaction does with a producer's last one whose records are all superseded: the header
    stays.
    """
    end, content = batch
    checked = content[21:57] + struct.pack(">i", 0)  # from the attributes up to the number of records
    head = content[:8] + struct.pack(">i", 9 + len(checked)) + content[12:17]
    return end, head + struct.pack(">I", calc_crc32c(checked)) + checked


async def read_from(leader: OneLeader, end: int, *, timeout_ms: int = 10_000) -> list[int]:
    """The offsets that are read up to `end`."""
    offsets: list[int] = []
    async for chunk in kafka_reader.read(leader, TOPIC, 0, start=0, end=end, timeout_ms=timeout_ms):
        offsets += [record.offset for record in chunk]
    return offsets


async def test_l2_a_gap_before_the_end_of_the_log_ends_the_load() -> None:
    """Where compaction had removed the last records a load requested the same offset for ever: an empty batch must be
    skipped, and a response without batches from a leader that knows the end must end the reading.
    """
    key = Record(b"key", b"value")
    some = batch_at(0, key, key, key)
    nothing_behind = OneLeader([some], high_watermark=10)
    assert await read_from(nothing_behind, 10) == [0, 1, 2]
    empty_batches = OneLeader([some, emptied(batch_at(3, key, key)), emptied(batch_at(8, key, key))], high_watermark=10)
    assert await read_from(empty_batches, 10) == [0, 1, 2]
    in_between = OneLeader([emptied(batch_at(0, key)), batch_at(5, key), batch_at(9, key)], high_watermark=10)
    assert await read_from(in_between, 10) == [5, 9]
    assert max(leader.fetches for leader in (nothing_behind, empty_batches, in_between)) <= 3


async def test_l3_a_batch_larger_than_a_fetch_is_read_or_refused() -> None:
    """A record larger than the reader's buffer made the load wait for ever: a batch of any size must be read
    completely, and where a broker sends only half of it the load must fail and name the offset.
    """
    noise = random.Random(7).randbytes(2 * FETCH_BYTES)
    batches = [
        batch_at(0, Record(b"a", b"small")),
        batch_at(1, Record(b"b", noise)),
        batch_at(2, Record(b"c", b"small")),
    ]
    assert await read_from(OneLeader(batches, high_watermark=3), 3) == [0, 1, 2]
    with pytest.raises(LogUnavailable, match="offset 1"):
        await read_from(OneLeader(batches, high_watermark=3, cuts_batches=True), 3)


# ---- the owner's reaction -------------------------------------------------------------------------------


async def two_groups_and_a_bad_record(storage: MemoryStorage, *, value: bytes | None) -> SimulatedProcess:
    """Two groups; a member's record of the first one, `orders`, has this value, or the first half of its own."""
    process = await SimulatedProcess(storage).start()
    for group_id in (GROUP, OTHER):
        process.group_id = group_id
        await process.stable_group("a")
    await process.runtime.stop()
    records = storage.records[0]
    number, old = next((n, record) for n, record in enumerate(records) if is_assignment_of(GROUP, record))
    assert old.value is not None
    bad = old.value[: len(old.value) // 2] if value is None else value
    records[number] = StoredRecord(old.partition, old.offset, old.timestamp_ms, old.key, bad)
    return await SimulatedProcess(storage).start()


def is_assignment_of(group_id: GroupId, record: StoredRecord) -> bool:
    event = None if record.value is None else decode(record.value)
    return isinstance(event, MemberAssigned) and event.group_id == group_id


async def assert_quarantined_alone(process: SimulatedProcess) -> None:
    """`orders` gets the retriable error of a loading group; `other` is served, and new groups too."""
    for answer in (process.describe(GROUP), process.delete(GROUP), process.join("a", group_id=GROUP)):
        assert (await answer).error is ErrorCode.coordinator_load_in_progress
    assert (await process.describe(OTHER)).state is GroupState.STABLE
    assert (await process.join("new", group_id=GroupId("new"))).error is ErrorCode.none


def test_l4_an_event_of_an_unknown_type_is_stepped_over_by_readers_and_stops_one_group_alone() -> None:
    """After a downgrade Kafka's coordinator could not load a partition with records of an unknown type: a reader must
    skip and count them, and an owner, for which their effect is unknown, must quarantine only that group.
    """

    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        process = await two_groups_and_a_bad_record(storage, value=OF_THE_FUTURE)
        await assert_quarantined_alone(process)
        histories = await read_histories(process.log)
        unread = [item for item in histories[GROUP].items if isinstance(item, Broken)]
        assert [item.kind for item in unread] == [Unreadable.UNKNOWN_TYPE]
        assert not [item for item in histories[OTHER].items if isinstance(item, Broken)]
        await process.runtime.stop()

    simulate(story())


def test_l6_a_read_that_ends_before_the_fence_record_is_not_a_load() -> None:
    """A short read of the log was taken for all of it, and groups returned to an old state: a reading that ends before
    the known end, or before the owner's own fence record, must not be served but repeated.
    """

    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        first = await SimulatedProcess(storage).start()
        joined = await first.stable_group("a", "b")
        await first.leave(joined["b"].member_id)
        process, cut_short = process_on(storage, CutShort)
        cut_short.missing = 4
        await process.start()
        assert not process.runtime.ready
        await until(lambda: process.runtime.ready, "it is read again, whole")
        assert (await process.heartbeat(joined["a"])).error is ErrorCode.rebalance_in_progress
        assert (await process.heartbeat(joined["b"])).error is ErrorCode.unknown_member_id
        await process.runtime.stop()

    simulate(story())


async def test_l6_a_leader_whose_log_ends_too_early_is_queried_again() -> None:
    """The same on a broker that does not know of the end yet, or has lost it: its end must not be trusted."""
    leader = OneLeader([batch_at(0, Record(b"key", b"value"))], high_watermark=1)
    with pytest.raises(LogUnavailable, match="before 5"):
        await read_from(leader, 5, timeout_ms=300)
    assert leader.fetches > 2


def test_l8_one_damaged_record_stops_one_group_alone() -> None:
    """One corrupt record made Kafka's coordinator fail, with every group of the partition: its own group must get a
    retriable error, every other one be served, and the record be named for the operator.
    """

    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        process = await two_groups_and_a_bad_record(storage, value=None)
        await assert_quarantined_alone(process)
        projector = projected(storage.records[0])
        bad = next(record.offset for record in storage.records[0] if is_broken(record))
        assert {(each.group_id, each.offset) for each in projector.quarantined.values()} == {(GROUP, bad)}
        await process.runtime.stop()

    simulate(story())


def is_broken(record: StoredRecord) -> bool:
    try:
        return record.value is not None and decode(record.value) is None
    except BrokenRecord:
        return True
