"""Runs a recorded history through the rules again: the same inputs must give the same events.

This proves that a log has all inputs of the rules, so that they can be run with other settings, and it is the strictest
test of log and rules alike. Each transition is decided on the recorded group, so that one difference does not cause
more; the soft state is carried over between decisions, and rebuilt where a coordinator took over. A new coordinator has
the members in the order of their last records, or, if it was a standby, in the order in which it followed them
(events/loading.py). So until its events show the order, either is possible.

Everything is compared except what depends on requests that leave no trace: when members were last seen, how long
requests were parked, how many refusals were suppressed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from muster.coordinator.group.commands import AnyCommand
from muster.coordinator.group.decide import decide
from muster.coordinator.group.loaded_groups import restore_soft_state
from muster.coordinator.group.settings import INT32_MAX, GroupSettings
from muster.coordinator.group.soft_state import NEVER, RateLimitWindow, Session, SoftState
from muster.coordinator.group.turn import Now
from muster.events.causes import Cause
from muster.events.events import (
    AnyEvent,
    CoordinatorElected,
    CoordinatorReady,
    GroupCreated,
    GroupDeleted,
    GroupEmptied,
    GroupEvent,
    JoinPhaseCompleted,
    JoinRefused,
    MemberAssigned,
    MemberEvent,
    MemberFenced,
    MemberRejoined,
    MemberRemoved,
    RebalanceStarted,
    StaticMemberReplaced,
)
from muster.events.evolve import evolve, is_gone
from muster.events.state import Group, GroupState, new_group
from muster.events.tables import Table
from muster.replay.history.items import Coordinated, Happened, Item
from muster.replay.rerun.inputs import derive
from muster.replay.rerun.situation import PHANTOM, Situation

PERMISSIVE = GroupSettings(min_session_timeout_ms=0, max_session_timeout_ms=INT32_MAX)
"""The settings to use if no CoordinatorElected has any."""

_NUMBER = re.compile(r"-?[0-9]{1,19}")

_SETTINGS = {
    "group.initial.rebalance.delay.ms": "initial_rebalance_delay_ms",
    "group.min.session.timeout.ms": "min_session_timeout_ms",
    "group.max.session.timeout.ms": "max_session_timeout_ms",
    "group.max.size": "max_size",
    "offset.metadata.max.bytes": "offset_metadata_max_bytes",
}


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A derived command, its time, and the range of the recorded events that it led to."""

    command: AnyCommand
    now: Now
    first_seq: int
    last_seq: int


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The rules made other events than those in the log. `command` is None if none could be derived."""

    command: AnyCommand | None
    recorded: tuple[AnyEvent, ...]
    decided: tuple[AnyEvent, ...]


class Rerunner:
    """One rerun, fed item by item. The caller may take entries out of `inputs` and `differences` between items.

    All events of a decision have the same timestamp, so only the events with the current timestamp are kept. `group`:
    its state before the first item, at rest, if that is not the first of its history. `skipped`: the number of events
    after something missing, which cannot be checked.
    """

    def __init__(self, group: Group | None = None) -> None:
        self.inputs: list[Input] = []
        self.differences: list[Difference] = []
        self.skipped = 0
        self._now: list[AnyEvent] = []  # the events of the last decision time
        self._group = group
        self._settings = PERMISSIVE
        self._soft = SoftState() if group is None else restore_soft_state(group, group.image.state_since_ms, PERMISSIVE)
        self._is_incomplete = False
        self._knows_order = True  # the member order is the coordinator's

    def feed(self, item: Item) -> None:
        """Process the next item."""
        if isinstance(item, Happened):
            if self._now and self._now[0].why.decided_ms != item.event.why.decided_ms:
                self.end()
            self._now.append(item.event)
            return
        self.end(is_cut=not isinstance(item, Coordinated))
        if isinstance(item, Coordinated):
            self._coordinated(item)

    def end(self, *, is_cut: bool = False) -> None:
        """Decide the events fed so far. `is_cut`: something is missing after them.

        From there on nothing is certain until the group is created again; and the last transition may be incomplete.
        """
        events, self._now = self._now, []
        position = 0
        while position < len(events):
            position += self._step(events[position:], is_cut=is_cut)
        self._is_incomplete = self._is_incomplete or is_cut

    def _coordinated(self, item: Coordinated) -> None:
        """Restore the soft state after a takeover: a new coordinator knows only what was written."""
        event = item.event
        if isinstance(event, CoordinatorElected):
            self._settings = group_settings(event.settings)
        elif isinstance(event, CoordinatorReady) and self._group is not None:
            self._soft = restore_soft_state(self._group, event.ready_ms, self._settings)
            self._knows_order = False

    def _step(self, events: Sequence[AnyEvent], *, is_cut: bool) -> int:
        """Decide the command that led to the first of the events; return how many of the events it explains."""
        if isinstance(events[0], GroupCreated):
            self._group, self._soft, self._is_incomplete = None, SoftState(), False
        if self._is_incomplete:
            self.skipped += 1
            return 1
        for situation in self._possible_situations(events):
            command = derive(situation)
            taken = self._decide(command, situation) if command is not None else 0
            if taken:
                return taken
        decided_ms = events[0].why.decided_ms
        count = next((i for i, event in enumerate(events) if event.why.decided_ms != decided_ms), len(events))
        if is_cut and count == len(events):
            self.skipped += count
        else:
            self._differ(events, count)
        return count

    def _possible_situations(self, events: Sequence[AnyEvent]) -> Iterator[Situation]:
        for group in self._possible_groups(events):
            for joins_were_held in (True, False):
                for soft in self._possible_softs():
                    yield Situation(events=events, group=group, soft=soft, joins_were_held=joins_were_held)

    def _possible_groups(self, events: Sequence[AnyEvent]) -> Iterator[Group | None]:
        """Yield the group as carried over; after a takeover also with the members in the order of the events."""
        yield self._group
        if self._group is not None and not self._knows_order:
            members = self._group.members
            told = (event.member.member_id for event in events if isinstance(event, MemberEvent))
            order = dict.fromkeys((*(each for each in told if each in members), *members))
            if [*order] != [*members]:
                yield msgspec.structs.replace(self._group, members=Table((each, members[each]) for each in order))

    def _possible_softs(self) -> Iterator[SoftState]:
        """Yield possible soft states: as carried over, or changed by something that wrote nothing.

        One such change is an id that was handed out and prolonged a join phase (P7). Another is an initial delay that
        ended while a group had only static members left from before a takeover, and none had returned (RB7).
        """
        yield self._fresh()
        if self._group is not None and self._group.state is not GroupState.EMPTY:
            soft = self._fresh()
            soft.pending_members[PHANTOM] = Session(timeout_ms=INT32_MAX, deadline_ms=NEVER, last_seen_ms=0)
            yield soft
        if self._soft.initial_delay is not None:
            soft = self._fresh()
            soft.initial_delay = None
            yield soft

    def _fresh(self) -> SoftState:
        """Return a copy for one attempt: `derive` and the rules replace sessions in it, but never modify the shared
        ones.
        """
        soft = self._soft.copy()
        soft.refused_joins = soft.fences = RateLimitWindow()
        soft.pending_members.clear()
        soft.held_joins.clear()
        soft.expansion_deadline_ms = None  # until it is known which joins were delayed
        return soft

    def _decide(self, command: AnyCommand, situation: Situation) -> int:
        """Return how many recorded events the decision explains: all events that it makes, or none."""
        now = _now(situation.event)
        settings = self._settings_for(situation.events)
        decision = decide(command, situation.group, situation.soft, now, settings)
        made, recorded = decision.events, situation.events[: len(decision.events)]
        if not made or comparable(made) != comparable(recorded):
            return 0
        self._group, self._soft = decision.group, decision.soft
        if isinstance(made[0], MemberAssigned):
            self._knows_order = True  # an assignment goes to all members
        self.inputs.append(Input(command=command, now=now, first_seq=recorded[0].seq, last_seq=recorded[-1].seq))
        return len(made)

    def _settings_for(self, events: Sequence[AnyEvent]) -> GroupSettings:
        """Return the settings for these events. The delay in force is in the event itself, too; the limit that metadata
        exceeded is recorded nowhere.
        """
        for event in events:
            if isinstance(event, GroupEvent):
                if event.why.cause is Cause.METADATA_TOO_LARGE:
                    return msgspec.structs.replace(self._settings, member_metadata_max_bytes=-1)
                if isinstance(event, RebalanceStarted) and event.group.previous_state is GroupState.EMPTY:
                    return msgspec.structs.replace(self._settings, initial_rebalance_delay_ms=event.timeout_ms)
                if not isinstance(event, GroupCreated):
                    break
        return self._settings

    def _differ(self, events: Sequence[AnyEvent], count: int) -> None:
        """Record the difference, and continue with the recorded group after everything that was decided at that
        time.
        """
        recorded = tuple(events[:count])
        situation = Situation(events=events, group=self._group, soft=self._fresh())
        command = derive(situation)
        made: tuple[AnyEvent, ...] = ()
        if command is not None:
            settings = self._settings_for(events)
            made = decide(command, self._group, situation.soft, _now(events[0]), settings).events
        self.differences.append(Difference(command=command, recorded=recorded, decided=made))
        before = self._group or _before(recorded[0])
        after = evolve(before, recorded)
        self._group = None if is_gone(after) else after
        self._soft = restore_soft_state(after, recorded[-1].why.decided_ms, self._settings)


def group_settings(recorded: Mapping[str, str]) -> GroupSettings:
    """Return the settings of a CoordinatorElected, which uses Kafka's names; settings that the rules ignore are
    dropped.
    """
    told = {field: recorded.get(name, "") for name, field in _SETTINGS.items()}
    given = {field: int(value) for field, value in told.items() if _NUMBER.fullmatch(value)}
    return msgspec.structs.replace(PERMISSIVE, **given)


def comparable(events: Sequence[AnyEvent]) -> list[AnyEvent]:
    """Return the events without values that depend on requests that leave no trace, or that logs before format level 4
    lack.
    """
    return [_comparable(event) for event in events]


def _comparable(event: AnyEvent) -> AnyEvent:
    why = msgspec.structs.replace(event.why, parked_ms=0, uptime_ms=None, connection_id=None)
    event = msgspec.structs.replace(event, why=why)
    if isinstance(event, GroupEvent):
        event = msgspec.structs.replace(event, group=msgspec.structs.replace(event.group, emptied_by=None))
    if isinstance(event, StaticMemberReplaced):
        event = msgspec.structs.replace(event, replaced_last_seen_ms=None, replaced_connection=None)
    if isinstance(event, MemberRejoined | MemberRemoved):
        event = msgspec.structs.replace(event, last_connection=None)
    match event:
        case MemberEvent():
            return msgspec.structs.replace(event, last_seen_ms=0, longest_silence_ms=0, heard=None)
        case JoinRefused():
            return msgspec.structs.replace(
                event, suppressed=0, protocol_type=None, offered_protocols=(), session_timeout_ms=None
            )
        case MemberFenced():
            return msgspec.structs.replace(event, suppressed=0)
        case JoinPhaseCompleted():
            return msgspec.structs.replace(
                event, absent_seen_ms=(), handed_out_ids=(), handed_out_ids_more=0, returned=(), returned_more=0
            )
        case GroupEmptied():
            return msgspec.structs.replace(event, handed_out_ids=(), handed_out_ids_more=0)
        case GroupDeleted():
            return msgspec.structs.replace(event, empty_since_ms=None, retention_ms=None)
    return event


def _now(event: AnyEvent) -> Now:
    wall_ms = event.why.decided_ms
    return Now(monotonic_ms=wall_ms, wall_ms=wall_ms, owner_epoch=event.owner_epoch, incarnation=event.incarnation)


def _before(event: AnyEvent) -> Group:
    return new_group(event.group_id, incarnation=event.incarnation, wall_ms=0)
