"""The rebalances of a play, and the sessions that ended in it."""

import math
from collections import defaultdict
from collections.abc import Container

import msgspec

from muster.events.causes import Cause
from muster.events.ids import MemberId
from muster.events.state import Member
from muster.replay.whatif.verdict import Standstill

BY_ITSELF_MAX = 20
"""Maximum number of rebalances in one play beyond two per input; if there are more, rebalances are causing one
another.
"""
CIRCLES = "with these settings one rebalance would have led to the next, again and again: playing it was given up"


class Started(msgspec.Struct, kw_only=True, eq=False):
    """A rebalance that began in the play. `admitted`: the members whose joins it admitted, delayed or not.

    `cost`: the cost so far; `ended_ms`: when it ended, or the next one began; `is_cost_known`: see `matching.py`;
    `is_over`: whether that cost is final, and not cut off by the end of the log.
    """

    at_ms: int
    cause: Cause
    member_id: MemberId | None
    admitted: frozenset[MemberId] = frozenset()
    is_late: bool  # started by a live member that had been dropped
    is_dead: bool  # started because a dead member did not sync
    cost: Standstill = Standstill()
    ended_ms: float = math.inf
    is_cost_known: bool = True
    is_over: bool = True


class ExpiredSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that ended in the play."""

    at_ms: int
    member: Member


class TooLong(Exception):
    """The play was aborted; the text says why."""


class Played:
    """See the module. `started`: the rebalances; `expired`: the sessions."""

    def __init__(self) -> None:
        self.started: list[Started] = []
        self.expired: list[ExpiredSession] = []
        self._parts: defaultdict[tuple[MemberId, bool], list[tuple[int, Started]]] = defaultdict(list)

    def begin(self, started: Started, *, inputs: int) -> None:
        """Add a rebalance, which ends the previous one. `inputs`: how many the play had so far. Raises TooLong."""
        if len(self.started) >= BY_ITSELF_MAX + 2 * inputs:
            raise TooLong(CIRCLES)
        self.end(started.at_ms)
        self.started.append(started)

    def end(self, at_ms: int) -> None:
        """End the last rebalance, unless it is over."""
        if self.started:
            self.started[-1].ended_ms = min(self.started[-1].ended_ms, at_ms)

    def add_cost(self, cost: Standstill) -> None:
        """Add to the cost of the last rebalance."""
        if self.started:
            self.started[-1].cost += cost

    def last_expiry(self, member: Member) -> ExpiredSession | None:
        """Return the last session that ended of this member, or of one with its instance id; None if there is none."""
        instance = member.group_instance_id or ""
        for each in reversed(self.expired):
            if each.member.member_id == member.member_id or each.member.group_instance_id == instance:
                return each
        return None

    def has_expired(self, members: Container[MemberId]) -> bool:
        """Return whether the session of any of these members ended."""
        return any(each.member.member_id in members for each in self.expired)

    def add_part(self, member_id: MemberId, at_ms: int, *, is_loss: bool) -> None:
        """Note that the member joined, or was lost, during the last rebalance."""
        if self.started:
            self._parts[member_id, is_loss].append((at_ms, self.started[-1]))

    def part_of(self, member_id: MemberId, since_ms: int, *, is_loss: bool) -> Started | None:
        """Return the rebalance during which the member first joined (or was lost) since this time, if any."""
        parts = self._parts.get((member_id, is_loss), ())
        return next((started for at_ms, started in parts if at_ms >= since_ms), None)
