"""Folds a group's history into rebalances, with their triggers, durations and moves, and the happenings between them.

The fold reads the steps (`history/transitions.py`) once and keeps only the current group, so it works on histories of
any length, and on all groups at once (`replay/fleet`, `groups`). What a transition means depends on the state of the
group:

    RebalanceStarted      a rebalance begins; one that was running is *superseded*
    the other events      in the join phase: arrivals, causes folded in, members dropped
    JoinPhaseCompleted    the join phase ends, the sync phase begins
    GroupStabilized       the rebalance ends *stable*
    GroupEmptied          the rebalance ends *emptied*
    anything else         a happening: within the running rebalance, else between two (`happening_collector.py`)

A missing part of the history (a gap, a broken record) makes the rebalance that it falls into uncertain, and the moves
of the next one; both have a note about it.
"""

from collections.abc import Sequence

from muster.events.events import (
    AnyGroupEvent,
    GroupAdvanced,
    GroupCreated,
    GroupDeleted,
    GroupEmptied,
    GroupStabilized,
    JoinPhaseCompleted,
    RebalanceStarted,
)
from muster.events.state import Group, GroupState
from muster.replay.history.items import NOTHING_MISSING, UNREADABLE_NAMED, Broken, Coordinated, Gap, MissingParts, Part
from muster.replay.history.transitions import Step, Transition
from muster.replay.history.wording import jump_text, missing_text
from muster.replay.rebalances.happening_collector import HappeningCollector
from muster.replay.rebalances.happenings import CoordinatorChanges, unserved
from muster.replay.rebalances.moves import NOBODY, GroupAssignment, movement, ownership
from muster.replay.rebalances.rebalance import Outcome, Rebalance
from muster.replay.rebalances.running_rebalance import RunningRebalance


class Timeline:
    """The fold. Feed it all steps, then ask which rebalance is still running."""

    def __init__(self, group: Group | None = None, *, missing: MissingParts = NOTHING_MISSING) -> None:
        """`group`: the group before the first step, with no rebalance running, if the history does not begin there.

        `missing`: the parts that are missing since its last rebalance.
        """
        self._group: Group | None = group
        self._running: RunningRebalance | None = None
        self._baseline = None if group is None else ownership(group) if group.members else NOBODY
        """The last stable assignment; None if it is not known."""
        self._happenings = HappeningCollector()
        self._notes = list(map(missing_text, missing.parts))
        if not missing.is_assigned_since:
            self._baseline = None
        self._unreadable: list[Broken] = []  # consecutive ones, which the last notes describe
        self._coordinators = CoordinatorChanges()
        self._last_seq = 0 if group is None else group.seq

    @property
    def is_running(self) -> bool:
        """True if a rebalance is running."""
        return self._running is not None

    def running(self) -> Rebalance | None:
        """Return the running rebalance, as far as it is known; None if none is running."""
        return self._finish(Outcome.RUNNING, None) if self._running is not None else None

    def feed(self, step: Step) -> Rebalance | None:
        """Process the next step; return the rebalance that ended with it."""
        if isinstance(step, Transition):
            return self._transition(step)
        if isinstance(step, Coordinated):
            self._note_coordinator(step)
        else:
            self._miss(step)
        return None

    # ---- transitions --------------------------------------------------------------------------------------------

    def _transition(self, step: Transition) -> Rebalance | None:
        event = step.event
        if self._unreadable:
            self._unreadable = []
        if isinstance(event, GroupAdvanced) and not step.begins_life and not step.jump_ms:  # most are
            self._group, self._last_seq = step.after, event.seq
            return self._go_on(event, step.parts, step.before, step.after)
        finished = self._end_earlier_life() if step.begins_life else None
        if isinstance(event, RebalanceStarted):
            finished = self._interrupt(event) or finished
            self._begin(event, step.parts, step.before)
        if step.jump_ms:
            self._note(jump_text(step.jump_ms))
        self._group, self._last_seq = step.after, event.seq
        if isinstance(event, RebalanceStarted):
            return finished
        return self._go_on(event, step.parts, step.before, step.after) or finished

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
        if isinstance(event, GroupAdvanced):  # most are
            return None
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
        """End the running rebalance as another begins: it was superseded in its sync phase, or its end was missed."""
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
        """Process an event while no rebalance is running: the group is created, emptied or deleted, or something
        happens that starts no rebalance.
        """
        if isinstance(event, GroupCreated | GroupDeleted | GroupEmptied):
            self._baseline = NOBODY
        elif isinstance(event, GroupStabilized):
            self._baseline = ownership(after)  # the start of this rebalance is not in the log
        self._baseline = self._happenings.note(parts, before, after, self._baseline)
        self._happenings.add(*unserved(event))

    def _finish(self, outcome: Outcome, end_ms: int | None, reached: GroupAssignment | None = None) -> Rebalance | None:
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
            partitions_before=None if self._baseline is None else len(self._baseline.owners),
        )
        if outcome in (Outcome.STABLE, Outcome.EMPTIED):
            self._baseline = reached
        if outcome is not Outcome.RUNNING:
            self._running = None
        return told

    def _end_earlier_life(self) -> Rebalance | None:
        """Forget the earlier group: a new group with the same id has nothing to do with it."""
        if self._group is None:
            return None
        finished = self._finish(Outcome.UNKNOWN, None)
        self._group, self._baseline, self._happenings = None, NOBODY, HappeningCollector()
        return finished

    # ---- missing parts and the coordinator's events -----------------------------------------------------------------

    def _miss(self, missing: Gap | Broken) -> None:
        self._baseline = None
        if isinstance(missing, Gap):
            self._unreadable = []
        elif len(self._unreadable) < UNREADABLE_NAMED:
            self._unreadable.append(missing)
        else:
            missing = self._unreadable[-1] = self._unreadable[-1].joined(missing)
            self._noted.pop()
        self._note(missing_text(missing))

    @property
    def _noted(self) -> list[str]:
        return self._running.notes if self._running is not None else self._notes

    def _note(self, text: str) -> None:
        self._noted.append(text)

    def _note_coordinator(self, item: Coordinated) -> None:
        members = len(self._group.members) if self._group is not None else 0
        happening = self._coordinators.note(item, members=members, in_flight=self._running is not None)
        if happening is not None:
            happenings = self._running.happenings_within if self._running is not None else self._happenings
            happenings.add(happening)
