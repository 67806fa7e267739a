"""The lines of a history: the state before the first one, and how many are buffered."""

import io

from muster.coordinator.group.configs import TARGET_GROUP_SIZE
from muster.events.events import GroupConfigured
from muster.events.evolve import apply
from muster.events.state import new_group
from muster.replay.fleet.simulation.world.rules import GROUP_ID
from muster.replay.form import View
from muster.replay.history.items import Happened
from muster.replay.render import story_stream
from muster.replay.results.story import StoryLines
from tests.replay.incidents.fleet import Fleet
from tests.replay.stories import a_night
from tests.replay.told import console_of
from tests.replay.whole import lines


def test_a_config_that_was_set_before_the_first_line_is_what_a_change_begins_with() -> None:
    """As if a window begins between the two."""
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


def test_on_a_terminal_a_page_is_shown_as_soon_as_it_is_full() -> None:
    """It has 500 lines, while a history may have millions. There is one header, and the column widths stay the same."""
    out, history = io.StringIO(), a_night().history()
    stream = story_stream(history.group_id, history.log, None, View(), console_of(out, 200))
    line = next(each for each in lines(history) if each.seq)
    for _ in range(500):
        stream.feed(line)
    shown = out.getvalue()
    assert shown.count(line.text) == 500
    stream.feed(line)
    assert out.getvalue() == shown
    stream.end()
    (last,) = out.getvalue().removeprefix(shown).splitlines()
    assert last.index(line.text) == shown.splitlines()[-1].index(line.text)
    assert out.getvalue().count("What happened") == 1
