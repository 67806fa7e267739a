"""One owned partition: routes commands, deadlines and the offset-expiry sweep to its groups.

Commands are processed in `command_processor.py`; `waiting.py` matches responses with their requests.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import (
    AnyRequest,
    CheckCapacity,
    Heartbeat,
    JoinGroup,
    RebalanceUnassigned,
    RewriteEntities,
    SyncGroup,
)
from muster.coordinator.group.decide import would_refuse
from muster.coordinator.group.error_replies import error_replies
from muster.coordinator.group.extensions import USUAL_APPEND_MS, Unheard, rearm, restart_deadlines
from muster.coordinator.group.heartbeat import heartbeat_error
from muster.coordinator.group.loaded_groups import fail_parked_requests, restore_soft_state
from muster.coordinator.group.soft_state import SoftState
from muster.coordinator.group.timeouts import is_member_overdue
from muster.coordinator.observability.metrics import ENTITIES_REWRITTEN, PAUSES
from muster.coordinator.runtime.partition.answer_lease import AnswerLease
from muster.coordinator.runtime.partition.command_processor import CommandProcessor
from muster.coordinator.runtime.partition.deadlines import Deadlines
from muster.coordinator.runtime.partition.group_context import (
    CheckDeadlines,
    GroupContext,
    Ticket,
    new_context,
)
from muster.coordinator.runtime.partition.outbox import OnLost, Outbox, WriteUnit
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.runtime.partition.pauses import pause_record, rearm_all, versions
from muster.coordinator.runtime.partition.quarantine import Quarantine
from muster.coordinator.runtime.partition.rebalance_log import under_way_at_load
from muster.coordinator.runtime.partition.sweep import Sweep
from muster.coordinator.runtime.partition.waiting import WaitingRequests
from muster.coordinator.service import ReplyTo
from muster.events.damage import Damage
from muster.events.ids import GroupId
from muster.events.keys import RecordKey
from muster.events.state import NOT_CONFIGURED, Group, GroupConfig

log = structlog.get_logger(__name__)

REWRITTEN_AT_ONCE = 500
"""Entities of one group that are rewritten in one decision; each takes about 5 µs."""


class Partition:
    """Routes the commands, deadlines and sweeps of one partition. Created after its log was read, ended by `close`."""

    def __init__(
        self,
        owner: Owner,
        number: int,
        *,
        outbox: Outbox,
        epoch: int,
        incarnation_max: int,
        quarantined: Mapping[GroupId, Damage],
        lost: OnLost,
        lease: AnswerLease | None = None,
        read_only: bool = False,
    ) -> None:
        """`read_only`: defer every command that would change a group, until `resume_writes` is called."""
        self.number = number
        self._owner = owner
        self._outbox = outbox
        self._settings = owner.settings
        self._clock = owner.clock
        self._slices = owner.slices
        self._lost = lost
        self._contexts: dict[GroupId, GroupContext] = {}
        self._lease = lease
        self._waiting = WaitingRequests(owner.backlog, lease)
        self._deadlines = Deadlines(
            owner.clock,
            due=self._on_deadline,
            paused=self._machine_paused,
            when_caught_up=owner.turns.after_pending,
        )
        self._processor = CommandProcessor(
            outbox=outbox,
            epoch=epoch,
            format_level=owner.event_log.format_level,
            settings=owner.settings,
            clock=owner.clock,
            incarnation_max=incarnation_max,
            retention_clock=owner.retention_clock,
            committed=owner.offsets.committed,
            refused_joins=owner.refused_joins,
            waiting=self._waiting,
            slices=owner.slices,
            lost=lost,
            schedule=self._deadlines.schedule,
            changed=self._changed,
            idle=self._became_idle,
        )
        self._processor.is_read_only = read_only
        self._quarantine = Quarantine(
            quarantined,
            outbox=outbox,
            format_level=owner.event_log.format_level,
            note_now=self._processor.note_now,
            settings=owner.settings,
            waiting=self._waiting,
            repaired=self._repaired,
            read_only=lambda: self._processor.is_read_only,
        )
        interval_ms = owner.settings.offsets_retention_check_interval_ms
        self._sweep = Sweep(interval_ms=interval_ms, group_ids=self._contexts.keys, check=self._check_expiry)
        self._closed_with: ErrorCode | None = None
        self._rewriting: set[GroupId] = set()
        """Groups with entities to rewrite, some of which may not be rewritten yet."""

    @property
    def epoch(self) -> int:
        """The owner epoch of new decisions; decisions made before the epoch was renewed keep the old one."""
        return self._processor.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._processor.epoch = epoch

    # ---- requests ----------------------------------------------------------------------------------

    async def add_loaded_groups(self, groups: Iterable[Group]) -> None:
        """Add the groups read from the log, with new sessions, in slices.

        No group gets a request or a deadline before all groups have been added.
        """
        began_ms, pace = self._clock.monotonic_ms(), self._slices.pace()
        for group in groups:
            self._resume(group)
            await pace.worked(1 + len(group.members))
        if self._clock.monotonic_ms() - began_ms > USUAL_APPEND_MS:
            for context in self._contexts.values():
                restart_deadlines(context.group, context.soft, self._clock.monotonic_ms())
                await pace.worked(1 + len(context.soft.sessions))
        for context in self._contexts.values():
            context.notify(self._owner.on_generation)
        if not self._processor.is_read_only:
            self._deadlines.begin()
        for context in list(self._contexts.values()):
            self._check_capacity(context)

    async def resume_writes(self) -> None:
        """Process the deferred commands and start the deadlines; session and phase timeouts start over."""
        if not self._processor.is_read_only or self._closed_with is not None:
            return
        pace = self._slices.pace()
        for context in list(self._contexts.values()):
            restart_deadlines(context.group, context.soft, self._clock.monotonic_ms())
            await pace.worked(1 + len(context.soft.sessions))
        self._processor.is_read_only = False
        for context in list(self._contexts.values()):
            if context.deferred and self._closed_with is None:
                self._processor.decide_deferred(context)
                await pace.worked(1)
        if self._closed_with is None:
            self._deadlines.begin()

    def _resume(self, group: Group) -> GroupContext:
        soft = restore_soft_state(group, self._clock.monotonic_ms(), self._settings)
        context = self._contexts[group.group_id] = new_context(group.group_id, group, soft)
        context.rebalance = under_way_at_load(group.image)
        self._schedule(context)
        return context

    def _check_capacity(self, context: GroupContext) -> None:
        if context.group is not None and len(context.group.members) > self._settings.max_size:
            self._processor.enqueue(context, CheckCapacity(group_id=context.group_id))

    def submit(self, command: AnyRequest, reply_to: ReplyTo) -> None:
        """Queue a request; `reply_to` is called once, now or later."""
        context = self._contexts.get(command.group_id)
        refusal = self._owner.backlog.refusal(command, is_group_busy=context is not None and context.busy)
        if refusal is not None:
            reply_to(refusal.outcome)
            return
        self._waiting.add(command, reply_to)
        if self._closed_with is not None:
            self._waiting.release_each(error_replies(command, self._closed_with))
        elif command.group_id in self._quarantine:
            self._quarantine.submit(command)
        else:
            if context is None:
                context = self._contexts[command.group_id] = new_context(command.group_id)
            if context.busy and isinstance(command, Heartbeat):
                self._waiting.answer_without_lease(command)
            self._processor.enqueue(context, command)

    def rebalance_unassigned(self, command: RebalanceUnassigned) -> None:
        """Queue the command behind the group's other commands."""
        context = self._contexts.get(command.group_id)
        if context is not None and self._closed_with is None:
            self._processor.enqueue(context, command)

    def rewrite(self, entities: Iterable[RecordKey]) -> None:
        """Rewrite the entities that still exist, because the last records with their keys are foreign."""
        by_group: dict[GroupId, list[RecordKey]] = {}
        for entity in entities:
            by_group.setdefault(GroupId(entity.group_id), []).append(entity)
        for group_id, of_group in by_group.items():
            context = self._contexts.get(group_id)
            if context is not None and self._closed_with is None:
                self._rewriting.add(group_id)
                ENTITIES_REWRITTEN.inc(len(of_group))
                for first in range(0, len(of_group), REWRITTEN_AT_ONCE):
                    some = tuple(of_group[first : first + REWRITTEN_AT_ONCE])
                    self._processor.enqueue(context, RewriteEntities(group_id=group_id, entities=some))

    def groups(self) -> Sequence[Group]:
        """The durable state of each group."""
        return [context.group for context in list(self._contexts.values()) if context.group is not None]

    @property
    def incarnation_max(self) -> int:
        """The highest incarnation of any group of this partition, including decisions that are not durable yet."""
        return self._processor.incarnation_max

    @property
    def is_in_memory_state_complete(self) -> bool:
        """Return whether `groups` equals the state in the log: no group is quarantined, and no rewrite is pending."""
        contexts = [(group_id, self._contexts.get(group_id)) for group_id in self._rewriting]
        self._rewriting = {each for each, context in contexts if context and (context.busy or context.deferred)}
        return self._closed_with is None and not self._quarantine and not self._rewriting

    def would_refuse(self, command: JoinGroup) -> bool:
        """Return whether this join would be refused immediately, and so would change nothing."""
        context = self._contexts.get(command.group_id)
        group, soft = (None, SoftState()) if context is None else (context.group, context.soft)
        return would_refuse(command, group, soft, self._processor.now(), self._settings) is not ErrorCode.none

    def is_member(self, command: JoinGroup | SyncGroup) -> bool:
        """Return whether the sender is a member of the durable group, or a static member that has restarted."""
        context = self._contexts.get(command.group_id)
        group = None if context is None else context.group
        return group is not None and (
            command.member_id in group.members or command.group_instance_id in group.instances
        )

    def has_group(self, group_id: GroupId) -> bool:
        """Return whether the group exists in the log."""
        context = self._contexts.get(group_id)
        return context is not None and context.group is not None

    def config_of(self, group_id: GroupId) -> GroupConfig:
        """The durable configs of the group."""
        context = self._contexts.get(group_id)
        return NOT_CONFIGURED if context is None or context.group is None else context.group.config

    @property
    def quarantined(self) -> int:
        """The number of quarantined groups."""
        return len(self._quarantine)

    def damages(self) -> list[Damage]:
        """The quarantined groups. Thread-safe."""
        return self._quarantine.damages()

    @property
    def is_read_only(self) -> bool:
        """Return whether writes are deferred because a former owner may still respond."""
        return self._processor.is_read_only

    def parked(self) -> tuple[int, int, tuple[int, GroupId] | None]:
        """See WaitingRequests. Thread-safe."""
        return self._waiting.parked()

    def ticket(self, command: Heartbeat) -> Ticket | None:
        """Return a ticket if this heartbeat would be answered with NONE now."""
        context = self._contexts.get(command.group_id)
        if context is None or context.group is None or context.batch is not None or self._closed_with is not None:
            return None
        if heartbeat_error(context.group, command) is not ErrorCode.none:
            return None
        session, connection = context.soft.sessions[command.member_id], command.caller.connection
        return Ticket(context, context.version, session, self._lease, connection)

    def close(self, error: ErrorCode) -> None:
        """Stop serving, and answer all parked and queued requests with the error (LD12)."""
        self._closed_with = error
        self._processor.close()
        self._quarantine.close()
        self._deadlines.close()
        self._sweep.close()
        for context in self._contexts.values():
            context.invalidate_tickets()
            self._waiting.release_each(context.replies)  # their events are durable
            self._waiting.release_each(fail_parked_requests(context.soft, error))
        self._contexts.clear()
        # Queued, or decided but not known to be durable: in both cases the client has to retry.
        self._waiting.release_all(lambda command: error_replies(command, error))
        if self._lease is not None:
            self._lease.end()

    @property
    def may_answer(self) -> bool:
        """Return whether responses from memory may be sent now."""
        return self._lease is None or self._lease.covers

    def _repaired(self, group: Group) -> None:
        self._processor.know_incarnation(group.incarnation)
        context = self._resume(group)
        context.notify(self._owner.on_generation)
        self._check_capacity(context)

    # ---- deadlines and the sweep ---------------------------------------------------------------------

    def _schedule(self, context: GroupContext) -> None:
        self._deadlines.schedule(context.group_id, max(context.soft.next_deadline_ms(), context.no_deadline_before_ms))

    def _changed(self, context: GroupContext) -> None:
        context.notify(self._owner.on_generation)
        self._schedule(context)

    def _became_idle(self, context: GroupContext) -> None:
        if context.group is None and not context.deferred:
            self._contexts.pop(context.group_id, None)
            self._deadlines.forget(context.group_id)
        else:
            # If a session was refreshed while a deadline check was queued, its deadline is later now.
            self._schedule(context)

    def _on_deadline(self, group_id: GroupId) -> None:
        """Check the group's deadlines, but first find out whether its members' requests could reach us."""
        context = self._contexts.get(group_id)
        if context is None or context.deadline_check_queued:
            return
        context.deadline_check_queued = True
        now_ms = self._clock.monotonic_ms()
        if is_member_overdue(context.soft, now_ms):
            self._owner.ask_about_silence(group_id, partial(self._silence_explained, context, now_ms))
        else:
            self._queue_deadline_check(context, now_ms)

    def _silence_explained(self, context: GroupContext, asked_ms: int, unheard: Unheard | None) -> None:
        if unheard is not None and self._contexts.get(context.group_id) is context:
            for group, soft in versions(context):
                rearm(group, soft, unheard.until_ms, late_ms=unheard.until_ms - unheard.since_ms)
        # Requests that arrived in the meantime come first. Only sessions that had expired before the question may end.
        self._owner.turns.after_pending(partial(self._queue_deadline_check, context, asked_ms))

    def _queue_deadline_check(self, context: GroupContext, at_ms: int) -> None:
        """Queue a deadline check behind the group's requests, so that no member expires while its request is queued."""
        if self._contexts.get(context.group_id) is context:
            self._processor.enqueue(context, CheckDeadlines(group_id=context.group_id, at_ms=at_ms))

    def _check_expiry(self, group_id: GroupId) -> int:
        """Queue ExpireOffsets, immediately or once the current batch is durable. Returns the number of offsets."""
        context = self._contexts.get(group_id)
        if context is None:
            return 0
        context.expiry_due = True
        if not context.busy:
            self._processor.work(context)
        return len(self._owner.offsets.committed(group_id))

    def _machine_paused(self, late_ms: int) -> None:
        PAUSES.inc()
        steps = rearm_all(list(self._contexts.values()), self._clock, late_ms)
        self._slices.run(steps, lambda counts: self._rearmed(late_ms, *counts), self._lost)

    def _rearmed(self, late_ms: int, in_full: int, lengthened: int) -> None:
        if self._closed_with is not None:
            return
        self._deadlines.begin()
        log.warning(
            "timer late, sessions extended",
            partition=self.number,
            late_ms=late_ms,
            in_full=in_full,
            by_late_ms=lengthened,
        )
        record = pause_record(self._owner, self.number, self.epoch, late_ms=late_ms, sessions=in_full)
        self._outbox.submit(WriteUnit(transition=record, offsets=(), settled=lambda _: None))
