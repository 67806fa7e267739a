"""Static members, in the rules: the owner of an instance id, and the effects of a restart. S1, S2, S6, S7, S9
to S12.
"""

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.outcomes import CommitOffsetsOutcome, JoinGroupOutcome, LeftMember, SyncGroupOutcome
from muster.events.causes import Cause
from muster.events.events import MemberRemoved, RebalanceStarted
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import GroupState
from tests.coordinator.group.client import Call, Client, protocols, subscription
from tests.coordinator.group.harness import Harness, story

FENCED = ErrorCode.fenced_instance_id


def trio(h: Harness, **given: object) -> tuple[Client, Client, Client]:
    """A stable group of three static members; the first one leads."""
    a, b, c = h.stable_group(*(h.static(name, **given) for name in "abc"))
    assert a.is_leader
    return a, b, c


@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE, GroupState.STABLE])
def test_s1_a_second_join_with_an_instance_id_replaces_the_member_in_every_state(state: GroupState) -> None:
    """Kafka kept both member ids when the group was preparing a rebalance, so two processes consumed the same
    partitions: an instance id must have one member in every state, and the old one's parked requests must be fenced at
    once.
    """
    h = Harness()
    a, b, c = trio(h)
    parked: Call[JoinGroupOutcome] | Call[SyncGroupOutcome] | None = None
    if state is not GroupState.STABLE:
        a.join()
        parked = b.join()
    if state is GroupState.COMPLETING_REBALANCE:
        c.join()
        parked = b.sync()
    assert h.state is state
    new = b.restarted()
    joining = new.join()
    assert joining.parked is (state is not GroupState.STABLE)
    assert parked is None or parked.error is FENCED
    assert b.member_id not in h.live.members
    assert [m.group_instance_id for m in h.live.members.values()].count(GroupInstanceId("b")) == 1
    for call in (b.join(), b.sync(), b.heartbeat(), b.commit()):
        assert call.error is FENCED
    for client in (a, c):
        client.join()
    if h.state is GroupState.PREPARING_REBALANCE:
        joining = new.join()
    assert joining.outcome.generation_id == h.live.generation_id > 1
    reported = a.joined
    assert reported is not None
    assert [m.member_id for m in reported.members if m.group_instance_id == "b"] == [new.member_id]


def test_s2_a_restart_in_the_sync_phase_starts_a_new_rebalance() -> None:
    """The leader had the old member id already, so the new one got an empty assignment: an assignment computed for the
    old id must not be stored, and the new one must be in the list of the next generation.
    """
    h = Harness()
    a, b, c = h.form(*(h.static(name) for name in "abc"))
    computed = h.assignments()
    new = b.restarted()
    joining = new.join()
    assert a.sync(computed).error is ErrorCode.rebalance_in_progress
    a.join()
    c.join()
    assert joining.outcome.generation_id == 2
    h.sync_all(a, new, c)
    assert new.assignment == f"{new.member_id}@2".encode()


def test_s6_a_static_member_that_does_not_rejoin_in_time_stays_with_its_old_subscription() -> None:
    """Kafka removed it when the rebalance timed out, although its session was alive, and waited for ever for an absent
    leader: it must stay, with its former subscription, and a present member must lead.
    """
    h = Harness()
    a, b, c = trio(h, session_timeout_ms=300_000, rebalance_timeout_ms=5_000)
    changed = protocols(metadata=subscription("payments"))
    b.join(protocols=changed)
    c.join(protocols=changed)
    h.sleep(5_000)
    assert h.state is GroupState.COMPLETING_REBALANCE
    leader = next(client for client in (b, c) if client.is_leader)
    assert leader.joined is not None
    reported = {member.group_instance_id: member.metadata for member in leader.joined.members}
    assert reported == {"a": subscription("orders"), "b": subscription("payments"), "c": subscription("payments")}
    h.sync_all(b, c)
    assert a.heartbeat().error is ErrorCode.illegal_generation
    assert a.join(protocols=a.protocols).outcome.leader_id == leader.member_id
    assert a.sync().outcome.assignment == f"{a.member_id}@2".encode()


@pytest.mark.parametrize("restarts", [True, False], ids=["restarted", "rejoined"])
def test_s7_a_rejoin_brings_its_timeouts_client_id_and_host(restarts: bool) -> None:
    """The values of the first join stayed for the member's whole life, so a longer session never took effect and the
    host was that of a machine long gone: those of the last join must count, also after a takeover.
    """
    h = Harness()
    a, b, c = trio(h)
    new = b.restarted() if restarts else b
    new.name, new.host = "deployed-anew", "/10.0.0.99"
    new.session_timeout_ms, new.rebalance_timeout_ms = 30_000, 90_000
    new.join(protocols=protocols(metadata=subscription("orders", "payments")))
    member = h.live.members[h.member_of("b")]
    assert (member.client_id, member.client_host, member.principal) == (
        "deployed-anew",
        "/10.0.0.99",
        "User:deployed-anew",
    )
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (30_000, 90_000)
    assert "/10.0.0.99" in {each.client_host for each in h.describe().members}
    a.join()
    c.join()
    if h.state is GroupState.PREPARING_REBALANCE:
        new.join()
    assert h.soft.sync_deadline_ms == h.now_ms + 90_000
    new.heartbeat()
    assert h.soft.sessions[new.member_id].deadline_ms == h.now_ms + 30_000
    h.sleep(1_000)
    h.takeover()
    assert h.soft.sessions[new.member_id].deadline_ms == h.now_ms + 30_000
    assert h.soft.sync_deadline_ms == h.now_ms + 90_000


def test_s9_a_simple_commit_that_names_an_instance_id_is_taken() -> None:
    """A consumer that assigns itself partitions sent its instance id with generation -1 and got UNKNOWN_MEMBER_ID: in a
    group without members the instance id must be ignored, whatever it is.
    """
    h = Harness()
    taken = CommitOffsetsOutcome(error=ErrorCode.none)
    simple = h.static("nobody", generation_id=-1)
    assert simple.commit().outcome == taken
    assert simple.commit().outcome == taken
    (a,) = h.stable_group(h.static("a"))
    assert simple.commit().error is ErrorCode.unknown_member_id
    a.leave()
    assert h.state is GroupState.EMPTY
    assert simple.commit().outcome == taken
    assert h.static("a", generation_id=-1).commit().outcome == taken


@pytest.mark.parametrize("version", [5, 8, 9])
def test_s10_a_leader_that_restarts_with_other_topics_can_reassign(version: int) -> None:
    """Told to skip the assignment, or that the old member id leads, a restarted leader that had changed its topics
    could never have them assigned: it must see its own new subscription, and its rejoin must rebalance and make it
    lead.
    """
    h = Harness()
    a, b, c = trio(h, version=version)
    changed = protocols(metadata=subscription("orders", "payments"))
    new = a.restarted(protocols=changed)
    reported = new.join().outcome
    assert reported.generation_id == 1
    if version >= 9:
        assert reported.skip_assignment
        assert {m.group_instance_id: m.metadata for m in reported.members}[new.instance] == changed[0].metadata
    else:
        assert (reported.leader_id, reported.members, reported.skip_assignment) == (a.member_id, (), False)
    assert new.sync().outcome.assignment == a.assignment
    again = new.join()
    assert story(again.events)[-1] == (RebalanceStarted, Cause.LEADER_REJOINED)
    b.join()
    c.join()
    assert again.outcome.leader_id == new.member_id
    assert not again.outcome.skip_assignment
    assert {m.group_instance_id for m in again.outcome.members} == {"a", "b", "c"}
    h.sync_all(new, b, c)
    assert new.assignment == f"{new.member_id}@2".encode()


def test_s11_a_group_never_outgrows_its_limit_and_the_last_to_rejoin_are_out() -> None:
    """After a failover with a lower limit none or all were evicted, and pending ids let a group grow beyond it: the
    first to come back must stay, the surplus be refused, and pending ids be checked when used.
    """
    h = Harness()
    a, b, c = trio(h, rebalance_timeout_ms=5_000)
    h.settings = Harness(max_size=2).settings
    h.takeover()
    assert h.state is GroupState.PREPARING_REBALANCE
    waiting = [c.join(), b.join()]
    assert a.join().error is ErrorCode.group_max_size_reached
    h.sleep(5_000)
    assert [call.outcome.generation_id for call in waiting] == [2, 2]
    assert set(h.live.instances) == {"b", "c"}
    h.leave_instance("b")
    handed_out = [h.dynamic(f"d{n}") for n in range(4)]
    refusals = [client.join().error for client in handed_out]
    assert set(refusals) == {ErrorCode.member_id_required}
    c.join()
    answers = [client.join() for client in handed_out]
    assert [call.parked for call in answers] == [True, False, False, False]
    assert {call.error for call in answers[1:]} == {ErrorCode.group_max_size_reached}
    assert len(h.live.members) == 2
    h.sleep(20_000)
    assert len(h.live.members) <= 2


def test_s12_members_are_removed_by_instance_id_each_with_its_own_verdict() -> None:
    """A removal of static members was answered with one error for all, or removed none if one was unknown: each entry
    must have its own result, known ones must be removed, and all of them must cost one rebalance.
    """
    h = Harness()
    trio(h)
    call = h.leave_instance("b", "ghost", "c", "b", reason="scaled in")

    def verdict(instance: str, error: ErrorCode) -> LeftMember:
        return LeftMember(member_id=MemberId(""), group_instance_id=GroupInstanceId(instance), error=error)

    assert call.error is ErrorCode.none
    assert call.outcome.members == (
        verdict("b", ErrorCode.none),
        verdict("ghost", ErrorCode.unknown_member_id),
        verdict("c", ErrorCode.none),
        verdict("b", ErrorCode.unknown_member_id),
    )
    assert story(call.events) == [
        (MemberRemoved, Cause.MEMBER_REMOVED_BY_ADMIN),
        (MemberRemoved, Cause.MEMBER_REMOVED_BY_ADMIN),
        (RebalanceStarted, Cause.MEMBER_REMOVED_BY_ADMIN),
    ]
    assert {event.why.client_reason for event in call.events} == {"scaled in"}
    assert set(h.live.instances) == {"a"}
