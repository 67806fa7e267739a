"""Pairs processes that left with those that replaced them, in either order.

Members with the same known identity are paired. If members share a client id and a host, the first one that joined
after one had left is paired with it; so is one from another host, if no two live members shared its client id. Of the
rest, a member whose client id differs only in a generated last part ('app-7d9f-x2x8q' and 'app-7d9f-kzv6m', not 'app-1'
and 'app-2') may have replaced the other one; and if as many joined as left under other names, they may have replaced
them. In these last cases only the counts are certain, and the grade shows that.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from muster.events.ids import MemberId
from muster.events.state import Member
from muster.replay.incidents.episode.acts import AnyAct, Came, CameBack, ConnectionKey, Departure, Went
from muster.replay.incidents.episode.connections import MemberConnections
from muster.replay.incidents.episode.identity import Identities, ProcessIdentity
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.windows import DEPLOYMENT_PROCESSES_MIN, REPLACED_MS

A = TypeVar("A", Came, Went)

_Place = tuple[int, int, A]
"""An act with its time (wall clock ms) and its number, by which acts are ordered."""


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """A process that left and came back, in either order; `went` is None for a static member that was never removed."""

    process: ProcessIdentity
    went: Went | None
    came: Came | CameBack
    on_same_connection: bool = False
    """True if it rejoined on a connection that it had used before, so its process had not ended."""

    @property
    def is_elsewhere(self) -> bool:
        """True if the new member has another host than the old one."""
        return self.went is not None and self.went.member.client_host != self.came.member.client_host

    @property
    def is_renamed(self) -> bool:
        """True if the new member has another client id than the old one."""
        return self.went is not None and self.went.member.client_id != self.came.member.client_id

    @property
    def former_id(self) -> MemberId:
        """The old member id."""
        if self.went is not None:
            return self.went.member.member_id
        assert isinstance(self.came, CameBack)
        return self.came.replaced_member_id

    @property
    def begin_ms(self) -> int:
        """The time at which the replacement began: the earlier of the old member's departure and the new one's join."""
        return self.came.at_ms if self.went is None else min(self.went.at_ms, self.came.at_ms)

    @property
    def gone_ms(self) -> int:
        """When the old process was last heard from, or sent its LeaveGroup."""
        if isinstance(self.came, CameBack):
            return self.came.last_seen_ms
        assert self.went is not None
        return self.went.at_ms if self.went.how is Departure.LEFT else self.went.last_seen_ms

    @property
    def gap_ms(self) -> int | None:
        """The time between the old process and the new one; None if a clock was set back meanwhile."""
        gap_ms = self.came.at_ms - self.gone_ms
        return gap_ms if gap_ms >= 0 else None

    @property
    def end_ms(self) -> int:
        """The time of its last act."""
        return self.came.at_ms if self.went is None else max(self.went.at_ms, self.came.at_ms)

    @property
    def acts(self) -> tuple[AnyAct, ...]:
        """Its acts."""
        return (self.came,) if self.went is None else (self.went, self.came)

    @property
    def member(self) -> Member:
        """The member by which it is named: the one that left, else the new one."""
        return self.came.member if self.went is None else self.went.member


def replacements(
    acts: Iterable[AnyAct], identities: Identities, connections: MemberConnections
) -> tuple[Replacement, ...]:
    """Return the replacements among these acts, in the order in which they began."""
    pairs = _Pairs(identities, connections)
    for act in acts:
        if isinstance(act, CameBack):
            pairs.come_back(act)
        elif isinstance(act, Came):
            pairs.come(act)
        elif isinstance(act, Went):
            pairs.go(act)
    pairs.guess()
    return tuple(sorted(pairs.found, key=lambda each: each.begin_ms))


class _Pairs:
    """Pairs members that left with members that joined, first by their connections."""

    def __init__(self, identities: Identities, connections: MemberConnections) -> None:
        self.found: list[Replacement] = []
        self._connections = connections
        self._identities = identities
        self._went = _Unpaired[Went]()
        self._came = _Unpaired[Came]()

    def come_back(self, came: CameBack) -> None:
        """Add a static member that joined while its old member id was still in the group."""
        on_same = self._connections.are_same_process(came.replaced_member_id, came.member.member_id)
        process = self._identities.process_of(came.member)
        self.found.append(Replacement(process=process, went=None, came=came, on_same_connection=on_same))

    def come(self, came: Came) -> None:
        """Add a member that joined; if possible, pair it with one that had left."""
        kin = self._identities.kin(came.member)
        on_same = map(_on, self._connections.own(came.member.member_id))
        for keys in on_same, [(kin, came.member.client_host)], [kin]:
            went = self._went.first(keys, came.at_ms - REPLACED_MS)
            if went is not None:
                self._went.remove(went)
                self._pair(went, came)
                return
        self._came.add(came, [kin, _base(came.member.client_id)])

    def go(self, went: Went) -> None:
        """Add a member that left; its successor may have joined before it was removed."""
        kin = self._identities.kin(went.member)
        for came in self._came.between(kin, went.since_ms):
            if came.member.member_id != went.member.member_id:
                self._came.remove(came)
                self._pair(went, came)
                return
        on_own = map(_on, self._connections.own(went.member.member_id))
        self._went.add(went, [kin, (kin, went.member.client_host), *on_own])

    def guess(self) -> None:
        """Pair the rest: first by the base of their client ids, then all of them, if as many joined as left."""
        for went in self._went.all():
            alike = self._came.between(_base(went.member.client_id), went.since_ms, went.at_ms + REPLACED_MS)
            came = next((each for each in alike if _may_be_renamed(went, each)), None)
            if came is not None:
                self._went.remove(went)
                self._came.remove(came)
                self.found.append(Replacement(process=_somebody(went), went=went, came=came))
        all_went, all_came = self._went.all(), self._came.all()
        pairs = list(zip(all_went, all_came, strict=False))
        if len(all_went) != len(all_came) or len(pairs) < DEPLOYMENT_PROCESSES_MIN:
            return
        if all(_may_follow(went, came) for went, came in pairs):
            for went, came in pairs:
                self.found.append(Replacement(process=_somebody(went), went=went, came=came))

    def _pair(self, went: Went, came: Came) -> None:
        former, later = (self._identities.process_of(act.member) for act in (went, came))
        process = former if former.key == later.key else _somebody(went)
        on_same = self._connections.are_same_process(went.member.member_id, came.member.member_id)
        if on_same:
            process = ProcessIdentity(former.key, Grade.RECORDED)
        self.found.append(Replacement(process=process, went=went, came=came, on_same_connection=on_same))


class _Unpaired(Generic[A]):
    """Acts that are not paired yet, in order; indexed by keys, since an episode may have thousands."""

    def __init__(self) -> None:
        self._by_key: defaultdict[Hashable, list[_Place[A]]] = defaultdict(list)
        self._places: dict[int, tuple[_Place[A], list[Hashable]]] = {}
        self._added = 0
        self._last_ms = 0

    def add(self, act: A, keys: Iterable[Hashable]) -> None:
        """Add the next act. If the clock went back, the act gets the time of the previous one."""
        self._added += 1
        self._last_ms = max(self._last_ms, act.at_ms)
        place = (self._last_ms, self._added, act)
        self._places[id(act)] = place, (of := list(keys))
        for key in of:
            self._by_key[key].append(place)

    def remove(self, act: A) -> None:
        """Remove an act."""
        place, keys = self._places.pop(id(act))
        for key in keys:
            places = self._by_key[key]
            del places[bisect_left(places, place[:2], key=_order)]

    def first(self, keys: Iterable[Hashable], from_ms: int) -> A | None:
        """Return the first act with one of these keys, at this time or later."""
        found = (self._by_key.get(key, ()) for key in keys)
        places = [each[at] for each in found if (at := bisect_left(each, (from_ms, 0), key=_order)) < len(each)]
        return min(places, key=_order)[2] if places else None

    def between(self, key: Hashable, from_ms: int, until_ms: float = math.inf) -> Iterator[A]:
        """Yield the acts with this key between two times, in order."""
        places = self._by_key.get(key, [])
        for at in range(bisect_left(places, (from_ms, 0), key=_order), len(places)):
            if places[at][0] > until_ms:
                return
            yield places[at][2]

    def all(self) -> list[A]:
        """Return all acts, in order."""
        return [act for (_, _, act), _ in self._places.values()]


def _order(place: tuple[int, int, object]) -> tuple[int, int]:
    return place[:2]


def _on(connection: ConnectionKey) -> Hashable:
    return "on", connection


def _may_follow(went: Went, came: Came) -> bool:
    by_itself = went.how is Departure.LEFT or went.is_silent
    return by_itself and went.since_ms <= came.at_ms <= went.at_ms + REPLACED_MS


def _may_be_renamed(went: Went, came: Came) -> bool:
    """Return whether it joined in time, with a client id that differs only in the generated part."""
    former, later = went.member, came.member
    if former.group_instance_id is not None or later.group_instance_id is not None or not _may_follow(went, came):
        return False
    return former.client_id != later.client_id and _base(former.client_id) == _base(later.client_id)


def _base(client_id: str) -> str:
    """Return the client id without a generated last part, as pods have; a number is not generated."""
    base, _, last = client_id.rpartition("-")
    return client_id if last.isdigit() or not base else base


def _somebody(went: Went) -> ProcessIdentity:
    return ProcessIdentity(("member", went.member.member_id), Grade.UNKNOWN)
