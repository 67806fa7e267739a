"""A log stays at its format level: an older Muster can continue a log that a newer one has written to.

`level3.db` and `level3.batches.json` were written by a Muster that knew no level above 3 (the same groups, in a file
and as batches of a topic); `LEVEL_3` has its schemas.
"""

import asyncio
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from muster import schemas
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.offsets.sqlite import SqliteOffsetStore
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.runtime.partition.refused_joins import RefusedJoins
from muster.coordinator.runtime.partition.retention_clock import RetentionClock
from muster.coordinator.runtime.runtime import Runtime
from muster.events.avro.codec import HEADER_BYTES, decode, header_of
from muster.events.events import CoordinatorElected, GroupDeleted, GroupEmptied, JoinPhaseCompleted, MemberRemoved
from muster.events.log.kafka.decoding import decode_batches, writers_of
from muster.events.log.kafka.marks import Marks, Origin, decode_origin
from muster.events.log.memory import MemoryStorage
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.projector import Projector
from muster.events.records import FORMAT_LEVEL, StoredRecord
from tests.events.histories import FOLDER
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import VirtualClock, simulate

LEVEL_3 = {header_of(schema) for level in (1, 2) for schema in schemas.event_schemas(level)}
PARTITIONS = 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A copy of the file written by the older version."""
    copy = tmp_path / "muster.db"
    shutil.copy(FOLDER / "level3.db", copy)
    return copy


async def records_in(path: Path) -> list[list[StoredRecord]]:
    log = SqliteEventLog(path, read_only=True)
    await log.open()
    records = [[record async for chunk in log.read(number) for record in chunk] for number in range(log.partitions)]
    await log.close()
    return records


def storage_of(path: Path) -> MemoryStorage:
    """The same log in memory."""
    storage = MemoryStorage(PARTITIONS, format_level=3)
    storage.records = asyncio.run(records_in(path))
    storage.epochs = [1] * PARTITIONS
    storage.fences = [1] * PARTITIONS
    return storage


def projected_by_level_3(records: Iterable[StoredRecord]) -> Projector:
    """The groups that the older version projects from the records, all of which it can read."""
    projector = Projector()
    for record in records:
        if record.value is None:
            projector.feed(record)
        else:
            assert record.value[:HEADER_BYTES] in LEVEL_3
            event = decode(record.value)
            assert not isinstance(event, CoordinatorElected) or event.format_level == 3
            projector.feed_event(event)
    return projector


async def gone_on_with(process: SimulatedProcess) -> JoinGroupOutcome:
    """Both members restart, and another one joins; return its result."""
    await process.start()
    outcomes = {instance: await process.join(instance) for instance in ("a", "b")}
    newcomer = process.join("d", rebalance_timeout_ms=5_000)
    joins = [process.join(instance, each.member_id) for instance, each in outcomes.items()]
    joined = [await newcomer, *[await join for join in joins]]
    for sync in [process.sync(each) for each in joined]:
        assert (await sync).error is ErrorCode.none
    return joined[0]


async def eventful(process: SimulatedProcess) -> None:
    """A history that sets each of the newer fields."""
    newcomer = await gone_on_with(process)
    await process.join(requires_known_member_id=True)  # and never returns
    await process.leave(newcomer.member_id)
    await asyncio.sleep(100)  # all fall silent
    assert (await process.delete()).error is ErrorCode.none
    await process.runtime.stop()


def test_an_owner_of_a_log_of_level_3_writes_nothing_that_its_former_owner_cannot_read(path: Path) -> None:
    """Including facts that only newer levels have, such as an id that was never used and why the group became empty."""
    storage = storage_of(path)
    before = [len(records) for records in storage.records]

    async def live() -> None:
        await eventful(SimulatedProcess(storage))

    simulate(live())

    written = [
        decode(record.value)
        for records, known in zip(storage.records, before, strict=True)
        for record in records[known:]
        if record.value is not None
    ]
    assert {JoinPhaseCompleted, MemberRemoved, GroupEmptied, GroupDeleted} <= set(map(type, written))
    for records in storage.records:
        projected_by_level_3(records)


def test_records_written_at_level_3_give_the_older_version_the_same_groups(path: Path) -> None:
    """Members, generation, assignments: only the explanations are left out."""
    storage = storage_of(path)

    async def live() -> None:
        process = SimulatedProcess(storage)
        await gone_on_with(process)
        await process.runtime.stop()

    simulate(live())
    groups = {**projected_by_level_3(storage.records[0]).groups, **projected_by_level_3(storage.records[1]).groups}
    ours = [Projector(), Projector()]
    for projector, records in zip(ours, storage.records, strict=True):
        for record in records:
            projector.feed(record)
    assert groups == {**ours[0].groups, **ours[1].groups}
    assert groups[GROUP].instances.keys() == {"a", "b", "d"}


async def test_a_file_of_level_3_is_gone_on_with_at_that_level(path: Path) -> None:
    """The file's own level stays, as does that of each fence record."""
    clock = VirtualClock()
    log = SqliteEventLog(path)
    await log.open()
    assert log.format_level == 3
    owner = Owner(
        name="new:1",
        version="new",
        event_log=log,
        offsets=SqliteOffsetStore(log.file),
        settings=GroupSettings(),
        effective_settings={},
        clock=clock,
        retention_clock=RetentionClock(clock, kept_ms=0),
        refused_joins=RefusedJoins(GroupSettings(), clock.monotonic_ms),
    )
    await owner.offsets.open()
    runtime = Runtime(owner, give_up=lambda error: pytest.fail(str(error)))
    await runtime.start()
    await runtime.stop()
    await log.close()

    log = SqliteEventLog(path)
    await log.open()
    assert log.meta.format_level == 3
    await log.close()
    for records in await records_in(path):
        projected_by_level_3(records)


def test_batches_of_level_3_are_read_as_owners_and_gone_on_with_at_that_level() -> None:
    """The marks in the batches have the level."""
    for partition, batch in enumerate(json.loads((FOLDER / "level3.batches.json").read_text())):
        fetched = bytes.fromhex(batch)
        marks = Marks(since=0, native_from=0, home="here")
        pieces = decode_batches(fetched, partition, start=0, end=100, marks=marks)
        records = [record for piece, _ in pieces for record in piece]
        assert records
        assert not any(record.is_foreign for record in records)
        projected_by_level_3(records)
        ((written, _),) = writers_of(fetched, end=100, home="here")
        assert written is not None
        assert decode_origin(written.stamp.origin) == Origin(cluster_id="here", format_level=3)


def test_a_new_log_has_the_highest_level() -> None:
    """Its fence records say so."""
    storage = MemoryStorage(1)

    async def live() -> None:
        process = await SimulatedProcess(storage).start()
        await process.runtime.stop()

    simulate(live())
    events = [decode(record.value) for record in storage.records[0] if record.value is not None]
    assert [event.format_level for event in events if isinstance(event, CoordinatorElected)] == [FORMAT_LEVEL]
