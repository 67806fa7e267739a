"""Reconstructs a LeaveGroup from its events: the members in the request, their order and their ids.

Separate from `inputs.py` because one request has many entries, each with its own event, or with none.
"""

from muster.coordinator.group.commands import LeaveGroup, LeavingMember
from muster.events.causes import Cause
from muster.events.events import MemberFenced, MemberRemoved, Why
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupInstanceId, MemberId
from muster.replay.rerun.situation import PHANTOM, Situation, caller, is_same_request, session_of

_LEFT = frozenset({Cause.MEMBER_LEFT, Cause.MEMBER_REMOVED_BY_ADMIN})


def leave(situation: Situation) -> LeaveGroup:
    """Reconstruct one LeaveGroup: consecutive removals and fences, up to the event that ends the transition."""
    why = situation.why
    entries: list[LeavingMember] = []
    for event in situation.events:
        if not is_same_request(event.why, why):
            break
        if isinstance(event, MemberRemoved) and event.why.cause in _LEFT:
            entries.append(_leaver(event))
        elif isinstance(event, MemberFenced):
            entries.append(_entry(event.why.member_id, event.why.group_instance_id, event.why.client_reason))
        else:
            if event.why.cause is Cause.PENDING_MEMBER_LEFT:
                entries.insert(0, pending_leaver(situation, event.why))
            break
    return LeaveGroup(group_id=situation.group_id, caller=caller(why), members=tuple(entries))


def _leaver(event: MemberRemoved) -> LeavingMember:
    member = event.member
    by_admin = event.why.cause is Cause.MEMBER_REMOVED_BY_ADMIN
    return _entry(None if by_admin else member.member_id, member.group_instance_id, event.why.client_reason)


def pending_leaver(situation: Situation, why: Why) -> LeavingMember:
    situation.soft.pending_members[why.member_id or PHANTOM] = session_of(why)
    return _entry(why.member_id or PHANTOM, None, why.client_reason)


def _entry(member_id: MemberId | None, group_instance_id: GroupInstanceId | None, reason: str | None) -> LeavingMember:
    return LeavingMember(member_id=member_id or UNKNOWN_MEMBER_ID, group_instance_id=group_instance_id, reason=reason)
