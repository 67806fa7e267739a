"""A static member restarts (KIP-345): a join without member id for an instance id that the group knows.

The new process takes the place of the old one under a new member id; whatever the old one has parked is answered 82
at once (known bug S1). In Stable, if the same protocol would still be chosen, that is all: no rebalance (ST11).
"""

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import JoinGroup
from muster.coordinator.group.duels import note_claim
from muster.coordinator.group.members import park_join
from muster.coordinator.group.rebalance import joined, prepare_rebalance, select_protocol
from muster.coordinator.group.roles import current_generation
from muster.coordinator.group.soft import Session
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.events import StaticMemberReplaced
from muster.events.ids import MemberId
from muster.events.state import GroupState, Member


def replace_static_member(turn: Turn, command: JoinGroup) -> None:
    """ST5 to ST21. `command.group_instance_id` is mapped."""
    assert command.group_instance_id is not None
    replaced = turn.group.members[turn.group.instances[command.group_instance_id]]
    leader_before = turn.image.leader_id
    member = _successor(turn, command, replaced)
    cause = _cause(turn, member, replaced)
    turn.because(cause, command.caller, member.member_id, member.group_instance_id, command.reason)
    turn.answer_parked(replaced.member_id, ErrorCode.fenced_instance_id, echo=replaced.member_id)
    note_claim(turn, replaced, command)
    _hand_over(turn, replaced, member)
    if leader_before == replaced.member_id:
        turn.change(leader_id=member.member_id)
    turn.record_member(
        StaticMemberReplaced,
        member,
        replaced_member_id=replaced.member_id,
        replaced_client_id=replaced.client_id,
        replaced_client_host=replaced.client_host,
    )
    if cause is Cause.STATIC_RESTART_ABSORBED:
        answer_absorbed(turn, command, member, leader_before)
    else:
        park_join(turn, member.member_id, command.caller)
        prepare_rebalance(turn)


def _successor(turn: Turn, command: JoinGroup, replaced: Member) -> Member:
    """The old member under the new id, with what the new process brings; host and client id too (fixes QK12)."""
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
            if member.is_held:
                return Cause.STATIC_RESTART_ABSORBED
            # The leader may hold the old member id already (known bug S2, ST20).
            return Cause.STATIC_REPLACEMENT_DURING_SYNC
        case GroupState.STABLE:
            if [each.name for each in member.protocols] == [each.name for each in replaced.protocols]:
                return Cause.STATIC_RESTART_ABSORBED  # the vote was with these names
            others = [m for m in turn.group.members.values() if m.member_id != replaced.member_id]
            selected = select_protocol([*others, member])
            if selected == turn.image.protocol_name:
                return Cause.STATIC_RESTART_ABSORBED
            return Cause.STATIC_REPLACEMENT_CHANGED_PROTOCOL
        case GroupState.EMPTY | GroupState.DEAD:
            raise AssertionError(f"{turn.image.state} with static member {replaced.member_id}")


def _hand_over(turn: Turn, replaced: Member, member: Member) -> None:
    """The soft state of the old id becomes that of the new one; who had not synced still has not (fixes ST27).

    The first session of the new process has the length that the old one had asked for (ST8).
    """
    soft = turn.soft
    before = soft.sessions.pop(replaced.member_id)
    session = Session(
        timeout_ms=member.session_timeout_ms,
        deadline_ms=turn.now_ms + replaced.session_timeout_ms,
        heard_ms=before.heard_ms,
        longest_silence_ms=before.longest_silence_ms,
    )
    session.hear(turn.now_ms)
    soft.sessions[member.member_id] = session
    if replaced.member_id in soft.catching_up:
        soft.catching_up[member.member_id] = soft.catching_up.pop(replaced.member_id)
    if replaced.member_id in soft.unsynced:
        soft.unsynced.discard(replaced.member_id)
        soft.unsynced.add(member.member_id)


def answer_absorbed(turn: Turn, command: JoinGroup, member: Member, leader_before: MemberId | None) -> None:
    """ST13 to ST15: a client that cannot skip the assignment must believe itself a follower."""
    if command.supports_skip_assignment:
        is_leader = member.member_id == turn.image.leader_id
        # The leader's own record is written at the end of the turn; the answer shows it already.
        turn.finish()
        turn.reply(command.caller, joined(turn.group, member.member_id, skip_assignment=is_leader))
        return
    believes = msgspec.structs.replace(
        current_generation(turn.group, member.member_id), leader_id=leader_before or MemberId("")
    )
    turn.reply(command.caller, believes)
