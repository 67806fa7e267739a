"""Plans that overlap: retirement and standbys, registrations and takeovers, and requests that mix them."""

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import ConfigOperation
from muster.coordinator.group.configs import LEARNERS, REGISTERED, RETIRED
from muster.coordinator.group.held_joins import HOLD_MS_MAX, RETRY_WINDOW_MS
from muster.coordinator.group.loaded_groups import fail_parked_requests
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.events.causes import Cause
from muster.events.ids import UNKNOWN_MEMBER_ID
from muster.events.state import GroupState, MemberRole
from tests.coordinator.group.client import Client, protocols, subscription
from tests.coordinator.group.harness import Harness
from tests.coordinator.group.test_registration import starts
from tests.coordinator.group.test_standbys import role, sync_all, take_over, with_standbys

APPEND, SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT
LONG_MS = 1_200_000


def retire(h: Harness, *names: str) -> None:
    assert h.alter((RETIRED, APPEND, ",".join(names))).error is ErrorCode.none


# ---- gathered partitions are shared out, whichever member leaves last -----------------------------------


def test_a_retired_learner_that_goes_last_makes_the_rebalance() -> None:
    """The learner had no partitions, but the member that left before it did."""
    h = Harness()
    _a, b = h.stable_group(*(h.static(name, session_timeout_ms=LONG_MS) for name in "ab"))
    h.set(members_learner_timeout_ms="3600000")
    learner = h.static("l", session_timeout_ms=LONG_MS)
    learner.join()
    learner.sync()
    retire(h, "b", "l")
    b.leave()
    assert starts(h)[1:] == []
    learner.leave()
    assert starts(h)[1:] == [Cause.RETIREMENT_COMPLETE]


def test_a_standby_in_place_of_the_last_one_makes_the_rebalance_all_the_same() -> None:
    """The standby takes the last member's partitions; those of the first still have no owner."""
    h = Harness()
    _a, b, c = with_standbys(h, active="abc")
    retire(h, "b", "c")
    b.leave()
    s = h.static("s", session_timeout_ms=LONG_MS)
    s.join()  # two of three have rejoined, so it is active, and the group rebalances for it
    assert h.state is GroupState.PREPARING_REBALANCE
    assert c.heartbeat().error is ErrorCode.rebalance_in_progress


def test_pending_work_is_kept_by_the_next_owner() -> None:
    """The rebalance follows when the last one leaves under the next owner."""
    h = Harness()
    _a, b, c = h.stable_group(*(h.static(name, session_timeout_ms=LONG_MS) for name in "abc"))
    retire(h, "b", "c")
    b.leave()
    h.takeover()
    h.alter((RETIRED, SUBTRACT, "c"))
    assert starts(h)[1:] == [Cause.RETIREMENT_WITHDRAWN]
    assert c.heartbeat().error is ErrorCode.rebalance_in_progress


def test_keeping_members_without_a_departure_moves_nothing() -> None:
    """There is nothing to share out."""
    h = Harness()
    h.stable_group(*(h.static(name, session_timeout_ms=LONG_MS) for name in "ab"))
    retire(h, "b")
    h.alter((RETIRED, SUBTRACT, "b"))
    assert starts(h)[1:] == []


def test_further_retirements_do_not_prolong_what_is_owed() -> None:
    """The partitions of the departed members are not delayed beyond the original time-out."""
    h = Harness()
    _a, b, *_ = h.stable_group(*(h.static(name, session_timeout_ms=LONG_MS) for name in "abcd"))
    h.set(members_retirement_timeout_ms="60000")
    retire(h, "b", "c")
    b.leave()
    h.sleep(50_000)
    retire(h, "d")
    h.sleep(10_000)
    assert starts(h)[1:] == [Cause.RETIREMENT_TIMED_OUT]


# ---- standbys and retirement ----------------------------------------------------------------------------


def test_a_standby_that_is_to_go_is_not_called() -> None:
    """The next standby is called instead."""
    h = Harness()
    _a, b, s, t = with_standbys(h, h.static("s"), h.static("t"))
    retire(h, "s")
    b.leave()
    assert (role(h, s), role(h, t)) == (MemberRole.STANDBY, MemberRole.CALLED)


def test_a_retired_standby_that_does_not_go_is_removed_without_a_rebalance() -> None:
    """It had no partitions."""
    h = Harness()
    clients = with_standbys(h, h.static("s", session_timeout_ms=LONG_MS))
    h.set(members_retirement_timeout_ms="5000")
    retire(h, "s")
    h.sleep(5_000)
    assert clients[-1].member_id not in h.live.members
    assert starts(h)[1:] == []


def test_a_member_removed_at_the_end_of_its_time_is_replaced_by_a_standby() -> None:
    """Like any other lost member."""
    h = Harness()
    _a, b, s = with_standbys(h, h.static("s", session_timeout_ms=LONG_MS))
    h.set(members_retirement_timeout_ms="5000")
    retire(h, "b")
    h.sleep(5_000)
    assert b.member_id not in h.live.members
    take_over(s)
    assert starts(h)[1:] == []


# ---- standbys and what clients do -----------------------------------------------------------------------


@pytest.mark.parametrize("leads", [False, True])
def test_a_called_standby_may_bring_another_subscription(leads: bool) -> None:
    """Java's consumer and all cooperative ones include their generation in it; it only has to cover the assignment."""
    h = Harness()
    a, b, s = with_standbys(h, h.static("s"))
    (a if leads else b).leave()
    s.protocols = protocols("range", metadata=subscription("orders", "more"))
    take_over(s)
    assert starts(h)[1:] == []
    assert (h.live.leader_id == s.member_id) == leads


def test_a_called_standby_that_gave_the_topics_up_makes_a_rebalance() -> None:
    """It could not consume the partitions assigned to it."""
    h = Harness()
    _a, b, s = with_standbys(h, h.static("s"))
    b.leave()
    s.protocols = protocols("range", metadata=subscription("payments"))
    assert s.join().parked
    assert starts(h)[1:] == [Cause.METADATA_CHANGED]


def test_newcomers_do_not_prolong_the_time_of_one_that_was_called() -> None:
    """Each has its own time to sync; otherwise partitions could stay unowned for ever."""
    h = Harness()
    a, b, s = with_standbys(h, h.static("s", rebalance_timeout_ms=12_000, session_timeout_ms=LONG_MS))
    b.leave()
    for number in range(6):
        h.static(f"n-{number}", session_timeout_ms=LONG_MS).join()
        a.heartbeat()
        h.sleep(2_000)
    assert s.member_id not in h.live.members


def test_a_newcomer_does_not_prolong_the_sync_phase() -> None:
    """A leader that never syncs is removed when its time is up (KAFKA-12890)."""
    h = Harness()
    a, b = with_standbys(h)
    h.set(members_rebalance="static")
    a.join(rebalance_timeout_ms=12_000)
    b.join(rebalance_timeout_ms=12_000)
    for number in range(6):
        h.static(f"n-{number}", session_timeout_ms=LONG_MS, rebalance_timeout_ms=60_000).join()
        h.sleep(2_000)
    assert h.state is GroupState.PREPARING_REBALANCE


def test_held_members_do_not_vote_about_a_restart() -> None:
    """The protocol was chosen without them."""
    h = Harness()
    clients = [h.static(name, protocols=protocols("range", "sticky")) for name in "ab"]
    h.form(*clients)
    sync_all(h, *clients)
    h.set(target_group_size="2")
    for number in range(3):
        standby = h.static(f"s-{number}", protocols=protocols("sticky", "range"))
        standby.join()
        standby.sync()
    assert clients[1].restarted(protocols=protocols("range", "sticky", "more")).join().error is ErrorCode.none
    assert starts(h)[1:] == []


def test_a_standby_that_restarts_while_the_leader_computes_causes_no_rebalance() -> None:
    """The leader does not know of it."""
    h = Harness()
    a, b, s = with_standbys(h, h.static("s"))
    h.set(members_rebalance="static")
    for client in (a, b, s):
        client.join()
    again = s.restarted()
    assert again.join().error is ErrorCode.none
    sync_all(h, a, b, again)
    assert h.state is GroupState.STABLE


def test_topics_of_standbys_count_as_subscribed() -> None:
    """Their offsets must not be deleted (OD4)."""
    h = Harness()
    with_standbys(h, h.static("s", protocols=protocols("range", metadata=subscription("orders", "more"))))
    assert h.delete_offsets(("more", 0)).outcome.refused == {("more", 0): ErrorCode.group_subscribed_to_topic}


# ---- delayed joins under other ids ----------------------------------------------------------------------


def held(h: Harness) -> Client:
    """A dynamic member that waits for the delay to end."""
    h.stable_group(h.static("a", session_timeout_ms=LONG_MS), h.static("b", session_timeout_ms=LONG_MS))
    h.set(members_expansion_delay_ms="60000")
    client = h.dynamic()
    client.enter()
    return client


def test_an_arrival_cannot_take_the_instance_id_of_a_member() -> None:
    """No member is evicted with a member id that was handed out to another client."""
    h = Harness()
    client = held(h)
    given_id = next(iter(h.soft.held_joins))
    call = client.join(member_id=given_id, group_instance_id="a")
    assert call.error is ErrorCode.fenced_instance_id
    assert client.join(member_id=given_id, group_instance_id="nobody").error is ErrorCode.unknown_member_id
    assert h.member_of("a") == "a-1"


def test_an_arrival_leaves_under_its_own_ids_alone() -> None:
    """A member's leave works the same way (L6)."""
    h = Harness()
    held(h)
    given_id = next(iter(h.soft.held_joins))
    imposter = h.static("a")
    imposter.member_id = given_id
    assert imposter.leave().outcome.members[0].error is ErrorCode.fenced_instance_id
    assert given_id in h.soft.held_joins


def test_a_dynamic_arrival_that_was_sent_back_is_still_known_when_the_rebalance_comes() -> None:
    """Its retry takes part in the rebalance."""
    h = Harness()
    client = held(h)
    given_id = next(iter(h.soft.held_joins))
    h.sleep(HOLD_MS_MAX)
    h.static("x").join()
    h.alter(("members.expansion.delay.ms", ConfigOperation.DELETE, None))
    assert h.state is GroupState.PREPARING_REBALANCE
    assert client.join(member_id=given_id).parked


def test_a_delay_that_ends_with_the_hold_admits_first() -> None:
    """No join is sent back to retry at the same time at which it would be admitted."""
    h = Harness()
    h.stable_group(h.static("a", session_timeout_ms=LONG_MS))
    h.set(members_expansion_delay_ms=str(HOLD_MS_MAX))
    call = h.static("b").join()
    h.sleep(HOLD_MS_MAX)
    assert call.parked
    assert starts(h)[1:] == [Cause.EXPANSION_DELAY_ELAPSED]
    h.sleep(RETRY_WINDOW_MS)


def test_waiting_joins_are_answered_when_the_group_is_dropped() -> None:
    """LD12: with their own member id, and error 16."""
    h = Harness()
    held(h)
    (reply,) = fail_parked_requests(h.soft, ErrorCode.not_coordinator)
    expected = JoinGroupOutcome(error=ErrorCode.not_coordinator, member_id=next(iter(h.soft.held_joins)))
    assert reply.outcome == expected


# ---- one request, several plans -------------------------------------------------------------------------


def test_retiring_and_promoting_one_member_does_both() -> None:
    """Each part sees the changes of the previous one."""
    h = Harness()
    h.stable_group(h.static("a", session_timeout_ms=LONG_MS))
    h.set(members_learner_timeout_ms="3600000")
    learner = h.static("l", session_timeout_ms=LONG_MS)
    learner.join()
    h.alter((RETIRED, APPEND, "l"), (LEARNERS, SUBTRACT, "l"))
    member = h.live.members[learner.member_id]
    assert (member.retiring, member.role) == (True, MemberRole.ACTIVE)


def test_a_registered_member_that_is_admitted_as_a_standby_completes_the_registration() -> None:
    """Nothing keeps the others waiting."""
    h = Harness()
    with_standbys(h)
    h.alter((REGISTERED, APPEND, "c,d"))
    c = h.static("c")
    assert c.join(member_id=UNKNOWN_MEMBER_ID).error is ErrorCode.none
    assert h.static("d").join().error is ErrorCode.none
    assert not h.live.registrations
    assert h.soft.registration_deadline_ms is None


def test_registering_an_instance_that_the_same_request_admits_expects_no_others() -> None:
    """It waited for the delay to end, and switching the delay off makes it a member first."""
    h = Harness()
    h.stable_group(h.static("a", session_timeout_ms=LONG_MS))
    h.set(members_expansion_delay_ms="60000")
    h.static("b").join()
    call = h.alter(("members.expansion.delay.ms", ConfigOperation.DELETE, None), (REGISTERED, APPEND, "b"))
    assert call.error is ErrorCode.none
    assert "b" in h.live.instances
    assert not h.live.registrations
