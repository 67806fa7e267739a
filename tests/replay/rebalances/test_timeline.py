"""The fold from events to rebalances, case by case."""

import re
from collections.abc import Callable
from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.events.causes import Cause
from muster.events.events import CoordinatorPaused, MemberAssigned
from muster.events.ids import MemberId
from muster.replay.history.items import Broken, Gap, Happened, LogPosition, Told, Unreadable, with_gaps
from muster.replay.rebalances.moves import NOBODY, GroupAssignment, movement
from muster.replay.rebalances.rebalance import HappeningKind, MemberRef, Outcome, Rebalance
from muster.replay.results.event_texts import event_text
from tests.coordinator.group.harness import GROUP_ID, Harness
from tests.replay import memberships
from tests.replay.histories import Script
from tests.replay.played import history_of
from tests.replay.stories import a_night
from tests.replay.told import printed_rebalances, rebalances_of
from tests.replay.whole import History, lines, rebalances


def rebalances_in(script: Script) -> list[Rebalance]:
    return rebalances(script.group_id, script.history().items)


def test_arrivals_are_counted_from_the_start_of_the_join_phase() -> None:
    """The others waited for the last one to join."""
    first = rebalances_in(a_night())[0]
    assert [(a.member.group_instance_id, a.after_ms) for a in first.join_phase.arrivals] == [
        ("billing-1", 0),
        ("billing-2", 400),
        ("billing-3", 1_300),
    ]
    assert first.join_phase.duration_ms == 3_000
    assert first.join_phase.ended_by is Cause.INITIAL_DELAY_ELAPSED
    assert first.sync_phase is not None
    assert first.sync_phase.duration_ms == 35


def test_a_member_that_joins_in_a_decision_with_an_assignment_has_joined() -> None:
    """No matter which event of the decision comes first."""
    script = Script().created()
    script.start(script.joined(script.member("a")))
    assigned = MemberAssigned(**script._member(script.of("a")), why=script.why(Cause.STANDBY_CALLED))
    script.wait(400).advanced(assigned, script.joined(script.member("b")))
    script.complete().stabilize({})
    assert [each.after_ms for each in rebalances_in(script)[0].join_phase.arrivals] == [0, 400]


def test_members_that_never_rejoined_are_named() -> None:
    """Dynamic members were dropped, static ones stayed."""
    script = a_night()
    newcomer = script.member("late", static=False, client_id="late")
    script.start(script.joined(newcomer))
    script.wait(300_000).complete(
        script.removed(script.of("late"), Cause.NOT_REJOINED),
        script.rejoined(script.of("billing-1")),
        cause=Cause.JOIN_PHASE_TIMED_OUT,
        absent=[script.of("billing-3")],
    )
    phase = rebalances_in(script)[-1].join_phase
    assert phase.timed_out
    assert [seen.who[0].client_id for seen in phase.dropped] == ["late"]
    assert [member.group_instance_id for member in phase.absent] == ["billing-3"]


def test_a_restart_of_a_static_member_moves_nothing() -> None:
    """Owners are compared by instance id."""
    script = a_night()
    script.start(script.rejoined(script.of("billing-1"), Cause.LEADER_REJOINED))
    script.advanced(script.replaced("billing-3", Cause.STATIC_REPLACEMENT_DURING_JOIN))
    script.complete(script.rejoined(script.of("billing-1")))
    script.stabilize({"billing-1": {"orders": range(6)}, "billing-3": {"orders": range(6, 12)}})
    last = rebalances_in(script)[-1]
    assert last.movement is not None
    assert (last.movement.moved, last.movement.stayed) == (0, 12)
    assert [seen.cause for seen in last.folded] == [Cause.STATIC_REPLACEMENT_DURING_JOIN]


def test_an_assignment_that_cannot_be_decoded_is_named() -> None:
    """The moves of the other members are reported."""
    script = a_night()
    script.start(script.rejoined(script.of("billing-1"), Cause.LEADER_REJOINED))
    script.complete(script.rejoined(script.of("billing-3")))
    script.stabilize({"billing-1": b"\x00", "billing-3": {"orders": range(6, 12)}})
    last = rebalances_in(script)[-1]
    assert last.movement is not None
    assert [member.group_instance_id for member in last.movement.undecodable] == ["billing-1"]
    assert last.movement.stayed == 6


def test_the_last_member_leaves_and_the_group_is_empty() -> None:
    """It starts and ends in one transition; all partitions lose their owner."""
    script = Script().created()
    script.start(script.joined(script.member("only")))
    script.complete(cause=Cause.INITIAL_DELAY_ELAPSED).stabilize({"only": {"orders": [0, 1]}})
    gone = script.removed(script.of("only"), Cause.MEMBER_LEFT, request=True)
    script.wait(10).start(gone).emptied()
    last = rebalances_in(script)[-1]
    assert (last.outcome, last.from_generation, last.to_generation) == (Outcome.EMPTIED, 1, 2)
    assert last.movement is not None
    assert last.movement.lost == 2
    assert last.sync_phase is None
    assert last.join_phase.ended_by is Cause.ALL_JOINED


def test_a_rebalance_continues_through_a_takeover() -> None:
    """The takeover is within it."""
    script = a_night()
    script.start(script.rejoined(script.of("billing-1"), Cause.LEADER_REJOINED))
    script.wait(100).stopped().wait(50).coordinator("coordinator-c:300", took_ms=90)
    script.complete(script.rejoined(script.of("billing-3"))).stabilize({})
    last = rebalances_in(script)[-1]
    assert last.outcome is Outcome.STABLE
    assert [(happening.kind, happening.text) for happening in last.meanwhile] == [
        (
            HappeningKind.COORDINATOR_TAKEOVER,
            (
                "the coordinator coordinator-b:200 released its partition cleanly; coordinator-c:300 was ready "
                "in 90 ms, and the rebalance continued"
            ),
        )
    ]


def test_a_coordinator_that_took_its_own_partition_over_again_had_not_gone() -> None:
    """The owner is the same process: it lost the log, and continued when it had it back."""
    script = a_night()
    script.wait(100).coordinator("coordinator-b:200", took_ms=26_300)
    script.start(script.rejoined(script.of("billing-1"), Cause.LEADER_REJOINED))
    takeover = rebalances_in(script)[-1].avoided[-1]
    assert takeover.kind is HappeningKind.COORDINATOR_TAKEOVER
    assert takeover.text.startswith("the coordinator coordinator-b:200 lost partition 3 of the event log, ")
    assert takeover.text.endswith("; it was ready in 26.3 s, and 2 members continued")


def test_refusals_and_pauses_are_happenings() -> None:
    """They started no rebalance, and have the error that was returned."""
    script = a_night()
    script.refused(script.member("surplus"), 81, Cause.GROUP_FULL, suppressed=2).paused(5_000)
    script.start(script.rejoined(script.of("billing-1"), Cause.LEADER_REJOINED))
    restart, refused, pause = rebalances_in(script)[-1].avoided
    assert restart.kind is HappeningKind.STATIC_RESTART
    assert (refused.error, refused.times) == ("GROUP_MAX_SIZE_REACHED", 3)
    assert pause.kind is HappeningKind.COORDINATOR_PAUSE
    assert pause.text == (
        "the coordinator coordinator-b:200 stalled for at least 5.0 s; no member was blamed, 2 sessions of partition 3"
        " were re-armed in full"
    )


@pytest.mark.parametrize(
    ("sessions", "said"), [(1, "1 session of partition 3 was"), (40, "40 sessions of partition 3 were")]
)
def test_a_pause_reports_the_number_of_restarted_sessions(sessions: int, said: str) -> None:
    """Not all of them, if the machine is late repeatedly; the partition's other groups are counted, too."""
    paused = CoordinatorPaused(partition=3, owner_epoch=1, owner="a:1", paused_ms=0, late_ms=5_000, sessions=sessions)
    assert event_text(paused) == f"a:1 stalled for at least 5.0 s; {said} re-armed in full"


def test_a_recreated_group_starts_over() -> None:
    """The earlier incarnation is not compared with the new one."""
    script = Script().created()
    script.start(script.joined(script.member("a"))).complete(cause=Cause.INITIAL_DELAY_ELAPSED)
    script.stabilize({"a": {"orders": [0]}})
    script.start(script.removed(script.of("a"), Cause.MEMBER_LEFT)).emptied().deleted()
    script.wait(1_000).made_anew().created()
    script.start(script.joined(script.member("b"))).complete(cause=Cause.INITIAL_DELAY_ELAPSED)
    script.stabilize({"b": {"orders": [0]}})
    first, _, third = rebalances_in(script)
    assert third.incarnation > first.incarnation
    assert (third.from_generation, third.to_generation) == (0, 1)
    assert third.movement is not None
    assert (third.movement.gained, third.notes) == (1, ())


def test_after_a_gap_missing_history_is_noted_and_no_move_is_claimed() -> None:
    """The rebalance with the missing events has a note about them; a comparison would be a guess."""
    script = a_night()
    kept = [read for read in script.reads if not (isinstance(read, Happened) and 13 <= read.event.seq <= 16)]
    second = rebalances(script.group_id, with_gaps(kept))[1]
    assert second.notes == ("events 13 to 16 are not in the log: compacted away, older than the log, or lost",)
    assert second.movement is None
    assert second.trigger.cause is Cause.SESSION_EXPIRED


def test_a_lost_end_leaves_the_outcome_unknown() -> None:
    """The outcome is neither superseded nor stable."""
    script = a_night()
    kept = [read for read in script.reads if not (isinstance(read, Happened) and 9 <= read.event.seq <= 12)]
    first = rebalances(script.group_id, with_gaps(kept))[0]
    assert (first.outcome, first.ended_at) == (Outcome.UNKNOWN, None)


def test_a_broken_record_hides_itself_alone() -> None:
    """Events before and after it are used, and its seq is not also reported as missing."""
    script = a_night()
    reads = script.reads
    index = next(i for i, read in enumerate(reads) if isinstance(read, Happened) and read.event.seq == 20)
    position = LogPosition(partition=3, offset=index, timestamp_ms=0)
    reads[index] = Broken(position=position, kind=Unreadable.BROKEN, reason="too short")
    stories = rebalances(script.group_id, script.history(reads=reads).items)
    assert len(stories) == 4
    assert stories[1].notes == (f"the record at partition 3, offset {index} cannot be read: too short",)
    assert stories[1].outcome is Outcome.STABLE


@given(st.sets(st.integers(min_value=1, max_value=44)))
def test_no_legal_or_illegal_loss_of_events_breaks_the_report(lost: set[int]) -> None:
    """Whatever is missing, the rest is used: never more rebalances than there were, in order, all well-formed."""
    script = a_night()
    kept = [read for read in script.reads if not (isinstance(read, Happened) and read.event.seq in lost)]
    stories = rebalances(script.group_id, with_gaps(kept))
    assert len(stories) <= 4
    assert [story.first_seq for story in stories] == sorted(story.first_seq for story in stories)
    assert all(story.trigger.text for story in stories)


@given(st.sampled_from(memberships.STORIES), st.sets(st.integers(min_value=10, max_value=40)))
def test_no_loss_breaks_the_report_of_plans(play: Callable[[], Harness], lost: set[int]) -> None:
    """A registration, retirement, call or loss may be missing: the rest is used."""
    items = played(play)
    kept = [read for read in items if not (isinstance(read, Happened) and read.event.seq in lost)]
    history = History(group_id=GROUP_ID, log="", items=tuple(with_gaps(kept)))
    stories = rebalances(GROUP_ID, history.items)
    assert all(story.trigger.text for story in stories)
    assert all(happening.text for told_story in stories for happening in told_story.avoided)
    assert len(lines(history)) == len(history.items)


@cache
def played(play: Callable[[], Harness]) -> list[Told]:
    return [item for item in history_of(play()).items if not isinstance(item, Gap)]


_refs = st.builds(
    MemberRef,
    member_id=st.sampled_from(["m1", "m2", "m3"]),
    group_instance_id=st.none(),
    client_id=st.just("c"),
    client_host=st.just("/h"),
)
_ownerships = st.dictionaries(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 5)), _refs).map(
    lambda owners: GroupAssignment(owners=owners, undecodable=())
)


@given(_ownerships, _ownerships)
def test_every_partition_is_counted_once(before: GroupAssignment, after: GroupAssignment) -> None:
    """Moved, gained, lost and stayed partitions add up, and the reverse movement is the mirror image."""
    there, back = movement(before, after), movement(after, before)
    total = len(before.owners.keys() | after.owners.keys())
    assert there.moved + there.gained + there.lost + there.stayed == total
    assert (there.moved, there.gained, there.lost) == (back.moved, back.lost, back.gained)
    assert movement(NOBODY, after).gained == len(after.owners)


def test_of_many_moves_some_are_shown_and_the_others_are_counted() -> None:
    """A group of hundreds would fill the screen."""
    script = Script().created()
    names = [f"m{number:03}" for number in range(200)]
    script.start(*(script.joined(script.member(name)) for name in names)).complete(cause=Cause.INITIAL_DELAY_ELAPSED)
    script.stabilize({name: {"orders": [number]} for number, name in enumerate(names)})
    out = printed_rebalances(rebalances_of(script.history()), width=200)
    left = re.search(r"and (\d+) more; --format json has all of them", out)
    assert left is not None
    shown = len(re.findall(r"orders \d+", out))
    assert (0 < shown < 30, shown + int(left[1])) == (True, 200)


@pytest.mark.parametrize("is_member", [True, False])
def test_the_member_whose_request_began_a_rebalance_is_named_as_in_the_group(is_member: bool) -> None:
    """The request may come from another host; for a client that had not joined yet it is all that is known."""
    script = Script().created()
    script.start(script.joined(script.member("a"))).complete(cause=Cause.INITIAL_DELAY_ELAPSED)
    member = script.of("a")
    cause = Cause.ASSIGNMENT_NOT_STORED if is_member else Cause.PENDING_MEMBER_LEFT
    sent = {"client_id": "proxy", "client_host": "/10.9.9.9", "principal": "User:proxy", "group_instance_id": None}
    why = msgspec.structs.replace(script.why(cause, member), **sent)
    if not is_member:
        why = msgspec.structs.replace(why, member_id=MemberId("pending-1"))
    (who,) = rebalances_of(script.start(why=why).history())[-1].trigger.who
    reported = {name: getattr(who, name) for name in sent}
    assert reported == ({name: getattr(member, name) for name in sent} if is_member else sent)


def test_a_rebalance_that_does_not_end_is_kept_in_part_and_reported_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the latest folded causes are kept, all are counted; a table shows the first few."""
    monkeypatch.setattr("muster.replay.rebalances.running_rebalance.OCCURRENCES_KEPT", 50)
    script = Script().created()
    script.start(script.joined(script.member("a"))).complete().stabilize({"a": {"orders": [0]}})
    script.wait(60_000).start(script.joined(script.member("b")))
    first_seq = script.group.seq + 1
    for _ in range(300):
        script.wait(1_000).advanced(script.replaced("b", Cause.STATIC_REPLACEMENT_DURING_JOIN, host="/10.0.0.6"))
    running = rebalances_in(script)[-1]
    assert running.outcome is Outcome.RUNNING
    assert (len(running.folded), running.folded_left_out) == (100, 200)
    assert (running.folded[0].seq, running.folded[-1].seq) == (first_seq, script.group.seq - 1)
    assert [each.seq for each in running.folded] == sorted(each.seq for each in running.folded)
    text = " ".join(printed_rebalances([running], width=200).split())
    assert "; 300 more causes folded in" in text
    assert "... and 260 more" in text
