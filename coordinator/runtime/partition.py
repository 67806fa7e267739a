"""One owned partition at work: its groups, who may ask for what of them, their deadlines, and the sweep.

What belongs here: which commands come to which group, and when it is looked at because time has passed. What it must
not know: how a group works off its commands (`deciding.py`), how answers find their way (`waiting.py`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.clock import Clock
from muster.coordinator.group.commands import (
    AnyRequest,
    CheckCapacity,
    CommittedAt,
    Heartbeat,
    JoinGroup,
    RewriteEntities,
    SyncGroup,
)
from muster.coordinator.group.decide import would_refuse
from muster.coordinator.group.error_replies import error_replies
from muster.coordinator.group.extensions import USUAL_APPEND_MS, Silence, rearm
from muster.coordinator.group.heartbeat import heartbeat_error
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.soft_state import SoftState
from muster.coordinator.group.takeover import fail_parked_requests, restore_soft_state
from muster.coordinator.group.timers import blames
from muster.coordinator.load.slices import Slices
from muster.coordinator.load.steps import Steps
from muster.coordinator.load.turns import Turns
from muster.coordinator.observability.metrics import ENTITIES_REWRITTEN
from muster.coordinator.runtime.deadlines import Deadlines
from muster.coordinator.runtime.deciding import Deciding
from muster.coordinator.runtime.outbox import Lost, Outbox, Unit
from muster.coordinator.runtime.quarantine import Quarantine
from muster.coordinator.runtime.slot import AskAboutSilence, LookAtDeadlines, Slot, Ticket, Watch, new_slot
from muster.coordinator.runtime.sweep import Sweep
from muster.coordinator.runtime.waiting import WaitingRequests
from muster.coordinator.service import ReplyTo
from muster.events.avro.codec import records_of
from muster.events.damage import Damage
from muster.events.events import CoordinatorPaused
from muster.events.ids import GroupId
from muster.events.keys import RecordKey
from muster.events.state import NOT_CONFIGURED, Group, GroupConfig

log = structlog.get_logger(__name__)


REWRITTEN_AT_ONCE = 500
"""Entities of one group, in one decision: 5 µs for each."""


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
        quarantined: Mapping[GroupId, Damage],
        committed: Callable[[GroupId], Mapping[tuple[str, int], CommittedAt]],
        watch: Watch,
        ask_about_silence: AskAboutSilence,
        slices: Slices,
        turns: Turns,
        forgotten: Callable[[int], None],
        lost: Lost,
    ) -> None:
        self.number = number
        self._outbox = outbox
        self._owner = owner
        self._settings = settings
        self._clock = clock
        self._slots: dict[GroupId, Slot] = {}
        self._waiting = WaitingRequests(forgotten)
        self._deadlines = Deadlines(
            clock,
            due=self._deadline_came,
            paused=self._machine_paused,
            when_caught_up=turns.after_those_who_wait,
        )
        self._committed = committed
        self._watch = watch
        self._ask_about_silence = ask_about_silence
        self._slices = slices
        self._lost = lost
        self._deciding = Deciding(
            outbox=outbox,
            epoch=epoch,
            settings=settings,
            clock=clock,
            incarnation_max=incarnation_max,
            committed=committed,
            waiting=self._waiting,
            slices=slices,
            lost=lost,
            heard=self._deadlines.schedule,
            changed=self._changed,
            idle=self._became_idle,
        )
        self._quarantine = Quarantine(
            quarantined,
            outbox=outbox,
            moment=self._deciding.moment,
            settings=settings,
            waiting=self._waiting,
            repaired=self._repaired,
        )
        interval_ms = settings.offsets_retention_check_interval_ms
        self._sweep = Sweep(interval_ms=interval_ms, group_ids=self._slots.keys, look_at=self._sweep_came)
        self._closed_with: ErrorCode | None = None

    @property
    def epoch(self) -> int:
        """Of the claim that decisions are made under; what was decided before a renewal keeps the older one."""
        return self._deciding.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._deciding.epoch = epoch

    # ---- requests ----------------------------------------------------------------------------------

    async def adopt(self, groups: Iterable[Group]) -> None:
        """Take over groups as they were read from the log; their sessions begin anew.

        In slices: nothing is asked of them, nor due in them, before all are there.
        """
        began_ms, pace = self._clock.monotonic_ms(), self._slices.pace()
        for group in groups:
            self._resume(group)
            await pace.kept(1 + len(group.members))
        if self._clock.monotonic_ms() - began_ms > USUAL_APPEND_MS:
            for slot in self._slots.values():
                await pace.kept(1 + rearm(slot.group, slot.soft, self._clock.monotonic_ms()))
        for slot in self._slots.values():
            slot.tell(self._watch)
        self._deadlines.begin()
        for slot in list(self._slots.values()):
            self._check_capacity(slot)

    def _resume(self, group: Group) -> Slot:
        soft = restore_soft_state(group, self._clock.monotonic_ms(), self._settings)
        slot = self._slots[group.group_id] = new_slot(group.group_id, group, soft)
        self._schedule(slot)
        return slot

    def _check_capacity(self, slot: Slot) -> None:
        if slot.group is not None and len(slot.group.members) > self._settings.max_size:
            self._deciding.enqueue(slot, CheckCapacity(group_id=slot.group_id))

    def submit(self, command: AnyRequest, reply_to: ReplyTo) -> None:
        """Have a request decided; `reply_to` is called once, now or later."""
        self._waiting.add(command, reply_to)
        if self._closed_with is not None:
            self._waiting.release_each(error_replies(command, self._closed_with))
        elif command.group_id in self._quarantine:
            self._quarantine.submit(command)
        else:
            slot = self._slots.get(command.group_id)
            if slot is None:
                slot = self._slots[command.group_id] = new_slot(command.group_id)
            self._deciding.enqueue(slot, command)

    def rewrite(self, entities: Iterable[RecordKey]) -> None:
        """Have those that are there written again, as the last records of their keys in the log are strangers'."""
        by_group: dict[GroupId, list[RecordKey]] = {}
        for entity in entities:
            by_group.setdefault(GroupId(entity.group_id), []).append(entity)
        for group_id, of_group in by_group.items():
            slot = self._slots.get(group_id)
            if slot is not None and self._closed_with is None:
                ENTITIES_REWRITTEN.inc(len(of_group))
                for first in range(0, len(of_group), REWRITTEN_AT_ONCE):
                    some = tuple(of_group[first : first + REWRITTEN_AT_ONCE])
                    self._deciding.enqueue(slot, RewriteEntities(group_id=group_id, entities=some))

    def groups(self) -> Sequence[Group]:
        """The durable groups."""
        return [slot.group for slot in list(self._slots.values()) if slot.group is not None]

    def would_refuse(self, command: JoinGroup) -> bool:
        """Whether this join would now be answered with an error at once, and nobody be the wiser."""
        slot = self._slots.get(command.group_id)
        group, soft = (None, SoftState()) if slot is None else (slot.group, slot.soft)
        return would_refuse(command, group, soft, self._deciding.moment(), self._settings) is not ErrorCode.none

    def is_member(self, command: JoinGroup | SyncGroup) -> bool:
        """Whether it is a member's of the durable group, or a static one's that has restarted."""
        slot = self._slots.get(command.group_id)
        group = None if slot is None else slot.group
        return group is not None and (
            command.member_id in group.members or command.group_instance_id in group.instances
        )

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
        return len(self._quarantine)

    def ticket(self, command: Heartbeat) -> Ticket | None:
        """A ticket if this heartbeat would now be answered with NONE."""
        slot = self._slots.get(command.group_id)
        if slot is None or slot.group is None or slot.batch is not None or self._closed_with is not None:
            return None
        if heartbeat_error(slot.group, command) is not ErrorCode.none:
            return None
        return Ticket(slot, slot.version, slot.soft.sessions[command.member_id])

    def close(self, error: ErrorCode) -> None:
        """Serve no more: what waits, parked or queued, is answered with the error (LD12)."""
        self._closed_with = error
        self._deciding.close()
        self._quarantine.close()
        self._deadlines.close()
        self._sweep.close()
        for slot in self._slots.values():
            slot.version += 1
            self._waiting.release_each(slot.replies)  # what they tell is durable
            self._waiting.release_each(fail_parked_requests(slot.soft, error))
        self._slots.clear()
        # Queued, or decided and not known to be durable: in both cases the sender must ask again.
        self._waiting.release_all(lambda command: error_replies(command, error))

    def _repaired(self, group: Group) -> None:
        self._deciding.know_incarnation(group.incarnation)
        slot = self._resume(group)
        slot.tell(self._watch)
        self._check_capacity(slot)

    # ---- deadlines and the sweep ---------------------------------------------------------------------

    def _schedule(self, slot: Slot) -> None:
        self._deadlines.schedule(slot.group_id, max(slot.soft.next_deadline_ms(), slot.no_deadline_before_ms))

    def _changed(self, slot: Slot) -> None:
        slot.tell(self._watch)
        self._schedule(slot)

    def _became_idle(self, slot: Slot) -> None:
        if slot.group is None:
            self._slots.pop(slot.group_id, None)
            self._deadlines.forget(slot.group_id)
        elif not self._deadlines.is_scheduled(slot.group_id):
            self._schedule(slot)

    def _deadline_came(self, group_id: GroupId) -> None:
        """Have the group's deadlines looked at, once it is known whether its members could be heard."""
        slot = self._slots.get(group_id)
        if slot is None or slot.looks_at_deadlines:
            return
        slot.looks_at_deadlines = True
        if blames(slot.soft, self._clock.monotonic_ms()):
            self._ask_about_silence(group_id, partial(self._look_at_deadlines, slot))
        else:
            self._look_at_deadlines(slot, Silence.THEIR_OWN)

    def _look_at_deadlines(self, slot: Slot, silence: Silence) -> None:
        """After all that waits in the group already: no member pays for a queue."""
        if self._slots.get(slot.group_id) is not slot:
            return
        now_ms = self._clock.monotonic_ms()
        if silence is Silence.EXCUSED:
            _rearm_slot(slot, now_ms)
        self._deciding.enqueue(slot, LookAtDeadlines(group_id=slot.group_id, at_ms=now_ms))

    def _sweep_came(self, group_id: GroupId) -> int:
        """Have the rules asked what has expired, at once or when what is under way has settled."""
        slot = self._slots.get(group_id)
        if slot is None:
            return 0
        slot.expiry_due = True
        if not slot.busy:
            self._deciding.work(slot)
        return len(self._committed(group_id))

    def _machine_paused(self, late_ms: int) -> None:
        self._slices.run(self._rearm(), lambda sessions: self._rearmed(late_ms, sessions), self._lost)

    def _rearm(self) -> Steps[int]:
        sessions = 0
        for slot in list(self._slots.values()):
            armed = _rearm_slot(slot, self._clock.monotonic_ms())
            sessions += armed
            yield 1 + armed
        return sessions

    def _rearmed(self, late_ms: int, sessions: int) -> None:
        if self._closed_with is not None:
            return
        self._deadlines.begin()
        log.warning("timer late, sessions re-armed", partition=self.number, late_ms=late_ms, sessions=sessions)
        paused = CoordinatorPaused(
            partition=self.number,
            owner_epoch=self._deciding.epoch,
            owner=self._owner,
            paused_ms=self._clock.wall_ms(),
            late_ms=late_ms,
            sessions=sessions,
        )
        self._outbox.submit(Unit(transition=records_of([paused]), offsets=(), settled=lambda _: None))


def _rearm_slot(slot: Slot, now_ms: int) -> int:
    """Everybody in the group has the full time again, also in what is not durable yet; how many sessions there are."""
    if slot.batch is not None:
        rearm(slot.batch.group, slot.batch.soft, now_ms)
    return rearm(slot.group, slot.soft, now_ms)
