"""The steps of a takeover one by one: the input and result of each."""

from muster.coordinator.runtime.ownership.hot_standbys import ReadBefore
from muster.coordinator.runtime.ownership.takeover.claim_offsets import OffsetsClaim, claim_offsets
from muster.coordinator.runtime.ownership.takeover.claim_partition import claim_partition
from muster.coordinator.runtime.ownership.takeover.ownership_end import FormerOwner, end_unknown, note_former_owner
from muster.coordinator.runtime.ownership.takeover.read_groups import read_groups
from muster.coordinator.runtime.ownership.takeover.resume_groups import resume_groups, survey_damages
from muster.coordinator.runtime.ownership.takeover.write_ready import write_ready
from muster.events.avro.codec import decode
from muster.events.events import AnyRecordedEvent, CoordinatorElected
from muster.events.log.memory import MemoryStorage
from muster.events.ownership import OwnershipEnd, OwnershipEndCause
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate


def _last_event(storage: MemoryStorage) -> AnyRecordedEvent:
    value = storage.records[0][-1].value
    assert value is not None
    return decode(value)


async def _seen(_owner: str) -> int | None:
    return 7


def test_each_step_needs_only_the_results_of_earlier_ones() -> None:
    """In the end the groups are served, and only the two records of the takeover were written."""

    async def story() -> None:
        storage = MemoryStorage(1)
        before = await SimulatedProcess(storage).start()
        joined = await before.stable_group("a")
        await before.runtime.stop()
        events, lost = len(storage.records[0]), list[Exception]()
        process = SimulatedProcess(storage)
        await process.log.open()
        owner = process.runtime._owner

        claim = await claim_partition(owner, 0)
        assert (claim.writer.epoch, claim.lease, claim.offsets_were_owned) == (2, None, None)
        elected = _last_event(storage)
        assert isinstance(elected, CoordinatorElected)
        assert elected.owner_epoch == 2

        read = await read_groups(owner, claim.writer, None)
        assert list(read.projector.groups) == [GROUP]
        assert read.events_read == read.loading.events_read > 0

        offsets = await claim_offsets(owner, claim, read.projector, ReadBefore())
        assert offsets == OffsetsClaim(groups_recreated=0, records_read=0)

        former = await note_former_owner(owner, claim, read.projector, _seen, end_unknown)
        assert former == FormerOwner(seen_ms=7, end=OwnershipEnd(cause=OwnershipEndCause.STOPPED))

        ready = await write_ready(owner, claim, read, former, began_ms=owner.clock.monotonic_ms())
        assert _last_event(storage) == ready
        assert (ready.groups, ready.members, ready.owner_before_seen_ms) == (1, 1, 7)

        damages = await survey_damages(owner, 0, read.projector)
        assert damages == {}
        ownership = await resume_groups(owner, claim, read, damages, lost.append, groups_recreated=0)
        (group,) = ownership.partition.groups()
        assert list(group.members) == [joined["a"].member_id]
        assert len(storage.records[0]) == events + 2
        await ownership.abandon()
        assert lost == []

    simulate(story())
