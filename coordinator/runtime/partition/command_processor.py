"""Processing of a group's commands, in slices.

    queue -> decided in order, on the state as decided so far
          -> nothing to write: effective at once
          -> something to write: added to a batch for the outbox, effective when it is durable
          -> the replies are sent, in order

After a slice of a few milliseconds other groups and connections get their turn before the group continues. While a
batch is being stored, the group's next commands are queued and share the next batch: many joins of one group cost one
append. If a batch is too large for the log, its commands are decided again one by one, so that only the one that is too
large fails.

A member's session starts when its response can be sent (see `group/extensions.py`). An expired deadline is decided
after all commands that were queued in the group before it.

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
from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.timeouts import due
from muster.coordinator.group.turn import Now
from muster.coordinator.load.current_work import OtherWork, working_on
from muster.coordinator.load.slices import SLICE_MS, Slices
from muster.coordinator.observability.metrics import OFFSETS_EXPIRED
from muster.coordinator.runtime.partition.announce import announce
from muster.coordinator.runtime.partition.group_context import Batch, CheckDeadlines, GroupContext
from muster.coordinator.runtime.partition.kept_assignments import KeptAssignments
from muster.coordinator.runtime.partition.outbox import OnLost, Outbox, WriteUnit
from muster.coordinator.runtime.partition.rebalance_log import RebalanceLines, follow
from muster.coordinator.runtime.partition.refused_joins import RefusedJoins
from muster.coordinator.runtime.partition.retention_clock import RetentionClock
from muster.coordinator.runtime.partition.waiting import WaitingRequests
from muster.events.avro.codec import records_of
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused
from muster.events.steps import Steps

log = structlog.get_logger(__name__)

BATCH_COMMANDS_MAX = 1_000
BATCH_EVENTS_MAX = 10_000
"""Limits of a batch; further commands wait for the next one."""

ENCODED_AT_ONCE = 50
"""Events encoded in one step; each takes 10 to 20 µs."""

RETRY_DEADLINE_MS = 1_000
"""Pause after a failed decision about a deadline, so that it is not retried in a tight loop."""


class CommandProcessor:
    """Decides the commands of all groups of one partition. `epoch`: the owner epoch of new decisions.

    Callbacks: `lost` receives an internal error after which a group cannot continue; `schedule` receives a group and
    the time of its next deadline check; `changed` is called when a group has changed, before any response is sent;
    `idle` is called when the group's queue is empty.
    """

    def __init__(
        self,
        *,
        outbox: Outbox,
        epoch: int,
        format_level: int,
        settings: GroupSettings,
        clock: Clock,
        incarnation_max: int,
        retention_clock: RetentionClock,
        committed: Callable[[GroupId], Mapping[tuple[str, int], CommittedAt]],
        refused_joins: RefusedJoins,
        waiting: WaitingRequests,
        slices: Slices,
        lost: OnLost,
        schedule: Callable[[GroupId, float], None],
        changed: Callable[[GroupContext], None],
        idle: Callable[[GroupContext], None],
    ) -> None:
        self.epoch = epoch
        self._outbox = outbox
        self._format_level = format_level
        self._settings = settings
        self._clock = clock
        self.incarnation_max = incarnation_max
        self._retention_clock = retention_clock
        self._committed = committed
        self._waiting = waiting
        self._slices = slices
        self._lost = lost
        self._schedule = schedule
        self._changed = changed
        self._idle = idle
        self._refused_joins = refused_joins
        self._kept_assignments = KeptAssignments(clock.monotonic_ms)
        self._rebalance_lines = RebalanceLines(clock.monotonic_ms)
        self._is_closed = False
        self.is_read_only = False
        """True if writes are deferred, because a former owner may still respond from memory."""

    def close(self) -> None:
        """Stop deciding; a batch that is being stored takes no effect here."""
        self._is_closed = True
        self._rebalance_lines.end_minute()

    def enqueue(self, context: GroupContext, command: AnyCommand | CheckDeadlines) -> None:
        """Queue a command behind the group's other commands."""
        context.queue.append(command)
        if not context.busy:
            self.work(context)

    def decide_deferred(self, context: GroupContext) -> None:
        """Decide the deferred commands in order, before later ones."""
        context.queue.extendleft(reversed(context.deferred))
        context.deferred.clear()
        if not context.busy:
            self.work(context)

    def work(self, context: GroupContext) -> None:
        """Process the group's queue for at most one slice; the rest follows after other work has had its turn."""
        context.busy = True
        ends_ms = self._clock.monotonic_ms() + SLICE_MS
        try:
            while not self._is_closed and self._step(context):
                if (context.queue or context.replies or context.batch) and self._clock.monotonic_ms() >= ends_ms:
                    with working_on(OtherWork(work=f"the queue of group {context.group_id}")):
                        self._slices.later(self._steps(context), lambda _: None, self._lost)
                    return
        except Exception as error:  # noqa: BLE001 -- a bug of ours: the group would stay busy forever
            self._lost(error)

    def _steps(self, context: GroupContext) -> Steps[None]:
        while not self._is_closed and self._step(context):
            yield 1

    def now(self) -> Now:
        """Return the time, the owner epoch and the next incarnation, for a query."""
        wall_ms = self._clock.wall_ms()
        return Now(
            monotonic_ms=self._clock.monotonic_ms(),
            wall_ms=wall_ms,
            owner_epoch=self.epoch,
            incarnation=max(wall_ms, self.incarnation_max + 1),
            format_level=self._format_level,
        )

    def note_now(self) -> Now:
        """Like `now`, for a decision: also notes both clocks for the retention.

        Otherwise a clock that jumps back between two sweeps would go unnoticed, and so would the timestamps recorded
        with it.
        """
        now = self.now()
        self._retention_clock.note(now.monotonic_ms, now.wall_ms)
        return now

    def know_incarnation(self, incarnation: int) -> None:
        """Note the incarnation of a group that was created by something other than a decision."""
        self.incarnation_max = max(self.incarnation_max, incarnation)

    # ---- a step --------------------------------------------------------------------------------------

    def _step(self, context: GroupContext) -> bool:
        """Do the next step of the group's work; return whether there may be more."""
        batch = context.batch
        if context.replies:
            self._waiting.release(context.replies.popleft())
        elif batch is None and context.expiry_due and not self._is_deferred(context):
            # The group has no work in progress, so these are all its offsets.
            context.expiry_due = False
            offsets, wall_ms = self._committed(context.group_id), self._retention_clock.observe()
            self._decide(context, ExpireOffsets(group_id=context.group_id, offsets=offsets, wall_ms=wall_ms))
        elif context.queue and (batch is None or _has_room(context, batch)):
            self._take_next(context)
        elif batch is not None and batch.events:
            self._encode_some(context, batch)
        elif batch is not None:
            self._store(context, batch)
            return False
        else:
            context.busy = False
            self._idle(context)
            return False
        return True

    def _take_next(self, context: GroupContext) -> None:
        command = context.queue.popleft()
        if isinstance(command, CheckDeadlines):
            context.deadline_check_queued = False
            soft = context.soft if context.batch is None else context.batch.soft
            passed = due(context.group_id, soft, command.at_ms)
            context.queue.extendleft(reversed(passed))
            if not passed:  # otherwise their decisions reschedule it, or the empty queue does
                self._schedule(context.group_id, soft.next_deadline_ms())
        else:
            self._decide(context, command)

    def _decide(self, context: GroupContext, command: AnyCommand) -> None:
        batch, is_alone = context.batch, context.one_by_one > 0 or isinstance(command, ExpireOffsets)
        context.one_by_one = max(0, context.one_by_one - 1)
        group, soft = (context.group, context.soft) if batch is None else (batch.group, batch.soft)
        now = self.note_now()
        try:
            decision = decide(command, group, soft, now, self._settings)
        except Exception:
            # A bug of ours. Rules change nothing but the decision they were about to return, so nothing is half done:
            # the sender gets UNKNOWN_SERVER_ERROR and all other requests are still served, as in Kafka (G24).
            log.exception("a rule failed", group_id=command.group_id, command=repr(command))
            self._fail(context, command)
            return
        if self._is_deferred(context) and (decision.events or _change_of_offsets(decision)):
            context.deferred.append(command)
            return
        if group is None and decision.group is None and decision.events and isinstance(command, Request):
            decision = self._refused_joins.recorded(decision, command.caller.client_host)
        if decision.events:
            self.incarnation_max = max(self.incarnation_max, decision.events[-1].incarnation)
        if decision.refreshed_session is not None and isinstance(command, Request):
            caller = command.caller
            decision.refreshed_session.refresh(caller.arrived_ms, caller.connection, answered_ms=now.monotonic_ms)
            # A restarted member may have asked for a shorter session than the old process did: it ends earlier (ST8).
            self._schedule(context.group_id, decision.refreshed_session.deadline_ms)
        if batch is None and not decision.events and not _change_of_offsets(decision):
            self._take_effect(context, (command,), (decision,), now.monotonic_ms)
            return
        if batch is None:
            batch = Batch(group=group, soft=soft, began_ms=now.monotonic_ms, is_alone=is_alone, events=deque())
            context.batch = batch
            context.invalidate_tickets()
        # A group that is created again waits until the offsets of the deleted one are gone: offsets are written after
        # the events, and a process that takes over in between must see that the group was deleted.
        batch.is_alone |= decision.group is None
        batch.group, batch.soft = decision.group, decision.soft
        batch.commands.append(command)
        batch.decisions.append(decision)
        batch.events.extend(decision.events)

    def _is_deferred(self, context: GroupContext) -> bool:
        return self.is_read_only or bool(context.deferred)  # deferred commands come before later ones

    def _fail(self, context: GroupContext, command: AnyCommand) -> None:
        """Answer a command that failed because of a bug with UNKNOWN_SERVER_ERROR; nothing else changes."""
        if isinstance(command, Deadline):
            context.no_deadline_before_ms = self._clock.monotonic_ms() + RETRY_DEADLINE_MS
        context.replies.extend(error_replies(command, ErrorCode.unknown_server_error))

    # ---- appends -------------------------------------------------------------------------------------

    def _encode_some(self, context: GroupContext, batch: Batch) -> None:
        try:
            some = [batch.events.popleft() for _ in range(min(ENCODED_AT_ONCE, len(batch.events)))]
            batch.records += records_of(some, self._format_level)
        except Exception:
            context.batch = None
            if len(batch.commands) > 1:  # one by one, so that the faulty command is logged, and fails alone
                _decide_again(context, batch)
            else:
                (command,) = batch.commands
                log.exception("events cannot be encoded", group_id=context.group_id, command=repr(command))
                self._fail(context, command)

    def _store(self, context: GroupContext, batch: Batch) -> None:
        offsets = tuple(filter(None, map(_change_of_offsets, batch.decisions)))

        def settled(refused: AppendRefused | None) -> None:
            if self._is_closed:
                return
            context.batch = None
            if refused is None:
                now_ms = self._clock.monotonic_ms()
                extend_deadlines(batch.soft, context.soft, now_ms - batch.began_ms)
                self._take_effect(context, batch.commands, batch.decisions, now_ms)
            else:
                self._refused(context, batch, refused)
            with working_on(OtherWork(work=f"what became durable of group {context.group_id}")):
                self.work(context)

        self._outbox.submit(WriteUnit(transition=tuple(batch.records), offsets=offsets, settled=settled))

    def _take_effect(
        self, context: GroupContext, commands: Sequence[AnyCommand], decisions: Sequence[Decision], now_ms: int
    ) -> None:
        last, before = decisions[-1], context.group
        if last.soft is not context.soft or last.group is not context.group:
            context.group, context.soft = last.group, last.soft
            if not last.keeps_tickets:
                context.invalidate_tickets()
            self._changed(context)
        for command, decision in zip(commands, decisions, strict=True):
            if decision.events:
                announce(decision.events)
                self._kept_assignments.note(decision.events, before)
                context.rebalance = follow(context.rebalance, decision.events, now_ms, self._rebalance_lines)
            if isinstance(command, JoinGroup):
                self._refused_joins.note(command, decision.replies, decision.group)
            if decision.offsets_expired:
                OFFSETS_EXPIRED.inc(decision.offsets_expired)
                log.info("offsets expired", group_id=context.group_id, offsets=decision.offsets_expired)
            self._waiting.decided(command, decision.replies, decision.soft)
            for reply in decision.replies:
                asked = self._waiting.asked_by(reply)
                if asked is not None:
                    extend_session(context.soft, *asked, now_ms)
            context.replies.extend(decision.replies)

    def _refused(self, context: GroupContext, batch: Batch, refused: AppendRefused) -> None:
        """Find the command whose events are too large for the log, and fail it; reject a leader's sync (SG13)."""
        if len(batch.commands) > 1:
            _decide_again(context, batch)
            return
        (command,) = batch.commands
        log.error(
            "transition too large for the event log",
            group_id=context.group_id,
            command=type(command).__name__,
            size_bytes=refused.size_bytes,
            limit_bytes=refused.limit_bytes,
        )
        if isinstance(command, SyncGroup):
            error = ErrorCode.unknown_server_error
            context.queue.appendleft(RejectAssignment(group_id=context.group_id, sync=command, error=error))
            context.one_by_one += 1
        else:
            self._fail(context, command)


def _has_room(context: GroupContext, batch: Batch) -> bool:
    """Return whether the batch has room for another command."""
    if batch.is_alone or context.one_by_one or context.expiry_due:
        return False
    decided, events = len(batch.commands), len(batch.records) + len(batch.events)
    return decided < BATCH_COMMANDS_MAX and events < BATCH_EVENTS_MAX


def _decide_again(context: GroupContext, batch: Batch) -> None:
    context.queue.extendleft(reversed(batch.commands))
    context.one_by_one = len(batch.commands)


def _change_of_offsets(decision: Decision) -> OffsetsChange | None:
    change = decision.offsets
    return change if change is not None and (change.committed or change.deleted or change.all_deleted) else None
