"""Rebalances: starting one, ending its join phase, choosing the leader and the protocol."""

from collections import Counter
from collections.abc import Iterable

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.census import rank_of
from muster.coordinator.group.commands import JoinGroup
from muster.coordinator.group.handed_out import take_noted
from muster.coordinator.group.held_joins import admit_held_joins
from muster.coordinator.group.members import supported_by_all
from muster.coordinator.group.outcomes import JoinedMember, JoinGroupOutcome, SyncGroupOutcome
from muster.coordinator.group.returned import take_returned
from muster.coordinator.group.roles import active_members, assign_roles, follower_outcome
from muster.coordinator.group.soft_state import InitialDelay
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.consumer_protocol import CONSUMER_PROTOCOL_TYPE, TOPICS_LOOKED_AT_MAX, subscribed_by_any
from muster.events.events import GroupEmptied, JoinPhaseCompleted, RebalanceStarted
from muster.events.ids import MemberId
from muster.events.state import NO_GENERATION, Group, GroupState, Member

MIN_WAIT_MS = 100
"""The shortest join phase that is extended for absent static members; a rebalance timeout of 0 (K2) would spin."""


# ---- starting ----------------------------------------------------------------------------------


def prepare_rebalance(turn: Turn) -> None:
    """Enter the join phase with the turn's `why` (RB1 to RB5); end a running one if all members have joined."""
    state = turn.image.state
    if state is GroupState.PREPARING_REBALANCE:
        complete_join_phase_if_all_joined(turn)
        return
    if state is GroupState.COMPLETING_REBALANCE:
        fail_parked_syncs(turn, ErrorCode.rebalance_in_progress)
        turn.change(assigned_generation_id=NO_GENERATION)
    turn.soft.sync_deadline_ms = None
    turn.soft.pending_syncs.clear()
    turn.soft.member_sync_deadlines.clear()
    turn.enter(GroupState.PREPARING_REBALANCE, departures_gathered=False)
    if state is GroupState.EMPTY:
        _start_initial_delay(turn)
    else:
        timeout_ms = turn.census.rebalance_timeout_ms
        turn.record(RebalanceStarted, timeout_ms=timeout_ms)
        turn.soft.join_deadline_ms = turn.now_ms + timeout_ms
        admit_held_joins(turn)
        complete_join_phase_if_all_joined(turn)


def fail_parked_syncs(turn: Turn, error: ErrorCode) -> None:
    """Answer the parked syncs with an error, and give their members full sessions (RB1, SG13)."""
    for member_id, caller in turn.soft.parked_syncs.items():
        turn.reply(caller, SyncGroupOutcome(error=error))
        turn.arm(member_id)
    turn.soft.parked_syncs.clear()


def _start_initial_delay(turn: Turn) -> None:
    """Wait for more members before the first generation (KIP-134, I1)."""
    delay_ms = turn.settings.initial_rebalance_delay_ms
    turn.record(RebalanceStarted, timeout_ms=delay_ms)
    remaining_ms = max(turn.census.rebalance_timeout_ms - delay_ms, 0)
    turn.soft.initial_delay = InitialDelay(delay_ms=delay_ms, remaining_ms=remaining_ms)
    turn.soft.join_deadline_ms = turn.now_ms + delay_ms


def is_initial_rebalance(turn: Turn) -> bool:
    """Return whether the running join phase began in Empty; joins do not end it early (I7)."""
    return turn.soft.initial_delay is not None


def rebalance_timeout_ms(group: Group) -> int:
    """Return the longest rebalance timeout (S14) as members sent it, which may be negative (K2); 0 without members."""
    return max((member.rebalance_timeout_ms for member in group.members.values()), default=0)


# ---- finishing the join phase ------------------------------------------------------------------


def all_members_joined(turn: Turn) -> bool:
    """Return whether every member's join is parked, and no member is pending (KIP-394, S15)."""
    return len(turn.soft.parked_joins) == len(turn.group.members) and not turn.soft.pending_members


def complete_join_phase_if_all_joined(turn: Turn) -> None:
    """End the join phase early if all members have joined, unless it is that of an initial rebalance (I7)."""
    preparing = turn.image.state is GroupState.PREPARING_REBALANCE
    if preparing and not is_initial_rebalance(turn) and all_members_joined(turn):
        complete_join_phase(turn, Cause.ALL_JOINED)


def complete_join_phase(turn: Turn, cause: Cause) -> None:
    """End the join phase: drop absent dynamic members, begin the next generation, answer the joins (RB6 to RB11)."""
    soft = turn.soft
    soft.join_deadline_ms = None
    _drop_absent_dynamic_members(turn)
    if turn.group.members and not soft.parked_joins:
        # Only static members are left, and none of them has rejoined: keep waiting in the same generation (RB7). After
        # a takeover this may be an initial rebalance: its delay is over, and it ends as soon as all are back.
        soft.initial_delay = None
        soft.join_deadline_ms = turn.now_ms + max(turn.census.rebalance_timeout_ms, MIN_WAIT_MS)
        return
    soft.initial_delay = None
    turn.change(generation_id=turn.image.generation_id + 1)
    turn.followed_by(cause, parked=soft.parked_joins)
    if turn.group.members:
        _begin_sync_phase(turn, timed_out=cause is Cause.JOIN_PHASE_TIMED_OUT)
    else:
        become_empty(turn)


def _drop_absent_dynamic_members(turn: Turn) -> None:
    why = turn.why
    absent = [m for m in turn.group.members.values() if m.member_id not in turn.soft.parked_joins]
    for member in absent:
        if member.group_instance_id is None:
            turn.caused_by_deadline(Cause.NOT_REJOINED, turn.now_ms, member)
            turn.remove(member)
    turn.why = why


def become_empty(turn: Turn) -> None:
    """Enter Empty at the end of a join phase without members (RB8); the protocol type is kept (S6)."""
    turn.soft.subscribed_topics = frozenset()
    noted = take_noted(turn)
    turn.enter(GroupState.EMPTY, protocol_name=None, leader_id=None, assigned_generation_id=NO_GENERATION)
    turn.record(GroupEmptied, **noted)


def _begin_sync_phase(turn: Turn, *, timed_out: bool) -> None:
    group, soft = turn.group, turn.soft
    assign_roles(turn)
    leader = group.members.get(turn.image.leader_id) if turn.image.leader_id else None
    if leader is None or leader.is_inactive or leader.member_id not in soft.parked_joins:
        turn.change(leader_id=min(rank_of(group.members[member_id]) for member_id in soft.parked_joins)[-1])  # RB13
    turn.enter(GroupState.COMPLETING_REBALANCE, protocol_name=select_protocol(group.members.values()))
    absent = tuple(sorted(member_id for member_id in group.members if member_id not in soft.parked_joins))
    absent_seen_ms = tuple(map(turn.heard_wall_ms, absent))
    turn.record(
        JoinPhaseCompleted,
        absent=absent,
        absent_seen_ms=absent_seen_ms,
        timed_out=timed_out,
        **take_noted(turn),
        **take_returned(turn),
    )
    soft.subscribed_topics = subscriptions(group)
    for member_id in group.members:
        turn.arm(member_id)
        soft.pending_syncs.add(member_id)
    for member_id, caller in soft.parked_joins.items():
        turn.reply(caller, join_outcome(group, member_id))
    soft.parked_joins.clear()
    soft.sync_deadline_ms = turn.now_ms + turn.census.rebalance_timeout_ms


def join_outcome(group: Group, member_id: MemberId, *, skip_assignment: bool = False) -> JoinGroupOutcome:
    """Return the JoinGroup response to a member of the current generation; the leader's has the members (J16)."""
    return msgspec.structs.replace(
        follower_outcome(group, member_id),
        skip_assignment=skip_assignment,
        members=members_for_leader(group) if member_id == group.leader_id else (),
    )


def members_for_leader(group: Group) -> tuple[JoinedMember, ...]:
    """Return the active members, including absent static ones (J16, RB12).

    Static members come first: Kafka promises no order, but kafka-python's assignors (seen in 3.0.12) give nothing to
    some members when static and dynamic ones alternate.
    """
    protocol_name = group.image.protocol_name
    members = sorted(active_members(group), key=lambda member: member.group_instance_id is None)
    return tuple(
        JoinedMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata_for(protocol_name),
        )
        for member in members
    )


# ---- protocols ---------------------------------------------------------------------------------


def select_protocol(members: Iterable[Member]) -> str | None:
    """Select the protocol: each active member votes for the first in its list that all support; most votes win (S10).

    Ties are broken by the preference of the member that joined first; Kafka breaks them arbitrarily. A static member's
    restart, which changes its member id, must not change the outcome.
    """
    voters = sorted(members, key=lambda member: (member.joined_ms, member.name))
    candidates = supported_by_all(voters)
    active = [voter for voter in voters if not voter.is_inactive]
    votes = Counter(next((p.name for p in voter.protocols if p.name in candidates), None) for voter in active)
    return votes.most_common(1)[0][0] if votes else None


def subscriptions(group: Group) -> frozenset[str] | None:
    """Return the topics that members of protocol type consumer subscribe to (S17); None: unknown, so it may be any
    topic.

    More than `TOPICS_LOOKED_AT_MAX` are treated as unknown, since reading them would delay all other groups.
    """
    if group.image.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    protocol_name = group.image.protocol_name
    return subscribed_by_any(member.metadata_for(protocol_name) for member in group.members.values())


def note_subscription(turn: Turn, command: JoinGroup) -> None:
    """Add the topics of a member that joins without a rebalance; the previous topics count until the next join
    phase.
    """
    known = turn.soft.subscribed_topics
    if known is None:
        return
    metadata = next((each.metadata for each in command.protocols if each.name == turn.image.protocol_name), b"")
    topics = subscribed_by_any([metadata])
    if topics is None:
        turn.soft.subscribed_topics = None
    elif not topics <= known:
        together = known | topics
        turn.soft.subscribed_topics = together if len(together) <= TOPICS_LOOKED_AT_MAX else None
