"""The values of a report: lanes, drawings, texts, and left-out parts."""

from itertools import pairwise

import msgspec
import pytest

from muster.events.causes import Cause
from muster.replay.history.items import Broken, Happened, LogPosition, Unreadable, with_gaps
from muster.replay.history.window import AtSeq
from muster.replay.html.document import TEXT_MAX, shown
from muster.replay.incidents.grade import Grade
from muster.replay.report.page import Limits, Page
from muster.replay.report.stories import SEQS_MAX, brief
from tests.judge.case import make_case
from tests.replay.histories import Script
from tests.replay.incidents.fleet import Fleet
from tests.replay.report.told import busy, page_of
from tests.replay.stories import a_night
from tests.replay.whole import History, incidents, rebalances, state_at

LEAST = Limits(lanes=1, stretches=1, bands=1, incidents=1, shifts=1)


def lanes_of(page: Page) -> dict[str, tuple[str, int, list[int | None]]]:
    """Return how each process ended, how many member ids it had, and the numbers of its partitions over time."""
    return {
        lane.name: (lane.ended, lane.member_ids, [each.partitions for each in lane.stretches]) for lane in page.lanes
    }


def test_each_process_has_a_lane_with_its_partitions() -> None:
    """A restarted static member keeps its lane; a lost one was silent for its session."""
    page = page_of(a_night().history())
    lanes = lanes_of(page)
    assert [(name, *lane[:2]) for name, lane in lanes.items()] == [
        ("billing-1", "", 3),
        ("billing-2", "expired", 1),
        ("billing-3", "", 3),
        ("aiokafka-0.14", "left", 1),
    ]
    assert lanes["billing-2"][2] == [0, 4]
    lost = page.lanes[1]
    assert [each.end_ms - each.begin_ms for each in lost.silences] == [45_020]
    assert [(mark.at_ms, mark.what) for mark in lost.marks] == [(lost.end_ms, "expired")]
    assert [lane.partitions for lane in page.lanes] == [6, None, 6, None]


def test_it_shows_the_incidents_and_rebalances_of_the_history() -> None:
    """Each incident with the lanes of its culprits, each rebalance with its moves; generations are consecutive."""
    history = a_night().history()
    page = page_of(history)
    assert [each.kind for each in page.stories] == [each.kind for each in incidents(history)]
    (crash,) = (each for each in page.stories if each.kind == "crash")
    assert [page.lanes[each].name for each in crash.lanes] == ["billing-2"]
    assert [each.generations for each in page.shifts] == ["0 → 1", "1 → 2", "2 → 3", "3 → 4"]
    assert page.shifts[1].moves == ("billing-2 → aiokafka-0.14-00000007…: 4 (orders 4-7)",)
    assert [band.generation for band in page.bands] == [0, 1, 2, 3, 4]
    assert len(page.unstable) == 3  # the superseded one and the next are one time
    assert (page.state, page.rebalances, page.left_out, page.missing) == ("Stable", 4, (), ())


def test_indistinguishable_processes_have_a_lane_for_each_member_id() -> None:
    """Two live members with one client id and host; one that joined after the other's end is the same process."""
    script = Script().coordinator("coordinator-a:100").created()
    twins = [script.member("twin", static=False, client_id="twin") for _ in range(2)]
    single = script.member("single", static=False, client_id="single", host="/10.0.0.9")
    script.start(*map(script.joined, (*twins, single))).wait(100).complete().stabilize({})
    script.wait(60_000).start(script.removed(single, Cause.SESSION_EXPIRED, silent_ms=45_000))
    again = script.member("single", static=False, client_id="single", host="/10.0.0.9")
    script.wait(1_000).advanced(script.joined(again)).complete().stabilize({})
    page = page_of(script.history())
    assert [(lane.name, lane.grade, lane.member_ids) for lane in page.lanes] == [
        ("single", Grade.INFERRED, 2),
        ("twin-00000001…", Grade.UNKNOWN, 1),
        ("twin-00000002…", Grade.UNKNOWN, 1),
    ]


def test_gaps_are_noted_and_end_open_spans() -> None:
    """The record of a member's end is missing: it left, but it is not recorded how."""
    script = a_night()
    reads = [read for read in script.reads if not (isinstance(read, Happened) and 20 <= read.event.seq <= 26)]
    page = page_of(script.history(reads=reads))
    assert len(page.missing) == 1
    assert "20" in page.missing[0].text
    assert "26" in page.missing[0].text
    assert page.begin_ms <= page.missing[0].at_ms <= page.end_ms
    after = [each for each in page.lanes[0].stretches if each.begin_ms >= page.missing[0].at_ms - 60_000]
    assert after[0].partitions is None


def test_after_a_gap_no_member_is_shown_without_partitions() -> None:
    """Until a complete transition has all assignments again."""
    script = Script().coordinator("coordinator-a:100").created()
    names = ("one", "two")
    script.start(*(script.joined(script.member(name)) for name in names)).wait(100).complete()
    script.stabilize({"one": {"orders": [0]}, "two": {"orders": [1]}})
    begin = script.group.seq
    for turn in range(3):
        script.wait(10_000).start(script.rejoined(script.of("one"))).wait(100).complete()
        script.wait(50).stabilize({"one": {"orders": [turn % 2]}, "two": {"orders": [(turn + 1) % 2]}})
    lost = next(read.event.seq for read in script.reads if isinstance(read, Happened) and read.event.seq > begin + 4)
    reads = [read for read in script.reads if not (isinstance(read, Happened) and read.event.seq == lost)]
    for lane in lanes_of(page_of(script.history(reads=reads))).values():
        assert 0 not in lane[2][1:]
        assert lane[2][-1] == 1


def test_a_recreated_group_shows_the_members_of_both_lives() -> None:
    """It was deleted, and formed again."""
    script = Script().coordinator("coordinator-a:100").created()
    script.start(script.joined(script.member("one"))).wait(100).complete().stabilize({"one": {"orders": [0]}})
    script.wait(1_000).start(script.removed(script.of("one"), Cause.MEMBER_LEFT, request=True))
    script.wait(100).emptied().wait(1_000).deleted().wait(60_000).made_anew().created()
    script.start(script.joined(script.member("two"))).wait(100).complete().stabilize({"two": {"orders": [0]}})
    assert {name: lane[0] for name, lane in lanes_of(page_of(script.history())).items()} == {"one": "left", "two": ""}


def test_members_whose_leave_is_not_in_the_log_end_when_the_group_is_recreated() -> None:
    """It is not recorded how they left."""
    script = Script().coordinator("coordinator-a:100").created()
    script.start(script.joined(script.member("one"))).wait(100).complete().stabilize({"one": {"orders": [0]}})
    script.wait(60_000).made_anew().created()
    script.start(script.joined(script.member("two"))).wait(100).complete().stabilize({"two": {"orders": [0]}})
    lanes = lanes_of(page_of(script.history()))
    assert {name: lane[0] for name, lane in lanes.items()} == {"one": "not recorded", "two": ""}


def test_a_history_of_which_nothing_can_be_read_has_a_page() -> None:
    """It reports what is missing, and that the state is not known."""
    position = LogPosition(partition=3, offset=0, timestamp_ms=1_795_226_400_000)
    broken = Broken(position=position, kind=Unreadable.BROKEN, reason="no event")
    page = page_of(History(group_id=Script().group_id, log="memory", items=tuple(with_gaps([broken]))))
    assert (page.state, page.lanes, len(page.missing)) == ("not known", (), 1)


def test_the_latest_is_kept_and_the_rest_is_counted() -> None:
    """If there is not enough room; the most costly incidents are kept."""
    page = page_of(a_night().history(), LEAST)
    assert [lane.name for lane in page.lanes] == ["billing-3"]
    assert [len(each) for each in (page.bands, page.shifts)] == [1, 1]
    assert [each.kind for each in page.stories] == ["start", "crash", "scale-down", "deployment"]
    assert "The 3 earliest incidents that cost less are left out." in page.left_out
    assert "The 3 earliest processes are left out." in page.left_out
    assert page.incidents_told == 7


def test_it_begins_with_what_cost_most() -> None:
    """The order is by time without a consumer; it has totals, and the number of each kind."""
    page = page_of(a_night().history())
    assert [page.stories[each].kind for each in page.weightiest] == ["crash", "scale-down", "deployment", "start"]
    assert page.cost == (
        "4 rebalances, 9.1 s not Stable, 252.9 partition-seconds without a consumer (180.1 while a member was"
        " silent), 8 partitions moved, 3 static restarts without a rebalance"
    )
    assert page.kinds[0] == ("deployment", 2)
    assert len(page.kinds) == 6


def test_the_state_kept_while_reading_is_bounded() -> None:
    """10,000 events: the counts include everything that was left out."""
    page = page_of(busy(10_000).history())
    assert (len(page.lanes), page.events >= 10_000, page.left_out) == (20, True, ())
    assert sum(len(lane.marks) for lane in page.lanes) == len([each for each in page.stories if each.kind != "start"])


@pytest.mark.parametrize("seed", range(16))
def test_nothing_is_left_out_of_what_the_judge_plays(seed: int) -> None:
    """All incidents and rebalances, and the final members; a process occurs once, or was silent."""
    history = make_case(seed).history
    page = page_of(history)
    assert [each.headline for each in page.stories] == [shown(each.headline) for each in incidents(history)]
    assert len(page.shifts) == page.rebalances == len(rebalances(history.group_id, history.items))
    state = state_at(history, AtSeq(list(history.events)[-1].event.seq))
    assert state is not None
    assert len([lane for lane in page.lanes if lane.end_ms is None]) == len(state.members)
    if any("clock" in each.text for each in page.missing):
        return
    for lane in page.lanes:
        twice = [after.begin_ms for before, after in pairwise(lane.stretches) if before.end_ms > after.begin_ms]
        assert all(any(each.begin_ms <= at_ms <= each.end_ms for each in lane.silences) for at_ms in twice)


def test_times_never_run_backwards_on_a_lane() -> None:
    """A wall clock that jumped back an hour is reported, and bars are drawn on both sides of the jump."""
    script = Script().coordinator("coordinator-a:100").created()
    script.start(script.joined(script.member("one"))).wait(100).complete().stabilize({"one": {"orders": [0]}})
    script.wait(-3_600_000).start(script.joined(script.member("two"))).wait(100).complete()
    script.stabilize({"one": {"orders": [0]}, "two": {"orders": [1]}})
    page = page_of(script.history())
    assert [each.text.split(":")[0] for each in page.missing] == ["the wall clock went back by 1 h 00 min to here"]
    assert sorted(lanes_of(page)["one"][2], key=str) == [0, 1, 1]
    for lane in page.lanes:
        assert all(each.begin_ms <= each.end_ms for each in lane.stretches)
        assert all(each.begin_ms <= each.end_ms for each in lane.silences)
    assert all(each.begin_ms <= each.end_ms for each in page.bands)
    assert all(each.begin_ms <= each.end_ms for each in page.unstable)
    assert all(each.end_ms is None or each.begin_ms <= each.end_ms for each in page.stories)


def test_a_clock_that_went_back_a_little_stood_still() -> None:
    """Less than a second is not worth a note, and cuts no bar."""
    script = Script().coordinator("coordinator-a:100").created()
    script.start(script.joined(script.member("one"))).wait(100).complete().stabilize({"one": {"orders": [0]}})
    script.wait(-50).advanced(script.rejoined(script.of("one")))
    page = page_of(script.wait(1_000).advanced(script.rejoined(script.of("one"))).history())
    assert page.missing == ()
    assert lanes_of(page)["one"][2] == [0, 1]


def test_a_text_is_bounded_and_has_no_control_characters() -> None:
    """The rest is counted; escaping does not exceed the limit."""
    assert shown("billing-2") == "billing-2"
    assert shown("\x1b[31m\u202e") == "\\x1b[31m\\u202e"
    assert shown(30_000 * "x") == f"{TEXT_MAX * 'x'}… (30,000 characters)"
    assert len(shown(30_000 * "\x00")) < TEXT_MAX + 40


def test_a_sentence_that_rests_on_many_events_names_the_first_and_counts_the_rest() -> None:
    """`why --format json` has the seqs of all of them."""
    (crash,) = (each for each in incidents(a_night().history()) if each.kind == "crash")
    (statement, *_) = crash.chain

    def seqs(count: int) -> str:
        many = msgspec.structs.replace(statement, seqs=tuple(range(1, count + 1)))
        (reported,) = brief(msgspec.structs.replace(crash, chain=(many,))).story.chain
        return reported.seqs

    first = ", ".join(map(str, range(1, SEQS_MAX + 1)))
    assert [seqs(2), seqs(SEQS_MAX + 3)] == ["1 and 2", f"{first} and 3 others"]


def test_a_jump_of_the_clock_is_among_what_is_uncertain() -> None:
    """With its direction and its size."""
    fleet = Fleet(2)
    fleet.world.rules.wall_offset_ms -= 3_600_000
    fleet.start(3)
    fleet.rest(20_000)
    assert any("wall clock jumped back by 1 h 00 min" in each.text for each in page_of(fleet.history()).missing)
