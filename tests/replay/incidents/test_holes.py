"""Parts of a history that are missing are noted on the incidents that may be told wrong for it, and on no others."""

from muster.replay.fleet.simulation.rules import GROUP_ID
from muster.replay.history.items import Happened, History, with_gaps
from muster.replay.incidents.incident import Incident
from muster.replay.incidents.telling import incidents
from tests.replay.incidents.fleet import Fleet, of_kind

S = 1_000


def told_without(fleet: Fleet, from_ms: int, to_ms: int) -> list[Incident]:
    """The incidents since the group came to rest, of a log without the events of that time."""
    reads = [
        read
        for read in fleet.world.rules.reads
        if not isinstance(read, Happened) or not from_ms <= read.event.why.decided_ms < to_ms
    ]
    found = incidents(History(group_id=GROUP_ID, log="fleet", items=tuple(with_gaps(reads))))
    return found[[each.kind for each in found].index("start") + 1 :]


def notes_of(told: list[Incident], kind: str) -> bool:
    """Whether a gap is noted on the incident of that kind."""
    return any("not in the log" in note for note in of_kind(told, kind).notes)


def test_a_gap_is_noted_where_it_may_hide_who_came_or_went() -> None:
    """A restart that was over is whole; in place of the one that crashed somebody may have come; who came may have."""
    fleet = Fleet(4)
    fleet.restart(1, 2 * S)
    fleet.rest(60 * S)
    fleet[2].die()
    fleet.rest(60 * S)
    from_ms = fleet.wall_ms
    fleet.start(6)
    fleet.rest(60 * S)
    to_ms = fleet.wall_ms
    fleet.start(7)
    fleet.rest(20 * S)
    told = told_without(fleet, from_ms, to_ms)
    assert {kind: notes_of(told, kind) for kind in ("restart", "crash", "scale-up", "unknown")} == {
        "restart": False,
        "crash": True,
        "scale-up": True,
        "unknown": True,
    }


def test_a_gap_within_an_incident_is_noted_on_it() -> None:
    """One of the replacements of a deployment is missing."""
    fleet = Fleet(4)
    fleet.restart(1, 2 * S)
    fleet.rest(60 * S)
    from_ms = fleet.wall_ms
    fleet.restart(2, 2 * S)
    fleet.rest(60 * S)
    to_ms = fleet.wall_ms
    fleet.restart(3, 2 * S)
    fleet.rest(20 * S)
    assert notes_of(told_without(fleet, from_ms, to_ms), "deployment")


def test_a_gap_long_after_a_crash_is_not_noted_on_it() -> None:
    """A member that comes then takes nobody's place."""
    fleet = Fleet(4)
    fleet[2].die()
    fleet.rest(60 * S)
    for number in range(6, 9):  # never quiet, so that it is told together
        fleet.start(number)
        fleet.rest(300 * S)
    from_ms = fleet.wall_ms
    fleet.start(9)
    fleet.rest(60 * S)
    to_ms = fleet.wall_ms
    fleet.start(10)
    fleet.rest(20 * S)
    told = told_without(fleet, from_ms, to_ms)
    assert not notes_of(told, "crash")
    assert [bool(each.notes) for each in told if each.kind == "scale-up"] == [False, False, False, True]
