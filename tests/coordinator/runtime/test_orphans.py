"""Committed offsets without a group, at a takeover; the whole story is in tests/faults."""

from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.takeover import group_of_offsets
from muster.coordinator.group.turn import Moment
from muster.coordinator.load.slices import Slices
from muster.coordinator.runtime.orphans import find_orphans
from muster.events.ids import GroupId
from muster.events.partitioner import partition_for
from muster.events.projector import Projector, Quarantined
from muster.replay.event_texts import event_text
from tests.coordinator.longest_callback import longest_callback

MANY = 200_000
PARTITIONS = 8
HELD_S_MAX = 0.1
"""The limit in processor time."""


async def test_many_groups_with_offsets_hold_nobody_up() -> None:
    """They are gone through in slices, those of other partitions too."""
    groups = [GroupId(f"team-{n}") for n in range(MANY)]
    projector = Projector()
    with longest_callback() as longest:
        orphans = await find_orphans(groups, projector, 3, PARTITIONS, Slices())
    assert longest.seconds < HELD_S_MAX, longest
    assert orphans == {each for each in groups if partition_for(each, PARTITIONS) == 3}


async def test_a_quarantined_group_is_no_orphan() -> None:
    """Its offsets stay, also where nothing of it can be read: they are what a repair keeps."""
    torn, gone = GroupId("torn"), GroupId("gone")
    projector = Projector()
    projector.quarantined[torn] = Quarantined(group_id=torn, partition=0, offset=7, reason="no Avro")
    assert await find_orphans([torn, gone], projector, 0, 1, Slices()) == {gone}


def test_the_replay_tool_says_what_the_group_was_made_for() -> None:
    moment = Moment(now_ms=0, wall_ms=0, owner_epoch=1, incarnation=1)
    text = event_text(group_of_offsets(GroupId("orders"), moment, GroupSettings()))
    assert text == "the event log did not know the group, and it has committed offsets: it was made anew"
