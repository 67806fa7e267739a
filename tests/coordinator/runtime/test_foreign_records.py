"""Foreign records in the log of a running service, and unreadable records of owners, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence

import msgspec
import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator import foreign_records
from muster.coordinator.foreign_records import PAUSE_S, ForeignRecordsSeen, ForeignRecordsWatch
from muster.coordinator.observability.metrics import REGISTRY
from muster.coordinator.offsets.memory import MemoryOffsetStore
from muster.coordinator.offsets.topic import TopicOffsetStore
from muster.events.avro.codec import decode, records_of
from muster.events.events import MemberRoleChanged
from muster.events.ids import GroupId
from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.log.memory import MemoryEventLog, MemoryLogWriter, MemoryStorage
from muster.events.partitioner import partition_for
from muster.events.records import FORMAT_LEVEL, LogTooNew, StoredRecord
from tests.coordinator.runtime.test_runtime import story
from tests.events.test_projector import ELECTED
from tests.simulation.process import GROUP, SimulatedProcess
from tests.waiting import until

PARTITION = partition_for(GROUP, 8)
MEMBER = encode_key(RecordKey(GROUP, EntityKind.STATIC_MEMBER, "a"))
GROUPS_OWN = encode_key(RecordKey(GROUP, EntityKind.GROUP, ""))
NOT_OURS = (b"", b"x", encode_key(RecordKey("unknown", EntityKind.GROUP, "")))


def append(storage: MemoryStorage, *keys: bytes, partition: int = PARTITION) -> None:
    """Append as a foreign client does, without the partition's owner."""
    for key in keys:
        storage.records[partition].append(
            StoredRecord(partition, storage.end_offset(partition), 0, key, None, is_foreign=True)
        )


def last_of(storage: MemoryStorage, key: bytes) -> StoredRecord:
    return [record for record in storage.records[PARTITION] if record.key == key][-1]


def counted() -> float:
    return REGISTRY.get_sample_value("muster_strangers_records_total") or 0.0


@story
async def test_foreign_records_stop_no_start_and_are_named_once() -> None:
    """All groups are unchanged; the log names the partition's first foreign record, and the metric counts each once."""
    storage, before = MemoryStorage(), counted()
    first = await SimulatedProcess(storage).start()
    joined = await first.stable_group("a", "b")
    await first.runtime.stop()
    offset = storage.end_offset(PARTITION)
    append(storage, *NOT_OURS)

    second = SimulatedProcess(storage)
    with capture_logs() as lines:
        await second.start()
        append(storage, *NOT_OURS)
        await second.leave(joined["b"].member_id)
        await until(lambda: counted() - before == 2 * len(NOT_OURS), "all are counted")

    assert second.runtime.ready
    assert (await second.heartbeat(joined["a"])).error is not ErrorCode.unknown_member_id
    (named,) = [line for line in lines if line["log_level"] == "warning"]
    assert (named["log"], named["partition"], named["offset"]) == ("memory", PARTITION, offset)
    await second.runtime.stop()


@story
async def test_records_overwritten_by_a_foreign_writer_are_rewritten_at_a_takeover() -> None:
    """Our record is written again after the foreign tombstone, so compaction keeps it; once, not at each takeover."""
    storage = MemoryStorage()
    first = await SimulatedProcess(storage).start()
    joined = await first.stable_group("a", "b")
    group = (await first.describe()).members
    await first.runtime.stop()
    append(storage, MEMBER, GROUPS_OWN, *NOT_OURS)

    second = await SimulatedProcess(storage).start()
    assert (await second.heartbeat(joined["a"])).error is ErrorCode.none
    await until(lambda: not last_of(storage, GROUPS_OWN).is_foreign, "it is written again")
    again = last_of(storage, MEMBER)
    assert again.value is not None
    assert isinstance(decode(again.value), MemberRoleChanged)
    assert (await second.describe()).members == group
    await second.runtime.stop()

    written = len(storage.records[PARTITION])
    third = await SimulatedProcess(storage).start()
    assert (await third.heartbeat(joined["a"])).error is ErrorCode.none
    assert len(storage.records[PARTITION]) == written + 2, "elected and ready"
    await third.runtime.stop()


@story
async def test_records_overwritten_meanwhile_are_rewritten_with_the_next_append() -> None:
    """The append shows the gap in the offsets: the log of a served partition is not read otherwise."""
    storage = MemoryStorage()
    process = await SimulatedProcess(storage).start()
    joined = await process.stable_group("a", "b")
    append(storage, MEMBER, b"x")
    await process.leave(joined["b"].member_id)
    await until(lambda: not last_of(storage, MEMBER).is_foreign, "it is written again", within_s=1)
    await process.runtime.stop()


@story
async def test_an_endless_foreign_writer_is_answered_once_a_minute() -> None:
    """However often it writes, it can cause only so many appends of ours."""
    storage = MemoryStorage()
    process = await SimulatedProcess(storage).start()
    joined = await process.stable_group("a")
    neighbour = next(GroupId(f"g{n}") for n in range(99) if partition_for(GroupId(f"g{n}"), 8) == PARTITION)
    for number in range(600):
        append(storage, MEMBER)
        assert (await process.commit(number, group_id=neighbour)).error is ErrorCode.none
        assert (await process.delete(neighbour)).error is ErrorCode.none
        assert (await process.heartbeat(joined["a"])).error is ErrorCode.none
        await asyncio.sleep(1)
    again = [
        record
        for record in storage.records[PARTITION]
        if record.key == MEMBER and record.value is not None and isinstance(decode(record.value), MemberRoleChanged)
    ]
    assert 5 <= len(again) <= 600 / PAUSE_S + 1
    await process.runtime.stop()


@story
async def test_an_appended_record_between_two_claims_deposes_no_owner() -> None:
    """The renewal only considers owners' records; what the foreign record overwrote is rewritten after it."""
    storage = MemoryStorage()
    process = await SimulatedProcess(storage, claim_renewal_ms=10_000).start()
    joined = await process.stable_group("a")
    for _ in range(5):
        append(storage, MEMBER, b"x")
        await asyncio.sleep(10)
        assert (await process.heartbeat(joined["a"])).error is ErrorCode.none
    assert process.lost == []
    await until(lambda: not last_of(storage, MEMBER).is_foreign, "it is written again", within_s=2 * PAUSE_S)
    await process.runtime.stop()


@story
async def test_records_overwritten_while_a_claim_is_renewed_are_rewritten() -> None:
    """Between our last append with the former claim and the first with the new one."""
    storage = MemoryStorage()
    process = await SimulatedProcess(storage, claim_renewal_ms=5_000).start()
    await process.stable_group("a")
    claim = process.log.claim

    async def claim_meanwhile(partition: int) -> MemoryLogWriter:
        writer = await claim(partition)
        if partition == PARTITION:
            append(storage, MEMBER)
        return writer

    process.log.claim = claim_meanwhile  # type: ignore[method-assign]
    await until(lambda: last_of(storage, MEMBER).is_foreign, "a claim is renewed")
    await until(lambda: not last_of(storage, MEMBER).is_foreign, "it is written again", within_s=3)
    await process.runtime.stop()


class InTens(MemoryEventLog):
    """Its records are read ten at a time."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self.read_records = 0

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        async for chunk in super().read(partition, start=start, end=end):
            for at in range(0, len(chunk), 10):
                some = chunk[at : at + 10]
                self.read_records += len(some)
                yield some


@pytest.mark.parametrize("limit", ["RECORDS_MAX", "KEYS_MAX"])
def test_reads_and_rewrites_are_limited_per_step(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is read a minute later, and not forgotten."""
    monkeypatch.setattr(foreign_records, limit, 20)

    @story
    async def run() -> None:
        storage = MemoryStorage(partitions=1)
        append(storage, *(b"%d" % number for number in range(50)), partition=0)
        log = InTens(storage)
        await log.open()
        rewritten: list[tuple[float, int]] = []
        began_s = asyncio.get_running_loop().time()

        async def rewrite(keys: Collection[bytes]) -> None:
            rewritten.append((asyncio.get_running_loop().time() - began_s, len(keys)))

        watch = ForeignRecordsWatch(
            log, 0, ForeignRecordsSeen(), rewrite=rewrite, failed=lambda error: pytest.fail(str(error))
        )
        watch.notice(range(50))
        await asyncio.sleep(10 * PAUSE_S)
        assert rewritten == [(0.0, 20), (PAUSE_S, 20), (2 * PAUSE_S, 10)]
        assert log.read_records == 50
        await watch.close()

    run()


@story
async def test_thousands_of_foreign_keys_are_not_rewritten_at_once() -> None:
    """Five thousand, and those up to the end of that chunk; a minute later as many again."""
    storage = MemoryStorage(partitions=1)
    append(storage, *(b"%d" % number for number in range(12_000)), partition=0)
    log = MemoryEventLog(storage)
    await log.open()
    rewritten: list[int] = []

    async def rewrite(keys: Collection[bytes]) -> None:
        rewritten.append(len(keys))

    watch = ForeignRecordsWatch(
        log, 0, ForeignRecordsSeen(), rewrite=rewrite, failed=lambda error: pytest.fail(str(error))
    )
    watch.notice(range(12_000))
    await asyncio.sleep(10 * PAUSE_S)
    assert rewritten == [6_000, 6_000]
    await watch.close()


# ---- unreadable records of owners ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"no key", b"x"), (encode_key(RecordKey(str(PARTITION), EntityKind.PARTITION, "ready")), b"no event")],
    ids=["key", "event of the partition"],
)
def test_an_owners_record_that_cannot_be_read_stops_its_partition_alone(key: bytes, value: bytes) -> None:
    """No group of it is known; other partitions are served. The log and the error have the record's offset."""

    @story
    async def run() -> None:
        storage = MemoryStorage()
        first = await SimulatedProcess(storage).start()
        joined = await first.stable_group("a")
        other = next(GroupId(f"g{n}") for n in range(99) if partition_for(GroupId(f"g{n}"), 8) != PARTITION)
        await first.commit(5, group_id=other)
        await first.runtime.stop()
        offset = storage.end_offset(PARTITION)
        storage.records[PARTITION].append(StoredRecord(PARTITION, offset, 0, key, value))

        second = SimulatedProcess(storage, offsets=first.offsets)
        with capture_logs() as lines:
            await second.start()

        assert second.lost == []
        assert (await second.commit(6, group_id=other)).error is ErrorCode.none
        assert (await second.join("a")).error is ErrorCode.coordinator_load_in_progress
        assert (await second.heartbeat(joined["a"])).error is ErrorCode.none, "nobody is sent away"
        assert not second.runtime.ready
        assert f"partition {PARTITION} of memory is not served: partition {PARTITION}, offset {offset}: " in str(
            second.runtime.not_ready
        )
        (line,) = [line for line in lines if line["log_level"] == "error"]
        assert str(second.runtime.not_ready).endswith(f"; what helps: {line['way_out']}")
        assert (line["log"], line["partition"], line["offset"]) == ("memory", PARTITION, offset)
        await second.runtime.stop()

    run()


@story
async def test_an_offset_that_cannot_be_read_stops_its_partition_alone() -> None:
    """It is in a separate topic, which is named."""
    storage, offsets = MemoryStorage(), MemoryStorage()
    before = await SimulatedProcess(storage).start()
    await before.runtime.stop()
    offsets.records[PARTITION].append(StoredRecord(PARTITION, 0, 0, b"garbage", b"x"))
    process = SimulatedProcess(storage, offsets=TopicOffsetStore(lambda: MemoryEventLog(offsets)))
    await process.offsets.open()
    await process.start()
    assert process.runtime.figures().partitions == len(storage.records) - 1
    assert "this is no committed offset, in memory" in str(process.runtime.not_ready)
    await process.runtime.stop()


@story
async def test_a_log_of_a_newer_version_is_not_an_unreadable_partition() -> None:
    """No partition of it is served."""
    storage = MemoryStorage()
    newer = msgspec.structs.replace(ELECTED, partition=PARTITION, format_level=FORMAT_LEVEL + 1)
    (record,) = records_of([newer], FORMAT_LEVEL)
    storage.records[PARTITION].append(StoredRecord(PARTITION, 0, 0, record.key, record.value))
    with pytest.raises(LogTooNew, match=f"format level {FORMAT_LEVEL + 1}"):
        await SimulatedProcess(storage).start()


class SlowlyClaimedOffsets(MemoryOffsetStore):
    """While offsets are read, a foreign client appends to the event log."""

    def __init__(self, meanwhile: Callable[[int], None]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    async def claim(self, partition: int) -> Iterable[GroupId]:
        self._meanwhile(partition)
        return await super().claim(partition)


@story
async def test_offsets_overwritten_while_a_takeover_reads_them_are_rewritten() -> None:
    storage = MemoryStorage()
    first = await SimulatedProcess(storage).start()
    await first.stable_group("a", "b")
    await first.runtime.stop()

    def overwrite(partition: int) -> None:
        if partition == PARTITION:
            append(storage, MEMBER)

    second = await SimulatedProcess(storage, offsets=SlowlyClaimedOffsets(overwrite)).start()
    await until(
        lambda: not last_of(storage, MEMBER).is_foreign, "it is written again", within_s=5
    )  # sessions last longer
    await second.runtime.stop()
