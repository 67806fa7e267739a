"""A log that forgets claims is claimed again in time, and nobody notices."""

import asyncio

from kio.schema.errors import ErrorCode

from events.codec import decode
from events.events import CoordinatorElected, MemberRemoved, PartitionEvent
from events.log.base import Deposed
from events.log.memory import MemoryStorage
from events.partitioner import partition_for
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate

RENEWAL_MS = 3_000
PARTITION = partition_for(GROUP, len(MemoryStorage().records))


def epochs_elected(storage: MemoryStorage) -> list[int]:
    """Of the group's partition, in order."""
    events = (decode(record.value) for record in storage.records[PARTITION] if record.value is not None)
    return [event.owner_epoch for event in events if isinstance(event, CoordinatorElected)]


def test_claims_are_renewed_and_nobody_notices() -> None:
    """Each partition gets the next epoch, in which all later events are written."""

    async def story() -> None:
        storage = MemoryStorage()
        process = await SimulatedProcess(storage, claim_renewal_ms=RENEWAL_MS).start()
        told = await process.stable_group("a")
        while len(set(epochs_elected(storage))) < 3:
            assert (await process.heartbeat(told["a"])).error is ErrorCode.none
            await asyncio.sleep(0.1)
        assert sorted(set(epochs_elected(storage))) == [1, 2, 3]
        assert storage.epochs == [3] * len(storage.epochs)
        await process.leave(told["a"].member_id)
        events = [decode(record.value) for record in storage.records[PARTITION] if record.value is not None]
        assert [e.owner_epoch for e in events if isinstance(e, MemberRemoved)] == [epochs_elected(storage)[-1]]
        await process.runtime.stop()
        assert process.lost == []

    simulate(story())


def test_what_is_under_way_is_durable_before_the_claim_is_renewed() -> None:
    """No unit is lost between the two writers, and none is written by the older one after the newer."""

    async def story() -> None:
        storage = MemoryStorage()
        process = await SimulatedProcess(storage, claim_renewal_ms=RENEWAL_MS).start()
        told = await process.stable_group("a", "b")
        release = process.log.hold_acknowledgements()
        leaving = process.leave(told["a"].member_id)
        await asyncio.sleep(2 * RENEWAL_MS / 1000)
        assert not leaving.done()
        release.set()
        assert (await leaving).members[0].error is ErrorCode.none
        assert process.lost == []
        await process.runtime.stop()
        events = [decode(record.value) for record in storage.records[PARTITION] if record.value is not None]
        epochs = [event.owner_epoch for event in events if isinstance(event, PartitionEvent)]
        assert epochs == sorted(epochs)
        assert [event.member.group_instance_id for event in events if isinstance(event, MemberRemoved)] == ["a"]

    simulate(story())


def test_who_was_deposed_finds_out_when_it_renews() -> None:
    """... and does not take the partition back: whoever came later has it."""

    async def story() -> None:
        storage = MemoryStorage()
        first = await SimulatedProcess(storage, claim_renewal_ms=RENEWAL_MS).start()
        second = await SimulatedProcess(storage).start()
        await asyncio.sleep(2 * RENEWAL_MS / 1000)
        assert isinstance(first.lost[0], Deposed)
        assert second.lost == []
        await second.runtime.stop()

    simulate(story())
