"""History -> rebalances: what started each, what was folded in, how long it took, what moved, what started none.

The fold goes over the items once and keeps no more than the group as it stands, so that it may be used on histories of
any length, and on those of all groups at once (`replay/fleet`, `groups`).

A transition is the events before one on the group's own key, and that event. Its meaning depends on where the group is:

    RebalanceStarted      a rebalance begins; one that was running is *superseded*
    the other events      in the join phase: arrivals, causes folded in, members dropped
    JoinPhaseCompleted    the join phase ends, the sync phase begins
    GroupStabilized       the rebalance ends *stable*
    GroupEmptied          the rebalance ends *emptied*
    anything else         a happening: within the rebalance that is running, else between two (`happening_collector.py`)

What is missing of a history (a gap, a broken record) makes the rebalance that it falls into, and what moved in the next
one, uncertain; both say so.
"""

from collections.abc import Iterable, Iterator, Sequence

from muster.events.avro.evolve import evolve
from muster.events.events import (
    AnyGroupEvent,
    GroupCreated,
    GroupDeleted,
    GroupEmptied,
    GroupEvent,
    GroupStabilized,
    JoinPhaseCompleted,
    RebalanceStarted,
)
from muster.events.ids import GroupId
from muster.events.state import Group, GroupState, new_group
from muster.replay.history import Broken, Coordinated, Gap, Item, Part
from muster.replay.why.happening_collector import HappeningCollector
from muster.replay.why.happenings import Coordinators, unserved
from muster.replay.why.moves import NOBODY, Ownership, movement, ownership
from muster.replay.why.rebalance import Happening, Outcome, Rebalance
from muster.replay.why.running_rebalance import RunningRebalance
from muster.replay.why.wording import missing_text


def rebalances(group_id: GroupId, items: Iterable[Item]) -> list[Rebalance]:
    """Every rebalance of the history, in order; the last one may be running."""
    timeline = Timeline(group_id)
    told = list(timeline.tell(items))
    running = timeline.running()
    return [*told, running] if running is not None else told


class Timeline:
    """The fold. Feed it all items, then ask what is still running and what happened since the last rebalance."""

    def __init__(self, group_id: GroupId) -> None:
        self._group: Group | None = None
        self._group_id = group_id
        self._parts: list[Part] = []  # of the transition that is being read
        self._running: RunningRebalance | None = None
        self._baseline: Ownership | None = None  # the last stable assignment; None: not known
        self._happenings = HappeningCollector()
        self._notes: list[str] = []
        self._coordinators = Coordinators()
        self._last_seq = 0

    @property
    def group(self) -> Group | None:
        """The group as of the last transition; None before the first."""
        return self._group

    @property
    def since_the_last(self) -> tuple[Happening, ...]:
        """The happenings since the last rebalance ended."""
        return () if self._running is not None else self._happenings.happenings

    @property
    def notes(self) -> tuple[str, ...]:
        """The gaps in the history since the last rebalance ended."""
        return () if self._running is not None else tuple(self._notes)

    def tell(self, items: Iterable[Item]) -> Iterator[Rebalance]:
        """The rebalances that end within these items."""
        for item in items:
            finished = self.feed(item)
            if finished is not None:
                yield finished

    def running(self) -> Rebalance | None:
        """The rebalance that has not ended, as far as it went."""
        return self._finish(Outcome.RUNNING, None) if self._running is not None else None

    def feed(self, item: Item) -> Rebalance | None:
        """Take in the next item; returns the rebalance that ended with it."""
        if isinstance(item, Coordinated):
            self._note_coordinator(item)
            return None
        if isinstance(item, Gap | Broken):
            self._miss(item)
            return None
        event = item.event
        if isinstance(event, GroupEvent):
            return self._transition(event)
        self._parts.append(event)
        return None

    # ---- transitions --------------------------------------------------------------------------------------------

    def _transition(self, event: AnyGroupEvent) -> Rebalance | None:
        parts, self._parts = self._parts, []
        if self._group is not None and event.incarnation < self._group.incarnation:
            return None  # a leftover of an earlier life, which `evolve` passes over, too
        finished = self._end_earlier_life(event)
        before = self._group or new_group(self._group_id, incarnation=event.incarnation, wall_ms=0)
        after = evolve(before, [*parts, event])
        if isinstance(event, RebalanceStarted):
            finished = self._interrupt(event) or finished
            self._begin(event, parts, before)
        self._group, self._last_seq = after, event.seq
        if isinstance(event, RebalanceStarted):
            return finished
        return self._go_on(event, parts, before, after) or finished

    def _go_on(self, event: AnyGroupEvent, parts: Sequence[Part], before: Group, after: Group) -> Rebalance | None:
        running = self._running
        if running is None:
            self._between(event, parts, before, after)
            return None
        if not running.is_followed_by(event.group):
            missed = self._finish(Outcome.UNKNOWN, None)
            self._between(event, parts, before, after)
            return missed
        running.absorb(parts, before)
        if isinstance(event, JoinPhaseCompleted):
            running.complete_join(event, after)
        elif isinstance(event, GroupStabilized):
            return self._finish(Outcome.STABLE, event.why.decided_ms, ownership(after))
        elif isinstance(event, GroupEmptied):
            running.emptied = event
            return self._finish(Outcome.EMPTIED, event.why.decided_ms, NOBODY)
        else:
            running.happenings_within.add(*unserved(event))
        return None

    def _interrupt(self, event: RebalanceStarted) -> Rebalance | None:
        """Another rebalance begins while one is told: it was superseded in its sync phase, or its end was missed."""
        running = self._running
        if running is None:
            return None
        superseded = event.group.previous_state is GroupState.COMPLETING_REBALANCE
        if superseded and running.is_followed_by(event.group):
            return self._finish(Outcome.SUPERSEDED, event.why.decided_ms)
        return self._finish(Outcome.UNKNOWN, None)

    def _begin(self, event: RebalanceStarted, parts: Sequence[Part], before: Group) -> None:
        self._baseline = self._happenings.end(event, parts, before, self._baseline)
        self._running = RunningRebalance(
            event, before=before, parts=parts, happenings_before=self._happenings, notes=self._notes
        )
        self._happenings, self._notes = HappeningCollector(), []

    def _between(self, event: AnyGroupEvent, parts: Sequence[Part], before: Group, after: Group) -> None:
        """No rebalance is running: a fresh or emptied group, and all that starts none."""
        if isinstance(event, GroupCreated | GroupDeleted | GroupEmptied):
            self._baseline = NOBODY
        elif isinstance(event, GroupStabilized):
            self._baseline = ownership(after)  # its beginning is not in the log
        self._baseline = self._happenings.note(parts, before, after, self._baseline)
        self._happenings.add(*unserved(event))

    def _finish(self, outcome: Outcome, end_ms: int | None, reached: Ownership | None = None) -> Rebalance | None:
        running, group = self._running, self._group
        if running is None or group is None:
            return None
        known = reached is not None and self._baseline is not None
        told = running.finish(
            outcome,
            group=group,
            last_seq=self._last_seq,
            end_ms=end_ms,
            movement=movement(self._baseline, reached) if known else None,  # type: ignore[arg-type]
        )
        if outcome in (Outcome.STABLE, Outcome.EMPTIED):
            self._baseline = reached
        if outcome is not Outcome.RUNNING:
            self._running = None
        return told

    def _end_earlier_life(self, event: AnyGroupEvent) -> Rebalance | None:
        """A group that was made anew has nothing to do with the one before it."""
        if self._group is None or event.incarnation <= self._group.incarnation:
            return None
        finished = self._finish(Outcome.UNKNOWN, None)
        self._group, self._baseline, self._happenings = None, NOBODY, HappeningCollector()
        return finished

    # ---- what is not an event of the group --------------------------------------------------------------------------

    def _miss(self, missing: Gap | Broken) -> None:
        notes = self._running.notes if self._running is not None else self._notes
        notes.append(missing_text(missing))
        self._baseline = None

    def _note_coordinator(self, item: Coordinated) -> None:
        members = len(self._group.members) if self._group is not None else 0
        happening = self._coordinators.note(item, members=members, in_flight=self._running is not None)
        if happening is not None:
            happenings = self._running.happenings_within if self._running is not None else self._happenings
            happenings.add(happening)
