"""The lines of a history: what stood before the first one."""

from muster.coordinator.group.configs import TARGET_GROUP_SIZE
from muster.events.avro.evolve import apply
from muster.events.events import GroupConfigured
from muster.events.state import new_group
from muster.replay.fleet.simulation.world.rules import GROUP_ID
from muster.replay.history.items import Happened
from muster.replay.results.story import StoryLines
from tests.replay.incidents.fleet import Fleet


def test_a_config_that_was_set_before_the_first_line_is_what_a_change_begins_with() -> None:
    """As where a window begins between the two."""
    fleet = Fleet(2)
    for size in ("3", "4"):
        fleet.configure(TARGET_GROUP_SIZE, size)
        fleet.run(1_000)
    events = [item for item in fleet.history().items if isinstance(item, Happened)]
    change = max(at for at, item in enumerate(events) if isinstance(item.event, GroupConfigured))
    group = new_group(GROUP_ID, incarnation=events[0].event.incarnation, wall_ms=0)
    for item in events[:change]:
        apply(group, item.event)
    assert f"{TARGET_GROUP_SIZE} from 3 to 4" in StoryLines(group).feed(events[change]).text
