"""One group's move to or from the cluster upstream: who is to be told, who was, and who has come back.

What belongs here: what a move waits for. What it must not know: how anybody is told, and what time it is.

A member is *told* when it was answered that it is none any more. It may go on with what it has fetched until it has let
go of its partitions, and only then it asks to join again. So nobody may join before all have asked for it: that is what
a rebalance does, and why no partition has two owners. As in a rebalance nobody is waited for longer than it is alive,
or allowed to work:

    not told    its session timeout: a member that lives is heard of within it
    told        its rebalance timeout; once its connection is gone, its session timeout

A member that comes from upstream has timeouts that are not known here: the move as a whole has a limit.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from muster.coordinator.group.configs import UPSTREAM
from muster.coordinator.group.outcomes import GroupMove, MoveState, MovingMember
from muster.events.ids import GroupInstanceId, MemberId

ASSUMED_SESSION_MS = 45_000
"""Kafka's default of session.timeout.ms."""
WAITING_LINE_AFTER_MS, WAITING_LINE_EVERY_MS = 5_000, 60_000
"""When a move that waits for members is worth a line in the log."""


class Connection(Protocol):
    """Of a client."""

    def is_open(self) -> bool: ...


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Who sends a request."""

    connection: Connection
    client_id: str
    client_host: str
    member_id: MemberId
    group_instance_id: GroupInstanceId | None


class FormerMember(msgspec.Struct, kw_only=True, eq=False):
    """A member that has to join again on the other side. Timeouts are None when they are not known.

    `was_parked`: it was told by the answer to a request that waited, on a connection that is not known. `until_ms`: it
    is not waited for any longer.
    """

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    client_id: str
    client_host: str
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    was_parked: bool = False
    told_on: Connection | None = None
    until_ms: int | None = None
    is_back: bool = False
    """Whether it has asked to join again, and so has let go of its partitions."""
    has_left: bool = False

    @property
    def is_told(self) -> bool:
        return self.was_parked or self.told_on is not None

    @property
    def is_gone(self) -> bool:
        """Whether it has no partitions any more, as far as it says."""
        return self.is_back or self.has_left


class Move:
    """See the module. `to` is a value of members.coordinator; `limit_ms`: when a move from upstream is over."""

    def __init__(self, to: str, members: Iterable[FormerMember], *, now_ms: int, limit_ms: int | None = None) -> None:
        self.to = to
        self.members = {member.member_id: member for member in members}
        self.limit_ms = limit_ms
        self._started_ms = now_ms
        self._waiting_line_ms = now_ms + WAITING_LINE_AFTER_MS
        for member in self.members.values():
            wait_ms = member.rebalance_timeout_ms if member.was_parked else member.session_timeout_ms
            member.until_ms = None if wait_ms is None else now_ms + wait_ms

    @property
    def is_release(self) -> bool:
        return self.to == UPSTREAM

    def add(self, member: FormerMember) -> None:
        """One that came to upstream after the move began."""
        self.members.setdefault(member.member_id, member)

    def tell(self, sender: Sender, now_ms: int) -> None:
        """This member is told, by the answer that it gets now."""
        member = self.members.get(sender.member_id)
        if member is None or member.is_gone:
            return
        if not member.is_told and member.rebalance_timeout_ms is not None:
            member.until_ms = now_ms + member.rebalance_timeout_ms
        member.told_on = sender.connection

    def leave(self, member_id: MemberId) -> None:
        """This member is gone, and does not come back."""
        if member_id in self.members:
            self.members[member_id].has_left = True

    def predecessor(self, group_instance_id: GroupInstanceId | None) -> FormerMember | None:
        """The member whose instance id this is; its process has ended, if another one joins under that name."""
        named = (each for each in self.members.values() if each.group_instance_id == group_instance_id)
        return next(named, None) if group_instance_id is not None else None

    def come_back(self, sender: Sender) -> None:
        """Somebody without a member id asks to join: perhaps one of those who were told."""
        member = self._found(sender)
        if member is not None:
            member.is_back = True

    def _found(self, sender: Sender) -> FormerMember | None:
        if sender.group_instance_id is not None:
            return self.predecessor(sender.group_instance_id)
        away = [each for each in self.members.values() if not each.is_gone and each.group_instance_id is None]
        known = (each for each in away if each.told_on is sender.connection)
        # Who else has this client id, at this address, may well be a process that was never a member: those alone
        # whose connection cannot be known are looked for so.
        alike = (
            each
            for each in away
            if each.was_parked
            and each.told_on is None
            and (each.client_id, each.client_host) == (sender.client_id, sender.client_host)
        )
        return next(known, None) or next(alike, None)

    def waits_for(self, now_ms: int) -> list[FormerMember]:
        """Whom it has to wait for. Notes which connections are gone."""
        waiting = []
        for member in self.members.values():
            if member.is_gone:
                continue
            if member.told_on is not None and not member.told_on.is_open():
                self._connection_lost(member, now_ms)
            if member.until_ms is None or now_ms < member.until_ms:
                waiting.append(member)
        return waiting

    def _connection_lost(self, member: FormerMember, now_ms: int) -> None:
        session_ms = member.session_timeout_ms or ASSUMED_SESSION_MS
        ends_ms = now_ms + session_ms
        member.until_ms = ends_ms if member.until_ms is None else min(member.until_ms, ends_ms)

    def report(self, state: MoveState, now_ms: int, reason: str | None = None) -> GroupMove:
        """How far it is."""
        members = self.members.values()
        return GroupMove(
            to=self.to,
            state=state,
            members=len(members),
            told=sum(each.is_told or each.is_back for each in members),
            back=sum(each.is_back for each in members),
            left=sum(each.has_left and not each.is_back for each in members),
            waits_for=tuple(
                MovingMember(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    is_told=each.is_told,
                    wait_ms=self._wait_ms(each, now_ms),
                )
                for each in self.waits_for(now_ms)
            ),
            took_ms=now_ms - self._started_ms,
            reason=reason,
        )

    def _wait_ms(self, member: FormerMember, now_ms: int) -> int | None:
        ends_ms = [each for each in (member.until_ms, self.limit_ms) if each is not None]
        return max(0, min(ends_ms) - now_ms) if ends_ms else None

    def is_waiting_line_due(self, now_ms: int) -> bool:
        """Whether the log should say now who is waited for."""
        if now_ms < self._waiting_line_ms or not self.waits_for(now_ms):
            return False
        self._waiting_line_ms = now_ms + WAITING_LINE_EVERY_MS
        return True
