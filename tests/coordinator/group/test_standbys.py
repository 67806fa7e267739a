"""Hot standbys (`target.group.size`): a lost member is replaced, and no other member is disturbed."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group import standby_members
from muster.coordinator.group.commands import ConfigOperation, EndMemberSync
from muster.coordinator.group.configs import TARGET_GROUP_SIZE
from muster.coordinator.group.roles import EMPTY_ASSIGNMENT
from muster.events.causes import Cause
from muster.events.consumer_protocol import encode_assignment
from muster.events.events import RebalanceStarted
from muster.events.state import GroupState, MemberRole
from tests.coordinator.group.client import Client, protocols, subscription
from tests.coordinator.group.harness import Harness
from tests.coordinator.group.test_registration import starts


def shares(h: Harness) -> dict[Any, bytes]:
    """A partition for each member in the leader's list."""
    names = sorted(each.member_id for each in h.live.members.values() if not each.is_inactive)
    return {member_id: encode_assignment({"orders": [number]}) for number, member_id in enumerate(names)}


def sync_all(h: Harness, *clients: Client) -> None:
    for client in sorted(clients, key=lambda client: client.is_leader):
        client.sync(shares(h) if client.is_leader else None)


def with_standbys(h: Harness, *standbys: Client, active: str = "ab") -> tuple[Client, ...]:
    """A stable group of static members, as many as should be active, and standbys that joined later."""
    clients = [h.static(name, session_timeout_ms=20_000) for name in active]
    h.form(*clients)
    sync_all(h, *clients)
    h.set(target_group_size=str(len(active)))
    for standby in standbys:
        assert standby.enter().error is ErrorCode.none
        standby.sync()
    return (*clients, *standbys)


def take_over(standby: Client) -> None:
    """Rejoin and sync, as a client does after a rejoin error."""
    assert standby.heartbeat().error is ErrorCode.rebalance_in_progress
    assert standby.join().error is ErrorCode.none
    assert standby.sync().error is ErrorCode.none


def role(h: Harness, client: Client) -> MemberRole:
    return h.live.members[client.member_id].role


def test_a_member_beyond_the_target_becomes_a_standby() -> None:
    """Its assignment is empty in a form that every client can read; no other member is notified."""
    h = Harness()
    a, b, s = with_standbys(h, h.static("s"))
    assert a.heartbeat().error is b.heartbeat().error is s.heartbeat().error is ErrorCode.none
    assert (s.generation_id, s.assignment) == (1, EMPTY_ASSIGNMENT)
    assert role(h, s) is MemberRole.STANDBY
    assert starts(h)[1:] == []


def test_a_dynamic_member_may_be_a_standby() -> None:
    """In the two steps of KIP-394."""
    h = Harness()
    *_, s = with_standbys(h, h.dynamic())
    assert role(h, s) is MemberRole.STANDBY


def test_a_lost_member_is_replaced_by_the_standby_alone() -> None:
    """The others are unaffected: same generation, heartbeats accepted, no partition moves."""
    h = Harness()
    a, b, s = with_standbys(h, h.static("s", session_timeout_ms=45_000))
    lost = b.assignment
    for _ in range(4):
        h.sleep(5_000)
        a.heartbeat()
    assert b.member_id not in h.live.members
    assert role(h, s) is MemberRole.CALLED
    take_over(s)
    assert s.assignment == lost
    assert (s.generation_id, a.heartbeat().error, s.heartbeat().error) == (1, ErrorCode.none, ErrorCode.none)
    assert role(h, s) is MemberRole.ACTIVE
    assert starts(h)[1:] == []


def test_a_lost_leader_is_replaced_by_a_standby_that_skips_the_assignment() -> None:
    """KIP-814: it leads, gets the member list, and keeps the assignment as it is."""
    h = Harness()
    a, b, s = with_standbys(h, h.static("s"))
    lost = a.assignment
    a.leave()
    assert s.heartbeat().error is ErrorCode.rebalance_in_progress
    answer = s.join().outcome
    assert (answer.leader_id, answer.skip_assignment, answer.generation_id) == (s.member_id, True, 1)
    assert {each.member_id for each in answer.members} == {b.member_id, s.member_id}
    assert s.sync({}).outcome.assignment == lost
    assert b.heartbeat().error is ErrorCode.none


def test_a_standby_too_old_to_skip_the_assignment_cannot_lead_without_a_rebalance() -> None:
    """Below JoinGroup v9 it would compute a new one."""
    h = Harness()
    a, _b, s = with_standbys(h, h.static("s", version=5))
    a.leave()
    assert s.heartbeat().error is ErrorCode.rebalance_in_progress
    assert s.join().parked
    assert starts(h)[1:] == [Cause.STANDBY_UNFIT]


def test_two_lost_at_once_are_replaced_by_two_standbys() -> None:
    """In the order in which they joined."""
    h = Harness()
    a, b, c, s, t = with_standbys(h, h.static("s"), h.static("t"), active="abc")
    lost = {b.assignment, c.assignment}
    h.leave_instance("b", "c")
    take_over(s)
    take_over(t)
    assert {s.assignment, t.assignment} == lost
    assert a.heartbeat().error is ErrorCode.none
    assert starts(h)[1:] == []


def test_the_subscription_of_a_standby_is_read_once_however_many_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have 1 MiB, and cover no member's assignment."""
    read: list[bytes] = []

    def subscribed_topics(metadata: bytes) -> frozenset[str]:
        read.append(metadata)
        return frozenset()

    monkeypatch.setattr(standby_members, "subscribed_topics", subscribed_topics)
    h = Harness()
    with_standbys(h, h.static("s"), h.static("t"), active="abcdef")
    h.leave_instance(*"bcdef")
    assert h.state is GroupState.PREPARING_REBALANCE
    assert len(read) == 2


def test_two_lost_and_one_standby_is_a_rebalance() -> None:
    """Partitions that no standby can take over have to be shared."""
    h = Harness()
    with_standbys(h, h.static("s"), active="abc")
    h.leave_instance("b", "c")
    assert h.state is GroupState.PREPARING_REBALANCE


def test_a_standby_that_dies_while_it_is_called_is_replaced_by_the_next() -> None:
    """When its session or the time to sync ends, whichever is first."""
    h = Harness()
    a, b, s, t = with_standbys(
        h,
        h.static("s", session_timeout_ms=10_000),
        h.static("t", session_timeout_ms=60_000),
    )
    lost = b.assignment
    b.leave()
    assert role(h, s) is MemberRole.CALLED
    h.sleep(5_000)
    a.heartbeat()
    h.sleep(5_000)
    assert s.member_id not in h.live.members
    take_over(t)
    assert t.assignment == lost
    assert starts(h)[1:] == []


def test_a_called_standby_that_never_syncs_is_removed() -> None:
    """Heartbeats alone do not let it keep the partitions unread."""
    h = Harness()
    a, b, s = with_standbys(h, h.static("s", rebalance_timeout_ms=12_000))
    b.leave()
    for _ in range(3):
        s.heartbeat()
        a.heartbeat()
        h.sleep(4_000)
    assert s.member_id not in h.live.members
    assert starts(h)[1:] == [Cause.SYNC_TIMED_OUT]


def test_a_called_standby_has_until_its_deadline_to_sync() -> None:
    """A deadline that fires early, or that was dropped, removes no member."""
    h = Harness()
    _a, b, s = with_standbys(h, h.static("s"))
    b.leave()
    early = EndMemberSync(group_id=h.group_id, due_ms=h.now_ms, member_id=s.member_id)
    assert h.send(early).events == ()
    take_over(s)
    assert s.member_id not in h.soft.member_sync_deadlines
    assert h.send(early).events == ()
    assert role(h, s) is MemberRole.ACTIVE


def test_a_standby_that_restarts_while_it_is_called_takes_over() -> None:
    """The new process takes the place of the old one."""
    h = Harness()
    _a, b, s = with_standbys(h, h.static("s"))
    lost = b.assignment
    b.leave()
    again = s.restarted()
    assert again.join().error is ErrorCode.none
    assert again.sync().outcome.assignment == lost
    assert role(h, again) is MemberRole.ACTIVE


def test_a_lost_member_that_returns_becomes_a_standby() -> None:
    """Its place is taken."""
    h = Harness()
    _a, b, s = with_standbys(h, h.static("s"))
    assert {event.why.cause for event in h.events} & {Cause.STANDBY_ADMITTED, Cause.LEARNER_ADMITTED} == {
        Cause.STANDBY_ADMITTED
    }
    b.leave()
    take_over(s)
    back = b.restarted()
    assert back.join().error is ErrorCode.none
    assert back.sync().outcome.assignment == EMPTY_ASSIGNMENT
    assert role(h, back) is MemberRole.STANDBY


UNFIT = pytest.mark.parametrize("metadata", [subscription("payments"), b"no subscription"])


@UNFIT
def test_a_standby_that_does_not_read_the_topics_is_not_called(metadata: bytes) -> None:
    """Its subscription has to cover the assignment; an unreadable one covers nothing."""
    h = Harness()
    _a, b, _s = with_standbys(h, h.static("s", protocols=protocols("range", metadata=metadata)))
    b.leave()
    assert starts(h)[1:] == [Cause.MEMBER_LEFT]


@UNFIT
def test_a_called_standby_that_comes_without_the_topics_rebalances(metadata: bytes) -> None:
    """It has changed its subscription since."""
    h = Harness()
    _a, b, s = with_standbys(h, h.static("s"))
    b.leave()
    assert starts(h)[1:] == []
    s.protocols = protocols("range", metadata=metadata)
    s.join()
    assert starts(h)[1:] == [Cause.METADATA_CHANGED]


def test_a_standby_that_leaves_causes_no_rebalance() -> None:
    """It had no partitions."""
    h = Harness()
    a, b, s = with_standbys(h, h.static("s"))
    s.leave()
    assert a.heartbeat().error is b.heartbeat().error is ErrorCode.none
    assert h.state is GroupState.STABLE


def test_a_standby_that_goes_while_the_leader_computes_ends_no_wait() -> None:
    """The others have to sync in time, as before."""
    h = Harness()
    a, b, s = with_standbys(h, h.static("s"))
    a.join(protocols=protocols("range", metadata=subscription("orders", "payments")))
    b.join()
    s.join()
    assert h.state is GroupState.COMPLETING_REBALANCE
    due_ms = h.soft.sync_deadline_ms
    s.leave()
    assert h.state is GroupState.COMPLETING_REBALANCE
    assert h.soft.sync_deadline_ms == due_ms


def test_a_new_subscription_of_a_standby_moves_nothing() -> None:
    """It is stored, and used when the standby is called."""
    h = Harness()
    *_, s = with_standbys(h, h.static("s"))
    s.protocols = protocols("range", metadata=subscription("orders", "payments"))
    assert s.join().error is ErrorCode.none
    assert h.live.members[s.member_id].protocols == s.protocols
    assert h.state is GroupState.STABLE
    assert h.delete_offsets(("payments", 0)).outcome.refused == {("payments", 0): ErrorCode.group_subscribed_to_topic}


def test_a_rebalance_keeps_the_active_active_and_hides_the_standbys_from_the_leader() -> None:
    """In a real rebalance all rejoin; active members stay active."""
    h = Harness()
    a, b, s = with_standbys(h, h.static("s"))
    h.set(members_rebalance="static")
    call, _, _ = a.join(), b.join(), s.join()
    assert {each.group_instance_id for each in call.outcome.members} == {"a", "b"}
    sync_all(h, a, b, s)
    assert s.assignment == EMPTY_ASSIGNMENT


def test_raising_the_target_makes_standbys_active() -> None:
    """In one rebalance; lowering it makes the members that joined last standbys."""
    h = Harness()
    a, b, s = with_standbys(h, h.static("s"))
    h.set(target_group_size="3")
    assert starts(h)[1:] == [Cause.GROUP_CONFIGURED]
    for client in (a, b, s):
        client.join()
    assert role(h, s) is MemberRole.ACTIVE
    sync_all(h, a, b, s)
    h.set(target_group_size="1")
    for client in (a, b, s):
        client.join()
    assert [role(h, client) for client in (a, b, s)] == [MemberRole.ACTIVE, MemberRole.STANDBY, MemberRole.STANDBY]


def test_a_target_without_effect_moves_nothing() -> None:
    """Two are active with no standby, whether the target is two or five."""
    h = Harness()
    with_standbys(h)
    h.set(target_group_size="5")
    h.alter((TARGET_GROUP_SIZE, ConfigOperation.DELETE, None))
    assert h.state is GroupState.STABLE


def test_the_first_generation_has_the_target_s_size() -> None:
    """The first to join are active."""
    h = Harness()
    with_standbys(h)
    h.leave_instance("a", "b")
    clients = [h.static(name) for name in "wxyz"]
    h.form(*clients)
    roles = sorted(member.role.value for member in h.live.members.values())
    assert roles == ["Active", "Active", "Standby", "Standby"]


def test_a_standby_leads_if_all_active_members_are_absent() -> None:
    """Static members that do not rejoin stay; a standby that is present becomes active, to lead."""
    h = Harness()
    clients = with_standbys(h, h.static("s", session_timeout_ms=120_000))
    s = clients[-1]
    h.set(members_rebalance="static")
    for member in clients[:-1]:
        h.soft.sessions[member.member_id].timeout_ms = 120_000
        h.soft.sessions[member.member_id].refresh(h.now_ms, None)
    call = s.join()
    while call.parked:
        h.sleep_until_next()
    assert call.outcome.leader_id == s.member_id
    assert role(h, s) is MemberRole.ACTIVE


def test_a_surplus_leader_stays_active_until_another_can_lead() -> None:
    """The target was lowered to one, and both active members are absent: the first of them stays active."""
    h = Harness()
    a, b, s = with_standbys(h, h.static("s", session_timeout_ms=120_000))
    for member in (a, b):
        h.soft.sessions[member.member_id].timeout_ms = 120_000
        h.soft.sessions[member.member_id].refresh(h.now_ms, None)
    h.set(target_group_size="1")
    call = s.join()
    while call.parked:
        h.sleep_until_next()
    assert call.outcome.leader_id == s.member_id
    assert [role(h, each) for each in (a, b, s)] == [MemberRole.ACTIVE, MemberRole.STANDBY, MemberRole.ACTIVE]


def test_a_takeover_keeps_promoted_standbys() -> None:
    """The next owner tells it to rejoin, and it has the time to."""
    h = Harness()
    _a, b, s = with_standbys(h, h.static("s"))
    lost = b.assignment
    b.leave()
    h.takeover()
    take_over(s)
    assert s.assignment == lost


def test_an_unknown_assignment_is_not_handed_over() -> None:
    """Bytes that are no ConsumerProtocolAssignment name no topics."""
    h = Harness()
    _a, b = h.stable_group(h.static("a"), h.static("b"))
    h.set(target_group_size="2")
    s = h.static("s")
    s.join()
    s.sync()
    b.leave()
    assert isinstance(next(e for e in h.events[::-1] if isinstance(e, RebalanceStarted)), RebalanceStarted)
    assert h.state is GroupState.PREPARING_REBALANCE


def test_a_member_that_the_leader_left_out_has_nothing_to_hand_over() -> None:
    """No standby is called for it, whatever it subscribes."""
    h = Harness()
    a, b = (h.static(name) for name in "ab")
    h.form(a, b)
    b.sync()
    a.sync({a.member_id: encode_assignment({"orders": [0, 1]})})
    h.set(target_group_size="2")
    s = h.static("s")
    s.join()
    s.sync()
    b.leave()
    assert h.state is GroupState.PREPARING_REBALANCE
    assert role(h, s) is not MemberRole.CALLED


def test_a_group_of_another_type_knows_no_standbys() -> None:
    """Connect's assignments contain more than partitions; Streams' too. The config is refused."""
    for given in ({"protocol_type": "connect"}, {"protocols": protocols("stream")}):
        h = Harness()
        h.stable_group(h.static("a", **given))
        call = h.alter((TARGET_GROUP_SIZE, ConfigOperation.SET, "1"))
        assert call.error is ErrorCode.inconsistent_group_protocol
        assert (call.outcome.message or "").startswith(f"{TARGET_GROUP_SIZE}: ")
        assert "consumer" in (call.outcome.message or "")
        assert h.alter(("members.expansion.delay.ms", ConfigOperation.SET, "0")).error is ErrorCode.none
        assert h.static("b", **given).join().parked


def test_a_leader_that_becomes_a_standby_stops_leading() -> None:
    """It led because the older one was absent. The leader's own assignment would be empty for it (invariant 9)."""
    h = Harness()
    a, b = (h.static(name, session_timeout_ms=300_000) for name in "ab")
    h.stable_group(a, b)
    b.join(protocols=protocols("range", metadata=subscription("orders", "more")))
    h.sleep(b.rebalance_timeout_ms)
    assert h.live.leader_id == b.member_id
    h.set(target_group_size="1")
    h.rejoin_all(a, b)
    assert h.live.leader_id == a.member_id
    assert (role(h, a), role(h, b)) == (MemberRole.ACTIVE, MemberRole.STANDBY)
