"""An instance id that was taken over once: a restart, if the old process is known not to have kept running.

A process that was alive until another one joined with its id, and ended because of that, looks like one that was
restarted; the sentence then says that this is not known.
"""

import pytest

from muster.events.records import FORMAT_LEVEL
from muster.replay.incidents.incident import Incident
from muster.replay.incidents.kinds.restart import TWO_OF_ONE
from tests.replay.incidents.fleet import BOTH, OLDER, QUIET_MS, Fleet, expect, of_kind, statements

S = 1_000
ALIKE = (
    "'app-2' (10.0.1.2) joined under a new member id, and kept its partitions: a restart, a poll timeout, or a second"
    " process with its instance id"
)


def taken(*, heard_s: float, ends: bool = True) -> Fleet:
    """Let a process join as `app-2`, this long after that was last heard from; the old one ends then, or is fenced."""
    fleet = Fleet(3, static=3, session_ms=45 * S)
    while fleet.world.now_ms - fleet[2].last_heard_ms > 100:  # until its next heartbeat
        fleet.run(10)
    first = fleet[2]
    if heard_s > 2:
        first.die(with_machine=True)  # its connection stays open
    fleet.run(int(heard_s * S))
    fleet.start(2, fleet.setup(2).but(host="/10.0.3.2"))
    if ends:
        first.die()
    return fleet


def later(fleet: Fleet, ms: int = QUIET_MS) -> Incident:
    """Return the incident after something else has happened this much later."""
    fleet.run(ms)
    fleet.start(9)
    fleet.rest(20 * S)
    return of_kind(fleet.told(), "restart")


@BOTH
def test_a_process_that_lived_until_its_id_was_taken_may_be_one_of_two(level: int) -> None:
    """No later event shows whether it would have been fenced."""
    fleet = taken(heard_s=1.5)
    fleet.rest(5 * S)
    restart = fleet.only(level)
    expect(restart, "restart", "inferred", ALIKE.replace("10.0.1.2", "10.0.3.2"), "app-2")
    silent = (
        "it had not been heard from for 1.5 s"
        if level == FORMAT_LEVEL
        else "when it was last heard from is not recorded"
    )
    assert statements(restart, "unknown") == f"whether the process before it had ended is not known: {silent}"
    assert restart.advice == (TWO_OF_ONE,)


@pytest.mark.parametrize(("ms", "is_known"), [(20 * S, False), (46 * S, True)])
def test_a_process_not_fenced_within_its_session_had_ended(ms: int, is_known: bool) -> None:
    """If it had been alive, it would have been fenced at its next heartbeat."""
    restart = later(taken(heard_s=1.5), ms)
    ended = (
        "did not keep running beside it: it had not been heard from for 1.5 s, and none of its requests was fenced then"
    )
    assert (ended in statements(restart, "inferred")) == is_known
    assert (
        restart.headline == "'app-2' (10.0.3.2) rejoined under a new member id, and kept its partitions"
    ) == is_known
    assert restart.grade == "inferred"
    assert restart.advice == (() if is_known else (TWO_OF_ONE,))


def test_a_process_that_was_silent_for_longer_than_a_heartbeat_takes_had_not_lived_until_then() -> None:
    """A third of its session timeout. Its silence is recorded, and its end is inferred from that."""
    for silent_s, grade in ((14, "unknown"), (16, "recorded")):
        fleet = taken(heard_s=silent_s)
        fleet.rest(5 * S)
        assert fleet.only().grade == "inferred"
        words = statements(fleet.only(), grade).replace("the process before ", "")
        assert f"it had not been heard from for {silent_s}.0 s" in words
        assert fleet.only(OLDER).grade == "inferred"


def test_a_process_that_had_been_as_silent_while_it_lived_may_have_lived() -> None:
    """Its heartbeats are further apart than they should be."""
    fleet = Fleet(3, static=3, session_ms=45 * S)
    first = fleet[2]
    first.freeze()
    fleet.run(20 * S)
    first.thaw()
    fleet.run(S)
    first.freeze()
    fleet.run(18 * S)
    first.die()
    fleet.start(2)
    fleet.rest(5 * S)
    assert fleet.only().headline == ALIKE


def test_a_process_that_is_fenced_was_alive() -> None:
    """Its request is recorded, so its silence before does not count, and costs nothing."""
    restart = later(taken(heard_s=1.5, ends=False))
    headline = "another process joined as 'app-2' (10.0.3.2), and took its place while it was alive"
    expect(restart, "restart", "recorded", headline, "app-2")
    assert "was alive, at 10.0.1.2: 1 request of it was fenced" in statements(restart, "recorded")
    assert restart.advice == (TWO_OF_ONE,)
    assert restart.cost.silent_partition_ms == 0


def test_a_process_that_was_answered_while_it_waited_in_a_join_phase_is_in_no_event() -> None:
    """It was notified that another process has its id, as the response to its waiting join, and ended."""
    fleet = Fleet(3, static=3, session_ms=45 * S)
    fleet[3].slow_ms = 20 * S
    fleet.start(4)
    fleet.run(6 * S)
    first = fleet[1]
    fleet.start(1, fleet.setup(1).but(host="/10.0.3.1"))
    fleet.run(S)
    assert not first.alive
    restart = later(fleet)
    assert restart.grade == "inferred"
    assert restart.headline.endswith(
        "joined under a new member id: a restart, a poll timeout, or a second process with its instance id"
    )


def test_no_process_could_be_fenced_during_a_coordinator_outage() -> None:
    """Whether it sent a request at that time is not known."""
    fleet = taken(heard_s=1.5)
    fleet.run(S)
    fleet.away(10 * S)
    assert later(fleet).headline.endswith("a poll timeout, or a second process with its instance id")


def test_silence_during_a_coordinator_pause_does_not_count() -> None:
    """Twenty seconds, of which the coordinator was running for five."""
    fleet = Fleet(3, static=3, session_ms=45 * S)
    fleet[2].die(with_machine=True)
    fleet.paused(20 * S)
    fleet.run(3 * S)
    fleet.start(2)
    fleet.rest(5 * S)
    assert of_kind(fleet.told(), "restart").headline == ALIKE
