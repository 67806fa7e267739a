"""A standby replaces an active member that was lost, without a rebalance.

    loss         the standby gets the lost member's assignment in the log, and is *called*
    Heartbeat    only the called standby is answered REBALANCE_IN_PROGRESS
    JoinGroup    it gets the current generation; if it replaces the leader, it leads and skips the assignment (v9)
    SyncGroup    it gets the assignment, and is active

The group rebalances instead if no standby's subscription covers the assignment, or if the new leader's client cannot
skip it. A called standby that does not sync within its rebalance timeout is removed, and the next one is called.
"""

from collections.abc import Sequence, Set

from kio.schema.errors import ErrorCode

from muster.coordinator.group.roles import arm_member_sync, change_role, with_assignment
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.consumer_protocol import assigned_partitions, subscribed_topics
from muster.events.events import MemberAssigned
from muster.events.ids import MemberId
from muster.events.state import Member, MemberRole


def call_standbys(turn: Turn, lost: Sequence[Member], previous_leader_id: MemberId | None) -> list[Member]:
    """Call standbys for members that are lost; return those that no standby can replace."""
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
            _call(turn, standby, member, led=member.member_id == previous_leader_id)
    return missed


def _call(turn: Turn, standby: Member, lost: Member, *, led: bool) -> None:
    why = turn.why
    turn.caused_by_deadline(Cause.STANDBY_CALLED, turn.now_ms, standby)
    turn.record_member(MemberAssigned, with_assignment(turn, standby, lost.assignment, role=MemberRole.CALLED))
    if led:
        turn.change(leader_id=standby.member_id)
    arm_member_sync(turn, standby)
    turn.why = why


class _Subscribed:
    """The standbys' subscriptions. Each is decoded only once, since it may have 1 MiB."""

    def __init__(self, protocol_name: str | None) -> None:
        self._protocol_name = protocol_name
        self._topics: dict[MemberId, frozenset[str] | None] = {}

    def by(self, standby: Member) -> frozenset[str] | None:
        """Return the topics that it subscribes to; None if they cannot be read."""
        if standby.member_id not in self._topics:
            self._topics[standby.member_id] = subscribed_topics(standby.metadata_for(self._protocol_name))
        return self._topics[standby.member_id]


def assigned_topics(assignment: bytes) -> Set[str] | None:
    """Return the topics of an assignment; None if it cannot be read."""
    partitions = assigned_partitions(assignment)
    return None if partitions is None else {topic for topic, _ in partitions}


def covers_assignment(metadata: bytes, assignment: bytes) -> bool:
    """Return whether a subscription covers the topics of an assignment, and both can be read."""
    topics = assigned_topics(assignment)
    return topics is not None and _covers(subscribed_topics(metadata), topics)


def _covers(subscribed: Set[str] | None, topics: Set[str]) -> bool:
    """Return whether all topics are subscribed to; a subscription that cannot be read covers nothing."""
    return subscribed is not None and topics <= subscribed


def activate_called(turn: Turn, member: Member) -> None:
    """Make a called standby active, since it has synced."""
    turn.caused_by_deadline(Cause.STANDBY_TOOK_OVER, turn.now_ms, member)
    change_role(turn, member, role=MemberRole.ACTIVE)


def stable_heartbeat_error(member: Member) -> ErrorCode:
    """Return the error that answers a valid heartbeat in Stable: a called standby has to rejoin."""
    return ErrorCode.rebalance_in_progress if member.role is MemberRole.CALLED else ErrorCode.none
