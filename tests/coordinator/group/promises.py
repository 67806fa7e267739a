"""The promises to clients: each response is true, and no member is removed too early.

Shared by the harness, where Hypothesis searches at random, and by `tests/model`, which is exhaustive. Everything here
compares values before and after one command; invariants of a single state are in `invariants.py`.
"""

from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import (
    AnyCommand,
    AnyRequest,
    EndJoinPhase,
    ExpireSession,
    Heartbeat,
    JoinGroup,
    SyncGroup,
)
from muster.coordinator.group.decide import Decision
from muster.coordinator.group.outcomes import (
    HeartbeatOutcome,
    JoinGroupOutcome,
    LeaveGroupOutcome,
    Outcome,
    SyncGroupOutcome,
)
from muster.coordinator.group.settings import NEW_MEMBER_JOIN_TIMEOUT_MS
from muster.coordinator.group.soft_state import SoftState
from muster.events.causes import Cause
from muster.events.events import AnyEvent, JoinPhaseCompleted, MemberRemoved
from muster.events.ids import UNKNOWN_MEMBER_ID, MemberId
from muster.events.state import NO_GENERATION, Group, GroupState, MemberRole

STATIC_MEMBERS_GO_BY = frozenset(
    {
        Cause.SESSION_EXPIRED,
        Cause.FIRST_JOIN_TIMED_OUT,
        Cause.SYNC_TIMED_OUT,
        Cause.MEMBER_LEFT,
        Cause.MEMBER_REMOVED_BY_ADMIN,
        Cause.GROUP_FULL,
        Cause.RETIREMENT_TIMED_OUT,
        Cause.GROUP_RELEASED,
    }
)
"""ST28: a static member survives all other causes."""


def check_promises(command: AnyCommand, before: Group | None, soft: SoftState, decision: Decision, now_ms: int) -> None:
    """Check every promise about one command except its response, for which `check_answer` needs the request."""
    after = decision.group
    check_one_leader(reply.outcome for reply in decision.replies)
    check_removals(decision.events)
    check_absent(decision)
    check_sessions(command, soft, decision.soft, now_ms)
    if before is not None and after is not None:
        check_leader_stays(before, after)
        check_assignments_fall(before, after)
        check_join_phase(command, before, soft, after, decision.soft)
        check_restart(command, before, after)


def is_success(outcome: Outcome) -> bool:
    """True if the response treats the sender as a member, or as one that has just left."""
    match outcome:
        case JoinGroupOutcome(error=error) | SyncGroupOutcome(error=error):
            return error is ErrorCode.none
        case HeartbeatOutcome(error=error):
            return error in (ErrorCode.none, ErrorCode.rebalance_in_progress)
        case LeaveGroupOutcome(members=members):
            return any(left.error is ErrorCode.none for left in members)
        case _:
            return False


def check_answer(command: AnyRequest, outcome: Outcome, group: Group | None, soft: SoftState) -> None:
    """Check that the response only uses what is in the log; `group` is projected from it, including this response's
    events.
    """
    match outcome:
        case JoinGroupOutcome(error=ErrorCode.member_id_required):
            assert outcome.member_id in soft.pending_members, "an id was handed out that is not expected back"
        case JoinGroupOutcome(error=ErrorCode.none):
            assert isinstance(command, JoinGroup)
            _check_joined(command, outcome, _existing(group))
        case SyncGroupOutcome(error=ErrorCode.none):
            assert isinstance(command, SyncGroup)
            live = _existing(group)
            member = live.members.get(command.member_id)
            assert member is not None, "an assignment for one who is no member"
            # Changes delayed by the assignment may start a rebalance at once.
            assert live.state is not GroupState.COMPLETING_REBALANCE, "an assignment before the group is stable"
            assert command.generation_id == live.generation_id, "an assignment of another generation"
            assert outcome.assignment == live.assignment_of(member), "another assignment than the stored one"
            assert outcome.protocol_name == live.image.protocol_name
        case HeartbeatOutcome() if is_success(outcome):
            assert isinstance(command, Heartbeat)
            live = _existing(group)
            assert command.member_id in live.members, "a heartbeat accepted of one who is no member"
            assert command.generation_id == live.generation_id, "a heartbeat accepted of another generation"
            is_called = live.members[command.member_id].role is MemberRole.CALLED
            sent_back = live.state is GroupState.PREPARING_REBALANCE or is_called
            assert sent_back or outcome.error is ErrorCode.none, "sent back without a rebalance"
        case LeaveGroupOutcome():
            _check_left(outcome, _existing(group) if group is not None else None, soft)
        case _:
            pass


def _existing(group: Group | None) -> Group:
    assert group is not None, "success in a group that is not there"
    return group


def _check_joined(command: JoinGroup, outcome: JoinGroupOutcome, group: Group) -> None:
    member = group.members.get(outcome.member_id)
    assert member is not None, "a join accepted of one who is no member"
    assert member.group_instance_id == command.group_instance_id or command.group_instance_id is None
    assert outcome.generation_id == group.generation_id, "a generation that is not the group's"
    assert outcome.protocol_name == group.image.protocol_name
    assert group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE), "a join answered in the join phase"
    if outcome.leader_id == outcome.member_id:
        assert group.leader_id == outcome.member_id, "told that it leads, and does not"
        listed = {joined.member_id for joined in outcome.members}
        expected = {m.member_id for m in group.members.values() if not m.is_inactive}
        assert listed == expected, "the leader's list is not the members"
        assert not outcome.skip_assignment or group.state is GroupState.STABLE
    else:
        assert not outcome.members, "a follower was told who the members are"
        is_old_leader = not command.supports_skip_assignment and outcome.leader_id not in group.members
        assert outcome.leader_id == group.leader_id or is_old_leader, "told of another leader"


def _check_left(outcome: LeaveGroupOutcome, group: Group | None, soft: SoftState) -> None:
    for left in outcome.members:
        if left.error is not ErrorCode.none:
            continue
        members = group.members if group is not None else {}
        assert left.member_id not in members, "who left is a member still"
        assert left.member_id not in soft.pending_members, "who left is expected still"
        if left.member_id == UNKNOWN_MEMBER_ID and group is not None:
            assert left.group_instance_id not in group.instances, "an instance that was removed is there still"


def check_one_leader(outcomes: Iterable[Outcome]) -> None:
    """Check that at most one of the joins answered by a command is the leader's, and that all agree."""
    joins = [o for o in outcomes if isinstance(o, JoinGroupOutcome) and o.error is ErrorCode.none]
    if len(joins) > 1:
        assert len({(o.generation_id, o.leader_id, o.protocol_type, o.protocol_name) for o in joins}) == 1
        assert len({o.member_id for o in joins}) == len(joins), "two answers for one member"
        assert sum(o.leader_id == o.member_id for o in joins) == 1, "no leader among those who joined, or several"


def check_heard(command: AnyRequest, outcome: Outcome, soft: SoftState) -> None:
    """Check that an accepted heartbeat extends the deadline to a full session from now or more; `soft`: after the
    refresh.
    """
    if isinstance(command, Heartbeat) and is_success(outcome):
        session = soft.sessions[command.member_id]
        full_ms = command.caller.arrived_ms + session.timeout_ms
        assert session.deadline_ms >= full_ms, f"{command.member_id} was heard from, and its session is not full"


def check_sessions(command: AnyCommand, before: SoftState, after: SoftState, now_ms: int) -> None:
    """No member expires early: after it is heard from, its deadline is at least a full session away."""
    for member_id, session in after.sessions.items():
        old = before.sessions.get(member_id)
        if old is None:
            full_ms = min(session.timeout_ms, _replaced_timeout(before, after))
            if session.awaits_first_join:
                full_ms = min(full_ms, NEW_MEMBER_JOIN_TIMEOUT_MS)
            assert session.deadline_ms >= now_ms + full_ms, f"{member_id} begins with less than a session"
        elif session is not old:
            full_ms = now_ms + min(session.timeout_ms, old.timeout_ms)
            assert session.deadline_ms >= min(old.deadline_ms, full_ms), f"the session of {member_id} was cut short"
    if isinstance(command, ExpireSession) and command.member_id not in after.sessions:
        expired = before.sessions.get(command.member_id)
        if expired is not None:
            is_parked = command.member_id in before.parked_joins or command.member_id in before.parked_syncs
            assert expired.deadline_ms <= now_ms, f"{command.member_id} expired in time"
            assert expired.awaits_first_join or not is_parked, f"{command.member_id} expired while parked (SE3)"


def _replaced_timeout(before: SoftState, after: SoftState) -> float:
    """A new process starts with the session of the one it replaces (ST8)."""
    gone = before.sessions.keys() - after.sessions.keys()
    return min((before.sessions[member_id].timeout_ms for member_id in gone), default=float("inf"))


def check_join_phase(command: AnyCommand, before: Group, was: SoftState, after: Group, soft: SoftState) -> None:
    """JP6: a member that joins does not postpone the end of a running join phase."""
    same = before.state is after.state is GroupState.PREPARING_REBALANCE and before.generation_id == after.generation_id
    if same and not isinstance(command, EndJoinPhase):
        assert soft.join_deadline_ms == was.join_deadline_ms, "the end of the join phase was put off"


def check_leader_stays(before: Group, after: Group) -> None:
    """Within a generation, leadership moves only from a process to its replacement, or to a standby."""
    begun = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
    if before.state in begun and after.state in begun and before.generation_id == after.generation_id:
        if before.leader_id is None or after.leader_id is None or before.members[before.leader_id].retiring:
            return  # a retiring member leaves at once, and the rebalance follows when all have left
        is_called = after.members[after.leader_id].role is MemberRole.CALLED
        same = entity(before, before.leader_id) == entity(after, after.leader_id)
        assert same or is_called, "the leader changed in a generation"


def check_shares(group: Group) -> None:
    """In a stable group no two active members have the same assignment, if each was given its own."""
    if group.state is GroupState.STABLE:
        given = [group.assignment_of(member) for member in group.members.values() if not member.is_inactive]
        shares = [assignment for assignment in given if assignment]
        assert len(set(shares)) == len(shares), f"one assignment for two: {shares}"


def check_assignments_fall(before: Group, after: Group) -> None:
    """RB1: a rebalance that starts while assignments are awaited clears the older ones, which might seem valid."""
    if before.state is GroupState.COMPLETING_REBALANCE and after.state is GroupState.PREPARING_REBALANCE:
        # The awaited assignments may have arrived in the same step, with the changes that they delayed.
        valid = after.image.assigned_generation_id
        assert valid in (NO_GENERATION, before.generation_id), "older assignments are valid again"


def entity(group: Group, member_id: MemberId | None) -> str | None:
    """A member's identity across restarts: its instance id, or the member id of a dynamic member."""
    member = group.members.get(member_id) if member_id is not None else None
    return (member.group_instance_id or member.member_id) if member is not None else None


def check_removals(events: Iterable[AnyEvent]) -> None:
    """ST28: static members are removed for few causes, and never for missing a join phase."""
    for event in events:
        if isinstance(event, MemberRemoved) and event.member.group_instance_id is not None:
            assert event.why.cause in STATIC_MEMBERS_GO_BY, f"a static member went by {event.why.cause}"


def check_absent(decision: Decision) -> None:
    """RB6: of the dynamic members only those that rejoined are in the next generation."""
    if decision.group is None or not any(isinstance(event, JoinPhaseCompleted) for event in decision.events):
        return
    answered = {r.outcome.member_id for r in decision.replies if isinstance(r.outcome, JoinGroupOutcome)}
    dynamic = {m.member_id for m in decision.group.members.values() if m.group_instance_id is None}
    assert dynamic <= answered, f"in the next generation, and did not rejoin: {sorted(dynamic - answered)}"


def check_restart(command: AnyCommand, before: Group, after: Group) -> None:
    """KIP-345: a process that returns to a stable group with an unchanged subscription disturbs no other member."""
    if not isinstance(command, JoinGroup) or before.state is not GroupState.STABLE:
        return
    instance = command.group_instance_id
    if command.member_id != UNKNOWN_MEMBER_ID or instance is None or instance not in before.instances:
        return
    if command.protocols != before.members[before.instances[instance]].protocols:
        return
    assert after.state is GroupState.STABLE, "the restart of a static member was not absorbed"
    assert after.generation_id == before.generation_id
