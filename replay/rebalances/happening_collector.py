"""Collects happenings, in order, until the next rebalance begins.

Happenings are static restarts, standbys that take over, members that join or leave without partitions, retired members
that leave one by one, plans, and refused requests. Some take time, or repeat:

    a standby        is called when a member is lost, and gets the partitions when it asks for them: one happening
    retired members  are remembered, since all of them cause the rebalance that follows when the last one leaves
    a duel           is one happening, however often the instance id changes hands
    a fence          that repeats an earlier one is counted there
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

import msgspec

from muster.events.causes import Cause
from muster.events.events import (
    GroupConfigured,
    MemberAssigned,
    MemberEvent,
    MemberJoined,
    MemberRejoined,
    MemberRemoved,
    MemberRoleChanged,
    RebalanceStarted,
    StaticMemberReplaced,
)
from muster.events.ids import MemberId
from muster.events.state import Group
from muster.replay.history.items import Part
from muster.replay.rebalances.happenings import announced, inactive_came, inactive_went, restart, retired_went
from muster.replay.rebalances.moves import GroupAssignment
from muster.replay.rebalances.planned import announcements
from muster.replay.rebalances.rebalance import Happening, HappeningKind, MemberRef, ref
from muster.replay.rebalances.standbys import Call, called

_Key = tuple[object, ...]
_TOLD_WITH_THE_REBALANCE = frozenset({Cause.NOT_REJOINED, Cause.GROUP_RELEASED})
MOVED_NOTHING = frozenset({Cause.LEARNER_ADMITTED, Cause.STANDBY_ADMITTED, Cause.INACTIVE_MEMBER_REJOINED})
_CHANGED_NOTHING = frozenset({Cause.MEMBERS_RETIRED, Cause.RECORD_OVERWRITTEN})
_STARTED_BY_NONE: Final[Mapping[type, Set[Cause]]] = {
    MemberJoined: MOVED_NOTHING,
    MemberRejoined: MOVED_NOTHING,
    MemberRoleChanged: _CHANGED_NOTHING,
}


def starts_nothing(part: Part) -> bool:
    """Return whether this would not have started a rebalance on its own, so that it is a happening, not a folded
    cause.
    """
    if isinstance(part, MemberRemoved):
        return part.member.is_inactive and part.why.cause not in _TOLD_WITH_THE_REBALANCE
    if not isinstance(part, MemberEvent):
        return True
    return part.why.cause in _STARTED_BY_NONE.get(type(part), ())


class HappeningCollector:
    """Collects happenings between rebalances, or during one."""

    def __init__(self) -> None:
        self._happenings: list[Happening] = []
        self._positions: dict[_Key | None, int] = {}
        self._calls: dict[MemberId, tuple[int, Call]] = {}
        self._gone: list[MemberRef] = []

    @property
    def happenings(self) -> tuple[Happening, ...]:
        return tuple(self._happenings)

    @property
    def gone(self) -> tuple[MemberRef, ...]:
        """The retired members that left, and whose partitions have no owner yet."""
        return tuple(self._gone)

    # ---- merging repeated happenings ---------------------------------------------------------------------------------

    def add(self, *happenings: Happening) -> None:
        """Add happenings; one that repeats an earlier one is merged into it."""
        for happening in happenings:
            position = self._same(happening)
            if position is not None:
                self._happenings[position] = _with(self._happenings[position], happening)
                continue
            key = _key(happening)
            if key is not None:
                self._positions[key] = len(self._happenings)
            self._happenings.append(happening)

    def _same(self, happening: Happening) -> int | None:
        is_restart = happening.kind is HappeningKind.STATIC_RESTART
        return self._positions.get(_duel(happening) if is_restart else _key(happening))

    # ---- transitions ------------------------------------------------------------------------------------------------

    def note(
        self, parts: Sequence[Part], before: Group, after: Group, baseline: GroupAssignment | None
    ) -> GroupAssignment | None:
        """Process a transition that started no rebalance. Returns the assignment after it, if `baseline` is known."""
        baseline = self._call(parts, before, baseline)
        replaced = {call.lost.seq for _, call in self._calls.values() if call.lost is not None}
        for part in parts:
            if isinstance(part, MemberRemoved):
                self._lose_called(part.member.member_id)
                if part.member.is_inactive:
                    self.add(inactive_went(part))
                elif part.member.retiring and part.seq not in replaced:
                    self._gone.append(ref(part.member))
                    self.add(retired_went(part, after))
            elif isinstance(part, MemberJoined | MemberRejoined) and starts_nothing(part):
                self.add(inactive_came(part))
            elif isinstance(part, StaticMemberReplaced) and part.why.cause is Cause.STATIC_RESTART_ABSORBED:
                self._follow_restart(part)
                self.add(restart(part, after))
            elif isinstance(part, MemberRoleChanged) and part.why.cause is Cause.STANDBY_TOOK_OVER:
                self._took_over(part)
        self._announce(parts, before)
        return baseline

    def note_within(self, parts: Sequence[Part], before: Group) -> None:
        """Process a transition of the running rebalance."""
        started_nothing = [part for part in parts if starts_nothing(part)]
        for part in started_nothing:
            if isinstance(part, MemberRemoved):
                self.add(inactive_went(part))
            elif isinstance(part, MemberJoined | MemberRejoined):
                self.add(inactive_came(part))
        if started_nothing:
            self._announce(started_nothing, before)

    def end(
        self, started: RebalanceStarted, parts: Sequence[Part], before: Group, baseline: GroupAssignment | None
    ) -> GroupAssignment | None:
        """End the collection because a rebalance begins: add the plans of its first transition, and fail pending calls
        of standbys.

        Config changes of that transition belong to the trigger: a release is both the config and the rebalance.
        """
        baseline = self._call(parts, before, baseline)
        for position, call in self._calls.values():
            self._happenings[position] = call.happening(rebalanced=True)
        self._calls.clear()
        others = [part for part in parts if part.why.cause is not started.why.cause]
        self._announce([part for part in others if not isinstance(part, GroupConfigured)], before)
        return baseline

    def _announce(self, parts: Iterable[Part], before: Group) -> None:
        self.add(*(announced(why, seq, text) for why, seq, text in announcements(parts, before.config)))

    # ---- standbys ---------------------------------------------------------------------------------------------------

    def _call(self, parts: Sequence[Part], before: Group, baseline: GroupAssignment | None) -> GroupAssignment | None:
        lost = [part for part in parts if isinstance(part, MemberRemoved)]
        for part in parts:
            if isinstance(part, MemberAssigned) and part.why.cause is Cause.STANDBY_CALLED:
                call, baseline = called(part, lost, before, baseline)
                self._calls[part.member.member_id] = (len(self._happenings), call)
                self.add(call.happening())
        return baseline

    def _took_over(self, part: MemberRoleChanged) -> None:
        found = self._calls.pop(part.member.member_id, None)
        if found is not None:
            position, call = found
            self._happenings[position] = call.happening(took_over_ms=part.why.decided_ms)

    def _lose_called(self, member_id: MemberId) -> None:
        found = self._calls.pop(member_id, None)
        if found is not None:
            position, call = found
            self._happenings[position] = call.happening(lost_itself=True)

    def _follow_restart(self, part: StaticMemberReplaced) -> None:
        """A called standby that restarts gets a new member id."""
        found = self._calls.pop(part.replaced_member_id, None)
        if found is not None:
            self._calls[part.member.member_id] = found


def _key(happening: Happening) -> _Key | None:
    if happening.kind is HappeningKind.INSTANCE_DUEL:
        return _duel(happening)
    if happening.kind is HappeningKind.MEMBER_FENCED:
        return (happening.kind, happening.text, happening.error)
    return None


def _duel(happening: Happening) -> _Key:
    return (HappeningKind.INSTANCE_DUEL, happening.who.group_instance_id if happening.who is not None else None)


def _with(known: Happening, again: Happening) -> Happening:
    """Merge two happenings. Of a duel the restarts are counted, since the log has all of them, but not all fenced
    requests.
    """
    times = known.times + again.times
    if known.kind is HappeningKind.INSTANCE_DUEL:
        follows = known.seq is not None and again.seq == known.seq + 1
        times = known.times + (again.kind is HappeningKind.STATIC_RESTART and not follows)
    return msgspec.structs.replace(known, times=times, until=again.at)
