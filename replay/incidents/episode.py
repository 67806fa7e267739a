"""Episodes: stretches of a group's history between two times of quiet, and what kinds of incidents ask of one.

An incident lies within one episode. So an episode is all that is kept while a history is read: its length is bounded
by `ACTS_MAX`, after which it is ended whether it is quiet or not, and says so (`is_cut`).
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

import msgspec

from muster.events.events import CoordinatorElected, CoordinatorPaused, CoordinatorReady, CoordinatorStopped
from muster.events.ids import MemberId
from muster.events.state import Group, Member
from muster.replay.history import Broken, Coordinated, Gap
from muster.replay.incidents.acts import AnyAct, Came, CameBack, Departure, Phase, Went
from muster.replay.incidents.identity import Identities, Life, Process
from muster.replay.incidents.replacements import Replacement, replacements
from muster.replay.incidents.windows import ACTS_MAX, QUIET_MS
from muster.replay.rebalances.rebalance import Rebalance

A = TypeVar("A")


class Away(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which no coordinator served the group, in wall clock ms.

    `since_ms`: the last that is known of the owner before; it was gone at some moment after it. `paused`: the process
    itself stood still, and went on.
    """

    since_ms: int
    until_ms: int
    owner_before: str | None
    owner: str
    in_good_order: bool
    paused: bool
    members: tuple[MemberId, ...]

    @property
    def duration_ms(self) -> int:
        """At most so long."""
        return max(0, self.until_ms - self.since_ms)


class Episode:
    """A stretch of history. It is filled by `telling.py`, and only read by the kinds."""

    def __init__(self, before: Group | None) -> None:
        self.before = before
        self.after = before
        self.acts: list[AnyAct] = []
        self.rebalances: list[Rebalance] = []
        self.aways: list[Away] = []
        self.missing: list[Gap | Broken] = []
        self.is_cut = False
        self._last_ms: int | None = None

    # ---- filling -----------------------------------------------------------------------------------------------------

    def add(self, acts: Iterable[AnyAct], after: Group) -> None:
        """The acts of the next transition."""
        for act in acts:
            self.acts.append(act)
            self._last_ms = act.at_ms
        self.after = after

    def add_away(self, away: Away) -> None:
        """A time without an owner."""
        self.aways.append(away)
        self._last_ms = away.until_ms

    def add_missing(self, missing: Gap | Broken) -> None:
        """A part of the history that is not there, or cannot be read."""
        self.missing.append(missing)
        self._last_ms = missing.position.timestamp_ms

    def is_over(self, at_ms: int) -> bool:
        """Whether what happens at this moment belongs to the next episode."""
        if self._last_ms is None:
            return False
        return at_ms - self._last_ms > QUIET_MS or len(self.acts) >= ACTS_MAX

    # ---- reading -----------------------------------------------------------------------------------------------------

    def of(self, kind: type[A]) -> Iterator[A]:
        """The acts of a class, in order."""
        return (act for act in self.acts if isinstance(act, kind))

    @cached_property
    def identities(self) -> Identities:
        """Who is who in it."""
        went = {act.member.member_id: act for act in self.of(Went)}
        members: dict[MemberId, Member] = dict(self.before.members.items()) if self.before is not None else {}
        replaced: dict[MemberId, CameBack] = {}
        for act in self.acts:
            if isinstance(act, Came | CameBack):
                members[act.member.member_id] = msgspec.structs.replace(act.member, joined_ms=act.at_ms)
            if isinstance(act, CameBack):
                replaced[act.replaced_member_id] = act
        return Identities(_life(member, went.get(member_id)) for member_id, member in members.items())

    def process_of(self, member: Member) -> Process:
        """The member's process."""
        return self.identities.process_of(member)

    @cached_property
    def replacements(self) -> tuple[Replacement, ...]:
        """Processes that went and came back, in order of their beginnings.

        Where it is unknown which one came back as which, who came first after one went is taken for it, among those
        with its client id and, if there is one, its host: the numbers are right, and the grade says so.
        """
        return replacements(self.acts, self.process_of)

    def rebalance_of(self, act: AnyAct) -> Rebalance | None:
        """The rebalance that the act started, or in which it happened."""
        for rebalance in self.rebalances:
            if rebalance.incarnation and rebalance.first_seq <= act.seq <= rebalance.last_seq:
                return rebalance
        return None

    def members_at(self, at_ms: int) -> frozenset[MemberId]:
        """The members of the group right before a moment."""
        members = frozenset(self.before.members) if self.before is not None else frozenset()
        for act in self.acts:
            if act.at_ms >= at_ms:
                break
            if isinstance(act, Phase):
                members = frozenset(act.members)
        return members


def _life(member: Member, went: Went | None) -> Life:
    if went is None:
        return Life(member=member, begin_ms=member.joined_ms)
    ended_ms = went.at_ms if went.how in (Departure.LEFT, Departure.PLANNED) else went.last_seen_ms
    return Life(member=member, begin_ms=member.joined_ms, end_ms=ended_ms)


class Coordinators:
    """The owners of the partition, and the times without one.

    `begin_ms`: the wall clock of the group's last event before what is read; the owner was there. What is read of the
    time before it says who that was.
    """

    def __init__(self, begin_ms: int = 0) -> None:
        self._begin_ms = begin_ms
        self._owner: str | None = None
        self._stopped = False
        self._last_ms: int | None = None

    def note_event(self, at_ms: int) -> None:
        """An event of the group: its owner was there."""
        self._last_ms = at_ms

    def note(self, item: Coordinated, members: Sequence[MemberId]) -> Away | None:
        """Take in an event of the partition; returns the time without an owner that ends with it."""
        event = item.event
        away = None
        if isinstance(event, CoordinatorReady):
            if self._owner is not None and self._last_ms is not None and members:
                away = Away(
                    since_ms=min(self._last_ms, event.ready_ms),
                    until_ms=event.ready_ms,
                    owner_before=self._owner,
                    owner=event.owner,
                    in_good_order=self._stopped,
                    paused=False,
                    members=tuple(members),
                )
            self._stopped = False
        elif isinstance(event, CoordinatorStopped):
            self._stopped = True
        elif isinstance(event, CoordinatorPaused) and members:
            away = Away(
                since_ms=event.paused_ms - event.late_ms,
                until_ms=event.paused_ms,
                owner_before=event.owner,
                owner=event.owner,
                in_good_order=False,
                paused=True,
                members=tuple(members),
            )
        elif isinstance(event, CoordinatorElected):
            self._owner = self._owner or event.owner
        if not isinstance(event, CoordinatorElected):  # the next owner's, while nobody serves yet
            self._owner = event.owner
            self._last_ms = max(item.at_ms, self._begin_ms)
        return away
