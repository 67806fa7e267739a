"""A decision just before the renewal of a claim is stored just after it: `verify` reports nothing."""

import asyncio

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.outcomes import LeaveGroupOutcome
from muster.events.avro.codec import decode, records_of
from muster.events.events import CoordinatorElected
from muster.events.log.memory import MemoryLogWriter, MemoryStorage
from muster.events.records import FORMAT_LEVEL, StoredRecord
from muster.replay.verify.finding import Check
from muster.replay.verify.verification import Verification
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate
from tests.waiting import until

RENEWAL_MS = 3_000


async def renewed_meanwhile() -> list[StoredRecord]:
    """A member leaves while the fence record of the renewed claim is being stored."""
    storage = MemoryStorage(1)
    process = await SimulatedProcess(storage, claim_renewal_ms=RENEWAL_MS).start()
    joined = await process.stable_group("a", "b")
    claim, left = process.log.claim, list[asyncio.Future[LeaveGroupOutcome]]()

    async def leave_meanwhile(partition: int) -> MemoryLogWriter:
        writer = await claim(partition)
        stored = process.log.hold_acknowledgements()
        loop = asyncio.get_running_loop()
        loop.call_later(0.5, lambda: left.append(process.leave(joined["a"].member_id)))
        loop.call_later(1.0, stored.set)
        return writer

    process.log.claim = leave_meanwhile  # type: ignore[method-assign]
    await until(lambda: bool(left))
    assert (await left[0]).error is ErrorCode.none
    await process.runtime.stop()
    return storage.records[0]


def by_another(record: StoredRecord) -> StoredRecord:
    """Return the record as if another process had been elected instead of the renewed claim."""
    event = None if record.value is None else decode(record.value)
    if not isinstance(event, CoordinatorElected) or event.owner_epoch == 1:
        return record
    (written,) = records_of([msgspec.structs.replace(event, owner="another")], FORMAT_LEVEL)
    return msgspec.structs.replace(record, value=written.value)


def found_in(records: list[StoredRecord]) -> set[Check]:
    verification = Verification(1)
    for record in records:
        verification.feed(record)
    return {finding.check for finding in verification.result("memory").findings}


def test_a_decision_under_the_claim_before_its_renewal_is_not_a_finding() -> None:
    """It has the epoch under which it was decided; after another owner's election it would be a finding."""
    records = simulate(renewed_meanwhile())
    epochs = [decode(record.value).owner_epoch for record in records if record.value is not None]
    assert epochs != sorted(epochs)
    assert found_in(records) == set()
    assert Check.EPOCH in found_in([by_another(record) for record in records])
