"""Committed offsets without a group, at a takeover; end-to-end tests are in tests/faults."""

from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.clock import SystemClock
from muster.coordinator.group.loaded_groups import group_of_offsets
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.turn import Now
from muster.coordinator.load.slices import Slices
from muster.coordinator.offsets.topic import TopicOffsetStore
from muster.coordinator.runtime.ownership.takeover.orphans import find_orphans, recreate_groups
from muster.events.ids import GroupId
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.partitioner import partition_for
from muster.events.projector import Projector, Quarantined
from muster.events.state import GroupState
from muster.replay.results.event_texts import event_text
from tests.coordinator.longest_callback import longest_callback
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate

MANY = 200_000
PARTITIONS = 8
HELD_S_MAX = 0.1
"""The limit in processor time."""


async def test_many_groups_with_offsets_block_no_others() -> None:
    """They are processed in slices, including those of other partitions."""
    groups = [GroupId(f"team-{n}") for n in range(MANY)]
    projector = Projector()
    with longest_callback() as longest:
        orphans = await find_orphans(groups, projector, 3, PARTITIONS, Slices())
    assert longest.seconds < HELD_S_MAX, longest
    assert orphans == {each for each in groups if partition_for(each, PARTITIONS) == 3}


async def test_a_quarantined_group_is_not_an_orphan() -> None:
    """Its offsets stay, even if nothing of it can be read: a repair keeps them."""
    torn, gone = GroupId("torn"), GroupId("gone")
    projector = Projector()
    projector.quarantined[torn] = Quarantined(group_id=torn, partition=0, offset=7, reason="no Avro")
    assert await find_orphans([torn, gone], projector, 0, 1, Slices()) == {gone}


async def test_a_group_created_for_its_offsets_has_a_new_incarnation_at_any_clock() -> None:
    """The clock is behind that of the owner that created the group before."""
    log = MemoryEventLog(MemoryStorage(partitions=1))
    await log.open()
    projector = Projector()
    projector.incarnation_max = 2**50
    await recreate_groups(
        {GROUP},
        projector,
        await log.claim(0),
        settings=GroupSettings(),
        clock=SystemClock(),
        events=log,
        offsets=log,
    )
    assert projector.groups[GROUP].incarnation == 2**50 + 1
    await log.close()


def test_the_replay_tool_reports_why_the_group_was_created() -> None:
    now = Now(monotonic_ms=0, wall_ms=0, owner_epoch=1, incarnation=1)
    text = event_text(group_of_offsets(GroupId("orders"), now, GroupSettings()))
    assert text == "the group was not in the event log but has committed offsets: it was recreated"


def test_a_group_that_the_event_log_does_not_know_is_made_for_its_offsets() -> None:
    """The group is then listed, and expires; the log records it, and the next takeover finds it there."""

    async def story() -> None:
        of_offsets = MemoryStorage(partitions=1)

        async def started(storage: MemoryStorage) -> SimulatedProcess:
            offsets = TopicOffsetStore(lambda: MemoryEventLog(of_offsets))
            await offsets.open()
            return await SimulatedProcess(storage, offsets=offsets).start()

        first = await started(MemoryStorage(partitions=1))
        assert (await first.commit(5)).error is ErrorCode.none
        await first.runtime.stop()
        restored = MemoryStorage(partitions=1)
        older = await SimulatedProcess(restored).start()
        await older.runtime.stop()
        for lines_expected in (1, 0):
            with capture_logs() as lines:
                process = await started(restored)
            assert (
                len([line for line in lines if "groups that the event log does not know" in line["event"]])
                == lines_expected
            )
            assert (await process.describe()).state is GroupState.EMPTY
            assert process.offsets.committed(GROUP)["orders", 0].offset == 5
            await process.runtime.stop()

    simulate(story())
