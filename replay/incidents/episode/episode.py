"""The episode: the part of a group's history between two quiet times, and the queries that kinds of incidents make.

Each incident lies within one episode, so only the current episode is kept while a history is read. An episode is ended
after `ACTS_MAX` acts even if it is not quiet then; its incidents and those of the next one have a note about it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, TypeVar

import msgspec

from muster.events.events import GroupDeleted, JoinPhaseCompleted
from muster.events.ids import MemberId
from muster.events.state import Group, Member
from muster.replay.history.items import UNREADABLE_NAMED, Broken, Gap
from muster.replay.incidents.episode.acts import (
    AnyAct,
    Came,
    CameBack,
    Departure,
    Duelled,
    Phase,
    Rejoined,
    Went,
)
from muster.replay.incidents.episode.connections import MemberConnections
from muster.replay.incidents.episode.coordinator_absences import Away
from muster.replay.incidents.episode.holes import Hole
from muster.replay.incidents.episode.identity import Identities, Life, ProcessIdentity
from muster.replay.incidents.episode.memberships import Memberships, UpstreamTimes
from muster.replay.incidents.episode.replacements import Replacement, replacements
from muster.replay.incidents.windows import ACTS_MAX, QUIET_MS, TAKEOVER_MS
from muster.replay.rebalances.rebalance import Outcome, Rebalance

A = TypeVar("A")

_COMERS: Final = (Came, CameBack)
JOINERS: Final = (Rejoined, *_COMERS)
_OF_MEMBERS: Final = (*JOINERS, Went)


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """When a lost member was last heard from: between these two times, wall clock ms."""

    from_ms: int
    to_ms: int

    @property
    def is_known(self) -> bool:
        """True if the exact time is recorded."""
        return self.from_ms == self.to_ms


class Episode:
    """A part of a group's history. `telling.py` fills it; the kinds only read it.

    `before`: the group before the episode; `life_before`: the end of the previous incarnation, if a new one begins
    here.
    """

    def __init__(self, before: Group | None, life_before: GroupDeleted | None = None) -> None:
        self.before = before
        self.life_before = life_before
        self.after = before
        self.acts: list[AnyAct] = []
        self.rebalances: list[Rebalance] = []
        self.aways: list[Away] = []
        self.holes: list[Hole] = []
        self.known_until_ms: int | None = None
        """The time of the history's next step, or of its end; wall clock ms."""
        self.min_session_ms: int | None = None
        """The coordinator's group.min.session.timeout.ms; None: the log does not have it."""
        self.is_split = False
        """True if it is part of a split episode that had more than `ACTS_MAX` acts."""
        self._last_ms: int | None = None
        self._unreadable = 0  # consecutive records, which the last holes are for

    # ---- filling -----------------------------------------------------------------------------------------------------

    def add(self, acts: Sequence[AnyAct], after: Group) -> None:
        """Add the acts of the next transition."""
        if acts:
            self.acts += acts
            self._last_ms = acts[-1].at_ms
        self.after = after

    def add_away(self, away: Away) -> None:
        """Add a period without an owner."""
        self.aways.append(away)
        self._last_ms = away.until_ms

    def add_missing(self, missing: Gap | Broken) -> None:
        """Add a missing or unreadable part of the history."""
        begin_ms = missing.position.timestamp_ms
        to_ms = missing.end.timestamp_ms if isinstance(missing, Broken) else begin_ms
        from_ms = begin_ms if self._last_ms is None else min(self._last_ms, begin_ms)
        after_seq = self.acts[-1].seq if self.acts else 0
        hole = Hole(part=missing, after_seq=after_seq, from_ms=from_ms, to_ms=to_ms)
        self._last_ms = to_ms
        goes_on = isinstance(missing, Broken) and self._unreadable > 0 and self.holes[-1].after_seq == after_seq
        if goes_on and self._unreadable >= UNREADABLE_NAMED:
            self.holes[-1] = self.holes[-1].joined(hole)
            return
        self._unreadable = isinstance(missing, Broken) + (self._unreadable if goes_on else 0)
        self.holes.append(hole)

    def is_over(self, at_ms: int) -> bool:
        """Return whether a step at this time belongs to the next episode."""
        last_ms = self._last_ms
        return last_ms is not None and (at_ms - last_ms > QUIET_MS or len(self.acts) >= ACTS_MAX)

    def is_quiet_before(self, at_ms: int) -> bool:
        """Return whether the episode is over at this time: there was no act for QUIET_MS."""
        return self._last_ms is not None and at_ms - self._last_ms > QUIET_MS

    # ---- reading -----------------------------------------------------------------------------------------------------

    def of(self, kind: type[A]) -> Iterator[A]:
        """Return the acts of a class, in order."""
        return iter(self._by_class.get(kind, ()))  # type: ignore[arg-type]  # a class's list has only its own acts

    @cached_property
    def _by_class(self) -> dict[type[AnyAct], list[AnyAct]]:
        """The acts by class: each kind of incident needs only a few classes of many acts."""
        found: dict[type[AnyAct], list[AnyAct]] = {}
        for act in self.acts:
            found.setdefault(type(act), []).append(act)
        return found

    @cached_property
    def identities(self) -> Identities:
        """The processes of its members."""
        went = {act.member.member_id: act for act in self.of(Went)}
        members: dict[MemberId, Member] = dict(self.before.members.items()) if self.before is not None else {}
        for act in self.acts:
            if isinstance(act, _COMERS):
                members[act.member.member_id] = msgspec.structs.replace(act.member, joined_ms=act.at_ms)
        return Identities(_life(member, went.get(member_id)) for member_id, member in members.items())

    @cached_property
    def connections(self) -> MemberConnections:
        """The connections that its members used."""
        return MemberConnections(self.acts)

    def process_of(self, member: Member) -> ProcessIdentity:
        return self.identities.process_of(member)

    @cached_property
    def replacements(self) -> tuple[Replacement, ...]:
        """Processes that left and came back, in the order in which they began.

        If it is not known which process came back as which, a member that left is paired with the first one that joined
        later with its client id and, if possible, its host: the counts are right, and the grade shows that pairs are
        guesses.
        """
        if not any(self.of(Came)) and not any(self.of(CameBack)):  # then no process came back
            return ()
        return replacements(self.acts, self.identities, self.connections)

    @cached_property
    def paired_seqs(self) -> frozenset[int]:
        """The seqs of acts of processes that left and came back."""
        return frozenset(act.seq for each in self.replacements for act in each.acts)

    @cached_property
    def _members(self) -> dict[MemberId, Member]:
        """All known members, as their latest acts show them."""
        members: dict[MemberId, Member] = dict(self.before.members.items()) if self.before is not None else {}
        for act in self.acts:
            if isinstance(act, _OF_MEMBERS):
                members[act.member.member_id] = act.member
        return members

    def member(self, member_id: MemberId) -> Member | None:
        """Return the member as its latest act shows it; None if the episode has no such member."""
        return self._members.get(member_id)

    def came_ms(self, member_id: MemberId) -> int | None:
        """Return when the member joined under this id; None if it joined before the episode, or the log lacks it."""
        return self._came_ms.get(member_id)

    @cached_property
    def _came_ms(self) -> dict[MemberId, int]:
        return {act.member.member_id: act.at_ms for act in self.acts if isinstance(act, _COMERS)}

    @cached_property
    def _last_joins_ms(self) -> dict[MemberId, int]:
        joins = (act for act in self.acts if isinstance(act, JOINERS))
        return {act.member.member_id: act.at_ms for act in joins}

    def waited_until_ms(self, member_id: MemberId) -> int:
        """Return the end of the join phase in which the member last joined: it waited for the response until then."""
        joined_ms = self._last_joins_ms.get(member_id, 0)
        later = bisect_left(self._join_phases_ms, joined_ms)
        return self._join_phases_ms[later] if joined_ms and later < len(self._join_phases_ms) else joined_ms

    @cached_property
    def _join_phases_ms(self) -> list[int]:
        """When each join phase ended."""
        return [act.at_ms for act in self.of(Phase) if isinstance(act.event, JoinPhaseCompleted)]

    @cached_property
    def _seqs(self) -> list[int]:
        return [act.seq for act in self.acts]

    def within(self, rebalance: Rebalance) -> list[AnyAct]:
        """Return the acts of a rebalance, in order."""
        begin = bisect_left(self._seqs, rebalance.first_seq)
        return self.acts[begin : bisect_right(self._seqs, rebalance.last_seq)]

    @cached_property
    def _began_ms(self) -> list[int]:
        return [each.started_ms for each in self.rebalances]

    @cached_property
    def _stable(self) -> list[Rebalance]:
        return [each for each in self.rebalances if each.outcome is Outcome.STABLE]

    @cached_property
    def _assigned(self) -> list[Rebalance]:
        return [each for each in self.rebalances if each.movement is not None]

    def rebalances_between(self, from_ms: int, until_ms: int) -> list[Rebalance]:
        """Return the rebalances that may overlap the time between these two."""
        begin = max(0, bisect_left(self._began_ms, from_ms) - 1)
        return self.rebalances[begin : bisect_right(self._began_ms, until_ms)]

    def next_stable(self, rebalance: Rebalance) -> Rebalance | None:
        """Return the next rebalance that made the group Stable."""
        return _next(self._stable, rebalance)

    def next_assigned(self, rebalance: Rebalance) -> Rebalance | None:
        """Return the next rebalance whose assignments before and after are known."""
        return _next(self._assigned, rebalance)

    @cached_property
    def heard_again(self) -> dict[MemberId, tuple[int, int]]:
        """The members that were removed as silent but heard from again: when (wall clock ms), and the event's `seq`.

        Their processes had not died. Those of other removed members may be alive, too, and have rejoined without their
        member id.
        """
        return {
            each.member_id: (each.heard_ms, act.seq)
            for act in self.of(Phase)
            if isinstance(act.event, JoinPhaseCompleted)
            for each in act.event.returned
        }

    def fenced_after(self, came: CameBack) -> list[Duelled]:
        """Return fenced requests of another process with the instance id, until the id was taken over again."""
        fenced = self._fenced.get(came.member.group_instance_id, ())
        again = self._taken_again(came) if fenced else None
        return [act for act in fenced if came.seq < act.seq and (again is None or act.seq < again.seq)]

    def taken_again_ms(self, came: CameBack) -> int:
        """Return when the instance id was taken over again, else the end of the known history; wall clock ms."""
        again = self._taken_again(came)
        if again is not None:
            return again.at_ms
        return self.acts[-1].at_ms if self.known_until_ms is None else self.known_until_ms

    def _taken_again(self, came: CameBack) -> CameBack | None:
        taken = self._taken[came.member.group_instance_id]
        later = bisect_right(taken, came.seq, key=lambda act: act.seq)
        return taken[later] if later < len(taken) else None

    @cached_property
    def _taken(self) -> dict[str | None, list[CameBack]]:
        """The takeovers of each instance id, in order."""
        found: dict[str | None, list[CameBack]] = {}
        for act in self.of(CameBack):
            found.setdefault(act.member.group_instance_id, []).append(act)
        return found

    @cached_property
    def _fenced(self) -> dict[str | None, list[Duelled]]:
        """The fenced requests for each instance id, in order."""
        found: dict[str | None, list[Duelled]] = {}
        for act in self.of(Duelled):
            if not act.is_duel:
                found.setdefault(act.why.group_instance_id, []).append(act)
        return found

    @cached_property
    def lost(self) -> dict[MemberId, Went | CameBack]:
        """Removals of silent members, and static members that came back under other member ids, by the former member
        id.
        """
        back = {act.replaced_member_id: act for act in self.of(CameBack)}
        return {**back, **{act.member.member_id: act for act in self.of(Went) if act.is_silent}}

    def served_ms(self, from_ms: int, until_ms: int) -> int:
        """Return for how much of this time there was certainly a coordinator."""
        away = (min(until_ms, each.until_ms) - max(from_ms, each.since_ms) for each in self.aways)
        return until_ms - from_ms - sum(each for each in away if each > 0)

    def was_away(self, from_ms: int, until_ms: int) -> bool:
        """Return whether there may have been no coordinator for a part of this time."""
        return any(each.since_ms <= until_ms and from_ms <= each.until_ms for each in self.aways)

    def upstream_ms(self, from_ms: int, until_ms: int) -> int:
        """Return for how much of this time the cluster upstream coordinated the group."""
        return self._upstream_times.within_ms(from_ms, until_ms)

    @cached_property
    def _upstream_times(self) -> UpstreamTimes:
        return UpstreamTimes(self.acts)

    def silence_of(self, went: Went) -> Silence:
        """Return when the member was last heard from; a takeover since then hides the exact time.

        Its session had not expired under the former owner, so it was heard from within its session timeout before that
        owner was last known to be alive; unless the group was rebalancing then, since a member that waits for the
        others does not expire.
        """
        takeovers = [each for each in self.aways if not each.paused and each.until_ms <= went.at_ms]
        if went.heard is None:  # before format level 4 it may be the time of a takeover
            takeovers = [each for each in takeovers if abs(each.until_ms - went.last_seen_ms) <= TAKEOVER_MS]
        if went.heard or (went.heard is None and not takeovers):
            return Silence(from_ms=went.last_seen_ms, to_ms=went.last_seen_ms)
        last = [each.since_ms for each in takeovers[-1:] if not self._rebalanced_at(each.since_ms)]
        signs = [
            went.member.joined_ms,
            *(since_ms - went.member.session_timeout_ms for since_ms in last),
            self._last_joins_ms.get(went.member.member_id, 0),
        ]
        return Silence(from_ms=min(max(signs), went.last_seen_ms), to_ms=went.last_seen_ms)

    def _rebalanced_at(self, at_ms: int) -> bool:
        """Return whether a rebalance was running at this time."""
        running = self.rebalances_between(at_ms, at_ms)
        return any(each.started_ms <= at_ms and (each.ended_at is None or each.ended_ms > at_ms) for each in running)

    @cached_property
    def _owned(self) -> list[Rebalance]:
        """The rebalances with an incarnation, in order; they do not overlap."""
        return [each for each in self.rebalances if each.incarnation]

    def rebalance_of(self, act: AnyAct) -> Rebalance | None:
        """Return the rebalance that the act started, or in which it happened; None if there is none."""
        later = bisect_right(self._owned, act.seq, key=lambda each: each.first_seq)
        found = self._owned[later - 1] if later else None
        return found if found is not None and act.seq <= found.last_seq else None

    def members_at(self, at_ms: int) -> frozenset[MemberId]:
        """Return the members of the group right before this time."""
        return self._memberships.at(at_ms)

    @cached_property
    def _memberships(self) -> Memberships:
        return Memberships(self.acts, () if self.before is None else self.before.members)


def _next(rebalances: Sequence[Rebalance], before: Rebalance) -> Rebalance | None:
    begin = bisect_left(rebalances, before.started_ms, key=lambda each: each.started_ms)
    later = (rebalances[at] for at in range(begin, len(rebalances)))
    return next((each for each in later if each.first_seq > before.last_seq), None)


def _life(member: Member, went: Went | None) -> Life:
    if went is None:
        return Life(member=member, begin_ms=member.joined_ms)
    ended_ms = went.at_ms if went.how in (Departure.LEFT, Departure.PLANNED) else went.last_seen_ms
    return Life(member=member, begin_ms=member.joined_ms, end_ms=ended_ms)
