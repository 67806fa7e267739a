"""Roles of members: active, standby (`target.group.size`) or learner (`members.learner.timeout.ms`).

Standbys and learners are *inactive*: they heartbeat, commit, rejoin and expire like any member, but they are not in the
leader's list, and their assignment is a well-formed empty one (a zero-byte assignment crashes Java consumers). Only
groups of protocol type consumer can have them, and not those of Kafka Streams, whose assignments carry more. In other
groups every member is active, regardless of the configs.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from muster.coordinator.group.census import rank_of
from muster.coordinator.group.commands import JoinGroup
from muster.coordinator.group.members import end_registration_of, new_member
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.group.soft_state import Session
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.consumer_protocol import CONSUMER_PROTOCOL_TYPE, encode_assignment
from muster.events.events import MemberJoined, MemberRoleChanged
from muster.events.ids import MemberId
from muster.events.state import Group, GroupState, Member, MemberRole

STREAMS_PROTOCOL: Final = "stream"
EMPTY_ASSIGNMENT: Final = encode_assignment({})


def supports_roles(turn: Turn) -> bool:
    """Return whether this group can have inactive members."""
    is_consumers = turn.group.image.protocol_type == CONSUMER_PROTOCOL_TYPE
    return is_consumers and not turn.census.is_offered(STREAMS_PROTOCOL)


def active_members(group: Group) -> list[Member]:
    """List the members that are, or are to be, in the assignment."""
    return [member for member in group.members.values() if not member.is_inactive]


def learners(group: Group) -> list[Member]:
    return [member for member in group.members.values() if member.role is MemberRole.LEARNER]


def role_of_new_member(turn: Turn, command: JoinGroup) -> MemberRole:
    """Return the role of a new member, as far as it is known when it joins (see `assign_roles`)."""
    config, state = turn.group.config, turn.image.state
    if config.learner_timeout_ms is None and config.target_group_size is None:
        return MemberRole.ACTIVE
    if not turn.census.active or not supports_roles(turn):
        return MemberRole.ACTIVE
    offered = {protocol.name for protocol in command.protocols}
    if state is not GroupState.PREPARING_REBALANCE and turn.image.protocol_name not in offered:
        return MemberRole.ACTIVE  # the group has to agree on a new protocol, and that is a rebalance
    if config.learner_timeout_ms is not None and turn.soft.initial_delay is None:
        return MemberRole.LEARNER
    if config.target_group_size is not None and turn.census.active >= config.target_group_size:
        return MemberRole.STANDBY
    return MemberRole.ACTIVE


def admit_inactive_member(turn: Turn, command: JoinGroup, member_id: MemberId, role: MemberRole) -> None:
    """Add a standby or learner to the current generation; the other members do not notice."""
    cause = Cause.LEARNER_ADMITTED if role is MemberRole.LEARNER else Cause.STANDBY_ADMITTED
    turn.caused_by(cause, command.caller, member_id, command.group_instance_id, command.reason)
    turn.soft.sessions[member_id] = Session(
        timeout_ms=command.session_timeout_ms,
        deadline_ms=turn.now_ms + command.session_timeout_ms,
        last_seen_ms=turn.now_ms,
        connection=command.caller.connection,
    )
    member = new_member(turn, command, member_id, role)
    if turn.image.state is GroupState.STABLE:
        member = with_assignment(turn, member, EMPTY_ASSIGNMENT)
    turn.record_member(MemberJoined, member)
    end_registration_of(turn, command.group_instance_id)
    arm_member_sync(turn, member)
    turn.reply(command.caller, follower_outcome(turn.group, member_id))


def with_assignment(turn: Turn, member: Member, assignment: bytes, **fields: object) -> Member:
    """Return the member with an assignment of the stable generation."""
    generation_id = turn.image.assigned_generation_id
    return msgspec.structs.replace(member, assignment=assignment, assigned_generation_id=generation_id, **fields)


def arm_member_sync(turn: Turn, member: Member) -> None:
    """Give a member that gets an assignment outside a rebalance its own deadline to sync: its rebalance timeout."""
    turn.soft.member_sync_deadlines[member.member_id] = turn.now_ms + max(member.rebalance_timeout_ms, 0)


def follower_outcome(group: Group, member_id: MemberId) -> JoinGroupOutcome:
    """Return the JoinGroup response to a follower of the current generation."""
    image = group.image
    return JoinGroupOutcome(
        member_id=member_id,
        generation_id=image.generation_id,
        protocol_type=image.protocol_type,
        protocol_name=image.protocol_name,
        leader_id=image.leader_id or MemberId(""),
    )


def assign_roles(turn: Turn) -> None:
    """Choose the active members of the next generation, at the end of a join phase.

    Active members stay active, the oldest first, up to `target.group.size`; then standbys in the order in which they
    joined. Learners stay learners until they are promoted. At least one member that joined is active, to lead.
    """
    is_all_active = turn.census.number_of(MemberRole.ACTIVE) == turn.census.size
    if turn.group.config.target_group_size is None and is_all_active:
        return
    why = turn.why
    turn.followed_by(Cause.ROLES_ASSIGNED)
    for member, role in _roles(turn):
        if member.role is not role:
            change_role(turn, member, role=role)
    turn.why = why


def _roles(turn: Turn) -> Iterable[tuple[Member, MemberRole]]:
    group, joins = turn.group, turn.soft.parked_joins
    members = sorted(group.members.values(), key=rank_of)
    if not supports_roles(turn):
        return [(member, MemberRole.ACTIVE) for member in members]
    teaches = group.config.learner_timeout_ms is not None
    learning = [member for member in members if teaches and member.role is MemberRole.LEARNER]
    others = [member for member in members if not (teaches and member.role is MemberRole.LEARNER)]
    target = len(others) if group.config.target_group_size is None else group.config.target_group_size
    active, standing_by = others[:target], others[target:]
    if not any(member.member_id in joins for member in active):
        leader = next(member for member in (*standing_by, *learning) if member.member_id in joins)
        standing_by, learning = ([m for m in each if m is not leader] for each in (standing_by, learning))
        active = [*active, leader]
    return [
        *((member, MemberRole.ACTIVE) for member in active),
        *((member, MemberRole.STANDBY) for member in standing_by),
        *((member, MemberRole.LEARNER) for member in learning),
    ]


def change_role(turn: Turn, member: Member, **fields: object) -> None:
    """Record a change of a member's `role` or `retiring`; without fields, record it unchanged."""
    turn.record_member(MemberRoleChanged, msgspec.structs.replace(member, **fields))


def promote(turn: Turn, promoted: Iterable[Member]) -> None:
    """Make learners active, as of the next generation."""
    for member in promoted:
        change_role(turn, turn.group.members[member.member_id], role=MemberRole.ACTIVE)
