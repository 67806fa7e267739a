"""The members of the group at each moment of an episode.

They are asked for by each wave of restarts, so they are kept for some of the acts, and found from the nearest of them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Final

from muster.events.ids import MemberId
from muster.replay.incidents.episode.acts import AnyAct, CameBack, Phase

_RETURNS_MAX: Final = 100
"""The processes that come back, in no phase, until the members are kept again."""

_place = itemgetter(0)


class Memberships:
    """See the module. `before`: the members before the first act."""

    def __init__(self, acts: Sequence[AnyAct], before: Iterable[MemberId]) -> None:
        self._returns = [(place, act) for place, act in enumerate(acts) if isinstance(act, CameBack)]
        self._latest_ms = list(accumulate((act.at_ms for act in acts), max))  # a clock may have been set back
        self._kept: list[tuple[int, Collection[MemberId]]] = [(0, frozenset(before))]
        since = 0
        for place, act in enumerate(acts, start=1):
            if isinstance(act, Phase):
                self._kept.append((place, act.members))
                since = 0
            elif isinstance(act, CameBack):
                since += 1
                if since == _RETURNS_MAX:
                    self._kept.append((place, self._before(place)))
                    since = 0

    def at(self, at_ms: int) -> frozenset[MemberId]:
        """The members right before a moment."""
        return self._before(bisect_left(self._latest_ms, at_ms))

    def _before(self, place: int) -> frozenset[MemberId]:
        """The members before the act at this place."""
        begin, kept = self._kept[bisect_right(self._kept, place, key=_place) - 1]
        members = set(kept)
        first, end = (bisect_left(self._returns, each, key=_place) for each in (begin, place))
        for _, act in self._returns[first:end]:  # mostly in no phase of their own
            members.discard(act.replaced_member_id)
            members.add(act.member.member_id)
        return frozenset(members)
