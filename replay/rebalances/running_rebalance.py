"""A rebalance while its events are folded, and the finished value.

`timeline.py` decides which event belongs to which rebalance, and creates one object for each.
"""

from collections import deque
from collections.abc import Container, Iterable, Sequence
from itertools import groupby
from typing import Final

import msgspec

from muster.events.causes import TRIGGERS, Cause
from muster.events.events import (
    GroupEmptied,
    JoinPhaseCompleted,
    MemberAssigned,
    MemberJoined,
    MemberRejoined,
    MemberRemoved,
    MemberRoleChanged,
    RebalanceStarted,
    RegistrationEnded,
    StaticMemberReplaced,
    Why,
)
from muster.events.ids import MemberId
from muster.events.state import Group, GroupImage, GroupState
from muster.replay.history.items import Part
from muster.replay.rebalances.happening_collector import MOVED_NOTHING, HappeningCollector, starts_nothing
from muster.replay.rebalances.happenings import gathered
from muster.replay.rebalances.planned import planned, planned_text
from muster.replay.rebalances.rebalance import (
    Actor,
    Arrival,
    JoinPhase,
    MemberRef,
    Movement,
    Occurrence,
    Outcome,
    Rebalance,
    Requester,
    SyncPhase,
    actor,
    ref,
)
from muster.replay.rebalances.wording import cause_text
from muster.replay.text.times import instant

FOLDED = TRIGGERS | {Cause.STATIC_REPLACEMENT_DURING_JOIN}
"""The causes that would have started a rebalance if none had been running, including static replacements."""

OCCURRENCES_KEPT: Final = 1_000
"""How many of the first, and of the latest, causes folded into a rebalance are kept; the rest are only counted."""

_JOINS = (MemberJoined, MemberRejoined, StaticMemberReplaced)
_ACTS = (*_JOINS, MemberRemoved, MemberRoleChanged)


def occurrences(parts: Sequence[Part], wanted: Container[Cause]) -> list[Occurrence]:
    """Return the wanted causes among a transition's member events; consecutive ones with the same cause are merged."""
    if not any(part.why.cause in wanted for part in parts):  # in most transitions
        return []
    told = (part for part in parts if isinstance(part, _ACTS) and not starts_nothing(part))
    by_cause = groupby(told, key=lambda event: event.why.cause)
    return [
        _occurrence(same[0].why, same[0].seq, list(map(actor, same))) for cause, (*same,) in by_cause if cause in wanted
    ]


def trigger_of(started: RebalanceStarted, parts: Sequence[Part], group: Group) -> Occurrence:
    """Return the trigger: from the transition's member events with that cause, if any, else from `why` alone."""
    why = started.why
    acting = [part for part in parts if isinstance(part, _ACTS) and part.why.cause is why.cause]
    if why.cause is Cause.RETIREMENT_COMPLETE:
        acting = [part for part in parts if isinstance(part, MemberRemoved) and part.member.retiring]
    if acting:
        return _occurrence(why, acting[0].seq, [actor(event) for event in acting])
    return _occurrence(why, started.seq, [] if why.member_id is None else [_named(why.member_id, why, group)])


def _named(member_id: MemberId, why: Why, group: Group) -> Actor:
    """Return a member that acted but did not change; one that the group does not have had not joined yet."""
    member = group.members.get(member_id)
    return Actor(
        member_id=member_id,
        group_instance_id=member.group_instance_id if member else why.group_instance_id,
        client_id=member.client_id if member else why.client_id or "",
        client_host=member.client_host if member else why.client_host or "",
        principal=member.principal if member else why.principal,
    )


def _occurrence(why: Why, seq: int, actors: Sequence[Actor]) -> Occurrence:
    request = None
    if why.api_key is not None:
        request = Requester(
            client_id=why.client_id,
            client_host=why.client_host,
            principal=why.principal,
            api_version=why.api_version,
        )
    return Occurrence(
        cause=why.cause,
        at=instant(why.decided_ms),
        seq=seq,
        text=cause_text(why, actors),
        who=tuple(actors),
        client_reason=why.client_reason,
        request=request,
    )


class RunningRebalance:
    """A rebalance while its events are folded."""

    def __init__(
        self,
        started: RebalanceStarted,
        *,
        before: Group,
        parts: Sequence[Part],
        happenings_before: HappeningCollector,
        notes: Sequence[str],
    ) -> None:
        self.started = started
        self.trigger = trigger_of(started, parts, before)
        self.from_generation = started.group.generation_id
        self.members_before = members(before)
        self.first_seq = parts[0].seq if parts else started.seq
        self.happenings_before = happenings_before
        self.notes = list(notes)
        self.folded: list[Occurrence] = []
        self.dropped: list[Occurrence] = []
        self.folded_more = 0
        self._latest: deque[Occurrence] = deque(maxlen=OCCURRENCES_KEPT)
        self.arrivals: dict[MemberId, Arrival] = {}
        self.gathered: list[MemberJoined] = []
        self.happenings_within = HappeningCollector()
        self.completed: JoinPhaseCompleted | None = None
        self.emptied: GroupEmptied | None = None
        self.absent: tuple[MemberRef, ...] = ()
        self._before = before
        self._parts = parts
        self._is_fresh = True
        self._note_arrivals(parts)

    @property
    def start_ms(self) -> int:
        return self.started.why.decided_ms

    def absorb(self, parts: Sequence[Part], before: Group) -> None:
        """Fold one transition within the rebalance."""
        if self._is_fresh:
            self._gather(parts)
            self._is_fresh = False
        if any(map(_tells_of_itself, parts)):  # in few transitions
            self.happenings_within.note_within(parts, before)
            own = [part for part in parts if part not in self.gathered] if self.gathered else parts
            for seen in occurrences(own, _FOLDED_OR_DROPPED):
                self._note(seen)
        self._note_arrivals(parts)

    def _note(self, seen: Occurrence) -> None:
        """Keep the first and the latest causes: a phase that does not end would collect them without limit."""
        if seen.cause not in FOLDED:
            self.dropped.append(seen)
        elif len(self.folded) < OCCURRENCES_KEPT:
            self.folded.append(seen)
        else:
            self._latest.append(seen)
            self.folded_more += 1

    def _gather(self, parts: Sequence[Part]) -> None:
        """Find the delayed joins: they are admitted by the same decision that starts the rebalance."""
        registered = {
            part.registration.group_instance_id
            for part in (*self._parts, *parts)
            if isinstance(part, RegistrationEnded)
        }
        delayed = bool(self._before.config.expansion_delay_ms)
        joins = (part for part in parts if isinstance(part, MemberJoined) and part.why.decided_ms == self.start_ms)
        self.gathered = [join for join in joins if delayed or join.member.group_instance_id in registered]

    def _told_trigger(self) -> Occurrence:
        """Return the trigger with the plan behind it and the members that joined and left, to which later transitions
        may add.
        """
        told = planned(
            self.started,
            self._parts,
            before=self._before.config,
            gone=self.happenings_before.gone,
            came=[ref(event.member) for event in self.gathered],
        )
        if told is None:
            return self.trigger
        text = cause_text(self.started.why, self.trigger.who, planned_text(self.trigger.cause, told))
        return msgspec.structs.replace(self.trigger, planned=told, text=text)

    def _note_arrivals(self, parts: Iterable[Part]) -> None:
        for event in parts:
            if isinstance(event, MemberAssigned):  # most are
                continue
            if isinstance(event, StaticMemberReplaced):
                self.arrivals.pop(event.replaced_member_id, None)
            if isinstance(event, _JOINS):
                after_ms = max(0, event.why.arrived_ms - self.start_ms)
                self.arrivals[event.member.member_id] = Arrival(member=ref(event.member), after_ms=after_ms)
            elif isinstance(event, MemberRemoved):
                self.arrivals.pop(event.member.member_id, None)

    def complete_join(self, completed: JoinPhaseCompleted, group: Group) -> None:
        """Record the end of the join phase, which begins the next generation."""
        self.completed = completed
        self.absent = tuple(ref(group.members[id_]) for id_ in completed.absent if id_ in group.members)

    def is_followed_by(self, image: GroupImage) -> bool:
        """Return whether a later state of the group belongs to this rebalance; if not, its end was missed."""
        return image.generation_id - self.from_generation <= 1

    def finish(
        self,
        outcome: Outcome,
        *,
        group: Group,
        last_seq: int,
        end_ms: int | None,
        movement: Movement | None,
        partitions_before: int | None,
    ) -> Rebalance:
        """Return the finished value. `group` is the group at the end; `end_ms` is None unless the end is known."""
        image = self.completed.group if self.completed is not None else group.image
        reached = self.completed is not None or outcome in (Outcome.STABLE, Outcome.EMPTIED)
        return Rebalance(
            group_id=group.group_id,
            incarnation=self.started.incarnation,
            from_generation=self.from_generation,
            to_generation=image.generation_id if reached else None,
            initial=_began_empty(self.started),
            trigger=self._told_trigger(),
            folded=(*self.folded, *self._latest),
            folded_left_out=self.folded_more - len(self._latest),
            outcome=outcome,
            started_at=instant(self.start_ms),
            ended_at=instant(end_ms) if end_ms is not None else None,
            duration_ms=None if self._clock_went_ahead else _elapsed_ms(self.start_ms, end_ms),
            join_phase=self._join_phase(outcome, group),
            sync_phase=self._sync_phase(group, end_ms),
            leader=_leader(group, image.leader_id) if reached else None,
            protocol_type=group.image.protocol_type,
            protocol_name=image.protocol_name if reached else None,
            members_before=self.members_before,
            members_after=members(group),
            movement=movement,
            partitions_before=partitions_before,
            avoided=(*self.happenings_before.happenings, *([gathered(self.gathered)] if self.gathered else [])),
            meanwhile=self.happenings_within.happenings,
            first_seq=self.first_seq,
            last_seq=last_seq,
            notes=(*self.notes, *self._clock_notes(end_ms)),
            held=members(group, held=True),
        )

    def _join_phase(self, outcome: Outcome, group: Group) -> JoinPhase:
        end = self.completed or self.emptied
        end_ms = end.why.decided_ms if end is not None else None
        running = end is None and outcome is Outcome.RUNNING
        arrivals = sorted(self.arrivals.values(), key=lambda arrival: arrival.after_ms)
        return JoinPhase(
            started_at=instant(self.start_ms),
            ended_at=instant(end_ms) if end_ms is not None else None,
            duration_ms=None if self._clock_went_ahead else _elapsed_ms(self.start_ms, end_ms),
            timeout_ms=self.started.timeout_ms,
            ended_by=end.why.cause if end is not None else None,
            timed_out=end is not None and end.why.cause is Cause.JOIN_PHASE_TIMED_OUT,
            arrivals=tuple(arrivals),
            last_to_join=arrivals[-1] if arrivals else None,
            dropped=tuple(self.dropped),
            absent=self.absent,
            awaited=members(group, without=self.arrivals) if running else (),
        )

    @property
    def _clock_went_ahead(self) -> bool:
        """True if by the wall clock the join phase lasted longer than its owner allows."""
        end = self.completed or self.emptied
        if end is None or end.why.uptime_ms is not None or end.owner_epoch != self.started.owner_epoch:
            return False
        longest_ms = self.started.timeout_ms + CLOCK_MARGIN_MS
        return not _began_empty(self.started) and end.why.decided_ms - self.start_ms > longest_ms

    def _clock_notes(self, end_ms: int | None) -> list[str]:
        if end_ms is not None and end_ms < self.start_ms:
            return [CLOCK_WENT_BACK]
        return [CLOCK_WENT_AHEAD] if self._clock_went_ahead else []

    def _sync_phase(self, group: Group, end_ms: int | None) -> SyncPhase | None:
        if self.completed is None:
            return None
        start_ms = self.completed.why.decided_ms
        return SyncPhase(
            started_at=instant(start_ms),
            ended_at=instant(end_ms) if end_ms is not None else None,
            duration_ms=_elapsed_ms(start_ms, end_ms),
            leader=_leader(group, self.completed.group.leader_id),
        )


CLOCK_WENT_BACK: Final = "the coordinator's wall clock was set back while it ran: how long it took is not recorded"
CLOCK_WENT_AHEAD: Final = (
    "its join phase took longer than it may by the coordinator's wall clock, which was set ahead, or the coordinator"
    " stalled: how long it took is not recorded"
)
"""Only for logs that have no uptime, just the wall clock (before format level 4)."""

CLOCK_MARGIN_MS: Final = 60_000
"""A slow log or machine may prolong a join phase beyond its timeout, but by less than this."""


def _elapsed_ms(start_ms: int, end_ms: int | None) -> int | None:
    """Return the time between two wall clock times; None if it is not known."""
    return None if end_ms is None or end_ms < start_ms else end_ms - start_ms


_DROPS = frozenset({Cause.NOT_REJOINED, Cause.FIRST_JOIN_TIMED_OUT, Cause.GROUP_FULL})
_FOLDED_OR_DROPPED = FOLDED | _DROPS


_TELLING_REJOINS = _FOLDED_OR_DROPPED | MOVED_NOTHING


def _tells_of_itself(part: Part) -> bool:
    """Return whether this part of a rebalance's transition may be more than a plain join or assignment."""
    kind = type(part)
    return kind is not MemberAssigned and (kind is not MemberRejoined or part.why.cause in _TELLING_REJOINS)


def members(group: Group, *, without: Iterable[MemberId] = (), held: bool = False) -> tuple[MemberRef, ...]:
    """Return the group's members, sorted by identity; with `held`, only the inactive ones, which have no partitions."""
    left_out = set(without)
    chosen = (member for member in group.members.values() if not held or member.is_inactive)
    refs = (ref(member) for member in chosen if member.member_id not in left_out)
    return tuple(sorted(refs, key=lambda member: member.identity))


def _leader(group: Group, leader_id: MemberId | None) -> MemberRef | None:
    member = group.members.get(leader_id) if leader_id is not None else None
    return ref(member) if member is not None else None


def _began_empty(started: RebalanceStarted) -> bool:
    return started.group.previous_state is GroupState.EMPTY
