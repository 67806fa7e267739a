"""Facts recorded with a transition: pending ids that delayed a phase, last-seen times, and other times."""

from collections.abc import Callable

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group import handed_out, join, returned, turn
from muster.coordinator.group.commands import ExpireOffsets, LeavingMember
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.group.soft_state import PendingMember
from muster.events.causes import Cause
from muster.events.events import (
    AnyMemberEvent,
    GroupDeleted,
    GroupEmptied,
    JoinPhaseCompleted,
    MemberEvent,
    MemberRemoved,
    StaticMemberReplaced,
)
from muster.events.ids import MemberId
from muster.events.state import GroupState, HandedOutId, HandedOutIdOutcome, ReturnedMember
from tests.coordinator.group.client import Call, Client
from tests.coordinator.group.harness import Harness


def completed(h: Harness) -> JoinPhaseCompleted:
    """The last end of a join phase."""
    return next(event for event in reversed(h.events) if isinstance(event, JoinPhaseCompleted))


def held_up(h: Harness) -> tuple[Client, Call[JoinGroupOutcome]]:
    """A join phase that only waits for a client that was given an id 400 ms before."""
    (a,) = h.stable_group(h.static("a", session_timeout_ms=60_000))
    c = h.dynamic("c", host="/10.0.0.9")
    c.join()
    h.sleep(400)
    waiting = a.join()
    assert waiting.parked
    return c, waiting


def noted(client: Client, age_ms: int, outcome: HandedOutIdOutcome) -> HandedOutId:
    return HandedOutId(
        member_id=client.member_id, client_id=client.name, client_host=client.host, age_ms=age_ms, outcome=outcome
    )


def test_an_id_that_is_never_used_is_named_where_the_phase_ends() -> None:
    """With the client, and how long the id was pending, including the time before the phase."""
    h = Harness()
    c, waiting = held_up(h)
    h.sleep(10_000)
    assert waiting.outcome.generation_id == 2
    assert completed(h).handed_out_ids == (noted(c, 10_000, HandedOutIdOutcome.TIMED_OUT),)


def test_an_id_that_is_used_late_is_named() -> None:
    """Its member joined, after delaying the others for that long."""
    h = Harness()
    c, _ = held_up(h)
    h.sleep(3_000)
    c.join()
    assert completed(h).handed_out_ids == (noted(c, 3_400, HandedOutIdOutcome.JOINED),)


def test_an_id_that_is_given_back_late_is_named() -> None:
    """The client left."""
    h = Harness()
    c, _ = held_up(h)
    h.sleep(3_000)
    c.leave()
    assert completed(h).handed_out_ids == (noted(c, 3_400, HandedOutIdOutcome.LEFT),)


def test_an_id_that_is_used_within_a_second_is_not_named() -> None:
    """Almost every id is used that soon."""
    h = Harness()
    c, _ = held_up(h)
    c.join()
    assert (completed(h).handed_out_ids, completed(h).handed_out_ids_more) == ((), 0)
    assert all(each.handed_out_ids_more == 0 for each in h.events if isinstance(each, JoinPhaseCompleted))


def test_an_id_that_is_out_when_the_phase_times_out_is_named() -> None:
    """It is still pending; the next phase has its own list."""
    h = Harness()
    a, b = h.stable_group(h.static("a", rebalance_timeout_ms=5_000), h.static("b", rebalance_timeout_ms=5_000))
    c = h.dynamic("c", session_timeout_ms=30_000)
    c.join()
    (a if a.is_leader else b).join()
    h.sleep(5_000)
    assert completed(h).timed_out
    assert completed(h).handed_out_ids == (noted(c, 5_000, HandedOutIdOutcome.STILL_OUT),)
    assert h.soft.pending_members


def test_an_id_that_was_handed_out_within_a_second_before_the_phase_ended_is_not_named() -> None:
    """Its client is about to join; only younger ids follow."""
    h = Harness()
    a, b = h.stable_group(h.static("a", rebalance_timeout_ms=5_000), h.static("b", rebalance_timeout_ms=5_000))
    (a if a.is_leader else b).join()
    h.sleep(4_000)
    at_a_second = h.dynamic("c", session_timeout_ms=30_000)
    at_a_second.join()
    h.sleep(1)
    h.dynamic("d", session_timeout_ms=30_000).join()
    h.sleep(999)
    assert completed(h).handed_out_ids == (noted(at_a_second, 1_000, HandedOutIdOutcome.STILL_OUT),)


def test_an_id_that_is_settled_in_a_stable_group_is_not_named() -> None:
    """No phase waited for it."""
    h = Harness()
    (a,) = h.stable_group(h.static("a", session_timeout_ms=60_000))
    h.dynamic("c").join()
    h.sleep(10_000)
    a.join()
    assert completed(h).handed_out_ids == ()


def test_of_many_ids_16_are_named_and_the_others_counted() -> None:
    """A client may ask for any number of ids; the event stays small."""
    h = Harness()
    _, waiting = held_up(h)
    clients = [h.dynamic(f"c{n}") for n in range(19)]
    for client in clients:
        client.join()
    h.sleep(10_000)
    assert waiting.outcome.generation_id == 2
    assert len(completed(h).handed_out_ids) == handed_out.NOTED_IDS_MAX
    assert completed(h).handed_out_ids_more == 1 + 19 - handed_out.NOTED_IDS_MAX


def test_ids_that_are_settled_leave_less_room_for_those_that_are_still_out() -> None:
    """16 are named in all, used or not."""
    h = Harness()
    a, b = h.stable_group(h.static("a", rebalance_timeout_ms=8_000), h.static("b", rebalance_timeout_ms=8_000))
    (a if a.is_leader else b).join()
    clients = [h.dynamic("c", session_timeout_ms=6_000), *(h.dynamic(f"c{n}") for n in range(20))]
    for client in clients:
        client.join()
    h.sleep(8_000)
    assert [each.member_id for each in completed(h).handed_out_ids] == [client.member_id for client in clients[:16]]
    assert completed(h).handed_out_ids_more == 5


def test_of_many_ids_that_are_still_out_the_oldest_are_named() -> None:
    """Ids of the same group that were dropped over the limit are counted, too."""
    h = Harness()
    a, b = h.stable_group(h.static("a", rebalance_timeout_ms=5_000), h.static("b", rebalance_timeout_ms=5_000))
    clients = [h.dynamic(f"c{n}", session_timeout_ms=30_000) for n in range(20)]
    for client in clients:
        client.join()
    (a if a.is_leader else b).join()
    h.sleep(5_000)
    assert [each.member_id for each in completed(h).handed_out_ids] == [client.member_id for client in clients[:16]]
    assert completed(h).handed_out_ids_more == 4


def test_ids_that_are_forgotten_for_their_number_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The phase waits for the remaining ones."""
    monkeypatch.setattr(join, "PENDING_MEMBERS_MAX", 20)
    h = Harness()
    held_up(h)
    for n in range(20):
        h.dynamic(f"c{n}").join()
    h.sleep(10_000)
    assert completed(h).handed_out_ids_more == 2 + 19 - handed_out.NOTED_IDS_MAX


def test_ids_that_are_forgotten_again_and_again_are_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the limit each time."""
    monkeypatch.setattr(join, "PENDING_MEMBERS_MAX", 20)
    h = Harness()
    held_up(h)
    for n in range(30):
        h.dynamic(f"c{n}").join()
    h.sleep(10_000)
    done = completed(h)
    assert len(done.handed_out_ids) + done.handed_out_ids_more == 1 + 30


def test_a_long_client_id_is_kept_in_part() -> None:
    """A client id may have 32,767 bytes, and there may be 20,000 pending ids."""
    h = Harness()
    h.dynamic("c" * 32_000).join()
    (pending,) = h.soft.pending_members.values()
    assert isinstance(pending, PendingMember)
    assert pending.client_id == "c" * 255


def test_a_group_that_is_left_empty_names_the_id_that_held_its_phase_up() -> None:
    """The last member leaves while the phase waits; the phase ends when the id is given back."""
    h = Harness()
    c, waiting = held_up(h)
    h.leave_instance("a")
    assert waiting.error is ErrorCode.unknown_member_id
    h.sleep(10_000)
    assert h.state is GroupState.EMPTY
    (emptied,) = [event for event in h.events if isinstance(event, GroupEmptied)]
    assert emptied.handed_out_ids == (noted(c, 10_000, HandedOutIdOutcome.TIMED_OUT),)


# Last-seen times.


def last_of(h: Harness, member_id: MemberId) -> AnyMemberEvent:
    return next(
        event for event in reversed(h.events) if isinstance(event, MemberEvent) and event.member.member_id == member_id
    )


def test_a_takeover_invents_no_sign_of_life() -> None:
    """A member that stays silent was last seen at an unknown time before the takeover."""
    h = Harness()
    a, b = h.stable_group(h.dynamic("a"), h.dynamic("b"))
    h.takeover()
    taken_over_ms = h.wall_ms
    h.sleep(4_000)
    a.heartbeat()
    heard_ms = h.wall_ms
    h.sleep(20_000)
    assert (last_of(h, b.member_id).last_seen_ms, last_of(h, b.member_id).heard) == (taken_over_ms, False)
    removed = last_of(h, a.member_id)
    assert isinstance(removed, MemberRemoved)
    assert (removed.last_seen_ms, removed.heard) == (heard_ms, True)


def test_replacing_a_silent_member_is_recorded_as_such() -> None:
    """The new process was seen: its own join counts."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    h.takeover()
    h.sleep(1_000)
    new = a.restarted()
    new.join()
    assert last_of(h, new.member_id).heard
    assert last_of(h, new.member_id).last_seen_ms == h.wall_ms


def test_a_replacement_records_when_the_former_process_was_last_heard() -> None:
    """It shows how long the restart took, and whether the old process was still alive when the new one joined."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    h.sleep(1_000)
    a.heartbeat()
    heard_ms = h.wall_ms
    h.sleep(4_000)
    a.restarted().join()
    replaced = h.decisions[-1].events[0]
    assert isinstance(replaced, StaticMemberReplaced)
    assert (replaced.replaced_last_seen_ms, replaced.last_seen_ms) == (heard_ms, heard_ms + 4_000)


def test_a_process_that_was_replaced_unheard_since_a_takeover_has_no_last_sign_of_life() -> None:
    """The former owner may have seen it later than anything in the log."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    h.takeover()
    h.sleep(1_000)
    a.restarted().join()
    replaced = h.decisions[-1].events[0]
    assert isinstance(replaced, StaticMemberReplaced)
    assert replaced.replaced_last_seen_ms is None


def test_the_end_of_a_join_phase_records_when_absent_members_were_last_heard() -> None:
    """It tells dead members from slow ones where a static member is kept although it did not rejoin."""
    h = Harness()
    given = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 5_000}
    a, b, c = h.stable_group(h.static("a", **given), h.static("b", **given), h.static("c", **given))
    h.takeover()
    (leader,) = [each for each in (a, b, c) if each.is_leader]
    slow, dead = [each for each in (a, b, c) if each is not leader]
    leader.join()
    h.sleep(3_000)
    slow.heartbeat()
    heard_ms = h.wall_ms
    h.sleep(2_000)
    ended = completed(h)
    assert dict(zip(ended.absent, ended.absent_seen_ms, strict=True)) == {
        slow.member_id: heard_ms,
        dead.member_id: None,
    }


# Members that were removed but alive.


def silent(h: Harness, **given: int) -> tuple[Client, Client]:
    """A member that stays alive, and one removed after its session; the former's rejoin ended that phase."""
    a, b = h.stable_group(h.static("a", session_timeout_ms=60_000), h.dynamic("b", **given))
    h.sleep(10_000)
    a.join()
    assert h.state is GroupState.COMPLETING_REBALANCE
    return a, b


def test_a_silent_process_is_distinguished_from_a_restarted_one() -> None:
    """It sends requests with its old member id; the end of the phase in which it rejoins says so, once."""
    h = Harness()
    a, b = silent(h)
    h.sleep(1_000)
    assert b.heartbeat().error is ErrorCode.unknown_member_id
    heard_ms = h.wall_ms
    b.heartbeat()
    assert completed(h).returned == ()
    new = h.dynamic("b")
    new.enter()
    a.join()
    assert completed(h).returned == (ReturnedMember(member_id=b.member_id, heard_ms=heard_ms),)
    h.dynamic("c").enter()
    h.rejoin_all(a, new)
    assert completed(h).returned == ()


def test_a_restarted_process_sent_no_more_requests() -> None:
    """It brings no member id, even if everything else is the same."""
    h = Harness()
    a, _ = silent(h)
    new = h.dynamic("b")
    new.enter()
    a.join()
    assert completed(h).returned == ()


@pytest.mark.parametrize("ask", [Client.join, Client.sync, Client.commit, Client.leave])
def test_any_request_under_the_old_id_counts(ask: Callable[[Client], object]) -> None:
    """A slow member's first request after its removal may be its rejoin."""
    h = Harness()
    a, b = silent(h)
    old_id = b.member_id
    ask(b)
    h.dynamic("b").enter()
    a.join()
    assert [each.member_id for each in completed(h).returned] == [old_id]


def test_an_administrator_that_removes_a_member_again_is_not_the_member() -> None:
    """It names the old member id, but has a client id of its own."""
    h = Harness()
    a, b = silent(h)
    entry = LeavingMember(member_id=b.member_id, group_instance_id=None, reason="removed")
    (left,) = h.leave(entry, client=h.dynamic("admin")).outcome.members
    assert left.error is ErrorCode.unknown_member_id
    h.dynamic("c").enter()
    a.join()
    assert completed(h).returned == ()


def test_a_member_that_left_and_asks_again_is_not_noted() -> None:
    """The log already shows that it was alive."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.dynamic("b"))
    b.leave()
    b.heartbeat()
    a.join()
    assert completed(h).returned == ()


def test_of_many_that_return_16_are_named_and_of_very_many_the_latest_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All members of a large group that was cut off for a while return."""
    monkeypatch.setattr(turn, "REMOVED_MEMBERS_MAX", 20)
    h = Harness()
    a, *others = h.stable_group(
        h.static("a", session_timeout_ms=60_000), *[h.dynamic(f"c{n}") for n in range(returned.NOTED_MAX + 5)]
    )
    h.sleep(10_000)
    a.join()
    for other in others:
        other.heartbeat()
    h.dynamic("d").enter()
    a.join()
    assert (len(completed(h).returned), completed(h).returned_more) == (returned.NOTED_MAX, 3)


# Times.


def test_each_event_has_the_owners_uptime() -> None:
    """Durations are right whatever the wall clock does."""
    h = Harness()
    (a,) = h.stable_group(h.dynamic("a"))
    before = h.events[-1]
    h.sleep(7_000)
    a.leave()
    assert {event.why.uptime_ms for event in a.harness.decisions[-1].events} == {h.now_ms}
    assert before.why.uptime_ms == h.now_ms - 7_000


# The end of a group.


def test_the_deletion_of_an_expired_group_records_its_cause() -> None:
    """When it became empty, why, and the applied retention; also after a takeover."""
    h = Harness(offsets_retention_minutes=60)
    h.stable_group(h.dynamic("a"))
    h.sleep(10_000)
    emptied_ms = h.wall_ms
    h.takeover()
    h.sleep(3_600_000)
    h.send(ExpireOffsets(group_id=h.group_id, offsets={}, wall_ms=h.wall_ms))
    deleted = h.events[-1]
    assert isinstance(deleted, GroupDeleted)
    assert (deleted.empty_since_ms, deleted.retention_ms) == (emptied_ms, 3_600_000)
    assert deleted.group.emptied_by is Cause.SESSION_EXPIRED


def test_a_group_that_has_members_again_was_not_emptied() -> None:
    """The earlier cause is dropped."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    a.leave()
    assert h.live.image.emptied_by is Cause.MEMBER_LEFT
    h.stable_group(h.static("a"))
    assert h.live.image.emptied_by is None


def test_the_deletion_of_a_group_records_since_when_it_was_empty() -> None:
    """No retention was applied."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    a.leave()
    emptied_ms = h.wall_ms
    h.sleep(1_000)
    h.delete()
    deleted = h.events[-1]
    assert isinstance(deleted, GroupDeleted)
    assert (deleted.empty_since_ms, deleted.retention_ms) == (emptied_ms, None)
