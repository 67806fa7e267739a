"""A group's steps -> the lifetimes of its members, what they were assigned, and how they left.

Membership is read from the group's state, not from single events, so that lifetimes end correctly at a gap. Everything
that is kept is bounded; the oldest entries are dropped first, and counted.
"""

from collections import deque
from collections.abc import Iterable, Set
from typing import Generic, TypeVar

import msgspec

from muster.events.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from muster.events.events import GroupStabilized, MemberEvent
from muster.events.ids import MemberId
from muster.events.state import Group, GroupState, Member
from muster.events.tables import Table
from muster.replay.history.transitions import Transition
from muster.replay.html.chart import Band, Mark, SpanOnPage, Stretch
from muster.replay.incidents.episode.acts import CameBack, Went
from muster.replay.incidents.episode.identity import Life
from muster.replay.incidents.episode.reading_acts import acts_of
from muster.replay.rebalances.moves import decode_assignment
from muster.replay.report.page import LIMITS

T = TypeVar("T")

JUMP_MIN_MS = 1_000
"""If the wall clock went back by less than this, it is treated as not having moved."""

UNSEEN = "not recorded"
"""Shown instead of how a member left, if its removal is not in the log."""


class Latest(Generic[T]):
    """The latest entries, up to a maximum number; `dropped` counts the others."""

    def __init__(self, most: int) -> None:
        self.kept: deque[T] = deque(maxlen=most)
        self.dropped = 0

    def add(self, each: T) -> None:
        self.dropped += len(self.kept) == self.kept.maxlen
        self.kept.append(each)

    def clear(self) -> None:
        """Drop all entries, and reset the count."""
        self.kept.clear()
        self.dropped = 0

    def last(self, most: int) -> tuple[T, ...]:
        """Return the latest entries, at most `most`."""
        return tuple(self.kept)[-most:]

    def left_out(self, most: int) -> int:
        """Return how many entries came before the last `most`."""
        return self.dropped + max(0, len(self.kept) - most)


class EndedLife(msgspec.Struct, frozen=True, kw_only=True):
    """A lifetime that has ended, and how. A silent member's ended when it was last seen, before `at_ms`."""

    life: Life
    how: str
    last_seen_ms: int
    at_ms: int


class Lives:
    """The fold. `group`: its state before the first step, at `at_ms`, if that is not the first of its history."""

    def __init__(self, group: Group | None = None, *, at_ms: int = 0) -> None:
        self.ended: Latest[EndedLife] = Latest(LIMITS.stretches)
        self.stretches: Latest[tuple[MemberId, Stretch]] = Latest(LIMITS.stretches)
        self.marks: Latest[tuple[MemberId, Mark]] = Latest(LIMITS.stretches)
        self.bands: Latest[Band] = Latest(LIMITS.bands)
        self.unstable: Latest[SpanOnPage] = Latest(LIMITS.bands)
        self.living: dict[MemberId, Life] = {}
        self.group: Group | None = None
        self._open: dict[MemberId, tuple[int, int | None]] = {}  # start, number of partitions
        self._assignments: dict[MemberId, tuple[bytes, int | None]] = {}  # decoded
        self._band: tuple[int, int] | None = None  # start, generation
        self._unstable_since: int | None = None
        self._last_ms: int | None = None
        self._is_uncertain = False  # something is missing, and there was no new assignment since
        self._is_cut = False  # a part of the transition being read is missing
        if group is not None:
            self._find(group, at_ms)

    def _find(self, group: Group, at_ms: int) -> None:
        """Start with the group's current state."""
        self.group, self._last_ms = group, at_ms
        for member in group.members.values():
            self.living[member.member_id] = Life(member=member, begin_ms=min(at_ms, member.joined_ms))
            self._open[member.member_id] = (at_ms, 0)
        self._assign(at_ms, group, group.members)
        self._note_generation(at_ms, group)

    def forget(self) -> None:
        """Drop everything that ended before the window. Whatever continues is drawn from its beginning."""
        for kept in (self.ended, self.stretches, self.marks, self.bands, self.unstable):
            kept.clear()

    def feed(self, step: Transition) -> int:
        """Process the next transition; return by how many ms the wall clock went back before it."""
        at_ms = step.at_ms if self._last_ms is None else max(step.at_ms, self._last_ms)
        back_ms = at_ms - step.at_ms
        if back_ms >= JUMP_MIN_MS:
            self._begin_again(at_ms, step.at_ms)
            at_ms = step.at_ms
        else:
            back_ms = 0
        self._last_ms, self.group = at_ms, step.after
        touched = {part.member.member_id for part in step.parts if isinstance(part, MemberEvent)}
        if touched or len(step.after.members) != len(self.living):
            self._meet(at_ms, step, touched)
        if isinstance(step.event, GroupStabilized):
            self._is_uncertain = self._is_cut
            self._assign(at_ms, step.after, step.after.members)
        elif step.after.state is GroupState.STABLE:
            self._assign(at_ms, step.after, touched)
        self._is_cut = False
        self._note_generation(at_ms, step.after)
        return back_ms

    def miss(self) -> None:
        """Record a gap: the owners of partitions are unknown until there is a new assignment."""
        self._is_uncertain = self._is_cut = True
        if self._last_ms is None:
            return
        for member_id, (_, partitions) in list(self._open.items()):
            if partitions is not None:
                self._close(member_id, self._last_ms)
                self._open[member_id] = (self._last_ms, None)

    def end(self, at_ms: int) -> None:
        """Finish at the end of the log: draw everything that continues up to it."""
        self._begin_again(at_ms, at_ms)

    def _begin_again(self, until_ms: int, at_ms: int) -> None:
        """End what is being drawn at one time, and start it again at another: the wall clock jumped."""
        for member_id, (_, partitions) in list(self._open.items()):
            self._close(member_id, until_ms)
            self._open[member_id] = (at_ms, partitions)
        if self._band is not None:
            self.bands.add(Band(self._band[0], max(self._band[0], until_ms), self._band[1]))
            self._band = (at_ms, self._band[1])
        if self._unstable_since is not None:
            self.unstable.add(SpanOnPage(self._unstable_since, max(self._unstable_since, until_ms)))
            self._unstable_since = at_ms

    # ---- members ------------------------------------------------------------------------------------------------

    def _meet(self, at_ms: int, step: Transition, touched: set[MemberId]) -> None:
        """Begin and end lifetimes: of the members in the events or, if these do not explain every change, of all
        members.
        """
        acts, members = list(acts_of(step)), step.after.members
        went = {act.member.member_id: act for act in acts if isinstance(act, Went)}
        back = {act.replaced_member_id: act for act in acts if isinstance(act, CameBack)}
        self._meet_some(at_ms, touched | back.keys(), members, went, back)
        if len(members) != len(self.living):
            self._meet_some(at_ms, self.living.keys() | members.keys(), members, went, back)

    def _meet_some(
        self,
        at_ms: int,
        asked: Set[MemberId],
        members: Table[MemberId, Member],
        went: dict[MemberId, Went],
        back: dict[MemberId, CameBack],
    ) -> None:
        for member_id in sorted(asked):
            member = members.get(member_id)
            if member is None and member_id in self.living:
                self._bury(member_id, at_ms, went.get(member_id), back.get(member_id))
            elif member is not None and member_id not in self.living:
                self.living[member_id] = Life(member=member, begin_ms=at_ms)
                self._open[member_id] = (at_ms, None if self._is_uncertain else 0)

    def _bury(self, member_id: MemberId, at_ms: int, went: Went | None, back: CameBack | None) -> None:
        life = self.living.pop(member_id)
        how, last_seen_ms = UNSEEN, at_ms
        if went is not None:
            how, last_seen_ms = str(went.how), went.last_seen_ms if went.is_silent else at_ms
        elif back is not None:
            how, last_seen_ms = "came-back", min(at_ms, back.last_seen_ms)
        last_seen_ms = min(at_ms, max(int(life.begin_ms), last_seen_ms))
        self._close(member_id, at_ms)
        self._assignments.pop(member_id, None)
        self.marks.add((member_id, Mark(at_ms, how)))
        ended = msgspec.structs.replace(life, end_ms=last_seen_ms if went is not None and went.is_silent else at_ms)
        self.ended.add(EndedLife(life=ended, how=how, last_seen_ms=last_seen_ms, at_ms=at_ms))

    def _close(self, member_id: MemberId, at_ms: int) -> None:
        since_ms, partitions = self._open.pop(member_id)
        self.stretches.add((member_id, Stretch(since_ms, max(since_ms, at_ms), partitions)))

    # ---- assignments --------------------------------------------------------------------------------------------

    def _assign(self, at_ms: int, group: Group, to: Iterable[MemberId]) -> None:
        is_consumers = group.image.protocol_type == CONSUMER_PROTOCOL_TYPE
        for member_id in to:
            member = group.members.get(member_id)
            if member is None:
                continue
            partitions = self._partitions(group, member) if is_consumers else None
            if self._is_uncertain and not partitions:
                partitions = None
            since_ms, before = self._open[member_id]
            if partitions != before:
                if at_ms > since_ms:
                    self.stretches.add((member_id, Stretch(since_ms, at_ms, before)))
                self._open[member_id] = (max(since_ms, at_ms), partitions)

    def _partitions(self, group: Group, member: Member) -> int | None:
        assignment = group.assignment_of(member)
        known = self._assignments.get(member.member_id)
        if known is None or known[0] != assignment:
            decoded = decode_assignment(assignment)
            known = assignment, None if decoded is None else len(decoded)
            self._assignments[member.member_id] = known
        return known[1]

    # ---- the group ----------------------------------------------------------------------------------------------

    def _note_generation(self, at_ms: int, after: Group) -> None:
        generation = after.generation_id
        if self._band is None or self._band[1] != generation:
            if self._band is not None:
                self.bands.add(Band(self._band[0], max(self._band[0], at_ms), self._band[1]))
            self._band = (at_ms, generation)
        is_unstable = after.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
        if is_unstable and self._unstable_since is None:
            self._unstable_since = at_ms
        elif not is_unstable and self._unstable_since is not None:
            self.unstable.add(SpanOnPage(self._unstable_since, max(self._unstable_since, at_ms)))
            self._unstable_since = None
