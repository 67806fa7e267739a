"""Adding a new member: its record, its session, its parked join. `join.py` decides when one is added."""

from collections.abc import Iterable

import msgspec

from muster.coordinator.group.commands import Caller, JoinGroup
from muster.coordinator.group.settings import NEW_MEMBER_JOIN_TIMEOUT_MS
from muster.coordinator.group.soft_state import Session
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.events import MemberJoined, RegistrationEnded
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import NO_GENERATION, GroupState, Member, MemberRole


def park_join(turn: Turn, member_id: MemberId, caller: Caller) -> None:
    """Park the join until the join phase ends; an earlier one of the same member is never answered (J13)."""
    turn.soft.parked_joins[member_id] = caller


def add_parked_member(turn: Turn, command: JoinGroup, member_id: MemberId, role: MemberRole) -> None:
    """Add a member whose join is parked for at most five minutes (J12); sets the turn's `why`."""
    cause = Cause.NEW_DYNAMIC_MEMBER if command.group_instance_id is None else Cause.NEW_STATIC_MEMBER
    turn.caused_by(cause, command.caller, member_id, command.group_instance_id, command.reason)
    if not turn.group.members:
        turn.change(protocol_type=command.protocol_type, leader_id=member_id, emptied_by=None)  # S8, S12
    turn.soft.sessions[member_id] = Session(
        timeout_ms=command.session_timeout_ms,
        deadline_ms=turn.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
        last_seen_ms=turn.now_ms,
        awaits_first_join=True,
        connection=command.caller.connection,
    )
    turn.record_member(MemberJoined, new_member(turn, command, member_id, role))
    end_registration_of(turn, command.group_instance_id)
    park_join(turn, member_id, command.caller)
    delay = turn.soft.initial_delay
    if delay is not None:
        turn.soft.initial_delay = msgspec.structs.replace(delay, new_member_added=True)  # JP3


def new_member(turn: Turn, command: JoinGroup, member_id: MemberId, role: MemberRole) -> Member:
    """Create the member that a first join describes, without an assignment."""
    return Member(
        member_id=member_id,
        group_instance_id=command.group_instance_id,
        client_id=command.caller.client_id,
        client_host=command.caller.client_host,
        principal=command.caller.principal,
        session_timeout_ms=command.session_timeout_ms,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        protocols=command.protocols,
        assignment=b"",
        assigned_generation_id=NO_GENERATION,
        joined_ms=turn.now.wall_ms,
        role=role,
    )


def end_registration_of(turn: Turn, group_instance_id: GroupInstanceId | None) -> None:
    """End the registration of an instance, if it has one, with the turn's `why`."""
    registration = None if group_instance_id is None else turn.group.registrations.get(group_instance_id)
    if registration is not None:
        turn.record_registration(RegistrationEnded, registration)


def supports_protocols(turn: Turn, command: JoinGroup) -> bool:
    """Return whether the join's protocols fit (S9): at least one; with members, their type and one that all offer."""
    if turn.image.state is GroupState.EMPTY:
        return bool(command.protocol_type) and bool(command.protocols)
    if command.protocol_type != turn.image.protocol_type:
        return False
    return any(turn.census.is_offered_by_all(protocol.name) for protocol in command.protocols)


def supported_by_all(members: Iterable[Member]) -> set[str]:
    """Return the names of the protocols that every member offers."""
    offers = [{protocol.name for protocol in member.protocols} for member in members]
    return set.intersection(*offers) if offers else set()
