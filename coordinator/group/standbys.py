"""A standby takes the place of an active member that was lost, and nobody else is disturbed.

    lost         the standby gets the lost member's assignment, in the log, and is *called*
    heartbeat    the called one alone is told REBALANCE_IN_PROGRESS
    join         it gets the generation that there is; if the leader was lost it leads, and skips the assignment (v9)
    sync         it gets the assignment, and is active

Where it cannot be done so there is a rebalance: no standby whose subscription covers the assignment, or a new leader
whose client cannot skip it. A called one that does not come within its rebalance timeout is removed, as whoever joined
and does not sync; then the next standby is called.
"""

from kio.schema.errors import ErrorCode

from coordinator.group.roles import await_sync, change_role, with_assignment
from coordinator.group.turn import Turn
from events.causes import Cause
from events.consumer_protocol import assigned_partitions, subscribed_topics
from events.events import MemberAssigned
from events.state import Group, Member, MemberRole


def call_standby(turn: Turn, lost: Member, *, led: bool) -> bool:
    """Have a standby take over from a member that is gone. False: there is none that could."""
    standby = _fit(turn.group, lost)
    if standby is None:
        return False
    why = turn.why
    turn.because_time_passed(Cause.STANDBY_CALLED, turn.now_ms, standby)
    turn.record_member(MemberAssigned, with_assignment(turn, standby, lost.assignment, role=MemberRole.CALLED))
    if led:
        turn.change(leader_id=standby.member_id)
    await_sync(turn, standby)
    turn.why = why
    return True


def _fit(group: Group, lost: Member) -> Member | None:
    """Who has stood by for longest, of those who could read what the lost member read."""
    image = group.image
    if lost.assigned_generation_id != image.assigned_generation_id:
        return None
    partitions = assigned_partitions(lost.assignment)
    if not lost.assignment or partitions is None:
        return None
    topics = {topic for topic, _ in partitions}
    standbys = [member for member in group.members.values() if member.role is MemberRole.STANDBY]
    for standby in sorted(standbys, key=lambda member: (member.joined_ms, member.member_id)):
        subscribed = subscribed_topics(standby.metadata_for(image.protocol_name))
        if subscribed is not None and topics <= subscribed:
            return standby
    return None


def has_taken_over(turn: Turn, member: Member) -> None:
    """The called one asks for its assignment: from here on it is as any other."""
    turn.because_time_passed(Cause.STANDBY_TOOK_OVER, turn.now_ms, member)
    change_role(turn, member, role=MemberRole.ACTIVE)


def heartbeat_of(member: Member) -> ErrorCode:
    """What a member of a stable generation is told: to rejoin, if it was called."""
    return ErrorCode.rebalance_in_progress if member.role is MemberRole.CALLED else ErrorCode.none
