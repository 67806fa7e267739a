"""Which members of groups that are upstream's were heard of here lately: those that are connected to this sidecar.

Their requests are relayed, so nothing else is known of them. A group can be adopted if all its members are among them.
"""

from events.ids import GroupId, MemberId

MEMBERS_MAX = 100_000
"""The one that was silent for longest is forgotten first."""
LATELY_MS = 60_000
"""Clients heartbeat every few seconds, but not while a rebalance keeps their join waiting."""


class Heard:
    """See the module."""

    def __init__(self, *, members_max: int = MEMBERS_MAX) -> None:
        self._members_max = members_max
        self._heard_ms: dict[tuple[GroupId, MemberId], int] = {}

    def note(self, group_id: GroupId, member_id: MemberId, now_ms: int) -> None:
        """A request of this member was relayed."""
        key = group_id, member_id
        if self._heard_ms.pop(key, None) is None and len(self._heard_ms) >= self._members_max:
            del self._heard_ms[next(iter(self._heard_ms))]
        self._heard_ms[key] = now_ms

    def is_here(self, group_id: GroupId, member_id: MemberId, now_ms: int) -> bool:
        """Whether it was heard of lately."""
        heard_ms = self._heard_ms.get((group_id, member_id))
        return heard_ms is not None and now_ms - heard_ms <= LATELY_MS
