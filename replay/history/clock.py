"""The wall clock as if it had not jumped.

Events of one owner's life carry its monotonic clock (`Why.uptime_ms`, format level 4). Where the wall clock has jumped
between two of them, the times of all that follow are shifted back by as much, until the next owner: durations are true
then, and who prints them says that the clock has jumped. Between two owners, and in histories of older levels, there is
the wall clock alone.
"""

from typing import Final

import msgspec

from muster.events.events import (
    AnyEvent,
    GroupDeleted,
    GroupEmptied,
    JoinPhaseCompleted,
    MemberEvent,
    MemberRejoined,
    MemberRemoved,
    StaticMemberReplaced,
    Why,
)

JUMP_MS: Final = 1_000
SLEW: Final = 1 / 1_000
"""A wall clock that differs by more than this, and by more than it is slewed meanwhile (NTP: 1/2000), has jumped."""


class SteadyClock:
    """Follows the events of one group, in order."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._why: Why | None = None
        self._uptime_ms = 0
        self._ahead_ms = 0
        self._jumped_ms = 0  # in this owner's life, all jumps together
        self._jumped_when_empty_ms = 0

    def steadied(self, event: AnyEvent) -> tuple[AnyEvent, int]:
        """The event with the times as they would be without jumps; and by how much the clock jumped before it, or 0."""
        why = event.why
        jump_ms = 0
        if why is not self._why or event.owner_epoch != self._epoch:  # else it is of the same decision
            jump_ms = self._jump(event)
            self._why = why
        if isinstance(event, GroupEmptied):
            self._jumped_when_empty_ms = self._jumped_ms
        elif isinstance(event, GroupDeleted) and event.empty_since_ms is not None:
            event = msgspec.structs.replace(event, empty_since_ms=event.empty_since_ms - self._jumped_when_empty_ms)
        return (_shifted(event, -self._jumped_ms) if self._jumped_ms else event), jump_ms

    def _jump(self, event: AnyEvent) -> int:
        """The time by which the clock jumped before the event; all jumps are summed up."""
        why = event.why
        if why.uptime_ms is None:
            self._epoch, self._jumped_ms = None, 0
            return 0
        ahead_ms, jump_ms = why.decided_ms - why.uptime_ms, 0
        if self._epoch == event.owner_epoch:
            slewed_ms = (why.uptime_ms - self._uptime_ms) * SLEW
            if abs(ahead_ms - self._ahead_ms) > JUMP_MS + slewed_ms:
                jump_ms = ahead_ms - self._ahead_ms
        else:
            self._jumped_ms = 0
        self._epoch, self._uptime_ms, self._ahead_ms = event.owner_epoch, why.uptime_ms, ahead_ms
        self._jumped_ms += jump_ms
        return jump_ms


def _shifted(event: AnyEvent, by_ms: int) -> AnyEvent:
    why = msgspec.structs.replace(
        event.why, decided_ms=event.why.decided_ms + by_ms, arrived_ms=event.why.arrived_ms + by_ms
    )
    if isinstance(event, StaticMemberReplaced):
        seen_ms, connection = event.replaced_last_seen_ms, event.replaced_connection
        event = msgspec.structs.replace(
            event,
            replaced_last_seen_ms=None if seen_ms is None else seen_ms + by_ms,
            replaced_connection=None if connection is None else connection.shifted(by_ms),
        )
    if isinstance(event, MemberRejoined | MemberRemoved) and event.last_connection is not None:
        event = msgspec.structs.replace(event, last_connection=event.last_connection.shifted(by_ms))
    if isinstance(event, JoinPhaseCompleted):
        absent_seen_ms = tuple(None if each is None else each + by_ms for each in event.absent_seen_ms)
        returned = tuple(msgspec.structs.replace(each, heard_ms=each.heard_ms + by_ms) for each in event.returned)
        event = msgspec.structs.replace(event, absent_seen_ms=absent_seen_ms, returned=returned)
    if isinstance(event, MemberEvent):
        return msgspec.structs.replace(event, why=why, last_seen_ms=event.last_seen_ms + by_ms)
    return msgspec.structs.replace(event, why=why)
