"""One group's move to or from upstream: which members were notified, have rejoined, or are still awaited.

Pure: knows nothing of how members are notified, and gets the time as an argument.

A member is notified (*told* in the code) when it is answered UNKNOWN_MEMBER_ID. It may work on the records that it has
fetched until it revokes its partitions, and only then joins again: it is *back*. So, as in a rebalance, no join is
answered before all members are back, or a partition could have two owners. And as in a rebalance, a member is awaited
no longer than its timeouts allow:

    not notified    its session timeout: a live member sends a request within it
    notified        its rebalance timeout; after its connection has closed, its session timeout

The timeouts of a member that comes from upstream are unknown here; the move as a whole has a limit.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from muster.coordinator.group.configs import UPSTREAM
from muster.coordinator.group.outcomes import GroupMove, MoveState, MovingMember
from muster.events.ids import GroupInstanceId, MemberId

ASSUMED_SESSION_MS = 45_000
"""Kafka's default for session.timeout.ms."""
WAITING_LINE_AFTER_MS, WAITING_LINE_INTERVAL_MS = 5_000, 60_000
"""When, and how often, a move that waits for members is logged."""


class MemberConnection(Protocol):
    """A client's connection."""

    def is_open(self) -> bool: ...


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """The member, or future member, that sends a request."""

    connection: MemberConnection
    client_id: str
    client_host: str
    member_id: MemberId
    group_instance_id: GroupInstanceId | None


class FormerMember(msgspec.Struct, kw_only=True, eq=False):
    """A member that has to join again on the other side. Timeouts are None if unknown.

    `was_parked`: the response to its parked request notified it, on an unknown connection. `until_ms`: how long to
    wait for it.
    """

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    client_id: str
    client_host: str
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    was_parked: bool = False
    notified_on: MemberConnection | None = None
    until_ms: int | None = None
    is_back: bool = False
    """True once it has asked to join again, and so has revoked its partitions."""
    has_left: bool = False
    was_dropped: bool = False
    """True if the cluster has dropped it, so it is no longer awaited, although it has revoked nothing."""

    @property
    def is_notified(self) -> bool:
        return self.was_parked or self.notified_on is not None

    @property
    def is_gone(self) -> bool:
        """True if it has given up its partitions, according to its own requests."""
        return self.is_back or self.has_left


class Move:
    """One group's move. `to`: a value of members.coordinator; `deadline_ms`: when an adoption times out."""

    def __init__(
        self, to: str, members: Iterable[FormerMember], *, now_ms: int, deadline_ms: int | None = None
    ) -> None:
        self.to = to
        self.members = {member.member_id: member for member in members}
        self.deadline_ms = deadline_ms
        self.in_removal: set[MemberId] = set()
        """Members that are being removed upstream, and are notified after that."""
        self._started_ms = now_ms
        self._waiting_line_ms = now_ms + WAITING_LINE_AFTER_MS
        for member in self.members.values():
            wait_ms = member.rebalance_timeout_ms if member.was_parked else member.session_timeout_ms
            member.until_ms = None if wait_ms is None else now_ms + wait_ms

    @property
    def is_release(self) -> bool:
        return self.to == UPSTREAM

    def add(self, member: FormerMember) -> None:
        """Add a member that joined upstream after the move began."""
        self.members.setdefault(member.member_id, member)

    def mark_notified(self, sender: Sender, now_ms: int) -> None:
        """Mark the member as notified, by the response that it gets now."""
        member = self.members.get(sender.member_id)
        if member is None or member.is_gone:
            return
        if not member.is_notified and member.rebalance_timeout_ms is not None:
            member.until_ms = now_ms + member.rebalance_timeout_ms
        member.notified_on = sender.connection
        member.was_dropped = False

    def mark_dropped(self, member_id: MemberId) -> None:
        """Stop waiting for a member that the cluster has dropped, unless it was notified or is about to be."""
        member = self.members[member_id]
        member.was_dropped = not member.is_notified and not member.is_gone and member_id not in self.in_removal

    def mark_left(self, member_id: MemberId) -> None:
        """Stop waiting for a member that has left."""
        if member_id in self.members:
            self.members[member_id].has_left = True

    def predecessor(self, group_instance_id: GroupInstanceId | None) -> FormerMember | None:
        """Return the member with this instance id; if another process joins with the id, that member has ended."""
        named = (each for each in self.members.values() if each.group_instance_id == group_instance_id)
        return next(named, None) if group_instance_id is not None else None

    def mark_back(self, sender: Sender) -> None:
        """Mark the notified member that sends this JoinGroup without a member id as back, if there is one."""
        member = self._find(sender)
        if member is not None:
            member.is_back = True

    def _find(self, sender: Sender) -> FormerMember | None:
        if sender.group_instance_id is not None:
            return self.predecessor(sender.group_instance_id)
        away = [each for each in self.members.values() if not each.is_gone and each.group_instance_id is None]
        known = (each for each in away if each.notified_on is sender.connection)
        # Another process that was never a member may have the same client id and address. So these decide only for
        # members whose connection is unknown.
        alike = (
            each
            for each in away
            if each.was_parked
            and each.notified_on is None
            and (each.client_id, each.client_host) == (sender.client_id, sender.client_host)
        )
        return next(known, None) or next(alike, None)

    def waits_for(self, now_ms: int) -> list[FormerMember]:
        """Return the members that are still awaited."""
        return [
            each
            for each in self.members.values()
            if not each.is_gone and not each.was_dropped and (each.until_ms is None or now_ms < each.until_ms)
        ]

    def note_connections(self, now_ms: int) -> None:
        """Shorten the wait for members whose connections have closed; call this repeatedly during the move."""
        for member in self.members.values():
            if not member.is_gone and member.notified_on is not None and not member.notified_on.is_open():
                self._connection_lost(member, now_ms)

    def _connection_lost(self, member: FormerMember, now_ms: int) -> None:
        session_ms = member.session_timeout_ms or ASSUMED_SESSION_MS
        ends_ms = now_ms + session_ms
        member.until_ms = ends_ms if member.until_ms is None else min(member.until_ms, ends_ms)

    def report(self, state: MoveState, now_ms: int, reason: str | None = None) -> GroupMove:
        """Return the move's progress."""
        members = self.members.values()
        waits_for = self.waits_for(now_ms) if state is MoveState.MOVING else []
        waited_for = {each.member_id for each in waits_for}
        late = [each for each in members if not each.is_gone and each.member_id not in waited_for]
        return GroupMove(
            to=self.to,
            state=state,
            members=len(members),
            told=sum(each.is_notified or each.is_back for each in members),
            back=sum(each.is_back for each in members),
            left=sum(each.has_left and not each.is_back for each in members),
            waits_for=tuple(self._moving(each, self._wait_ms(each, now_ms)) for each in waits_for),
            late=tuple(self._moving(each, None) for each in late),
            took_ms=now_ms - self._started_ms,
            reason=reason,
        )

    @staticmethod
    def _moving(member: FormerMember, wait_ms: int | None) -> MovingMember:
        return MovingMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            is_notified=member.is_notified,
            wait_ms=wait_ms,
            was_dropped=member.was_dropped,
        )

    def _wait_ms(self, member: FormerMember, now_ms: int) -> int | None:
        ends_ms = [each for each in (member.until_ms, self.deadline_ms) if each is not None]
        return max(0, min(ends_ms) - now_ms) if ends_ms else None

    def take_waiting_line(self, now_ms: int) -> bool:
        """Return whether a log line about awaited members is due; if so, the next one is due an interval later."""
        if now_ms < self._waiting_line_ms or not self.waits_for(now_ms):
            return False
        self._waiting_line_ms = now_ms + WAITING_LINE_INTERVAL_MS
        return True
