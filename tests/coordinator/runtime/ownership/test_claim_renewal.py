"""Claims are renewed before the log forgets them, without disturbing clients."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from muster.events.avro.codec import decode
from muster.events.events import CoordinatorElected, GroupEvent, MemberEvent, MemberRemoved, PartitionEvent
from muster.events.log.base import Deposed
from muster.events.log.memory import MemoryLogWriter, MemoryStorage
from muster.events.partitioner import partition_for
from muster.events.records import StoredRecord
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate
from tests.waiting import until

RENEWAL_MS = 3_000
PARTITION = partition_for(GROUP, len(MemoryStorage().records))


def epochs_elected(storage: MemoryStorage) -> list[int]:
    """The epochs of the group's partition, in order."""
    events = (decode(record.value) for record in storage.records[PARTITION] if record.value is not None)
    return [event.owner_epoch for event in events if isinstance(event, CoordinatorElected)]


def test_claims_are_renewed_without_effect_on_clients() -> None:
    """Each partition gets the next epoch, which all later events have."""

    async def story() -> None:
        storage = MemoryStorage()
        process = await SimulatedProcess(storage, claim_renewal_ms=RENEWAL_MS).start()
        joined = await process.stable_group("a")
        while len(set(epochs_elected(storage))) < 3:
            assert (await process.heartbeat(joined["a"])).error is ErrorCode.none
            await asyncio.sleep(0.1)
        assert sorted(set(epochs_elected(storage))) == [1, 2, 3]
        assert storage.epochs == [3] * len(storage.epochs)
        await process.leave(joined["a"].member_id)
        events = [decode(record.value) for record in storage.records[PARTITION] if record.value is not None]
        assert [e.owner_epoch for e in events if isinstance(e, MemberRemoved)] == [epochs_elected(storage)[-1]]
        await process.runtime.stop()
        assert process.lost == []

    simulate(story())


def test_pending_appends_are_durable_before_the_claim_is_renewed() -> None:
    """No unit is lost between the two writers, and the older one writes nothing after the newer."""

    async def story() -> None:
        storage = MemoryStorage()
        process = await SimulatedProcess(storage, claim_renewal_ms=RENEWAL_MS).start()
        joined = await process.stable_group("a", "b")
        release = process.log.hold_acknowledgements()
        leaving = process.leave(joined["a"].member_id)
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


def test_a_deposed_process_learns_it_at_renewal() -> None:
    """... and does not take the partition back from its successor."""

    async def story() -> None:
        storage = MemoryStorage()
        first = await SimulatedProcess(storage, claim_renewal_ms=RENEWAL_MS).start()
        second = await SimulatedProcess(storage).start()
        await asyncio.sleep(2 * RENEWAL_MS / 1000)
        assert isinstance(first.lost[0], Deposed)
        assert second.lost == []
        await second.runtime.stop()

    simulate(story())


def test_a_process_that_stops_while_it_renews_loses_nothing_that_was_under_way() -> None:
    """The renewal is abandoned; pending events become durable and are answered."""

    async def story() -> None:
        storage = MemoryStorage()
        process = await SimulatedProcess(storage, claim_renewal_ms=RENEWAL_MS).start()
        joined = await process.stable_group("a", "b")
        release = process.log.hold_acknowledgements()
        await asyncio.sleep(1.5 * RENEWAL_MS / 1000)
        leaving = process.leave(joined["a"].member_id)
        stopping = asyncio.create_task(process.runtime.stop())
        await asyncio.sleep(0.1)
        release.set()
        await stopping
        assert leaving.done()
        assert process.lost == []
        events = [decode(record.value) for record in storage.records[PARTITION] if record.value is not None]
        assert [event.member.group_instance_id for event in events if isinstance(event, MemberRemoved)] == ["a"]

    simulate(story())


def test_nothing_is_decided_on_state_from_before_another_owner() -> None:
    """A writer between the last append and the new claim is found before the new claim is used."""

    async def story() -> None:
        storage = MemoryStorage()
        first = await SimulatedProcess(storage, claim_renewal_ms=60_000).start()
        joined = await first.stable_group("a", "b")
        claim, read = first.log.claim, first.log.read

        async def claim_late(number: int) -> MemoryLogWriter:
            """Another process takes over, serves and stops in between."""
            first.log.claim = claim  # type: ignore[method-assign]
            second = await SimulatedProcess(storage).start()
            assert (await second.leave(joined["a"].member_id)).members[0].error is ErrorCode.none
            await second.runtime.stop()
            return await claim(number)

        async def read_slowly(*args: Any, **given: Any) -> AsyncIterator[Sequence[StoredRecord]]:
            await asyncio.sleep(0.5)
            async for chunk in read(*args, **given):
                yield chunk

        first.log.claim, first.log.read = claim_late, read_slowly  # type: ignore[method-assign, assignment]
        ownership = first.runtime._owned[PARTITION]
        epoch, leaving = ownership.partition.epoch, None
        ownership.renew()
        async with asyncio.timeout(30):
            while first.runtime._owned.get(PARTITION) is ownership:
                if ownership.partition.epoch != epoch and leaving is None:
                    leaving = first.leave(joined["b"].member_id)
                await asyncio.sleep(0.05)
        await until(lambda: first.runtime.ready, "the partition is served again")
        await (leaving or first.leave(joined["b"].member_id))
        events = [decode(record.value) for record in storage.records[PARTITION] if record.value is not None]
        numbers = [event.seq for event in events if isinstance(event, GroupEvent | MemberEvent)]
        assert numbers == sorted(set(numbers)), "two events of one number"
        await first.runtime.stop()

    simulate(story())
