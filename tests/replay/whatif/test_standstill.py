"""The cost of other settings: the time not Stable, and the partition time without a consumer."""

from collections.abc import Callable
from itertools import takewhile

import msgspec
import pytest

from muster.events.events import JoinPhaseCompleted, MemberEvent, MemberRemoved, RebalanceStarted
from muster.replay.history.items import Happened, Item
from muster.replay.incidents.cost import partition_ms
from muster.replay.incidents.grade import Grade
from muster.replay.whatif.alterations import Alterations
from muster.replay.whatif.answer import advice
from muster.replay.whatif.rebalances import NOT_REPRODUCED
from muster.replay.whatif.verdict import Standstill, Verdict
from tests.judge.case import play
from tests.judge.scenarios import SCENARIOS
from tests.replay.lived import Deed, Settings, live
from tests.replay.played import history_of
from tests.replay.whole import History, incidents, rebalances, what_if

A_CRASH_AND_A_JOIN: list[Deed] = [(5, "crash", "b"), (20, "start", "d"), (100, "start", "e")]
DYNAMIC = Settings(is_static=False)
_INITIAL_MS = 2_000
RESTARTS: list[Deed] = [(5, "crash", "b"), (25, "start", "b"), (40, "start", "d")]


def stood_ms(history: History) -> int:
    """Return the time not Stable, according to the rebalances."""
    return sum(each.duration_ms or 0 for each in rebalances(history.group_id, history.items))


def partition_ms_in(cost: Standstill) -> int:
    assert cost.partition_ms is not None
    return cost.partition_ms


def test_fewer_rebalances_may_stop_partitions_for_longer() -> None:
    """All wait for a dead member's session of 60 s; lived with that setting, they wait as long."""
    history = history_of(live(A_CRASH_AND_A_JOIN, DYNAMIC, until_s=120))
    really = history_of(live(A_CRASH_AND_A_JOIN, Settings(is_static=False, session_timeout_ms=60_000), until_s=120))
    result = what_if(history, Alterations(session_timeout_ms=60_000))
    assert (result.would_not, result.cannot_tell) == (1, 0)
    assert result.recorded.not_stable_ms == pytest.approx(stood_ms(history), abs=100)
    assert result.played.not_stable_ms == pytest.approx(stood_ms(really), abs=3_000)
    assert result.played.not_stable_ms > result.recorded.not_stable_ms + 30_000
    assert partition_ms_in(result.played) > partition_ms_in(result.recorded)
    assert result.advice.startswith("keep the recorded settings: with these it would have cost more (")


def test_a_recorded_rebalance_costs_the_same_as_its_incident() -> None:
    """The control measures the same partitions for the same time, and before it those of the dead member.

    In the group's first rebalance it measures the partitions that are assigned then.
    """
    history = history_of(live(A_CRASH_AND_A_JOIN, DYNAMIC, until_s=120))
    result = what_if(history, Alterations(scale_up_delay_ms=0))
    first = result.rebalances[0].recorded
    assert first is not None
    assert partition_ms_in(first) == 12 * first.not_stable_ms > 0
    lived = list(zip(rebalances(history.group_id, history.items), result.rebalances, strict=True))
    for recorded, reported in lived[1:]:
        assert reported.recorded is not None
        assert reported.recorded == reported.played
        silent_ms = partition_ms_in(reported.recorded) - (partition_ms(recorded) or 0)
        assert silent_ms >= 0
        assert (silent_ms > 0) is ("was not heard from" in reported.headline)


def test_a_rebalance_that_takes_longer_in_the_log_than_in_the_control_is_not_decided() -> None:
    """An unused member id delayed it: its cost is in the log, and in neither sum."""
    history = play(SCENARIOS["unused-id"], 5).history
    result = what_if(history, Alterations(session_timeout_ms=45_000))
    held = max(result.rebalances, key=lambda each: each.duration_ms or 0)
    assert (held.verdict, held.reason) == (Verdict.CANNOT_TELL, NOT_REPRODUCED)
    assert held.recorded is not None
    assert held.recorded.not_stable_ms == held.duration_ms
    assert result.undecided.not_stable_ms == held.duration_ms > 40_000
    assert result.recorded.not_stable_ms + result.undecided.not_stable_ms == pytest.approx(stood_ms(history), abs=100)


def partition_ms_of(script: list[Deed], session_timeout_ms: int, begins: str, until_s: int) -> tuple[int, int]:
    """Return a story's partition time with other sessions: as played, and as really lived with them."""
    lived = Settings(is_static=False, session_timeout_ms=6_000, rebalance_timeout_ms=30_000)
    other = Settings(is_static=False, session_timeout_ms=session_timeout_ms, rebalance_timeout_ms=30_000)
    history = history_of(live(script, lived, until_s=until_s, begins=begins))
    result = what_if(history, Alterations(session_timeout_ms=session_timeout_ms))
    really = what_if(history_of(live(script, other, until_s=until_s, begins=begins)), Alterations())
    assert (result.cannot_tell, result.besides_unknown) == (0, 0)
    return partition_ms_in(result.played), partition_ms_in(really.recorded)


def test_two_that_are_silent_at_once_leave_no_partition_twice() -> None:
    """In the log the one that crashes had taken over the partitions of the one that left; as static members each keeps
    its own.
    """
    script: list[Deed] = [(5, "stop", "b"), (9, "crash", "a"), (120, "start", "d")]
    dynamic, static = (Settings(is_static=each, session_timeout_ms=20_000) for each in (False, True))
    history, really = (history_of(live(script, each, until_s=150, begins="ab")) for each in (dynamic, static))
    played = what_if(history, Alterations(is_static=True)).played.partition_ms
    assert played == pytest.approx(what_if(really, Alterations()).recorded.partition_ms, rel=0.02)


def test_a_lone_member_that_dies_while_it_waits_costs_until_it_is_missed() -> None:
    """The rebalance timeout ends the join phase that waits for its old id; then the group waits for its sync."""
    script: list[Deed] = [(5, "crash", "a"), (7, "start", "a"), (18, "crash", "a"), (200, "start", "e")]
    played, really = partition_ms_of(script, 60_000, "a", until_s=230)
    assert played == pytest.approx(really, rel=0.02)


def test_nothing_costs_anything_after_the_end_of_the_log() -> None:
    """The recorded cost ends there too: a dead group does not cost more if its members are removed later."""
    script: list[Deed] = [(5, "crash", "a"), (7, "start", "a"), (18, "crash", "a")]
    lived = Settings(is_static=False, session_timeout_ms=6_000, rebalance_timeout_ms=30_000)
    history = history_of(live(script, lived, until_s=60, begins="a"))
    events = [item.event for item in history.items if isinstance(item, Happened)]
    result = what_if(history, Alterations(session_timeout_ms=60_000))
    crash_ms = next(each.last_seen_ms for each in events if isinstance(each, MemberRemoved))
    assert partition_ms_in(result.played) == 12 * result.played.not_stable_ms  # of the first, which is over
    recorded_ms = partition_ms_in(result.recorded) + partition_ms_in(result.undecided)
    assert recorded_ms <= partition_ms_in(result.recorded) + 12 * (events[-1].why.decided_ms - crash_ms)
    last = result.rebalances[-1]
    assert "waited in vain" in last.reason
    assert (last.is_cost_final, last.played) == (False, None)


def test_a_rebalance_unfinished_at_the_end_of_the_log_is_in_neither_sum() -> None:
    """Recorded or played: it seemed cheaper only because nothing is measured after the end of the log."""
    whole = history_of(live([(5, "start", "d"), (15, "start", "e")], DYNAMIC, until_s=90))
    begins = [
        number
        for number, item in enumerate(whole.items)
        if isinstance(item, Happened) and isinstance(item.event, RebalanceStarted)
    ]
    running = msgspec.structs.replace(whole, items=whole.items[: begins[2] + 1])
    for history in (running, whole):  # of the whole one only what is played runs on
        result = what_if(history, Alterations(scale_up_delay_ms=12_000))
        assert result.cannot_tell == 0
        open_ones = [each for each in result.rebalances if not each.is_cost_final]
        assert len(open_ones) == result.not_over == len(result.rebalances) - 1
        assert all(each.played is None for each in open_ones)
        assert result.recorded == result.rebalances[0].recorded
        assert result.played == result.rebalances[0].played
        assert "is not known, since the log ends first" in result.advice
        assert "cost less" not in result.advice
        assert "cost more" not in result.advice


def test_a_longer_initial_delay_costs_the_unconsumed_partitions() -> None:
    """Also in a group's first generation, before which no number of partitions is known."""
    lived = Settings(initial_rebalance_delay_ms=1_000)
    history = history_of(live([(0, "start", "a"), (50, "start", "b")], lived, until_s=60, begins=""))
    result = what_if(history, Alterations(initial_rebalance_delay_ms=10_000))
    assert partition_ms_in(result.recorded) == 12 * result.recorded.not_stable_ms
    assert partition_ms_in(result.played) == 12 * result.played.not_stable_ms
    assert result.played.not_stable_ms > result.recorded.not_stable_ms + 8_000
    assert result.advice.startswith("keep the recorded settings")


def test_one_unit_that_rises_while_the_other_falls_is_not_advice() -> None:
    shorter, longer = (
        Standstill(not_stable_ms=4_200, partition_ms=72_200),
        Standstill(not_stable_ms=8_100, partition_ms=36_100),
    )
    assert advice(shorter, longer) == (
        "with these settings it would have been not Stable for longer (8.1 s instead of 4.2 s), but with fewer"
        " partition-seconds without a consumer (36.1 instead of 72.2)"
    )
    assert advice(longer, shorter, unknown=1) == (
        "1 rebalance cannot be decided; the others would have been not Stable for less long (4.2 s instead of 8.1 s),"
        " but with more partition-seconds without a consumer (72.2 instead of 36.1)"
    )


def test_a_group_without_members_costs_until_the_next_join() -> None:
    """And the same, however late its last member is removed: its silence and the empty time do not overlap."""
    script: list[Deed] = [(5, "crash", "a"), (150, "start", "e")]
    for session_timeout_ms in (6_000, 20_000, 60_000):
        played, really = partition_ms_of(script, session_timeout_ms, "a", until_s=180)
        assert played == pytest.approx(really, rel=0.01)
        assert played == pytest.approx(12 * (150_000 + 2 * _INITIAL_MS), rel=0.01)


def test_a_group_that_is_empty_for_long_hides_no_difference() -> None:
    """Nor does time not Stable matter if the group would have had no members otherwise."""
    empty = Standstill(partition_ms=10_000_000, empty_partition_ms=10_000_000)
    less, more = (empty + Standstill(partition_ms=ms) for ms in (37_000, 67_000))
    assert advice(less, more).startswith("keep the recorded settings")
    waited = Standstill(not_stable_ms=900_000, partition_ms=10_000_000)
    assert advice(empty, waited) == ""


def test_a_restart_that_is_absorbed_costs_its_silence_alone() -> None:
    """This is less than the two recorded rebalances."""
    history = history_of(live([(5, "crash", "b"), (25, "start", "b")], Settings(), until_s=60))
    result = what_if(history, Alterations(session_timeout_ms=45_000))
    _, lost, back = result.rebalances
    assert (lost.verdict, back.verdict) == (Verdict.WOULD_NOT, Verdict.WOULD_NOT)
    assert lost.played is not None
    assert lost.played.not_stable_ms == 0
    assert partition_ms_in(lost.played) > 0
    assert back.played == Standstill(not_stable_ms=0, partition_ms=0)


def test_a_process_that_comes_back_before_its_former_id_is_gone_was_restarted() -> None:
    """As in `why`. So the cost of waiting for the old id counts, and the longer session is not advised."""
    script: list[Deed] = [(5, "crash", "a"), (7, "start", "a"), (60, "crash", "a"), (200, "start", "e")]
    history = history_of(live(script, DYNAMIC, until_s=300, begins="a"))
    result = what_if(history, Alterations(session_timeout_ms=60_000))
    assert result.cannot_tell == 0
    assert result.rebalances[1].grade is Grade.INFERRED
    assert result.advice.startswith("keep the recorded settings")


def test_an_undecidable_rebalance_has_an_unknown_cost() -> None:
    """It is in neither sum; its recorded cost is reported separately, and the comparison is not worded as advice."""
    history = history_of(live([(5, "crash", "b")], Settings(), until_s=60))
    result = what_if(history, Alterations(session_timeout_ms=1_000_000))
    assert result.rebalances[-1].verdict is Verdict.CANNOT_TELL
    assert result.rebalances[-1].recorded is not None
    assert result.rebalances[-1].played is None
    assert result.recorded == result.played
    assert result.undecided == result.rebalances[-1].recorded
    assert partition_ms_in(result.undecided) > 0


def test_a_comparison_that_leaves_rebalances_out_is_not_advice() -> None:
    """They might reverse it: the text has their number, and does not advise to keep or change a setting."""
    less, more = (Standstill(not_stable_ms=0, partition_ms=ms) for ms in (37_000, 667_000))
    assert advice(less, more, 2).startswith("2 rebalances cannot be decided; the others would have cost more")
    assert advice(more, less, 1).startswith("1 rebalance cannot be decided; the others would have cost less")
    assert advice(less, less, 1) == ""


def test_a_part_of_an_undecidable_rebalance_is_undecidable() -> None:
    """The sums would otherwise count one as saved, and not the other, which it would have prolonged."""
    history = history_of(live(RESTARTS, DYNAMIC, until_s=120))
    result = what_if(history, Alterations(session_timeout_ms=60_000))
    unknown = {each.seq for each in result.rebalances if each.verdict is Verdict.CANNOT_TELL}
    parts = [each for each in result.rebalances if "depends on the one that began with seq" in each.reason]
    assert parts
    assert {each.verdict for each in parts} == {Verdict.CANNOT_TELL}
    named = [each for each in result.rebalances if each.reason.startswith("it would have been a part of the one that")]
    assert not unknown & {int(each.reason.rpartition(" ")[2]) for each in named}


@pytest.mark.parametrize(
    ("recorded", "played", "begins"),
    [
        ((100, 37_000), (51_200, 667_000), "keep the recorded settings"),
        ((51_200, 667_000), (100, 37_000), "with these settings it would have cost less ("),
        ((100, 37_000), (150, 37_500), ""),
        ((1_000, 0), (9_000, 0), "keep the recorded settings"),
        ((9_000, 500_000), (1_000, 510_000), "with these settings it would have cost less ("),
    ],
)
def test_advice_goes_by_partition_time_then_by_time(
    recorded: tuple[int, int], played: tuple[int, int], begins: str
) -> None:
    """A difference of a second, or of a twentieth, does not count."""
    before, after = (Standstill(not_stable_ms=ms, partition_ms=partition) for ms, partition in (recorded, played))
    reported = advice(before, after)
    assert reported.startswith(begins)
    assert bool(reported) is bool(begins)


def with_assignments(history: History, change: Callable[[bytes], bytes]) -> History:
    """Return the history with all assignments changed."""
    items: list[Item] = []
    for item in history.items:
        if isinstance(item, Happened) and isinstance(item.event, MemberEvent):
            event = item.event
            member = msgspec.structs.replace(event.member, assignment=change(event.member.assignment))
            item = msgspec.structs.replace(item, event=msgspec.structs.replace(event, member=member))  # noqa: PLW2901
        items.append(item)
    return msgspec.structs.replace(history, items=tuple(items))


def test_the_cost_of_partitions_that_cannot_be_read_is_not_known() -> None:
    """As of Kafka Connect, whose assignments have no partitions of topics: it is not 0."""
    history = with_assignments(
        history_of(live(A_CRASH_AND_A_JOIN, DYNAMIC, until_s=120)), lambda read: b"\x00\x01connect" if read else b""
    )
    result = what_if(history, Alterations(session_timeout_ms=60_000))
    assert (result.recorded.partition_ms, result.played.partition_ms) == (None, None)
    assert "an unknown number of partition-seconds without a consumer" in str(result.recorded)
    assert result.advice.startswith("with these settings it would have been not Stable for longer (")
    assert result.advice.endswith("; the number of partitions without a consumer is not known")
    restart = next(each for each in incidents(history) if each.kind == "restart")
    assert (restart.cost.partition_ms, restart.cost.silent_partition_ms) == (None, None)


def test_the_cost_of_a_first_rebalance_that_the_log_ends_in_is_not_known() -> None:
    """The log does not show how many partitions would have been assigned."""
    whole = history_of(live([], DYNAMIC, until_s=1))
    items = tuple(takewhile(lambda item: not _is_completed(item), whole.items))
    result = what_if(msgspec.structs.replace(whole, items=items), Alterations(session_timeout_ms=60_000))
    assert result.undecided.partition_ms is None


def _is_completed(item: Item) -> bool:
    return isinstance(item, Happened) and isinstance(item.event, JoinPhaseCompleted)
