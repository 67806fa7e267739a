"""Missing parts of a history are noted on the incidents that may be wrong because of them, and on no others."""

import pytest

from muster.events.causes import Cause
from muster.events.events import MemberFenced
from muster.replay.fleet.simulation.world.rules import GROUP_ID
from muster.replay.history.items import Gap, Happened, with_gaps
from muster.replay.incidents import telling
from muster.replay.incidents.episode import episode
from muster.replay.incidents.grouping import SPLIT
from muster.replay.incidents.incident import Incident
from muster.replay.incidents.windows import QUIET_MS
from tests.replay import memberships
from tests.replay.histories import Script
from tests.replay.incidents.fleet import Fleet, of_kind
from tests.replay.played import history_of
from tests.replay.whole import History, incidents

S = 1_000


def incidents_without(fleet: Fleet, from_ms: int, to_ms: int) -> list[Incident]:
    """Return the incidents since the group became Stable, from a log without the events of this time."""
    reads = [
        read
        for read in fleet.world.rules.reads
        if not isinstance(read, Happened) or not from_ms <= read.event.why.decided_ms < to_ms
    ]
    found = incidents(History(group_id=GROUP_ID, log="fleet", items=tuple(with_gaps(reads))))
    return found[[each.kind for each in found].index("start") + 1 :]


def notes_of(reported: list[Incident], kind: str) -> bool:
    """Return whether the incident of this kind has a note about a gap."""
    return any("not in the log" in note for note in of_kind(reported, kind).notes)


def test_a_gap_is_noted_if_it_may_hide_joins_or_leaves() -> None:
    """A completed restart is whole; a crash may have a replacement in the gap; a new process may be a replacement."""
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
    found = incidents_without(fleet, from_ms, to_ms)
    assert {kind: notes_of(found, kind) for kind in ("restart", "crash", "scale-up", "unknown")} == {
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
    assert notes_of(incidents_without(fleet, from_ms, to_ms), "deployment")


def test_a_gap_long_after_a_crash_is_not_noted_on_it() -> None:
    """A member that joins then replaces no other."""
    fleet = Fleet(4)
    fleet[2].die()
    fleet.rest(60 * S)
    for number in range(6, 9):  # never quiet, so that it is one episode
        fleet.start(number)
        fleet.rest(300 * S)
    from_ms = fleet.wall_ms
    fleet.start(9)
    fleet.rest(60 * S)
    to_ms = fleet.wall_ms
    fleet.start(10)
    fleet.rest(20 * S)
    found = incidents_without(fleet, from_ms, to_ms)
    assert not notes_of(found, "crash")
    assert [bool(each.notes) for each in found if each.kind == "scale-up"] == [False, False, False, True]


def test_an_episode_too_large_to_examine_at_once_is_marked_as_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each incident of the parts has the note, and none after a quiet time has."""
    fleet = Fleet(4)
    for process in (1, 2, 3):
        fleet.restart(process, 2 * S)
        fleet.rest(60 * S)
    fleet.rest(2 * QUIET_MS)
    fleet.start(7)
    fleet.rest(20 * S)

    def split() -> list[tuple[str, bool]]:
        history = History(group_id=GROUP_ID, log="fleet", items=tuple(with_gaps(fleet.world.rules.reads)))
        return [(each.kind, SPLIT in each.notes) for each in incidents(history)]

    assert not any(noted for _, noted in split())
    monkeypatch.setattr(episode, "ACTS_MAX", 6)
    reported = split()
    assert [noted for kind, noted in reported if kind != "start"][:-1] == [True] * 3
    assert [noted for kind, noted in reported if kind in ("start", "scale-up")] == [False] * 2


def test_an_episode_is_reported_in_parts_while_a_rebalance_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part has the note; the rebalance is in the last one, with its own trigger and the folded causes."""
    monkeypatch.setattr(telling, "ACTS_RUNNING_MAX", 20)
    script = Script().created()
    script.start(script.joined(script.member("a"))).complete().stabilize({"a": {"orders": [0]}})
    script.wait(60_000).start(script.joined(script.member("b")))
    for _ in range(50):
        script.wait(1_000).advanced(script.replaced("b", Cause.STATIC_REPLACEMENT_DURING_JOIN, host="/10.0.0.6"))
    script.complete().stabilize({"a": {"orders": [0]}, "b": {"orders": []}})
    found = incidents(script.history())
    assert all(SPLIT in each.notes for each in found)
    assert len(found) > 2
    (last,) = found[-1].rebalances
    assert last.trigger.cause is Cause.NEW_STATIC_MEMBER
    assert len(last.folded) == 50


def test_a_gap_within_a_duel_is_noted() -> None:
    """More requests may have been fenced in it."""
    whole = history_of(memberships.duel())
    fenced = [each for each in whole.items if isinstance(each, Happened) and isinstance(each.event, MemberFenced)]
    reported = [each for each in whole.items if each is not fenced[1] and not isinstance(each, Gap)]
    history = History(group_id=whole.group_id, log=whole.log, items=tuple(with_gaps(reported)))
    assert notes_of(incidents(history), "duel")
