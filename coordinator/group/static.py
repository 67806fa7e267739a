"""Static replacement (KIP-345): a join without member id for an instance id that a member has.

The new process replaces the old one under a new member id; parked requests of the old one are answered 82 at once
(known bug S1). In Stable the restart is *absorbed*, without a rebalance, if the same protocol is still chosen (ST11).
"""

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import JoinGroup
from muster.coordinator.group.connections import ConnectionRecord
from muster.coordinator.group.duels import note_replaced
from muster.coordinator.group.members import park_join
from muster.coordinator.group.rebalance import join_outcome, prepare_rebalance, select_protocol
from muster.coordinator.group.roles import follower_outcome
from muster.coordinator.group.soft_state import Session
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.events import StaticMemberReplaced
from muster.events.ids import MemberId
from muster.events.state import GroupState, Member


def replace_static_member(turn: Turn, command: JoinGroup) -> None:
    """Replace the member that has `command.group_instance_id` with the sender (ST5 to ST21)."""
    assert command.group_instance_id is not None
    replaced = turn.group.members[turn.group.instances[command.group_instance_id]]
    leader_before = turn.image.leader_id
    member = _successor(command, replaced)
    cause = _cause(turn, member, replaced)
    turn.caused_by(cause, command.caller, member.member_id, member.group_instance_id, command.reason)
    turn.answer_parked(replaced.member_id, ErrorCode.fenced_instance_id, echo=replaced.member_id)
    note_replaced(turn, replaced, command)
    replaced_last_seen_ms = turn.heard_wall_ms(replaced.member_id)
    replaced_connection = turn.last_connection(replaced.member_id)
    _hand_over(turn, replaced, member, command.caller.connection)
    if leader_before == replaced.member_id:
        turn.change(leader_id=member.member_id)
    turn.record_member(
        StaticMemberReplaced,
        member,
        replaced_member_id=replaced.member_id,
        replaced_client_id=replaced.client_id,
        replaced_client_host=replaced.client_host,
        replaced_last_seen_ms=replaced_last_seen_ms,
        replaced_connection=replaced_connection,
    )
    if cause is Cause.STATIC_RESTART_ABSORBED:
        answer_absorbed(turn, command, member, leader_before)
    else:
        park_join(turn, member.member_id, command.caller)
        prepare_rebalance(turn)


def _successor(command: JoinGroup, replaced: Member) -> Member:
    """Return the old member under the new id, with what the new process sent, including host and client id (fixes
    QK12).
    """
    return msgspec.structs.replace(
        replaced,
        member_id=command.proposed_member_id,
        client_id=command.caller.client_id,
        client_host=command.caller.client_host,
        principal=command.caller.principal,
        session_timeout_ms=command.session_timeout_ms,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        protocols=command.protocols,
    )


def _cause(turn: Turn, member: Member, replaced: Member) -> Cause:
    match turn.image.state:
        case GroupState.PREPARING_REBALANCE:
            return Cause.STATIC_REPLACEMENT_DURING_JOIN
        case GroupState.COMPLETING_REBALANCE:
            if member.is_inactive:
                return Cause.STATIC_RESTART_ABSORBED
            # The leader may already be computing with the old member id (known bug S2, ST20).
            return Cause.STATIC_REPLACEMENT_DURING_SYNC
        case GroupState.STABLE:
            if [each.name for each in member.protocols] == [each.name for each in replaced.protocols]:
                return Cause.STATIC_RESTART_ABSORBED  # the vote used these names
            others = [m for m in turn.group.members.values() if m.member_id != replaced.member_id]
            selected = select_protocol([*others, member])
            if selected == turn.image.protocol_name:
                return Cause.STATIC_RESTART_ABSORBED
            return Cause.STATIC_REPLACEMENT_CHANGED_PROTOCOL
        case GroupState.EMPTY | GroupState.DEAD:
            raise AssertionError(f"{turn.image.state} with static member {replaced.member_id}")


def _hand_over(turn: Turn, replaced: Member, member: Member, connection: ConnectionRecord | None) -> None:
    """Move the soft state from the old id to the new one; a pending sync remains pending (fixes ST27).

    The first session of the new process has the old one's length (ST8).
    """
    soft = turn.soft
    before = soft.sessions.pop(replaced.member_id)
    session = Session(
        timeout_ms=member.session_timeout_ms,
        deadline_ms=turn.now_ms + replaced.session_timeout_ms,
        last_seen_ms=before.last_seen_ms,
        longest_silence_ms=before.longest_silence_ms,
        heard=before.heard,
        connection=connection,
    )
    session.note_seen(turn.now_ms)
    soft.sessions[member.member_id] = session
    if replaced.member_id in soft.member_sync_deadlines:
        soft.member_sync_deadlines[member.member_id] = soft.member_sync_deadlines.pop(replaced.member_id)
    if replaced.member_id in soft.pending_syncs:
        soft.pending_syncs.discard(replaced.member_id)
        soft.pending_syncs.add(member.member_id)


def answer_absorbed(turn: Turn, command: JoinGroup, member: Member, leader_before: MemberId | None) -> None:
    """Answer an absorbed restart (ST13 to ST15); a client that cannot skip the assignment gets a follower's
    response.
    """
    if command.supports_skip_assignment:
        is_leader = member.member_id == turn.image.leader_id
        # The leader's own record is written at the end of the turn; the response must already show it.
        turn.finish()
        turn.reply(command.caller, join_outcome(turn.group, member.member_id, skip_assignment=is_leader))
        return
    believes = msgspec.structs.replace(
        follower_outcome(turn.group, member.member_id), leader_id=leader_before or MemberId("")
    )
    turn.reply(command.caller, believes)
