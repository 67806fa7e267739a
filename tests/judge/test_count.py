"""The count: tellers that know the truth and spoil it score what they should."""

import msgspec
import pytest

from muster.replay.fleet.simulation.world.truth import Knowable
from tests.judge.__main__ import TRUTH, all_judged
from tests.judge.case import Case, make_case, play
from tests.judge.count import Verdict, count
from tests.judge.scenarios import SCENARIOS
from tests.judge.table import described, failures, misses, table
from tests.judge.tellers import repeated, replaced
from tests.judge.telling import Telling


def case_of(scenario: str, seed: int = 1) -> Case:
    return play(SCENARIOS[scenario], seed)


def counted(case: Case, tellings: list[Telling]) -> list[Verdict]:
    """The verdicts after that on the start."""
    start, *others = count(case, tellings)
    assert start.is_right
    return others


@pytest.fixture(scope="module")
def crashes() -> Case:
    """Two crashes, each with its own rebalance."""
    return next(
        case
        for case in (case_of("two-crashes", seed) for seed in range(60))
        if all(truth.must for truth in case.truths) and {truth.kinds for truth in case.truths[1:]} == {("crash",)}
    )


def test_the_truth_is_right() -> None:
    """A teller that repeats it scores 100 %, and abstains where nothing can be known."""
    verdicts = all_judged(TRUTH, None, range(100), 1)
    assert failures(verdicts) == []
    assert misses(verdicts) == []
    assert all(verdict.has_abstained is (verdict.knowable is Knowable.UNKNOWABLE) for verdict in verdicts)


def test_silence_is_missed_and_not_false(crashes: Case) -> None:
    """Nothing is reported."""
    verdicts = count(crashes, [])
    assert all(verdict.is_missed and not verdict.is_right and not verdict.is_false for verdict in verdicts)


def test_one_story_of_two_crashes_is_merged(crashes: Case) -> None:
    """And false of the crash that it is matched with; the other is missed."""
    start, first, second = repeated(crashes)
    merged = msgspec.structs.replace(
        first,
        culprits=first.culprits + second.culprits,
        rebalances=first.rebalances | second.rebalances,
        span=(first.span[0], second.span[1]),
    )
    one, other = counted(crashes, [start, merged])
    assert one.is_merged
    assert one.is_false
    assert not one.is_right
    assert other.is_missed


def test_a_deployment_reported_as_restarts_is_split_and_not_false() -> None:
    """Each was restarted; it is not the whole."""
    case = next(
        case
        for case in (case_of("deployment", seed) for seed in range(40))
        if case.truths[1].knowable is Knowable.INFERRED and len(case.truths[1].must) > 3
    )
    start, whole = repeated(case)
    parts = [
        msgspec.structs.replace(whole, key=f"part-{place}", kind="restart", rebalances=frozenset({each}))
        for place, each in enumerate(sorted(whole.rebalances))
    ]
    (verdict,) = counted(case, [start, *parts])
    assert verdict.is_split
    assert not verdict.is_false
    assert not verdict.is_right


def test_the_same_kind_reported_twice_is_split(crashes: Case) -> None:
    """One of the two would do."""
    tellings = repeated(crashes)
    again = msgspec.structs.replace(tellings[1], key="again", rebalances=frozenset())
    one, other = counted(crashes, [*tellings, again])
    assert one.is_split
    assert not one.is_right
    assert other.is_right


def test_a_wrong_kind_is_false(crashes: Case) -> None:
    """It asserts something that was not done."""
    one, other = counted(crashes, replaced(repeated(crashes), 1, kind="duel"))
    assert (one.kind_is_right, one.is_false, one.is_right) == (False, True, False)
    assert other.is_right


def test_an_innocent_culprit_is_false(crashes: Case) -> None:
    """One culprit too many, or another one."""
    tellings = repeated(crashes)
    for culprits in (tellings[2].culprits, tellings[1].culprits + tellings[2].culprits, ("nobody",)):
        one, _ = counted(crashes, replaced(tellings, 1, culprits=culprits))
        assert (one.culprits_are_exact, one.is_false, one.is_right) == (False, True, False)


def test_a_missing_culprit_is_not_exact_and_not_false() -> None:
    """The tellings of the others are right."""
    case = case_of("network-cut")
    start, cut = repeated(case)
    (verdict,) = counted(case, [start, msgspec.structs.replace(cut, culprits=cut.culprits[1:])])
    assert (verdict.culprits_are_exact, verdict.is_false, verdict.is_right) == (False, False, False)


@pytest.mark.parametrize(
    ("shift_ms", "is_right"), [(0, True), (1_000, True), (-1_000, True), (1_001, False), (-1_001, False)]
)
def test_a_span_is_right_within_a_second(crashes: Case, shift_ms: int, is_right: bool) -> None:
    """At its start and at its end."""
    tellings = repeated(crashes)
    began_ms, ended_ms = tellings[1].span
    assert ended_ms is not None
    for span in ((began_ms + shift_ms, ended_ms), (began_ms, ended_ms + shift_ms)):
        one, _ = counted(crashes, replaced(tellings, 1, span=span))
        assert (one.span_is_right, one.is_right) == (is_right, is_right)


def test_a_crash_reported_at_another_time_is_still_that_crash(crashes: Case) -> None:
    """When the process died: a wrong span, and nothing false."""
    died_ms = crashes.truths[1].extent[0]
    verdicts = count(crashes, replaced(repeated(crashes), 1, span=(died_ms, died_ms), rebalances=frozenset()))
    assert (verdicts[1].kind_is_right, verdicts[1].span_is_right) == (True, False)
    assert not any(verdict.is_false for verdict in verdicts)


def test_a_missing_end_is_not_right(crashes: Case) -> None:
    """The case is over, so it is known."""
    tellings = repeated(crashes)
    one, _ = counted(crashes, replaced(tellings, 1, span=(tellings[1].span[0], None)))
    assert not one.is_right


@pytest.mark.parametrize("fields", [{"kind": "unknown"}, {"grade": "unknown"}])
def test_an_abstention_is_neither_right_nor_false(crashes: Case, fields: dict[str, str]) -> None:
    """Even if the log supports the answer."""
    one, _ = counted(crashes, replaced(repeated(crashes), 1, **fields))
    assert (one.has_abstained, one.is_right, one.is_false) == (True, False, False)


def test_unknowable_facts_must_not_be_asserted() -> None:
    """An abstention is right; the truth, asserted, is overclaimed."""
    case = next(
        case
        for case in (case_of("restart-at-once", seed) for seed in range(20))
        if case.truths[1].knowable is Knowable.UNKNOWABLE
    )
    tellings = repeated(case)
    (abstained,) = counted(case, tellings)
    assert abstained.is_right
    (asserted,) = counted(case, replaced(tellings, 1, grade="inferred"))
    assert (asserted.is_overclaimed, asserted.is_false, asserted.is_right) == (True, False, False)
    (wrong,) = counted(case, replaced(tellings, 1, grade="inferred", kind="crash"))
    assert wrong.is_false


def test_a_rebalance_left_out_is_not_right(crashes: Case) -> None:
    """Though the kind, the culprit and the span are."""
    one, _ = counted(crashes, replaced(repeated(crashes), 1, rebalances=frozenset()))
    assert one.kind_is_right
    assert not one.is_right


def test_a_parent_must_be_the_one() -> None:
    """A crash within a deployment names it; nothing else has a parent."""
    case = next(
        case
        for case in (case_of("crash-in-deployment", seed) for seed in range(20))
        if all(truth.must for truth in case.truths)
    )
    tellings = repeated(case)
    deployment, crash = counted(case, tellings)
    assert deployment.is_right
    assert crash.is_right
    for number, parent in ((2, None), (2, "0"), (1, "0")):
        verdicts = count(case, replaced(tellings, number, parent=parent))
        assert [verdict.parent_is_right for verdict in verdicts].count(False) == 1
        assert not verdicts[number].is_right


def test_an_invented_incident_is_false() -> None:
    """Something is reported for a quiet case."""
    case = case_of("nothing")
    (start,) = repeated(case)
    reported = Telling(key="x", kind="crash", span=(case.until_ms - 60_000, case.until_ms), grade="inferred")
    right, invented = count(case, [start, reported])
    assert right.is_right
    assert (invented.truth, invented.is_false) == (None, True)
    assert count(case, [start, msgspec.structs.replace(reported, grade="unknown")]) == [right]


def test_optional_incidents_may_be_reported(crashes: Case) -> None:
    """An absorbed restart does not count either way, unless something else is reported about it."""
    case = case_of("absorbed-restart")
    start, restart = repeated(case)
    assert misses(count(case, [start])) == []
    assert misses(count(case, [start, restart])) == []
    assert misses(count(case, [start, msgspec.structs.replace(restart, kind="crash")])) == [
        "1 are false, none should be"
    ]


def test_an_instance_id_names_its_process() -> None:
    """Like any of its member ids."""
    case = case_of("duel")
    (name,) = case.truths[1].culprits or {""}
    members = [member_id for member_id, process in case.names.items() if process == name]
    for culprits in ((name,), (members[0],), (members[-1], name)):
        (verdict,) = counted(case, replaced(repeated(case), 1, culprits=culprits))
        assert verdict.culprits_are_exact


def test_the_table_has_a_line_for_each_kind_and_the_totals(crashes: Case) -> None:
    """And a failure is described with its seed."""
    verdicts = count(crashes, replaced(repeated(crashes), 1, kind="duel"))
    lines = [line.split() for line in table(verdicts).splitlines()]
    assert lines[0][:4] == ["kind", "known", "cases", "right"]
    assert ["crash", "inferred", "2", "1"] in [line[:4] for line in lines]
    assert ["all", "recorded", "1", "1"] in [line[:4] for line in lines]
    (failed,) = failures(verdicts)
    assert described(failed).startswith(f"seed {crashes.seed} (two-crashes), truth 1, crash: false, ")
    assert misses(verdicts) == ["1 of 2 that are inferred are right, 95% should be", "1 are false, none should be"]


def test_jobs_share_the_work() -> None:
    """Two processes find what one does."""
    assert all_judged(TRUTH, "crash", range(40), 2) == all_judged(TRUTH, "crash", range(40), 1)


def test_cases_of_one_kind_are_found_by_it() -> None:
    """The table has rows by an incident's kind, or by the scenario's name."""
    verdicts = all_judged(TRUTH, "duel", range(150, 250), 1)
    assert {make_case(verdict.seed).scenario for verdict in verdicts} == {"duel"}
