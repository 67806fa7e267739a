"""The cases: what is done to processes, and the resulting ground truth."""

import pytest

from muster.events.causes import Cause
from muster.events.events import GroupEmptied, GroupStabilized, JoinPhaseCompleted, MemberRemoved, RebalanceStarted
from muster.replay.fleet.simulation.world.truth import Knowable, RebalanceId
from muster.replay.fleet.simulation.world.world import LATE_MAX_MS
from muster.replay.history.items import Broken, Gap, Happened
from tests.judge.case import WEIGHTS, Case, make_case, play
from tests.judge.scenario import JudgedScenario, ScenarioSort
from tests.judge.scenarios import SCENARIOS
from tests.judge.showing import shown

KINDS = {
    "assignor-change",
    "blue-green",
    "capacity",
    "cooperative-round",
    "coordinator-change",
    "coordinator-outage",
    "crash",
    "crash-loop",
    "deployment",
    "duel",
    "enforced",
    "group-deleted",
    "group-expired",
    "network-cut",
    "partitions-changed",
    "planned",
    "poll-timeout",
    "refused",
    "removed-by-admin",
    "restart",
    "scale-down",
    "scale-up",
    "shutdown",
    "slow-leader",
    "slow-member",
    "start",
    "stopped",
    "subscription-change",
    "unknown",
    "unassigned-topic",
    "unsubscribe",
    "unused-id",
}
SEEDS = range(2)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Each scenario, with some seeds."""
    return [play(scenario, seed) for scenario in SCENARIOS.values() for seed in SEEDS]


def of(cases: list[Case], name: str) -> list[Case]:
    return [case for case in cases if case.scenario == name]


def test_each_kind_occurs(cases: list[Case]) -> None:
    """A cooperative round is separate only if the first is not in the log."""
    assert {truth.kind for case in cases for truth in case.truths} == KINDS


def test_the_same_seed_gives_the_same_case() -> None:
    """The history, the truth and the notes; and another seed gives another case."""
    first, again, other = make_case(3), make_case(3), make_case(4)
    assert first == again
    assert first.truths != other.truths


def test_timers_are_late(cases: list[Case]) -> None:
    """Like real timers: a session ends some ms after its deadline, by a different amount each time."""
    late_ms = {
        event.why.decided_ms - event.why.arrived_ms
        for case in cases
        if case.scenario in ("crash", "crash-loop", "two-crashes")
        for event in (item.event for item in case.history.items if isinstance(item, Happened))
        if isinstance(event, MemberRemoved) and event.why.cause is Cause.SESSION_EXPIRED
    }
    assert len(late_ms) > 2
    assert all(0 <= each <= LATE_MAX_MS for each in late_ms)


def test_a_third_is_not_plain() -> None:
    """Compounds, near misses and quiet cases."""
    assert 3 * WEIGHTS[ScenarioSort.PLAIN] == 2 * sum(WEIGHTS.values())


def rebalances_of(case: Case) -> dict[RebalanceId, tuple[int, int]]:
    """The spans of those in the log, by when each began and ended there."""
    found: dict[RebalanceId, tuple[int, int]] = {}
    began_ms, to_generation = 0, None
    for event in (item.event for item in case.history.items if isinstance(item, Happened)):
        if isinstance(event, RebalanceStarted):
            began_ms = event.why.decided_ms
            if to_generation is not None:  # the one before did not get to its end
                found[to_generation] = found[to_generation][0], began_ms
        elif isinstance(event, JoinPhaseCompleted | GroupEmptied | GroupStabilized):
            to_generation = event.incarnation, event.group.generation_id
            found[to_generation] = found.get(to_generation, (began_ms, 0))[0], event.why.decided_ms
        if isinstance(event, GroupEmptied | GroupStabilized):
            to_generation = None
    return found


def test_every_rebalance_of_the_history_is_some_truth_s(cases: list[Case]) -> None:
    """The world's own view of the group's state finds those that the log has, at the same times, for one owner each."""
    for case in cases:
        own = [each for truth in case.truths for each in truth.must]
        assert len(own) == len(set(own)), shown(case)
        if SCENARIOS[case.scenario].cuts is not None:
            continue
        found = rebalances_of(case)
        assert {each for truth in case.truths for each in truth.must | truth.may} == set(found), shown(case)
        for truth in case.truths:
            spans = sorted(found[each] for each in truth.must)
            if spans and not case.scenario.startswith("clock-jump"):
                assert (spans[0][0], spans[0][0]) in truth.starts, shown(case)
                assert (spans[-1][1], spans[-1][1]) in truth.ends, shown(case)


def test_spans_end_after_they_began(cases: list[Case]) -> None:
    """They do by either reading; a clock that jumps back is the exception."""
    for case in cases:
        if not case.scenario.startswith("clock-jump"):
            for truth in case.truths:
                assert all(from_ms <= to_ms for from_ms, to_ms in (*truth.starts, *truth.ends)), shown(case)
                first_ms, last_ms = min(truth.starts)[0], max(truth.ends)[1]
                assert first_ms <= last_ms <= case.until_ms, shown(case)


def test_culprits_are_processes_that_were_there(cases: list[Case]) -> None:
    """Each has had a member id."""
    for case in cases:
        for truth in case.truths:
            assert truth.culprits is None or truth.culprits <= set(case.names.values()), shown(case)


@pytest.mark.parametrize(
    "scenario", [each for each in SCENARIOS.values() if each.sort is ScenarioSort.QUIET], ids=lambda s: s.name
)
def test_nothing_must_be_reported_for_a_quiet_case(scenario: JudgedScenario) -> None:
    """But the start; and there is no rebalance after it."""
    for seed in range(4):
        start, *others = play(scenario, seed).truths
        assert start.kinds == ("start",)
        assert all(truth.is_optional and not truth.must for truth in others)


def test_a_phase_that_a_dead_process_held_is_the_crash_s(cases: list[Case]) -> None:
    """Not the newcomer's, whose join began it; below five seconds it is left open whether it was long enough."""
    held = [case for seed in range(30) for case in [play(SCENARIOS["crash-and-newcomer"], seed)]]
    for case in held:
        _, crash, scaled = case.truths
        assert not scaled.must or not crash.must, shown(case)
    assert any(case.truths[1].must and case.truths[2].is_optional for case in held)
    assert any(not case.truths[1].must and case.truths[1].may for case in held)


def test_a_crash_within_a_deployment_has_a_parent(cases: list[Case]) -> None:
    """And it is a separate incident."""
    for case in of(cases, "crash-in-deployment"):
        _, deployment, crash = case.truths
        assert (deployment.kind, crash.kinds[-1], crash.parent) == ("deployment", "crash", 1)
        assert deployment.culprits is not None
        assert crash.culprits is not None
        assert not crash.culprits & deployment.culprits


def test_two_crashes_are_two_incidents(cases: list[Case]) -> None:
    """Each with its own process; two static members look as if they had been stopped together."""
    for case in of(cases, "two-crashes"):
        _, *crashes = case.truths
        assert all("crash" in truth.kinds for truth in crashes)
        if len(crashes) == 1:
            assert crashes[0].kind == "stopped"
            assert len(crashes[0].culprits or ()) == 2
        else:
            assert crashes[0].culprits != crashes[1].culprits


def test_replacements_of_identical_processes_cannot_be_known(cases: list[Case]) -> None:
    """Dynamic members with one client id on one host, and pods with another host after each restart."""
    for case in of(cases, "restart-at-once"):
        cannot = "one client id, one host" in case.setting or "another host" in case.setting
        assert (case.truths[1].knowable is Knowable.UNKNOWABLE) is cannot


def test_a_log_with_a_gap_lacks_the_evidence(cases: list[Case]) -> None:
    """The records at that place are missing, or cannot be read."""
    for name, number in (("unknown", 1), ("lost-beginning", 0)):
        gone = [item for case in of(cases, name) for item in case.history.items if isinstance(item, Gap | Broken)]
        assert {type(item) for item in gone} == {Gap, Broken}
        assert all(case.truths[number].kinds == ("unknown",) for case in of(cases, name))


def test_a_clock_that_jumps_leaves_two_readings_of_the_end() -> None:
    """The wall clock's, and that of the time that passed."""
    case = play(SCENARIOS["clock-jump"], 1)
    (began_ms, _), ends = case.truths[1].starts[0], case.truths[1].ends
    durations = sorted(end_ms - began_ms for end_ms, _ in ends)
    assert len(durations) == 2
    assert durations[1] - durations[0] == 3_600_000
    assert any(0 <= duration < 60_000 for duration in durations)


def test_a_case_is_shown_with_what_was_done() -> None:
    """The processes by name, the truth by kind."""
    text = shown(play(SCENARIOS["crash"], 1))
    assert "is killed" in text
    assert "truth 1: crash (inferred)" in text
