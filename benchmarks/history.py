"""Logs to read: the story of one group, made by the rules themselves, told again for as many groups as are wanted."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec

from muster.events.avro.codec import decode, records_of
from muster.events.events import AnyEvent, PartitionEvent
from muster.events.ids import GroupId
from muster.events.log.memory import MemoryStorage
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.partitioner import partition_for
from muster.events.records import FORMAT_LEVEL, StoredRecord, Transition
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate

MEMBERS = 10
TRANSITIONS_PER_APPEND = 500


def one_group(rebalances: int = 1) -> list[AnyEvent]:
    """Ten static members form a group; then, for each further rebalance, the leader rejoins and all follow."""

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
    """The same story for each group, as one transition."""
    for number in range(groups):
        group_id = GroupId(f"group-{number}")
        yield (
            group_id,
            records_of((msgspec.structs.replace(event, group_id=group_id) for event in template), FORMAT_LEVEL),
        )


def stored_records(template: list[AnyEvent], groups: int) -> list[StoredRecord]:
    """In memory, as one partition would give them."""
    records = (record for _, transition in many_groups(template, groups) for record in transition)
    return [StoredRecord(0, offset, 0, record.key, record.value) for offset, record in enumerate(records)]


def write_sqlite(path: Path, template: list[AnyEvent], groups: int) -> int:
    """A log in a file; returns how many records it has."""

    async def write() -> int:
        log = SqliteEventLog(path)
        await log.open()
        by_partition: dict[int, list[Transition]] = {}
        for group_id, transition in many_groups(template, groups):
            by_partition.setdefault(partition_for(group_id, log.partitions), []).append(transition)
        for number, transitions in by_partition.items():
            writer = await log.claim(number)
            for at in range(0, len(transitions), TRANSITIONS_PER_APPEND):
                await writer.append(transitions[at : at + TRANSITIONS_PER_APPEND])
        await log.close()
        return sum(len(transition) for transitions in by_partition.values() for transition in transitions)

    return asyncio.run(write())
