"""A process follows other owners' partitions, and takes one over by reading only what is new; in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Self

import msgspec
import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.observability.standby_metrics import StandbyFigures
from muster.coordinator.runtime.ownership.followed_topic import (
    CHECK_INTERVAL_S,
    DELETIONS_KEPT_MS,
    RETRY_MAX_MS,
    RETRY_MS,
    Standbys,
)
from muster.coordinator.runtime.partition.partition import Partition
from muster.coordinator.runtime.runtime import Runtime
from muster.events.avro.codec import decode
from muster.events.ids import GroupId
from muster.events.keys import EntityKind, RecordKey, decode_key, encode_key
from muster.events.loading import Loading
from muster.events.log.base import LogUnavailable
from muster.events.log.memory import MemoryStorage
from muster.events.records import StoredRecord
from muster.events.state import Group
from tests.coordinator.runtime.test_runtime import story
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import VirtualClock
from tests.waiting import until

ALONE = 1
"""One partition is enough for most tests."""


class Peer:
    """A process that shares the log, with standbys of partitions that it does not own. Its clock can be moved."""

    def __init__(self, storage: MemoryStorage, *, stands_by: bool = True) -> None:
        self.process = SimulatedProcess(storage)
        self.suspended_ms = 0
        self.deposed: list[int] = []
        owner = msgspec.structs.replace(self.process.runtime._owner, boot_ms=self._boot_ms)
        self.runtime = self.process.runtime = Runtime(
            owner, give_up=self.process.lost.append, deposed=self.deposed.append, stands_by=stands_by
        )
        self.reads: list[tuple[int, int]] = []
        """The partition and the first offset of each reading."""
        usual = self.process.log.read

        def read(partition: int, *, start: int = 0, end: int | None = None) -> AsyncIterator[Sequence[StoredRecord]]:
            self.reads.append((partition, start))
            return usual(partition, start=start, end=end)

        self.process.log.read = read  # type: ignore[method-assign]

    def _boot_ms(self) -> int:
        return VirtualClock().monotonic_ms() + self.suspended_ms

    async def start(self, *numbers: int) -> Self:
        await self.process.log.open()
        await self.runtime.start(numbers)
        return self

    @property
    def standbys(self) -> Standbys[Loading]:
        assert self.runtime._partitions.standbys is not None
        return self.runtime._partitions.standbys.events

    @property
    def figures(self) -> StandbyFigures:
        figures = self.runtime.standby_figures()
        assert figures is not None
        return figures

    async def until_ready(self) -> None:
        await until(lambda: self.figures.followed and self.figures.ready == self.figures.followed, lambda: self.figures)


async def pair(storage: MemoryStorage) -> tuple[Peer, Peer]:
    """The owner of everything, with a group of two; and a standby that has read it all."""
    owner = await Peer(storage).start(*range(len(storage.records)))
    await owner.process.stable_group("a", "b")
    standby = await Peer(storage).start()
    await standby.until_ready()
    return owner, standby


async def more(owner: Peer) -> None:
    """Append a new event."""
    owner.process.group_id = GroupId("another")
    await owner.process.stable_group("a", "b")


async def ended(*peers: Peer) -> None:
    for peer in peers:
        await peer.runtime.stop()
        assert not peer.process.lost


def last_ready(storage: MemoryStorage) -> Any:
    """The latest CoordinatorReady of any partition, by its time."""
    key = EntityKind.PARTITION, "ready"
    records = [record for records in storage.records for record in records if not record.is_foreign]
    of_ready = [r for r in records if r.value and (decode_key(r.key).kind, decode_key(r.key).entity_id) == key]
    return decode(max(of_ready, key=lambda record: (record.timestamp_ms, record.offset)).value or b"")


def restart_reasons(logs: Sequence[Any]) -> list[str]:
    return [
        line["reason"]
        for line in logs
        if "starts again from the beginning" in line["event"] or "reading the whole partition" in line["event"]
    ]


@story
async def test_a_takeover_reads_what_is_new_and_no_history() -> None:
    """The group is unchanged, including what came after the last reading."""
    storage = MemoryStorage(ALONE)
    owner, standby = await pair(storage)
    for _ in range(20):
        await owner.process.stable_group("a", "b")
    await asyncio.sleep(2 * CHECK_INTERVAL_S)
    joined = await owner.process.stable_group("a", "b")
    read = storage.end_offset(0)
    await standby.runtime.assign([0])
    assert last_ready(storage).events_read < 10 < read
    assert (await standby.process.heartbeat(joined["a"])).error is ErrorCode.none
    groups = {group.group_id: group for group in standby.runtime._owned[0].partition.groups()}
    whole = await Peer(storage, stands_by=False).start(0)
    assert groups == {group.group_id: group for group in whole.runtime._owned[0].partition.groups()}
    assert last_ready(storage).events_read > read / 2
    await ended(owner, standby, whole)


@story
async def test_a_released_partition_is_followed_from_then_on() -> None:
    """Taking it back only reads what is new."""
    storage = MemoryStorage(2)
    owner, standby = await pair(storage)
    assert (owner.figures.followed, standby.figures.followed) == (0, 2)
    await owner.runtime.release([1])
    await standby.runtime.assign([1])
    await owner.until_ready()
    assert (owner.figures.followed, standby.figures.followed) == (1, 1)
    await standby.runtime.release([1])
    await asyncio.sleep(2 * CHECK_INTERVAL_S)
    await owner.runtime.assign([1])
    assert last_ready(storage).events_read == 1  # its own fence record
    await ended(owner, standby)


@story
async def test_the_state_of_a_partition_exists_once() -> None:
    """The standby's groups become the owner's."""
    storage = MemoryStorage(ALONE)
    owner, standby = await pair(storage)
    (followed,) = standby.standbys._followed.values()
    assert followed.standby is not None
    (group,) = followed.standby.loading.projector.groups.values()
    await standby.runtime.assign([0])
    assert standby.standbys._followed == {}
    (owned,) = standby.runtime._owned[0].partition.groups()
    assert owned is group
    await until(lambda: owner.deposed == [0] or owner.process.leave("x").done())
    await ended(owner, standby)


@story
async def test_a_takeover_during_a_first_read_continues_it() -> None:
    """Nothing is read twice."""
    storage = MemoryStorage(ALONE)
    owner = await Peer(storage).start(0)
    joined = await owner.process.stable_group("a", "b")
    for number in range(3_000):  # more than a chunk
        key = encode_key(RecordKey("0", EntityKind.PARTITION, f"{number}"))
        storage.records[0].append(StoredRecord(0, storage.end_offset(0), 0, key, None))
    standby = await Peer(storage).start()
    stood_at = 0
    while not stood_at:
        await asyncio.sleep(0)
        for followed in standby.standbys._followed.values():
            stood_at = 0 if followed.standby is None else followed.standby.loading.next_offset
    assert stood_at < 3_000
    assert standby.figures.ready == 0
    await standby.runtime.assign([0])
    assert standby.reads[0] == (0, 0)
    assert all(start >= stood_at - 1 for _, start in standby.reads[1:])
    assert (await standby.process.heartbeat(joined["a"])).error is ErrorCode.none
    await ended(standby, owner)


@story
async def test_a_cancelled_takeover_does_not_continue_from_what_it_had_begun_to_serve() -> None:
    """Its groups were the partition's already, which may have changed them: the next takeover reads all of it."""
    storage = MemoryStorage(ALONE)
    owner, standby = await pair(storage)
    usual, loading = Partition.add_loaded_groups, asyncio.Event()

    async def hangs(partition: Partition, groups: Sequence[Group]) -> None:
        await usual(partition, groups)
        loading.set()
        await asyncio.Event().wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Partition, "add_loaded_groups", hangs)
        assigning = asyncio.create_task(standby.runtime.assign([0]))
        await loading.wait()
        assert (0, 0) not in standby.reads[1:]
        await standby.runtime.release([0])
        await asyncio.wait([assigning])
    standby.reads.clear()
    await standby.runtime.assign([0])
    assert standby.reads[0] == (0, 0)
    await ended(owner, standby)


async def _truncated(storage: MemoryStorage, standby: Peer) -> None:
    del storage.records[0][-2:]


async def _written_anew(storage: MemoryStorage, standby: Peer) -> None:
    last = storage.records[0].pop()
    storage.records[0].append(msgspec.structs.replace(last, timestamp_ms=last.timestamp_ms + 1))
    storage.records[0].append(msgspec.structs.replace(last, offset=last.offset + 1, timestamp_ms=last.timestamp_ms + 1))


async def _suspended(storage: MemoryStorage, standby: Peer) -> None:
    standby.suspended_ms += DELETIONS_KEPT_MS


async def _unreadable(storage: MemoryStorage, standby: Peer) -> None:
    group = encode_key(RecordKey("orders", EntityKind.GROUP, ""))
    storage.records[0].append(StoredRecord(0, storage.end_offset(0), 0, group, b"\xc3\x01 of the future"))


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (_truncated, "before what was read"),
        (_written_anew, "another record stands at offset"),
        (_suspended, "longer than the log keeps deletions"),
        (_unreadable, "a record came that cannot be read"),
    ],
)
@pytest.mark.parametrize("when", ["followed", "taken over"])
def test_an_unusable_standby_is_dropped(happens: Callable[[MemoryStorage, Peer], Any], reason: str, when: str) -> None:
    """It is read again after a pause, or by a takeover, which reads everything. One line has the reason in both
    cases.
    """

    @story
    async def run() -> None:
        storage = MemoryStorage(ALONE)
        owner, standby = await pair(storage)
        await asyncio.sleep(CHECK_INTERVAL_S / 2)
        with capture_logs() as logs:
            await happens(storage, standby)
            reads = len(standby.reads)
            if when == "followed":
                await until(lambda: restart_reasons(logs))
                assert standby.figures.ready == 0
                await standby.until_ready()
                assert (0, 0) in standby.reads[reads:]
                assert len(restart_reasons(logs)) == 1
                assert reason in restart_reasons(logs)[0]
            else:
                await standby.runtime.assign([0])
                assert (0, 0) in standby.reads[reads:]
                assert last_ready(storage).events_read > 5
                assert [text for text in restart_reasons(logs) if reason in text] == restart_reasons(logs)
        await ended(standby)
        await owner.runtime.stop()

    run()


@story
async def test_a_standby_that_cannot_read_a_partition_backs_off() -> None:
    """A broken record of the partition itself prevents a takeover; until it is repaired there is no standby."""
    storage = MemoryStorage(ALONE)
    ready = encode_key(RecordKey("0", EntityKind.PARTITION, "ready"))
    storage.records[0].append(StoredRecord(0, 0, 0, ready, b"\xc3\x01 broken"))
    standby = await Peer(storage).start()
    with capture_logs() as logs:
        await asyncio.sleep(4 * RETRY_MAX_MS / 1000)
    pauses = [line["in_s"] for line in logs]
    assert pauses[:3] == [RETRY_MS / 1000 * 2**n for n in range(3)]
    assert pauses[-2:] == [RETRY_MAX_MS / 1000] * 2
    await ended(standby)


@story
async def test_the_claims_of_what_is_followed_are_kept_prepared() -> None:
    """Again and again, as idle connections are closed; not for partitions that the process owns."""
    storage = MemoryStorage(3)
    peer = Peer(storage)
    prepared: list[int] = []

    async def prepare_claim(partition: int) -> None:
        prepared.append(partition)

    peer.process.log.prepare_claim = prepare_claim  # type: ignore[method-assign]
    await peer.start(1)
    for rounds in (1, 2):
        await until(lambda: prepared == [0, 2] * rounds)  # noqa: B023 -- awaited
    await ended(peer)


@story
async def test_while_the_log_is_unavailable_a_standby_is_unchanged() -> None:
    """It reads on from its position, and even a retried takeover only reads what is new."""
    storage = MemoryStorage(ALONE)
    owner, standby = await pair(storage)
    usual, is_away = standby.process.log.read, True

    async def read(partition: int, *, start: int = 0, end: int | None = None) -> AsyncIterator[Sequence[StoredRecord]]:
        if is_away:
            raise LogUnavailable("no broker")
        async for chunk in usual(partition, start=start, end=end):
            yield chunk

    standby.process.log.read = read  # type: ignore[method-assign]
    with capture_logs() as logs:
        await more(owner)
        await until(lambda: standby.figures.behind_max > 0)
        await asyncio.sleep(5)
        assert standby.figures.oldest_ms >= 5_000
        await standby.runtime.assign([0])
        is_away = False
        await standby.runtime.all_owned()
    assert restart_reasons(logs) == []
    assert (0, 0) not in standby.reads[1:]
    assert last_ready(storage).events_read < 20
    await ended(standby)
    await owner.runtime.stop()


@story
async def test_a_bug_in_a_standby_costs_only_time() -> None:
    """It is logged, and the takeover reads everything."""
    storage = MemoryStorage(ALONE)
    owner, standby = await pair(storage)
    (followed,) = standby.standbys._followed.values()
    assert followed.standby is not None

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    followed.standby.loading.read = fails  # type: ignore[method-assign, assignment]
    with capture_logs() as logs:
        await more(owner)
        await until(lambda: any("bug in Muster" in line["event"] for line in logs))
    await standby.runtime.assign([0])
    assert not standby.process.lost
    assert last_ready(storage).events_read > 5
    await ended(standby)
    await owner.runtime.stop()


@story
async def test_without_standbys_partitions_of_others_are_not_read() -> None:
    """Standbys are switched off."""
    storage = MemoryStorage(ALONE)
    owner = await Peer(storage).start(0)
    idle = await Peer(storage, stands_by=False).start()
    await asyncio.sleep(60)
    assert idle.reads == []
    assert idle.runtime.standby_figures() is None
    await ended(owner, idle)
