"""A recorded history gives the same events when the rules decide it again. The rules made these histories."""

import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import (
    AlterGroupConfig,
    ConfigOperation,
    ExpireOffsets,
    ExpireSession,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ReleaseGroup,
)
from muster.coordinator.group.settings import GroupSettings
from muster.events.causes import Cause
from muster.events.events import JoinRefused, MemberAssigned, MemberRemoved, RebalanceStarted
from muster.events.ids import UNKNOWN_MEMBER_ID
from muster.events.state import GroupState
from muster.replay.history.items import Happened, with_gaps
from muster.replay.rerun.rerun import Rerunner, comparable
from tests.coordinator.group.client import protocols
from tests.coordinator.group.harness import DELAY_MS, Harness
from tests.replay.play import MembershipPlay, Play
from tests.replay.played import history_of
from tests.replay.whole import rerun


def assert_same(harness: Harness, *given: GroupSettings) -> Rerunner:
    again = rerun(history_of(harness, *given))
    assert again.differences == []
    assert again.skipped == 0
    explained = [seq for taken in again.inputs for seq in range(taken.first_seq, taken.last_seq + 1)]
    assert explained == [event.seq for event in harness.events]
    return again


def test_a_life_from_the_first_join_to_the_deletion() -> None:
    """Joins of all kinds, syncs, a restart, an expiry, leaves, a deletion: each is derived and decided the same."""
    h = Harness()
    a, b, c = h.stable_group(h.static("a"), h.dynamic("b"), h.dynamic("c", version=3))
    a = a.restarted()
    assert a.join().decision.group == h.group
    b.join(protocols=protocols("roundrobin", "range"))
    h.rejoin_all(c, a)
    b.sync(h.assignments())
    h.leave_instance("a")
    for client in (b, c):
        client.join()
    h.sync_all(b, c)
    b.leave("the consumer is being closed")
    h.sleep(120_000)
    h.delete()
    assert h.group is None
    again = assert_same(h)
    assert any(isinstance(taken.command, ExpireSession) for taken in again.inputs)
    assert any(isinstance(taken.command, LeaveGroup) for taken in again.inputs)


def test_the_expiry_of_a_group_is_derived() -> None:
    """No matter which ids were handed out before and never used."""
    h = Harness()
    h.dynamic("a").join()
    h.sleep(120_000)
    h.send(ExpireOffsets(group_id=h.group_id, offsets={}, wall_ms=h.wall_ms))
    assert h.group is None
    assert_same(h)


def test_the_release_of_a_group_is_derived() -> None:
    """From a stable group, and from a join phase that would not have ended otherwise."""
    h = Harness()
    h.stable_group(h.static("a"), h.dynamic("b"))
    h.release()
    h.static("c").join()
    h.release()
    h.static("d").join()
    h.leave_instance("d")
    h.release()
    again = assert_same(h)
    assert sum(isinstance(taken.command, ReleaseGroup) for taken in again.inputs) == 3


def test_a_batch_of_leavers_is_one_command() -> None:
    """An administrator removes three; one of the entries is fenced, one is unknown."""
    h = Harness()
    a, b, c = h.stable_group(h.static("a"), h.static("b"), h.static("c"))
    h.leave(
        LeavingMember(member_id=UNKNOWN_MEMBER_ID, group_instance_id=a.instance, reason="too old"),
        LeavingMember(member_id=a.member_id, group_instance_id=b.instance, reason=None),
        LeavingMember(member_id=c.member_id, group_instance_id=c.instance, reason="bye"),
    )
    again = assert_same(h)
    leaves = [taken.command for taken in again.inputs if isinstance(taken.command, LeaveGroup)]
    assert [len(leave.members) for leave in leaves] == [3]


def test_refusals_are_derived_too() -> None:
    """Wrong protocols, unknown ids, fenced instances, a full group."""
    h = Harness(max_size=3)
    a, b = h.stable_group(h.static("a"), h.dynamic("b"))
    h.dynamic("odd", protocols=protocols("other")).enter()
    h.dynamic("stranger", member_id="nobody").join()
    old, a = a, a.restarted()
    a.join()
    old.heartbeat()
    old.join(reason="the consumer was told to rejoin")
    c = h.static("c")
    c.join()
    h.rejoin_all(a, b)
    h.static("surplus").join()
    causes = {event.why.cause for event in h.events}
    assert causes >= {Cause.PROTOCOL_MISMATCH, Cause.UNKNOWN_MEMBER, Cause.INSTANCE_FENCED, Cause.GROUP_FULL}
    assert_same(h)
    assert b.member_id in h.live.members


def test_a_refusal_before_the_group_is_looked_up_is_derived() -> None:
    """For the session timeout, or the size of the metadata, which is not recorded; with and without a group."""
    h = Harness(member_metadata_max_bytes=200)
    h.dynamic("hasty").join(session_timeout_ms=1)
    h.stable_group(h.static("a"))
    h.dynamic("hasty").join(session_timeout_ms=1)
    h.dynamic("large", protocols=protocols("range", metadata=bytes(300))).join()
    causes = [event.why.cause for event in h.events if isinstance(event, JoinRefused)]
    assert causes == [Cause.SESSION_TIMEOUT_REFUSED, Cause.SESSION_TIMEOUT_REFUSED, Cause.METADATA_TOO_LARGE]
    assert_same(h)


def test_a_refusal_is_derived_whatever_assignor_the_group_has() -> None:
    """The log does not have the client's protocols; they were not the reason."""
    h = Harness()
    h.form(h.static("a", protocols=protocols("other")))
    h.dynamic("stranger", member_id="nobody", protocols=protocols("other")).join()
    assert [event.why.cause for event in h.events][-1] is Cause.UNKNOWN_MEMBER
    assert_same(h)


def test_the_ends_of_phases_are_derived() -> None:
    """A join phase and a sync phase that timed out, and an assignment that could not be stored."""
    h = Harness()
    patient = {"session_timeout_ms": 200_000, "rebalance_timeout_ms": 20_000}
    a, b = h.stable_group(h.static("a", **patient), h.dynamic("b", **patient))
    a.join(protocols=protocols("roundrobin", "range"))
    h.sleep(100_000)
    assert {event.why.cause for event in h.events} >= {
        Cause.NOT_REJOINED,
        Cause.JOIN_PHASE_TIMED_OUT,
        Cause.SYNC_TIMED_OUT,
    }
    h.stable_group(h.static("c"), h.static("d"))
    assert_same(h)
    assert b.member_id not in h.live.members


def test_a_rejected_assignment_and_an_overfull_group() -> None:
    """No member event begins these rebalances."""
    h = Harness()
    a, b = h.form(h.static("a"), h.static("b"))
    leader = a if a.is_leader else b
    h.reject_assignment(leader, ErrorCode.unknown_server_error)
    h.rejoin_all(a, b)
    roomy, h.settings = h.settings, msgspec.structs.replace(h.settings, max_size=1)
    h.takeover()
    assert Cause.OVER_CAPACITY in {event.why.cause for event in h.events}
    assert_same(h, roomy, h.settings)


def test_ids_that_were_handed_out_and_never_used() -> None:
    """They delay a join phase; the log does not have them, but the re-run concludes that there was one."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    h.dynamic("pending").join()
    a.restarted(protocols=protocols("roundrobin", "range")).join()
    b.join()
    b.leave()
    h.sleep(100_000)
    assert_same(h)


def test_a_rebalance_in_flight_continues_after_a_takeover() -> None:
    """Parked requests are lost, and sent again."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    leader, follower = (a, b) if a.is_leader else (b, a)
    leader.join()
    h.takeover()
    leader.join()
    follower.join()
    h.sync_all(a, b)
    assert h.state is GroupState.STABLE
    assert_same(h)


def test_a_new_owner_may_have_the_members_in_another_order() -> None:
    """The new owner has only read each last record, so events about all members have their order."""
    h = Harness()
    a, b, c = h.stable_group(h.static("a"), h.static("b"), h.static("c"))
    leader = next(each for each in (a, b, c) if each.is_leader)
    leader.join()
    for other in (c, b, a):
        if other is not leader:
            other.join(protocols=protocols("range"))
    before = [*h.live.members]
    last = {record.key: record for record in h.records}
    h.takeover(sorted(last.values(), key=lambda record: record.offset))
    assert [*h.live.members] != before
    h.sync_all(a, b, c)
    h.rejoin_all(*(each.restarted() for each in (a, b, c)))
    assert_same(h)


def test_an_initial_delay_that_ended_without_a_trace() -> None:
    """After a takeover the static members return late: the delay is over, which left no event."""
    h = Harness()
    a, b = h.static("a"), h.static("b")
    a.enter()
    b.enter()
    h.takeover()
    h.sleep(3 * DELAY_MS)
    a.join()
    b.join()
    assert h.state is GroupState.COMPLETING_REBALANCE
    assert_same(h)


def test_a_registration_that_was_complete_while_one_had_been_sent_back() -> None:
    """A join that is sent again within ten seconds has arrived; the log does not have it until the member joins."""
    h = Harness()
    a, b = h.stable_group(h.static("a", session_timeout_ms=60_000), h.static("b", session_timeout_ms=60_000))
    h.alter(("members.registered", ConfigOperation.SET, "c,d"))
    h.static("c").join()
    h.sleep(25_000)
    h.static("d").join()
    assert h.events[-1].why.cause is Cause.REGISTRATION_COMPLETE
    h.static("c").join()
    h.rejoin_all(a, b)
    assert_same(h)


def test_simultaneous_requests_are_distinguished() -> None:
    """An event that goes back in the order of one request belongs to the next one."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    h.alter(("members.rebalance", ConfigOperation.SET, "static"))
    h.leave_instance("a", "b")
    h.alter(("members.registered", ConfigOperation.SET, "c,d"))
    assert_same(h)
    assert a.instance != b.instance


def test_a_release_by_setting_reruns_equally() -> None:
    """It is one request in one transition; so is the way back."""
    h = Harness()
    h.stable_group(h.static("a"), h.dynamic("b"))
    h.set(members_coordinator="upstream")
    h.set(members_coordinator="muster")
    again = assert_same(h)
    (released, taken_back) = (taken.command for taken in again.inputs if isinstance(taken.command, AlterGroupConfig))
    assert [change.value for change in (*released.changes, *taken_back.changes)] == ["upstream", None]


def test_a_history_that_was_changed_is_found_out() -> None:
    """With one forged assignment, the difference has the recorded decision and that of the rules."""
    h = Harness()
    h.stable_group(h.static("a"), h.static("b"))
    position = next(i for i, event in enumerate(h.events) if isinstance(event, MemberAssigned))
    forged = h.events[position]
    assert isinstance(forged, MemberAssigned)
    h.events[position] = msgspec.structs.replace(
        forged, member=msgspec.structs.replace(forged.member, joined_ms=forged.member.joined_ms + 1)
    )
    (difference,) = rerun(history_of(h)).differences
    assert h.events[position] in difference.recorded
    assert comparable(difference.decided)[0] != comparable(difference.recorded)[0]


def test_after_a_gap_nothing_is_claimed_until_the_group_is_recreated() -> None:
    """Events after the gap are counted as skipped."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    a.leave()
    h.delete()
    before = len(h.events)
    h.sleep(10_000)
    h.stable_group(h.static("b"))
    history = history_of(h)
    kept = [item for item in history.items if not (isinstance(item, Happened) and item.position.offset in (2, 3))]
    again = rerun(msgspec.structs.replace(history, items=tuple(with_gaps(kept))))  # type: ignore[arg-type]
    assert again.differences == []
    assert again.skipped == before - 2
    assert any(isinstance(taken.command, JoinGroup) for taken in again.inputs)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(5, 60))
def test_any_history_of_a_group_reruns_equally(seed: int, steps: int) -> None:
    """Random requests, restarts, silences and takeovers; the log alone is enough to decide everything again."""
    play = Play(random.Random(seed))
    for _ in range(steps):
        play.step()
    assert_same(play.harness)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(5, 80))
def test_any_administration_of_a_group_reruns_equally(seed: int, steps: int) -> None:
    """The same with registrations, retirements, learners, standbys and delays."""
    play = MembershipPlay(random.Random(seed))
    for _ in range(steps):
        play.step()
    assert_same(play.harness)


def test_the_random_play_of_memberships_reaches_what_it_is_for() -> None:
    """Over a few seeds, rebalances begin for the causes that an administrator can bring about."""
    causes: set[Cause] = set()
    for seed in range(120):
        play = MembershipPlay(random.Random(seed))
        for _ in range(60):
            play.step()
        causes |= {event.why.cause for event in play.harness.events if isinstance(event, RebalanceStarted)}
    assert causes >= {
        Cause.REGISTRATION_COMPLETE,
        Cause.REGISTRATION_TIMED_OUT,
        Cause.EXPANSION_DELAY_ELAPSED,
        Cause.LEARNERS_PROMOTED,
        Cause.LEARNER_TIMEOUT_ELAPSED,
        Cause.RETIREMENT_COMPLETE,
        Cause.RETIREMENT_TIMED_OUT,
        Cause.GROUP_CONFIGURED,
        Cause.REBALANCE_REQUESTED,
    }


def test_the_random_play_reaches_what_it_is_for() -> None:
    """Over a few seeds, all kinds of removals happen."""
    causes: set[Cause] = set()
    for seed in range(30):
        play = Play(random.Random(seed))
        for _ in range(60):
            play.step()
        causes |= {event.why.cause for event in play.harness.events if isinstance(event, MemberRemoved)}
    assert causes >= {Cause.SESSION_EXPIRED, Cause.NOT_REJOINED, Cause.MEMBER_LEFT, Cause.MEMBER_REMOVED_BY_ADMIN}
