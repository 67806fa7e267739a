"""One owned partition at work: its groups, each with a queue, and the way of a command through the rules.

    submit -> the group's queue -> decide, one after another, on the state as decided so far
           -> nothing to write: effective at once, replies released
           -> something to write: one unit in the outbox; effective, and released, when it is durable

While a unit of a group is under way its next commands queue, and are then decided together: many joins of one group
share one append. A unit refused for good is decided again, command by command, so that only the culprit fails.

Nothing here awaits: between reading a group and changing it no other code runs.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog
from kio.schema.errors import ErrorCode

from coordinator.announce import announce
from coordinator.clock import Clock
from coordinator.deadlines import Deadlines
from coordinator.group.commands import (
    AnyCommand,
    AnyRequest,
    CheckCapacity,
    CommittedAt,
    Deadline,
    ExpireOffsets,
    Heartbeat,
    JoinGroup,
    RejectAssignment,
    Request,
    SyncGroup,
)
from coordinator.group.decide import Decision, decide, failed
from coordinator.group.heartbeat import heartbeat_error
from coordinator.group.outcomes import JoinGroupOutcome, Reply
from coordinator.group.settings import GroupSettings
from coordinator.group.soft import Soft
from coordinator.group.takeover import give_up, rearm_sessions, resume
from coordinator.group.timers import due
from coordinator.group.turn import Moment
from coordinator.metrics import OFFSETS_EXPIRED
from coordinator.not_served import quarantine_reply
from coordinator.outbox import Outbox, Unit
from coordinator.slot import ReplyTo, Slot, Ticket, Waiting, Watch, tell
from coordinator.sweep import Sweep
from events.codec import records_of
from events.events import CoordinatorPaused
from events.ids import GroupId
from events.log.base import AppendRefused
from events.records import Transition
from events.state import NOT_CONFIGURED, Group, GroupConfig

log = structlog.get_logger(__name__)

RETRY_DEADLINE_MS = 1_000
"""A deadline whose decision failed is not tried again at once, and for ever."""


class Partition:
    """See the module. Made when the partition was read, ended by `close`."""

    def __init__(
        self,
        number: int,
        *,
        outbox: Outbox,
        epoch: int,
        owner: str,
        settings: GroupSettings,
        clock: Clock,
        incarnation_max: int,
        quarantined: Iterable[GroupId],
        committed: Callable[[GroupId], Mapping[tuple[str, int], CommittedAt]],
        watch: Watch,
    ) -> None:
        self.number = number
        self._outbox = outbox
        self.epoch = epoch
        """Of the claim that decisions are made under; what was decided before a renewal keeps the older one."""
        self._owner = owner
        self._settings = settings
        self._clock = clock
        self._incarnation_max = incarnation_max
        self._quarantined = frozenset(quarantined)
        self._slots: dict[GroupId, Slot] = {}
        self._waiting: dict[int, Waiting] = {}
        self._deadlines = Deadlines(clock, due=self._deadline_came, paused=self._machine_paused)
        self._committed = committed
        self._watch = watch
        interval_ms = settings.offsets_retention_check_interval_ms
        self._sweep = Sweep(interval_ms=interval_ms, group_ids=self._slots.keys, look_at=self._sweep_came)
        self._closed_with: ErrorCode | None = None

    # ---- requests ----------------------------------------------------------------------------------

    def adopt(self, groups: Iterable[Group]) -> None:
        """Take over groups as they were read from the log; their sessions begin anew."""
        for group in groups:
            soft = resume(group, self._clock.monotonic_ms(), self._settings)
            slot = Slot(group_id=group.group_id, group=group, soft=soft, queue=deque())
            self._slots[group.group_id] = slot
            slot.tell(self._watch)
            self._schedule(slot)
            if len(group.members) > self._settings.max_size:
                self._enqueue(slot, CheckCapacity(group_id=group.group_id))

    def submit(self, command: AnyRequest, reply_to: ReplyTo) -> None:
        """Have a request decided; `reply_to` is called once, now or later."""
        self._waiting[command.caller.request_id] = Waiting(command, reply_to)
        if self._closed_with is not None:
            self._release(failed(command, self._closed_with))
        elif command.group_id in self._quarantined:
            self._release(quarantine_reply(command))
        else:
            self._enqueue(self._slot(command.group_id), command)

    def groups(self) -> Sequence[Group]:
        """The durable groups."""
        return [slot.group for slot in list(self._slots.values()) if slot.group is not None]

    def would_refuse(self, command: JoinGroup) -> bool:
        """Whether this join would now be answered with an error at once, and nobody be the wiser."""
        slot = self._slots.get(command.group_id)
        group, soft = (None, Soft()) if slot is None else (slot.group, slot.soft)
        decision = decide(command, group, soft, self._moment(), self._settings)
        outcomes = [reply.outcome for reply in decision.replies if reply.request_id == command.caller.request_id]
        fine = {ErrorCode.none, ErrorCode.member_id_required}
        return any(isinstance(outcome, JoinGroupOutcome) and outcome.error not in fine for outcome in outcomes)

    def has_group(self, group_id: GroupId) -> bool:
        """Whether there is such a group, durably."""
        slot = self._slots.get(group_id)
        return slot is not None and slot.group is not None

    def config_of(self, group_id: GroupId) -> GroupConfig:
        """What is durably set for the group."""
        slot = self._slots.get(group_id)
        return NOT_CONFIGURED if slot is None or slot.group is None else slot.group.config

    @property
    def quarantined(self) -> int:
        """How many groups are not served."""
        return len(self._quarantined)

    def ticket(self, command: Heartbeat) -> Ticket | None:
        """A ticket if this heartbeat would now be answered with NONE."""
        slot = self._slots.get(command.group_id)
        if slot is None or slot.group is None or slot.busy or self._closed_with is not None:
            return None
        if heartbeat_error(slot.group, command) is not ErrorCode.none:
            return None
        return Ticket(slot, slot.version, slot.soft.sessions[command.member_id])

    def close(self, error: ErrorCode) -> None:
        """Serve no more: what waits, parked or queued, is answered with the error (LD12)."""
        self._closed_with = error
        self._deadlines.close()
        self._sweep.close()
        for slot in self._slots.values():
            slot.version += 1
            self._release(give_up(slot.soft, error))
        self._slots.clear()
        for waiting in list(self._waiting.values()):
            # Queued, or decided and not known to be durable: in both cases the sender must ask again.
            self._release(failed(waiting.command, error))

    # ---- the way through the rules -------------------------------------------------------------------

    def _slot(self, group_id: GroupId) -> Slot:
        slot = self._slots.get(group_id)
        if slot is None:
            slot = self._slots[group_id] = Slot(group_id=group_id, group=None, soft=Soft(), queue=deque())
        return slot

    def _enqueue(self, slot: Slot, command: AnyCommand) -> None:
        slot.queue.append(command)
        if not slot.busy:
            self._drain(slot)

    def _drain(self, slot: Slot) -> None:
        """Decide what is queued; go on until something has to be written, or nothing is left."""
        while (slot.queue or slot.expiry_due) and not slot.busy:
            self._decide(slot, self._next_commands(slot))
        if slot.busy:
            return
        if slot.group is None:
            self._slots.pop(slot.group_id, None)
            self._deadlines.forget(slot.group_id)
        elif not self._deadlines.is_scheduled(slot.group_id):
            self._schedule(slot)

    def _next_commands(self, slot: Slot) -> list[AnyCommand]:
        """What is to be decided together."""
        if slot.expiry_due:
            # Nothing of the group is under way, so these are all its offsets; nothing may come between, so alone.
            slot.expiry_due = False
            return [ExpireOffsets(group_id=slot.group_id, offsets=self._committed(slot.group_id))]
        limit = 1 if slot.one_by_one else len(slot.queue)
        slot.one_by_one = max(0, slot.one_by_one - 1)
        return [slot.queue.popleft() for _ in range(limit)]

    def _decide(self, slot: Slot, commands: list[AnyCommand]) -> None:
        group, soft = slot.group, slot.soft
        decisions: list[Decision] = []
        transition: Transition = ()
        for command in commands:
            decision, records = self._decide_one(slot, command, group, soft)
            transition += records
            if decision.heard is not None and isinstance(command, Request):
                decision.heard.touch(command.caller.arrived_ms)
                # A restarted member may have asked for a shorter session than the old process: it ends earlier (ST8).
                self._deadlines.schedule(slot.group_id, decision.heard.deadline_ms)
            group, soft = decision.group, decision.soft
            decisions.append(decision)
        offsets = tuple(d.offsets for d in decisions if d.offsets is not None and _changes(d))
        if not transition and not offsets:
            self._take_effect(slot, decisions)
            return
        slot.busy = True
        if transition:
            slot.version += 1

        def settled(refused: AppendRefused | None) -> None:
            slot.busy = False
            if self._closed_with is not None:
                return
            if refused is None:
                self._take_effect(slot, decisions)
            else:
                self._refused(slot, commands, refused)
            self._drain(slot)

        self._outbox.submit(Unit(transition=transition, offsets=offsets, settled=settled))

    def _decide_one(
        self, slot: Slot, command: AnyCommand, group: Group | None, soft: Soft
    ) -> tuple[Decision, Transition]:
        try:
            decision = decide(command, group, soft, self._moment(), self._settings)
            records = records_of(decision.events)
        except Exception:
            # A bug of ours. Rules change nothing but the decision they were about to return, so nothing is half
            # done: the sender gets UNKNOWN_SERVER_ERROR and everybody else is served on, as in Kafka (G24).
            log.exception("a rule failed", group_id=command.group_id, command=repr(command))
            if isinstance(command, Deadline):
                slot.no_deadline_before_ms = self._clock.monotonic_ms() + RETRY_DEADLINE_MS
            replies = failed(command, ErrorCode.unknown_server_error)
            return Decision(replies=replies, group=group, soft=soft), ()
        if decision.events:
            self._incarnation_max = max(self._incarnation_max, decision.events[-1].incarnation)
        return decision, records

    def _take_effect(self, slot: Slot, decisions: list[Decision]) -> None:
        last = decisions[-1]
        if last.soft is not slot.soft or last.group is not slot.group:
            slot.group, slot.soft = last.group, last.soft
            slot.version += 1
            slot.tell(self._watch)
            self._schedule(slot)
        for decision in decisions:
            announce(decision.events)
            if decision.offsets_expired:
                OFFSETS_EXPIRED.inc(decision.offsets_expired)
                log.info("offsets expired", group_id=slot.group_id, offsets=decision.offsets_expired)
            self._release(decision.replies)

    def _refused(self, slot: Slot, commands: list[AnyCommand], refused: AppendRefused) -> None:
        """Too large to be stored, ever: find the culprit; its sender is told, a leader's sync is taken back (SG13)."""
        if len(commands) > 1:
            slot.queue.extendleft(reversed(commands))
            slot.one_by_one = len(commands)
            return
        command = commands[0]
        log.error(
            "a transition is too large for the event log",
            group_id=slot.group_id,
            command=type(command).__name__,
            size_bytes=refused.size_bytes,
            limit_bytes=refused.limit_bytes,
        )
        error = ErrorCode.unknown_server_error
        if isinstance(command, SyncGroup):
            rejected = RejectAssignment(group_id=slot.group_id, sync=command, error=error)
            slot.queue.appendleft(rejected)
            slot.one_by_one += 1
        elif isinstance(command, Deadline):
            slot.no_deadline_before_ms = self._clock.monotonic_ms() + RETRY_DEADLINE_MS
        else:
            self._release(failed(command, error))

    def _release(self, replies: Iterable[Reply]) -> None:
        for reply in replies:
            waiting = self._waiting.pop(reply.request_id, None)
            if waiting is not None:
                tell(waiting, reply.outcome)

    def _moment(self) -> Moment:
        wall_ms = self._clock.wall_ms()
        return Moment(
            now_ms=self._clock.monotonic_ms(),
            wall_ms=wall_ms,
            owner_epoch=self.epoch,
            incarnation=max(wall_ms, self._incarnation_max + 1),
        )

    # ---- deadlines and the sweep ---------------------------------------------------------------------

    def _schedule(self, slot: Slot) -> None:
        self._deadlines.schedule(slot.group_id, max(slot.soft.next_deadline_ms(), slot.no_deadline_before_ms))

    def _deadline_came(self, group_id: GroupId, now_ms: int) -> None:
        slot = self._slots.get(group_id)
        if slot is None:
            return
        for command in due(group_id, slot.soft, now_ms):
            self._enqueue(slot, command)
        if not slot.busy:
            self._schedule(slot)

    def _sweep_came(self, group_id: GroupId) -> int:
        """Have the rules asked what has expired, at once or when what is under way has settled."""
        slot = self._slots.get(group_id)
        if slot is None:
            return 0
        slot.expiry_due = True
        if not slot.busy:
            self._drain(slot)
        return len(self._committed(group_id))

    def _machine_paused(self, late_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        sessions = sum(rearm_sessions(slot.soft, now_ms) for slot in self._slots.values())
        log.warning("timer late, sessions re-armed", partition=self.number, late_ms=late_ms, sessions=sessions)
        paused = CoordinatorPaused(
            partition=self.number,
            owner_epoch=self.epoch,
            owner=self._owner,
            paused_ms=self._clock.wall_ms(),
            late_ms=late_ms,
            sessions=sessions,
        )
        self._outbox.submit(Unit(transition=records_of([paused]), offsets=(), settled=lambda _: None))


def _changes(decision: Decision) -> bool:
    change = decision.offsets
    return change is not None and bool(change.committed or change.deleted or change.all_deleted)
