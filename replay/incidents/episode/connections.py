"""The connections that members used (format level 6): two member ids on one connection are the same process.

Different connections prove nothing: a client may have several, and opens a new one if it has lost the old one.

A connection that two live members used at the same time belongs to a proxy, or to a client with several members, and
does not identify a process.
"""

import math
from collections import defaultdict
from collections.abc import Iterable

from muster.events.ids import MemberId
from muster.replay.incidents.episode.acts import AnyAct, Came, CameBack, ConnectionKey, Departure, Rejoined, Went


class MemberConnections:
    """The connections of the members of an episode."""

    def __init__(self, acts: Iterable[AnyAct]) -> None:
        self._of: defaultdict[MemberId, set[ConnectionKey]] = defaultdict(set)
        began_ms: dict[MemberId, float] = {}
        ended_ms: dict[MemberId, float] = {}
        for act in acts:
            if isinstance(act, Came | CameBack | Rejoined):
                self._note(act.member.member_id, act.connection)
                if not isinstance(act, Rejoined):
                    began_ms[act.member.member_id] = act.at_ms
            if isinstance(act, CameBack):
                self._note(act.replaced_member_id, act.last_connection_key)
                ended_ms[act.replaced_member_id] = act.at_ms
            elif isinstance(act, Went):
                self._note(act.member.member_id, act.last_connection_key)
                if act.how is Departure.LEFT:
                    self._note(act.member.member_id, act.connection)
                ended_ms[act.member.member_id] = act.at_ms
        self._shared = self._shared_keys(began_ms, ended_ms)

    def are_same_process(self, one: MemberId, other: MemberId) -> bool:
        """Return whether both used the same connection, and no other member used it at that time."""
        return not self.own(one).isdisjoint(self.own(other))

    def own(self, member_id: MemberId) -> set[ConnectionKey]:
        """Return the connections that only this member used at the time."""
        return self._of.get(member_id, set()) - self._shared

    def _note(self, member_id: MemberId, connection: ConnectionKey | None) -> None:
        if connection is not None:
            self._of[member_id].add(connection)

    def _shared_keys(self, began_ms: dict[MemberId, float], ended_ms: dict[MemberId, float]) -> set[ConnectionKey]:
        """Return the connections used by two members that were in the group at the same time."""
        lives: defaultdict[ConnectionKey, list[tuple[float, float]]] = defaultdict(list)
        for member_id, connections in self._of.items():
            for each in connections:
                lives[each].append((began_ms.get(member_id, -math.inf), ended_ms.get(member_id, math.inf)))
        return {key for key, spans in lives.items() if _overlap(spans)}


def _overlap(spans: list[tuple[float, float]]) -> bool:
    end_ms = -math.inf
    for begin_ms, until_ms in sorted(spans):
        if begin_ms < end_ms:
            return True
        end_ms = max(end_ms, until_ms)
    return False
