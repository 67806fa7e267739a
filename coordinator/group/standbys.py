"""A standby takes the place of an active member that was lost, and nobody else is disturbed.

    lost         the standby gets the lost member's assignment, in the log, and is *called*
    heartbeat    the called one alone is told REBALANCE_IN_PROGRESS
    join         it gets the generation that there is; if the leader was lost it leads, and skips the assignment (v9)
    sync         it gets the assignment, and is active

Where it cannot be done so there is a rebalance: no standby whose subscription covers the assignment, or a new leader
whose client cannot skip it. A called one that does not come within its rebalance timeout is removed, as whoever joined
and does not sync; then the next standby is called.
"""

from collections.abc import Sequence, Set

from kio.schema.errors import ErrorCode

from muster.coordinator.group.roles import await_sync, change_role, with_assignment
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.consumer_protocol import assigned_partitions, subscribed_topics
from muster.events.events import MemberAssigned
from muster.events.ids import MemberId
from muster.events.state import Member, MemberRole


def call_standbys(turn: Turn, lost: Sequence[Member], led_before: MemberId | None) -> list[Member]:
    """Have standbys take over from members that are gone; returns those that no standby could replace."""
    image = turn.image
    if not turn.census.number_of(MemberRole.STANDBY):
        return list(lost)
    standbys = [each for each in turn.group.members.values() if each.role is MemberRole.STANDBY and not each.retiring]
    standbys.sort(key=lambda member: (member.joined_ms, member.member_id))
    subscribed = _Subscribed(image.protocol_name)
    missed = []
    for member in lost:
        is_known = member.assignment and member.assigned_generation_id == image.assigned_generation_id
        topics = assigned_topics(member.assignment) if is_known else None
        fit = (each for each in standbys if topics is not None and _covers(subscribed.by(each), topics))
        standby = next(fit, None)
        if standby is None:
            missed.append(member)
        else:
            standbys.remove(standby)
            _call(turn, standby, member, led=member.member_id == led_before)
    return missed


def _call(turn: Turn, standby: Member, lost: Member, *, led: bool) -> None:
    why = turn.why
    turn.because_time_passed(Cause.STANDBY_CALLED, turn.now_ms, standby)
    turn.record_member(MemberAssigned, with_assignment(turn, standby, lost.assignment, role=MemberRole.CALLED))
    if led:
        turn.change(leader_id=standby.member_id)
    await_sync(turn, standby)
    turn.why = why


class _Subscribed:
    """The standbys' subscriptions, each of which is read once, however many were lost: it may have 1 MiB."""

    def __init__(self, protocol_name: str | None) -> None:
        self._protocol_name = protocol_name
        self._topics: dict[MemberId, frozenset[str] | None] = {}

    def by(self, standby: Member) -> frozenset[str] | None:
        """None when it cannot be read."""
        if standby.member_id not in self._topics:
            self._topics[standby.member_id] = subscribed_topics(standby.metadata_for(self._protocol_name))
        return self._topics[standby.member_id]


def assigned_topics(assignment: bytes) -> Set[str] | None:
    """None when it cannot be read."""
    partitions = assigned_partitions(assignment)
    return None if partitions is None else {topic for topic, _ in partitions}


def can_read(metadata: bytes, assignment: bytes) -> bool:
    """Whether a subscription covers all that is assigned, and both can be read."""
    topics = assigned_topics(assignment)
    return topics is not None and _covers(subscribed_topics(metadata), topics)


def _covers(subscribed: Set[str] | None, topics: Set[str]) -> bool:
    """A subscription that cannot be read covers nothing."""
    return subscribed is not None and topics <= subscribed


def has_taken_over(turn: Turn, member: Member) -> None:
    """The called one asks for its assignment: from here on it is as any other."""
    turn.because_time_passed(Cause.STANDBY_TOOK_OVER, turn.now_ms, member)
    change_role(turn, member, role=MemberRole.ACTIVE)


def heartbeat_of(member: Member) -> ErrorCode:
    """What a member of a stable generation is told: to rejoin, if it was called."""
    return ErrorCode.rebalance_in_progress if member.role is MemberRole.CALLED else ErrorCode.none
