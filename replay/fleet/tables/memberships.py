"""The stays of a group's members; a stay lasts from a join until the member id is gone.

A stay begins with the first event of a member id, even if its join is no longer in the log (the member records when it
joined), and ends when the member is removed or another process takes its instance id. Unknown values are null.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from muster.events.causes import Cause
from muster.events.events import (
    AnyMemberEvent,
    GroupDeleted,
    MemberAssigned,
    MemberEvent,
    MemberJoined,
    MemberRejoined,
    MemberRemoved,
    StaticMemberReplaced,
)
from muster.events.ids import GroupId, MemberId
from muster.events.state import Member
from muster.replay.fleet.tables.rows import Row, day_of, micros
from muster.replay.history.transitions import Transition
from muster.replay.incidents.episode.acts import protocols_of
from muster.replay.incidents.episode.reading_acts import departure

REPLACED = "replaced"
UNKNOWN = "unknown"
_ENDS: Final = (MemberRemoved, StaticMemberReplaced)
_BEGINS: Final = (MemberJoined, StaticMemberReplaced)


class _Stay(msgspec.Struct):
    member: Member
    incarnation: int
    joined_ms: int
    join_cause: Cause | None = None
    replaced_member_id: MemberId | None = None
    rejoins: int = 0


class Stays:
    """The fold over a group's transitions. Keeps only the current members."""

    def __init__(self, group_id: GroupId, log_partition: int) -> None:
        self._group_id = group_id
        self._log_partition = log_partition
        self._there: dict[MemberId, _Stay] = {}

    def feed(self, step: Transition) -> list[Row]:
        """Process the next transition; return the stays that ended with it."""
        ended = self._end_of_life() if step.begins_life else []
        for part in step.parts:
            if isinstance(part, MemberAssigned) and part.member.member_id in self._there:  # most are
                self._there[part.member.member_id].member = part.member
                continue
            if isinstance(part, _ENDS):
                ended += self._end(part)
            if isinstance(part, MemberEvent) and not isinstance(part, MemberRemoved):
                self._note(part)
        if isinstance(step.event, GroupDeleted):
            ended += self._end_of_life()
        return ended

    def _end(self, event: MemberRemoved | StaticMemberReplaced) -> Iterator[Row]:
        """Yield the stay that ends with the event; for a removal, even one whose start is not known."""
        if isinstance(event, MemberRemoved):
            ended = self._there.pop(event.member.member_id, None) or self._began(event)
            seen_ms = None if event.heard is False else event.last_seen_ms
            yield self._row(ended, event.why.decided_ms, event.why.cause, departure(event).value, seen_ms)
            return
        before = self._there.pop(event.replaced_member_id, None)
        if before is not None:
            yield self._row(before, event.why.decided_ms, event.why.cause, REPLACED, event.replaced_last_seen_ms)

    def _note(self, event: AnyMemberEvent) -> None:
        member = event.member
        stay = self._there.get(member.member_id)
        if stay is None:
            stay = self._there[member.member_id] = self._began(event)
        elif isinstance(event, MemberRejoined):
            stay.rejoins += 1
        stay.member = member

    def _began(self, event: AnyMemberEvent) -> _Stay:
        stay = _Stay(member=event.member, incarnation=event.incarnation, joined_ms=event.member.joined_ms)
        if isinstance(event, _BEGINS):
            stay.joined_ms, stay.join_cause = event.why.decided_ms, event.why.cause
        if isinstance(event, StaticMemberReplaced):
            stay.replaced_member_id = event.replaced_member_id
        return stay

    def _end_of_life(self) -> list[Row]:
        """End the stays of an incarnation whose end is not in the log."""
        ended, self._there = self._there, {}
        return [self._row(stay, None, None, UNKNOWN, None) for stay in ended.values()]

    def there(self) -> Iterator[Row]:
        """The stays that have not ended."""
        for stay in self._there.values():
            yield self._row(stay, None, None, None, None)

    def _row(self, stay: _Stay, left_ms: int | None, cause: Cause | None, how: str | None, seen_ms: int | None) -> Row:
        member = stay.member
        stay_ms = None if left_ms is None or left_ms < stay.joined_ms else left_ms - stay.joined_ms
        return (
            self._group_id,
            stay.incarnation,
            self._log_partition,
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.principal,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            list(protocols_of(member)),
            member.role.value,
            day_of(stay.joined_ms),
            micros(stay.joined_ms),
            None if stay.join_cause is None else stay.join_cause.value,
            stay.replaced_member_id,
            None if left_ms is None else micros(left_ms),
            None if cause is None else cause.value,
            how,
            None if seen_ms is None else micros(seen_ms),
            stay_ms,
            stay.rejoins,
        )
