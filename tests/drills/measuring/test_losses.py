"""Acknowledgements compared with a history and with the stored offsets."""

import msgspec
import pytest

from muster.drills.measuring.answers import Acknowledged, Place
from muster.drills.measuring.losses import Losses, LostCommit, losses, places_recorded
from muster.events.causes import Cause
from muster.replay.history.items import Broken, Happened, LogPosition, Unreadable, with_gaps
from tests.replay.histories import Script, assignment_bytes

GROUP = "orders"


@pytest.fixture
def script() -> Script:
    """A stable group of two static members, one of which has restarted."""
    script = Script(GROUP).coordinator("a:1").wait(1_000).created()
    script.start(script.joined(script.member("app-0")))
    script.wait(10).advanced(script.joined(script.member("app-1")))
    script.wait(100).complete(cause=Cause.INITIAL_DELAY_ELAPSED)
    script.wait(10).stabilize({"app-0": {"t": [0]}, "app-1": {"t": [1]}})
    script.first = script.of("app-0").member_id  # type: ignore[attr-defined]
    script.wait(10).advanced(script.replaced("app-0", Cause.STATIC_RESTART_ABSORBED))
    return script


def place(member_id: str, *, assigned: int | None = None, generation_id: int = 1) -> Place:
    assignment = None if assigned is None else assignment_bytes({"t": [assigned]})
    return Place(group_id=GROUP, generation_id=generation_id, member_id=member_id, assignment=assignment)


def compared(script: Script, *places: Place) -> Losses:
    acknowledged = Acknowledged(places=set(places))
    return losses(acknowledged, {GROUP: script.history().items}, {})


def test_logged_places_and_assignments_are_not_lost(script: Script) -> None:
    """Places and assignments, including those of a member that has another id by now."""
    first, now = script.first, script.of("app-0").member_id  # type: ignore[attr-defined]
    reported = compared(script, place(first), place(first, assigned=0), place(now, assigned=0), place(now))
    assert (reported.events, reported.places, reported.gaps) == (0, (), ())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda member_id: place("nobody"),
        lambda member_id: place(member_id, generation_id=2),
        lambda member_id: place(member_id, assigned=1),
        lambda member_id: msgspec.structs.replace(place(member_id), group_id="payments"),
    ],
    ids=["member", "generation", "assignment", "group"],
)
def test_a_place_that_the_log_does_not_have_is_lost(script: Script, wrong: object) -> None:
    """A member was given something that no later owner can know."""
    lost = wrong(script.of("app-0").member_id)  # type: ignore[operator]
    reported = compared(script, lost, place(script.of("app-1").member_id, assigned=1))
    assert reported.places == (lost,)
    assert reported.events == 1


def test_a_member_has_no_assignment_before_the_group_is_stable(script: Script) -> None:
    """A place in the sync phase is recorded without one."""
    recorded = places_recorded({GROUP: script.history().items[:-5]})
    assert all(each.assignment is None for each in recorded)
    assert recorded


def test_numbers_that_are_missing_are_lost_events(script: Script) -> None:
    """Members may have been notified of them or not."""
    reads = script.reads
    without = [each for each in reads if not (isinstance(each, Happened) and each.event.seq == 4)]
    reported = losses(Acknowledged(), {GROUP: tuple(with_gaps(without))}, {})
    assert reported.gaps == ("group orders: events 4 to 4 are not in the log",)
    assert reported.events == 1


def test_a_record_that_cannot_be_read_is_a_lost_event() -> None:
    position = LogPosition(partition=0, offset=17, timestamp_ms=0)
    broken = Broken(position=position, kind=Unreadable.BROKEN, reason="it is cut off")
    reported = losses(Acknowledged(), {GROUP: (broken,)}, {})
    assert reported.gaps == ("group orders: a record at offset 17 cannot be read: it is cut off",)


def test_an_offset_that_is_lower_than_an_acknowledged_one_is_a_lost_commit() -> None:
    """A higher one may have been stored although its response was lost."""
    acknowledged = Acknowledged(commits={(GROUP, 0): 7, (GROUP, 1): 7, (GROUP, 2): 7, (GROUP, 3): 7})
    reported = losses(acknowledged, {}, {(GROUP, 0): 7, (GROUP, 1): 8, (GROUP, 2): 6})
    assert reported.commits == (
        LostCommit(group_id=GROUP, partition=2, acknowledged=7, found=6),
        LostCommit(group_id=GROUP, partition=3, acknowledged=7, found=None),
    )
    assert reported.events == 0
