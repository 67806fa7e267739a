"""Logs to read: the history of one group, made by the rules themselves and repeated for as many groups as needed."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from muster.events.avro.codec import decode, records_of
from muster.events.events import AnyEvent, GroupEvent, GroupStabilized, MemberEvent, PartitionEvent
from muster.events.ids import GroupId
from muster.events.log.base import EventLog, LogWriter
from muster.events.log.memory import MemoryStorage
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.partitioner import partition_for
from muster.events.records import FORMAT_LEVEL, Record, StoredRecord, Transition
from muster.events.state import NO_GENERATION
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate

MEMBERS = 10
TRANSITIONS_PER_APPEND = 500
TRANSITIONS_IN_TURN = 11
"""About one rebalance of ten members."""

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def one_group(rebalances: int = 1) -> list[AnyEvent]:
    """Ten static members form a group; for each further rebalance the leader rejoins and the others follow."""

    async def live() -> list[AnyEvent]:
        storage = MemoryStorage(partitions=1)
        process = await SimulatedProcess(storage).start()
        instances = [f"instance-{number}" for number in range(MEMBERS)]
        told = await process.stable_group(*instances)
        for _ in range(rebalances - 1):
            order = sorted(told, key=lambda instance: not told[instance].members)
            joins = {instance: process.join(instance, told[instance].member_id) for instance in order}
            told = {instance: await join for instance, join in joins.items()}
            for sync in [process.sync(joined) for joined in told.values()]:
                await sync
        await process.runtime.stop()
        events = (decode(record.value) for record in storage.records[0] if record.value is not None)
        return [event for event in events if not isinstance(event, PartitionEvent)]

    return simulate(live())


def many_groups(template: list[AnyEvent], groups: int) -> Iterator[tuple[GroupId, Transition]]:
    """The same history for each group, as one transition."""
    for number in range(groups):
        group_id = GroupId(f"group-{number}")
        yield (
            group_id,
            records_of((msgspec.structs.replace(event, group_id=group_id) for event in template), FORMAT_LEVEL),
        )


def long_group(
    template: list[AnyEvent], group_id: GroupId, events: int, *, rest_ms: int = 60_000
) -> Iterator[Transition]:
    """The history of one group: its rebalances are repeated, each time after a pause, up to this number of events."""
    begin = next(at for at, event in enumerate(template, start=1) if isinstance(event, GroupStabilized))
    first, again = template[:begin], template[begin:]
    wait_ms = template[-1].why.decided_ms - template[0].why.decided_ms + rest_ms
    generations = _generation(again) - _generation(first)
    parts: list[AnyEvent] = []
    for turn in range(1 + max(0, events - len(first)) // len(again)):
        for event in again if turn else template:
            parts.append(_moved(event, group_id, turn, seq=len(again), ms=wait_ms, generations=generations))
            if isinstance(event, GroupEvent):
                yield records_of(parts, FORMAT_LEVEL)
                parts = []


def events_of_long_group(template: list[AnyEvent], events: int) -> int:
    """How many events `long_group` yields if asked for this number."""
    begin = next(at for at, event in enumerate(template, start=1) if isinstance(event, GroupStabilized))
    again = len(template) - begin
    return len(template) + again * (max(0, events - begin) // again)


def mixed_groups(
    template: list[AnyEvent], groups: int, events: int, *, rest_ms: int = HOUR_MS
) -> Iterator[tuple[GroupId, Transition]]:
    """The history of one group, for each of many groups, repeated up to this total number of events: one rebalance of
    each group in turn, then a pause.

    It is encoded once, and each group's id is put into the bytes, which is fast enough for ten million events.
    """
    width = len(str(groups - 1))
    names = [f"group-{number:0{width}d}".encode() for number in range(groups)]
    story = list(long_group(template, GroupId(names[0].decode()), events // groups, rest_ms=rest_ms))
    for begin in range(0, len(story), TRANSITIONS_IN_TURN):
        for name in names:
            for transition in story[begin : begin + TRANSITIONS_IN_TURN]:
                yield GroupId(name.decode()), tuple(of_group(record, names[0], name) for record in transition)


def of_group(record: Record, known_as: bytes, name: bytes) -> Record:
    """The same record for another group, whose id has the same length."""
    return Record(record.key.replace(known_as, name), record.value and record.value.replace(known_as, name))


def _generation(events: list[AnyEvent]) -> int:
    last = events[-1]
    assert isinstance(last, GroupEvent)
    return last.group.generation_id


def _moved(event: AnyEvent, group_id: GroupId, turn: int, *, seq: int, ms: int, generations: int) -> AnyEvent:
    """The same event this many repetitions later."""
    why = event.why
    why = msgspec.structs.replace(
        why,
        arrived_ms=why.arrived_ms + turn * ms,
        decided_ms=why.decided_ms + turn * ms,
        uptime_ms=None if why.uptime_ms is None else why.uptime_ms + turn * ms,
    )
    changed: dict[str, object] = {"group_id": group_id, "seq": event.seq + turn * seq, "why": why}
    if isinstance(event, GroupEvent):
        image = event.group
        changed["group"] = msgspec.structs.replace(
            image,
            generation_id=image.generation_id + turn * generations,
            assigned_generation_id=_later(image.assigned_generation_id, turn * generations),
        )
    elif isinstance(event, MemberEvent):
        generation = _later(event.member.assigned_generation_id, turn * generations)
        changed["member"] = msgspec.structs.replace(event.member, assigned_generation_id=generation)
    return msgspec.structs.replace(event, **changed)


def _later(generation: int, by: int) -> int:
    return generation if generation == NO_GENERATION else generation + by


def stored_records(template: list[AnyEvent], groups: int) -> list[StoredRecord]:
    """Records in memory, as read from a single partition."""
    records = (record for _, transition in many_groups(template, groups) for record in transition)
    return [StoredRecord(0, offset, 0, record.key, record.value) for offset, record in enumerate(records)]


def write_sqlite(path: Path, template: list[AnyEvent], groups: int) -> int:
    """Write a log to a file; return its number of records."""
    return asyncio.run(write(SqliteEventLog(path), many_groups(template, groups)))


async def write(log: EventLog, told: Iterable[tuple[GroupId, Transition]]) -> int:
    """Write the transitions to a log; return its number of records."""
    await log.open()
    writers: dict[int, LogWriter] = {}
    waiting: defaultdict[int, list[Transition]] = defaultdict(list)
    count = 0

    async def append(partition: int) -> None:
        if partition not in writers:
            writers[partition] = await log.claim(partition)
        await writers[partition].append(waiting.pop(partition))

    for group_id, transition in told:
        partition = partition_for(group_id, log.partitions)
        waiting[partition].append(transition)
        count += len(transition)
        if len(waiting[partition]) >= TRANSITIONS_PER_APPEND:
            await append(partition)
    for partition in list(waiting):
        await append(partition)
    await log.close()
    return count


def days_of(template: list[AnyEvent], group_id: GroupId, days: int) -> Iterator[list[AnyEvent]]:
    """The history of one group: its first rebalance on the first day, the template's others on each day after that."""
    begin = next(at for at, event in enumerate(template, start=1) if isinstance(event, GroupStabilized))
    first, again = template[:begin], template[begin:]
    generations = _generation(again) - _generation(first)
    yield [_moved(event, group_id, 0, seq=0, ms=0, generations=0) for event in template]
    for turn in range(1, days):
        yield [_moved(event, group_id, turn, seq=len(again), ms=DAY_MS, generations=generations) for event in again]
