"""Held joins: the joins of new members are gathered, so that many new members cause one rebalance.

Joins are held for a registration (KIP-469: until all registered instances have joined, or until its timeout), and for
the expansion delay (the expansion timeout of KIP-345's drafts). Only a group in Stable or CompletingRebalance holds
joins; its members notice nothing. The sender of a held join is not a member: it has no session, and no event is
written.

    hold        parked for min(its rebalance timeout, 20 s), since some clients give up any request after 40 s
    send back   COORDINATOR_LOAD_IN_PROGRESS, on which every client retries (REBALANCE_IN_PROGRESS kills some)
    forget      a client that has not retried 10 s later
    admit       when a join phase begins, for whatever reason: the senders of parked joins become members
"""

from collections.abc import Collection

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import JoinGroup
from muster.coordinator.group.handed_out import expect_back
from muster.coordinator.group.members import add_parked_member, supports_protocols
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.group.roles import role_of_new_member
from muster.coordinator.group.soft_state import HeldJoin, HeldJoins, SoftState
from muster.coordinator.group.turn import Turn
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupInstanceId, MemberId
from muster.events.state import GroupState

HOLD_MS_MAX = 20_000
HOLD_MS_MIN = 100
RETRY_WINDOW_MS = 10_000


def must_be_held(turn: Turn, command: JoinGroup) -> bool:
    """Return whether this new member's join must be held."""
    if turn.image.state not in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        return False
    return command.group_instance_id in turn.group.registrations or bool(turn.group.config.expansion_delay_ms)


def is_waited_for(turn: Turn, command: JoinGroup) -> bool:
    """Return whether this is a registered instance that held joins of other registered instances wait for."""
    registered = command.group_instance_id in turn.group.registrations
    return registered and any(instance in turn.group.registrations for instance in turn.soft.held_joins.instances)


def hold_join(turn: Turn, command: JoinGroup, member_id: MemberId) -> None:
    """Hold a new member's join, or its retry."""
    soft, group = turn.soft, turn.group
    before = withdraw_held_join(turn, command, member_id)
    if command.group_instance_id not in group.registrations and soft.expansion_deadline_ms is None:
        soft.expansion_deadline_ms = turn.now_ms + (group.config.expansion_delay_ms or 0)
    hold_ms = min(max(command.rebalance_timeout_ms, HOLD_MS_MIN), HOLD_MS_MAX)
    soft.held_joins[member_id] = HeldJoin(
        join=command,
        arrived_ms=before.arrived_ms if before else turn.now_ms,
        deadline_ms=turn.now_ms + hold_ms,
    )


def withdraw_held_join(turn: Turn, command: JoinGroup, member_id: MemberId) -> HeldJoin | None:
    """Remove and return the sender's earlier held join, if there is one.

    It is never answered (J13), unless it belongs to another process with the same instance id: that one is fenced
    immediately, as a member would be (ST7).
    """
    held_joins = turn.soft.held_joins
    if member_id in held_joins:
        return held_joins.pop(member_id)
    other = held_join_of(turn.soft, command.group_instance_id)
    if other is None:
        return None
    held = held_joins.pop(other)
    _answer(turn, held, ErrorCode.fenced_instance_id, other)
    return held


def held_join_error(turn: Turn, member_id: MemberId, group_instance_id: GroupInstanceId | None) -> ErrorCode:
    """Validate that a held join's member id comes with its own instance id, or none (like M4, M5 for members)."""
    own = turn.soft.held_joins[member_id].join.group_instance_id
    if group_instance_id in (None, own):
        return ErrorCode.none
    is_taken = group_instance_id in turn.group.instances or held_join_of(turn.soft, group_instance_id) is not None
    return ErrorCode.fenced_instance_id if is_taken else ErrorCode.unknown_member_id


def held_join_of(soft: SoftState, group_instance_id: GroupInstanceId | None) -> MemberId | None:
    """Return the member id under which the join of this instance is held."""
    if group_instance_id is None:
        return None
    return soft.held_joins.instances.get(group_instance_id)


def end_hold(turn: Turn, member_id: MemberId) -> None:
    """Send a parked join back, to be retried; forget one that was not retried."""
    held = turn.soft.held_joins.get(member_id)
    if held is None or held.deadline_ms > turn.now_ms:
        return
    if not held.parked:
        del turn.soft.held_joins[member_id]
        return
    _answer(turn, held, ErrorCode.coordinator_load_in_progress, member_id)
    turn.soft.held_joins[member_id] = msgspec.structs.replace(
        held, parked=False, deadline_ms=turn.now_ms + RETRY_WINDOW_MS
    )


def reject_held_join(turn: Turn, member_id: MemberId) -> None:
    """Drop a held join whose sender leaves or is removed; answer it with UNKNOWN_MEMBER_ID (like L8)."""
    _answer(turn, turn.soft.held_joins.pop(member_id), ErrorCode.unknown_member_id, UNKNOWN_MEMBER_ID)


def all_arrived(turn: Turn, instances: Collection[GroupInstanceId]) -> bool:
    """Return whether a join is held for each of these instances; one that was just sent back counts."""
    held = turn.soft.held_joins.instances
    return len(held) >= len(instances) and all(instance in held for instance in instances)


def admit_held_joins(turn: Turn) -> None:
    """Add the senders of parked joins to the join phase that has just begun; expect the retries of the others."""
    why = turn.why
    held_joins, turn.soft.held_joins = turn.soft.held_joins, HeldJoins()
    turn.soft.expansion_deadline_ms = None
    for member_id, held in held_joins.items():
        if not held.parked:
            _expect_back(turn, member_id, held)
            continue
        if not supports_protocols(turn, held.join):
            _answer(turn, held, ErrorCode.inconsistent_group_protocol, member_id)
        elif len(turn.soft.parked_joins) >= turn.settings.max_size:
            _answer(turn, held, ErrorCode.group_max_size_reached, UNKNOWN_MEMBER_ID)
        else:
            add_parked_member(turn, held.join, member_id, role_of_new_member(turn, held.join))
    turn.why = why


def _expect_back(turn: Turn, member_id: MemberId, held: HeldJoin) -> None:
    """Keep the id of a dynamic member whose join was sent back, for its retry; a static one needs none."""
    if held.join.group_instance_id is None:
        timeout_ms, deadline_ms = held.join.session_timeout_ms, held.deadline_ms
        expect_back(turn, member_id, held.join.caller, session_timeout_ms=timeout_ms, deadline_ms=deadline_ms)


def _answer(turn: Turn, held: HeldJoin, error: ErrorCode, echo: MemberId) -> None:
    if held.parked:
        turn.reply(held.join.caller, JoinGroupOutcome(error=error, member_id=echo))
