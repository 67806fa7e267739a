"""The group at a given time, and the forms of `--at`."""

from hypothesis import given
from hypothesis import strategies as st

from muster.events.evolve import evolve, first
from muster.events.state import GroupState
from muster.replay.history.window import At, AtGeneration, AtSeq, AtTime, read_at
from muster.replay.text.times import DAY_MS, duration, instant, read_time
from tests.replay.histories import BEGIN_MS, Script
from tests.replay.stories import a_night
from tests.replay.whole import state_at

NIGHT = a_night().history()
LAST_SEQ = max(happened.event.seq for happened in NIGHT.events)


def test_a_seq_number_is_the_group_right_after_that_event() -> None:
    """The first assignment, by member."""
    state = state_at(NIGHT, AtSeq(12))
    assert state is not None
    assert (state.state, state.generation_id, state.seq) == (GroupState.STABLE, 1, 12)
    assert [(m.group_instance_id, m.is_leader, m.assignment) for m in state.members][1:] == [
        ("billing-2", False, state.members[1].assignment),
        ("billing-3", False, state.members[2].assignment),
    ]
    assert state.members[0].is_leader
    assert state.members[0].assignment is not None
    assert state.members[0].assignment[0].partitions == (0, 1, 2, 3)
    assert state.coordinator == "coordinator-a:100"


def test_a_time_is_the_group_after_all_that_was_decided_by_then() -> None:
    """Nothing changes between two transitions; a transition at this time is included."""
    expiry_ms = next(happened.at_ms for happened in NIGHT.events if happened.event.seq == 18)
    before, at = state_at(NIGHT, AtTime(expiry_ms - 1)), state_at(NIGHT, AtTime(expiry_ms))
    assert before is not None
    assert at is not None
    assert (before.seq, before.state) == (17, GroupState.STABLE)
    assert (at.seq, at.state) == (19, GroupState.PREPARING_REBALANCE)


def test_nothing_is_known_before_the_first_event_or_after_the_last_number() -> None:
    """The result is None, not a guess."""
    assert state_at(NIGHT, AtTime(BEGIN_MS)) is None
    assert state_at(NIGHT, AtSeq(LAST_SEQ + 1)) is None
    assert state_at(NIGHT, AtSeq(0)) is None


def test_a_number_means_the_last_life_of_the_group() -> None:
    """Seqs begin at 1 again when a group is created again."""
    script = Script().created().deleted().wait(5_000).made_anew().created()
    state = state_at(script.history(), AtSeq(1))
    assert state is not None
    assert state.incarnation == BEGIN_MS + 5_000


@given(st.integers(1, LAST_SEQ))
def test_at_every_number_the_state_is_what_evolve_makes(seq: int) -> None:
    """The tool and the coordinator agree."""
    events = [happened.event for happened in NIGHT.events if happened.event.seq <= seq]
    group = evolve(first(events[0]), events[1:])
    state = state_at(NIGHT, AtSeq(seq))
    assert state is not None
    assert {member.member_id for member in state.members} == set(group.members)
    assert (state.state, state.generation_id, state.leader_id) == (group.state, group.generation_id, group.leader_id)


def test_the_forms_of_at() -> None:
    """A number, an ISO time with or without a zone, a time of the last 24 hours."""
    two_hours = BEGIN_MS + 3_600_000

    def at(text: str, now_ms: int = two_hours) -> At | AtGeneration | None:
        return read_at(text, now_ms=now_ms)

    assert at("17") == AtGeneration(17)
    assert read_at("17", now_ms=two_hours, is_seq=True) == AtSeq(17)
    assert at("2026-11-21T03:00:00Z", BEGIN_MS) == AtTime(two_hours)
    assert at("2026-11-21 03:00") == AtTime(two_hours)
    assert at("2026-11-21T04:00:00+01:00") == AtTime(two_hours)
    assert at("03:00:00") == AtTime(two_hours)
    assert at("3:00") == AtTime(two_hours)
    for nonsense in ("yesterday", "", "25:00:00", "-1", "2026-13-01"):
        assert at(nonsense) is None


def test_a_time_of_day_is_the_last_past_one() -> None:
    """Shortly after midnight it is yesterday's: a time in the future is never meant."""
    three = BEGIN_MS + 3_600_000
    assert read_at("03:00", now_ms=three - 1) == AtTime(three - DAY_MS)
    assert read_at("03:00", now_ms=three + DAY_MS - 1) == AtTime(three)


def test_the_requested_time_is_shown() -> None:
    """Beside that of the last event before it."""
    state = state_at(NIGHT, AtTime(BEGIN_MS + 3_600_000))
    assert state is not None
    assert (state.asked_for, state.at < "2026-11-21T03:00:00.000Z") == ("2026-11-21T03:00:00.000Z", True)
    by_number = state_at(NIGHT, AtSeq(12))
    assert by_number is not None
    assert by_number.asked_for is None


@given(st.integers(0, 4_102_444_800_000))
def test_instants_are_read_back_exactly(wall_ms: int) -> None:
    """To the millisecond."""
    assert read_time(instant(wall_ms), now_ms=0) == wall_ms


def test_durations_have_the_unit_that_fits() -> None:
    """Never '60.0 s', never '60 min'."""
    shown = {0: "0 ms", 999: "999 ms", 4_200: "4.2 s", 59_960: "1 min 00 s", 185_000: "3 min 05 s"}
    shown |= {3_599_900: "1 h 00 min", 7_800_000: "2 h 10 min", 273_600_000: "3 d 4 h", -50: "-50 ms"}
    assert {ms: duration(ms) for ms in shown} == shown
