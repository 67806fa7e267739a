"""The way of a group's commands through the rules, a slice at a time.

    queue -> decide, one after another, on the state as decided so far
          -> nothing to write: effective at once
          -> something to write: a batch in the outbox; effective when it is durable
          -> the replies leave, one after another

A slice is some milliseconds: then other groups and connections have their turn, and the group goes on after them. While
a batch is stored the group's next commands queue, and share the next batch: many joins of one group cost one append. A
batch refused for good is decided again, command by command, so that only the culprit fails.

A member's session runs from the moment that its answer can leave (see `group/extensions.py`). A deadline that has
passed is decided behind all commands that were queued in the group before.

Nothing here awaits: between reading a group and changing it no other code runs.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.clock import Clock
from muster.coordinator.group.commands import (
    AnyCommand,
    CommittedAt,
    Deadline,
    ExpireOffsets,
    JoinGroup,
    RejectAssignment,
    Request,
    SyncGroup,
)
from muster.coordinator.group.decide import Decision, decide
from muster.coordinator.group.error_replies import error_replies
from muster.coordinator.group.extensions import extend_deadlines, extend_session
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.timers import due
from muster.coordinator.group.turn import Moment
from muster.coordinator.load.current_work import OtherWork, noted
from muster.coordinator.load.slices import SLICE_MS, Slices
from muster.coordinator.load.steps import Steps
from muster.coordinator.observability.metrics import OFFSETS_EXPIRED
from muster.coordinator.runtime.announce import RefusedJoins, announce
from muster.coordinator.runtime.outbox import Lost, Outbox, Unit
from muster.coordinator.runtime.slot import Batch, LookAtDeadlines, Slot
from muster.coordinator.runtime.waiting import WaitingRequests
from muster.events.avro.codec import records_of
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused

log = structlog.get_logger(__name__)

BATCH_COMMANDS_MAX = 1_000
BATCH_EVENTS_MAX = 10_000
"""A batch that has so many takes no further command: what comes next waits for it."""

ENCODED_AT_ONCE = 50
"""Events; each takes some 10 to 20 µs."""

RETRY_DEADLINE_MS = 1_000
"""A deadline whose decision failed is not tried again at once, and for ever."""


class Deciding:
    """See the module. `epoch` is that of the claim that decisions are made under.

    `lost` is told of a bug of ours that leaves a group as it is. `heard` is called when a member's deadline has moved,
    `changed` when a group has, before anybody is answered, and `idle` when nothing is left to do for a group.
    """

    def __init__(
        self,
        *,
        outbox: Outbox,
        epoch: int,
        settings: GroupSettings,
        clock: Clock,
        incarnation_max: int,
        committed: Callable[[GroupId], Mapping[tuple[str, int], CommittedAt]],
        waiting: WaitingRequests,
        slices: Slices,
        lost: Lost,
        heard: Callable[[GroupId, float], None],
        changed: Callable[[Slot], None],
        idle: Callable[[Slot], None],
    ) -> None:
        self.epoch = epoch
        self._outbox = outbox
        self._settings = settings
        self._clock = clock
        self._incarnation_max = incarnation_max
        self._committed = committed
        self._waiting = waiting
        self._slices = slices
        self._lost = lost
        self._heard = heard
        self._changed = changed
        self._idle = idle
        self._refused_joins = RefusedJoins(settings, clock.monotonic_ms)
        self._is_closed = False

    def close(self) -> None:
        """Decide nothing any more; what is being stored takes no effect here."""
        self._is_closed = True

    def enqueue(self, slot: Slot, command: AnyCommand | LookAtDeadlines) -> None:
        """Have a command decided after those that wait in the group."""
        slot.queue.append(command)
        if not slot.busy:
            self.work(slot)

    def work(self, slot: Slot) -> None:
        """Go on with a group, for a slice at most; the rest is done when others have had their turn."""
        slot.busy = True
        ends_ms = self._clock.monotonic_ms() + SLICE_MS
        try:
            while not self._is_closed and self._step(slot):
                if (slot.queue or slot.replies or slot.batch) and self._clock.monotonic_ms() >= ends_ms:
                    with noted(OtherWork(work=f"the queue of group {slot.group_id}")):
                        self._slices.later(self._steps(slot), lambda _: None, self._lost)
                    return
        except Exception as error:  # noqa: BLE001 -- a bug of ours: the group would stay busy for ever
            self._lost(error)

    def _steps(self, slot: Slot) -> Steps[None]:
        while not self._is_closed and self._step(slot):
            yield 1

    def moment(self) -> Moment:
        """Now, for a decision."""
        wall_ms = self._clock.wall_ms()
        return Moment(
            now_ms=self._clock.monotonic_ms(),
            wall_ms=wall_ms,
            owner_epoch=self.epoch,
            incarnation=max(wall_ms, self._incarnation_max + 1),
        )

    def know_incarnation(self, incarnation: int) -> None:
        """A group was made with it, by something else than a decision."""
        self._incarnation_max = max(self._incarnation_max, incarnation)

    # ---- a step --------------------------------------------------------------------------------------

    def _step(self, slot: Slot) -> bool:
        """Do the next thing there is to do for the group; whether there may be more."""
        batch = slot.batch
        if slot.replies:
            self._waiting.release(slot.replies.popleft())
        elif batch is None and slot.expiry_due:
            # Nothing of the group is under way, so these are all its offsets.
            slot.expiry_due = False
            self._decide(slot, ExpireOffsets(group_id=slot.group_id, offsets=self._committed(slot.group_id)))
        elif slot.queue and (batch is None or _has_room(slot, batch)):
            self._take_next(slot)
        elif batch is not None and batch.events:
            self._encode_some(slot, batch)
        elif batch is not None:
            self._store(slot, batch)
            return False
        else:
            slot.busy = False
            self._idle(slot)
            return False
        return True

    def _take_next(self, slot: Slot) -> None:
        command = slot.queue.popleft()
        if isinstance(command, LookAtDeadlines):
            slot.looks_at_deadlines = False
            soft = slot.soft if slot.batch is None else slot.batch.soft
            slot.queue.extendleft(reversed(due(slot.group_id, soft, command.at_ms)))
        else:
            self._decide(slot, command)

    def _decide(self, slot: Slot, command: AnyCommand) -> None:
        batch, is_alone = slot.batch, slot.one_by_one > 0 or isinstance(command, ExpireOffsets)
        slot.one_by_one = max(0, slot.one_by_one - 1)
        group, soft = (slot.group, slot.soft) if batch is None else (batch.group, batch.soft)
        moment = self.moment()
        try:
            decision = decide(command, group, soft, moment, self._settings)
        except Exception:
            # A bug of ours. Rules change nothing but the decision they were about to return, so nothing is half
            # done: the sender gets UNKNOWN_SERVER_ERROR and everybody else is served on, as in Kafka (G24).
            log.exception("a rule failed", group_id=command.group_id, command=repr(command))
            self._fail(slot, command)
            return
        if decision.metadata_refused_bytes and isinstance(command, JoinGroup):
            self._refused_joins.tell_metadata(command, decision.metadata_refused_bytes)
        if decision.events:
            self._incarnation_max = max(self._incarnation_max, decision.events[-1].incarnation)
        if decision.refreshed_session is not None and isinstance(command, Request):
            decision.refreshed_session.refresh(command.caller.arrived_ms, answered_ms=moment.now_ms)
            # A restarted member may have asked for a shorter session than the old process: it ends earlier (ST8).
            self._heard(slot.group_id, decision.refreshed_session.deadline_ms)
        if batch is None and not decision.events and not _changes_offsets(decision):
            self._take_effect(slot, (command,), (decision,), moment.now_ms)
            return
        if batch is None:
            batch = Batch(group=group, soft=soft, began_ms=moment.now_ms, is_alone=is_alone, events=deque())
            slot.batch = batch
            slot.version += 1
        # A group that is made anew waits until the offsets of the former one are gone: they are written after the
        # events, and whoever takes over in between has to see that the group is not there.
        batch.is_alone |= decision.group is None
        batch.group, batch.soft = decision.group, decision.soft
        batch.commands.append(command)
        batch.decisions.append(decision)
        batch.events.extend(decision.events)

    def _fail(self, slot: Slot, command: AnyCommand) -> None:
        """A command that comes to nothing because of us: its sender is told, and it harms nobody else."""
        if isinstance(command, Deadline):
            slot.no_deadline_before_ms = self._clock.monotonic_ms() + RETRY_DEADLINE_MS
        slot.replies.extend(error_replies(command, ErrorCode.unknown_server_error))

    # ---- what has to be durable first ----------------------------------------------------------------

    def _encode_some(self, slot: Slot, batch: Batch) -> None:
        try:
            some = [batch.events.popleft() for _ in range(min(ENCODED_AT_ONCE, len(batch.events)))]
            batch.records += records_of(some)
        except Exception:
            slot.batch = None
            if len(batch.commands) > 1:  # one by one, so that the culprit is named, and fails alone
                _decide_again(slot, batch)
            else:
                (command,) = batch.commands
                log.exception("events cannot be encoded", group_id=slot.group_id, command=repr(command))
                self._fail(slot, command)

    def _store(self, slot: Slot, batch: Batch) -> None:
        offsets = tuple(d.offsets for d in batch.decisions if d.offsets is not None and _changes_offsets(d))

        def settled(refused: AppendRefused | None) -> None:
            if self._is_closed:
                return
            slot.batch = None
            if refused is None:
                now_ms = self._clock.monotonic_ms()
                extend_deadlines(batch.soft, slot.soft, now_ms - batch.began_ms)
                self._take_effect(slot, batch.commands, batch.decisions, now_ms)
            else:
                self._refused(slot, batch, refused)
            with noted(OtherWork(work=f"what became durable of group {slot.group_id}")):
                self.work(slot)

        self._outbox.submit(Unit(transition=tuple(batch.records), offsets=offsets, settled=settled))

    def _take_effect(
        self, slot: Slot, commands: Sequence[AnyCommand], decisions: Sequence[Decision], now_ms: int
    ) -> None:
        last = decisions[-1]
        if last.soft is not slot.soft or last.group is not slot.group:
            slot.group, slot.soft = last.group, last.soft
            slot.version += 1
            self._changed(slot)
        for command, decision in zip(commands, decisions, strict=True):
            announce(decision.events)
            if isinstance(command, JoinGroup):
                self._refused_joins.look(command, decision.replies)
            if decision.offsets_expired:
                OFFSETS_EXPIRED.inc(decision.offsets_expired)
                log.info("offsets expired", group_id=slot.group_id, offsets=decision.offsets_expired)
            self._waiting.decided(command, decision.replies)
            for reply in decision.replies:
                asked = self._waiting.asked_by(reply)
                if asked is not None:
                    extend_session(slot.soft, *asked, now_ms)
            slot.replies.extend(decision.replies)

    def _refused(self, slot: Slot, batch: Batch, refused: AppendRefused) -> None:
        """Too large to be stored, ever: find the culprit; its sender is told, a leader's sync is taken back (SG13)."""
        if len(batch.commands) > 1:
            _decide_again(slot, batch)
            return
        (command,) = batch.commands
        log.error(
            "a transition is too large for the event log",
            group_id=slot.group_id,
            command=type(command).__name__,
            size_bytes=refused.size_bytes,
            limit_bytes=refused.limit_bytes,
        )
        if isinstance(command, SyncGroup):
            error = ErrorCode.unknown_server_error
            slot.queue.appendleft(RejectAssignment(group_id=slot.group_id, sync=command, error=error))
            slot.one_by_one += 1
        else:
            self._fail(slot, command)


def _has_room(slot: Slot, batch: Batch) -> bool:
    """Whether the next command may share the batch."""
    if batch.is_alone or slot.one_by_one or slot.expiry_due:
        return False
    decided, events = len(batch.commands), len(batch.records) + len(batch.events)
    return decided < BATCH_COMMANDS_MAX and events < BATCH_EVENTS_MAX


def _decide_again(slot: Slot, batch: Batch) -> None:
    slot.queue.extendleft(reversed(batch.commands))
    slot.one_by_one = len(batch.commands)


def _changes_offsets(decision: Decision) -> bool:
    change = decision.offsets
    return change is not None and bool(change.committed or change.deleted or change.all_deleted)
