"""The members of the group at any time of an episode, and when the cluster upstream coordinated it.

Each wave of restarts looks up the members, so full copies are kept at some acts, and the members at others are derived
from the nearest copy before them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from math import inf
from operator import itemgetter
from typing import Final

from muster.events.causes import Cause
from muster.events.ids import MemberId
from muster.replay.incidents.episode.acts import AnyAct, AskedFor, Came, CameBack, Phase

_RETURNS_MAX: Final = 100
"""A copy of the members is kept after this many returns without a change of phase."""

_place = itemgetter(0)


class Memberships:
    """The members at each act of an episode. `before`: the members before the first act."""

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
        """Return the members right before this time."""
        return self._before(bisect_left(self._latest_ms, at_ms))

    def _before(self, place: int) -> frozenset[MemberId]:
        """Return the members before the act at this place."""
        begin, kept = self._kept[bisect_right(self._kept, place, key=_place) - 1]
        members = set(kept)
        first, end = (bisect_left(self._returns, each, key=_place) for each in (begin, place))
        for _, act in self._returns[first:end]:  # mostly without a phase
            members.discard(act.replaced_member_id)
            members.add(act.member.member_id)
        return frozenset(members)


class UpstreamTimes:
    """The times in which the cluster upstream coordinated the group: from its release until its adoption."""

    def __init__(self, acts: Iterable[AnyAct]) -> None:
        times = list(_upstream_times(acts))
        self._since_ms = [since_ms for since_ms, _ in times]
        self._until_ms = [until_ms for _, until_ms in times]
        # If a clock was set back, later times may begin or end before earlier ones.
        self._latest_until_ms = list(accumulate(self._until_ms, max))
        self._first_since_ms = list(accumulate(reversed(self._since_ms), min))[::-1]

    def within_ms(self, from_ms: int, until_ms: int) -> int:
        """Return how much of this time the group was upstream."""
        begin = bisect_right(self._latest_until_ms, from_ms)
        end = bisect_left(self._first_since_ms, until_ms)
        times = zip(self._since_ms[begin:end], self._until_ms[begin:end], strict=True)
        return int(sum(max(0, min(until_ms, end_ms) - max(from_ms, since_ms)) for since_ms, end_ms in times))


def _upstream_times(acts: Iterable[AnyAct]) -> Iterator[tuple[int, float]]:
    """Yield when each time began and ended (wall clock ms); the end is infinite if it is not in the episode.

    A group that was released without a config for it stays upstream until a member joins here.
    """
    since_ms, is_configured = None, False
    for act in acts:
        if isinstance(act, AskedFor) and act.is_upstream is not None:
            is_over, is_configured = since_ms is not None and not act.is_upstream, act.is_upstream
        else:
            is_over = since_ms is not None and not is_configured and isinstance(act, Came)
        if is_over and since_ms is not None:
            yield since_ms, act.at_ms
            since_ms = None
        elif since_ms is None and (is_configured or act.why.cause is Cause.GROUP_RELEASED):
            since_ms = act.at_ms
    if since_ms is not None:
        yield since_ms, inf
