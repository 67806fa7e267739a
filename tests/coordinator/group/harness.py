"""A group, its rules and a clock, as Kafka's GroupMetadataManagerTestContext: no log, no network, no waiting.

    h = Harness()
    a, b = h.stable_group(h.static("a"), h.dynamic("b"))
    h.sleep(45_000)                     # moves the clock, and fires what is due on the way
    call = a.heartbeat()
    assert call.outcome == ...          # an error if the request is parked

A `Client` behaves like a real one: it remembers the responses it got. After every command `invariants.py` is checked,
and that the inputs of `decide` were not changed, that `evolve` gives the decided group, and that the events, as bytes,
project to it. A reply to an unknown request, or to one that was answered already, is an error.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import (
    AnyCommand,
    AnyRequest,
    CheckCapacity,
    JoinGroup,
    RejectAssignment,
    Request,
    SyncGroup,
)
from muster.coordinator.group.connections import ConnectionRecord
from muster.coordinator.group.decide import Decision, decide, would_refuse
from muster.coordinator.group.extensions import rearm
from muster.coordinator.group.loaded_groups import restore_soft_state
from muster.coordinator.group.outcomes import JoinGroupOutcome, SyncGroupOutcome
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.soft_state import SoftState
from muster.coordinator.group.turn import Now
from muster.events.avro.codec import records_of
from muster.events.causes import Cause
from muster.events.events import AnyEvent
from muster.events.evolve import evolve
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.projector import Projector
from muster.events.records import FORMAT_LEVEL, StoredRecord
from muster.events.state import Group, GroupState, new_group
from tests.coordinator.group.administrator import Administrator
from tests.coordinator.group.client import Call, Client, O
from tests.coordinator.group.deadlines import all_due, next_deadline_ms
from tests.coordinator.group.invariants import check_hard, check_soft, check_transition, is_superseded_by
from tests.coordinator.group.promises import check_answer, check_heard, check_promises

GROUP_ID = GroupId("orders")
WALL_OFFSET_MS = 1_700_000_000_000
DELAY_MS = 3_000


def story(events: Iterable[AnyEvent]) -> list[tuple[type[AnyEvent], Cause]]:
    """Types and causes of events."""
    return [(type(event), event.why.cause) for event in events]


class Harness(Administrator):
    """See the module. `group` and `soft` are the result of the last command; `events` has all events so far."""

    def __init__(self, *, group_id: str = GROUP_ID, **settings: Any) -> None:
        self.group_id = GroupId(group_id)
        self.settings = GroupSettings(initial_rebalance_delay_ms=DELAY_MS)
        self.settings = msgspec.structs.replace(self.settings, **settings)
        self.group: Group | None = None
        self.soft = SoftState()
        self.events: list[AnyEvent] = []
        self.records: list[StoredRecord] = []
        self.transition_ends: list[int] = []
        self.decisions: list[Decision] = []
        self.calls: dict[int, Call[Any]] = {}
        self._open: dict[int, Call[Any]] = {}
        self.now_ms = 1_000
        self.owner_epoch = 0
        self._projector = Projector()
        self._member_ids = 0
        self._connections = 0

    @property
    def wall_ms(self) -> int:
        return self.now_ms + WALL_OFFSET_MS

    def new_connection(self) -> ConnectionRecord:
        """Open a connection, on which a client sends its requests."""
        self._connections += 1
        return ConnectionRecord(number=self._connections)

    @property
    def state(self) -> GroupState | None:
        return self.group.state if self.group is not None else None

    @property
    def live(self) -> Group:
        """The group, which must exist."""
        assert self.group is not None
        return self.group

    # ---- clients --------------------------------------------------------------------------------

    def static(self, instance: str, **given: Any) -> Client:
        return Client(self, f"app-{instance}", instance, **given)

    def dynamic(self, name: str = "consumer", **given: Any) -> Client:
        return Client(self, name, None, **given)

    def new_member_id(self, prefix: str) -> MemberId:
        self._member_ids += 1
        return MemberId(f"{prefix}-{self._member_ids}")

    def member_of(self, instance: str | None) -> MemberId:
        """The member that has the instance id."""
        assert instance is not None
        return self.live.instances[GroupInstanceId(instance)]

    def form(self, *clients: Client) -> tuple[Client, ...]:
        """Join these clients, and wait until all joins are answered."""
        calls = [client.enter() for client in clients]
        while any(call.parked for call in calls):
            self.sleep_until_next()
        return clients

    def stable_group(self, *clients: Client) -> tuple[Client, ...]:
        """Join and sync these clients."""
        self.form(*clients)
        self.sync_all(*clients)
        assert self.state is GroupState.STABLE
        return clients

    def sync_all(self, *clients: Client) -> None:
        """Sync them, the leader last, with an assignment for each member."""
        for client in sorted(clients, key=lambda client: client.is_leader):
            client.sync(self.assignments() if client.is_leader else None)

    def rejoin_all(self, *clients: Client) -> None:
        """Rejoin them in a join phase, and sync."""
        for client in clients:
            client.join()
        self.sync_all(*clients)

    def assignments(self) -> dict[MemberId, bytes]:
        """An assignment for each member, made of its id and the generation."""
        return {member_id: f"{member_id}@{self.live.generation_id}".encode() for member_id in sorted(self.live.members)}

    # ---- events that cannot be stored -----------------------------------------------------------

    def reject_assignment(self, client: Client, error: ErrorCode) -> Call[SyncGroupOutcome]:
        """The leader syncs, and the events are too large to be stored (SG13)."""
        sync = client.sync_command(self.assignments())
        assert decide(sync, self.group, self.soft, self._now(), self.settings).events
        return self._reject(sync, error)

    def reject_late(self, client: Client, error: ErrorCode) -> Call[SyncGroupOutcome]:
        """The same, after the group has changed in between."""
        return self._reject(client.sync_command(self.assignments()), error)

    def _reject(self, sync: SyncGroup, error: ErrorCode) -> Call[SyncGroupOutcome]:
        call: Call[SyncGroupOutcome] = Call(sync, None)
        self._remember(call)
        call.decision = self.send(RejectAssignment(group_id=self.group_id, sync=sync, error=error))
        return call

    def open_calls(self) -> list[Call[Any]]:
        """The requests that are parked."""
        return [call for call in self._open.values() if call.parked]

    # ---- time -----------------------------------------------------------------------------------

    def sleep(self, duration_ms: int) -> tuple[AnyEvent, ...]:
        """Advance the clock, fire what is due on the way in order, and return what happened."""
        until_ms = self.now_ms + duration_ms
        seen = len(self.events)
        fired_at_once = 0
        while (deadline_ms := next_deadline_ms(self.soft)) <= until_ms and self.group is not None:
            fired_at_once = fired_at_once + 1 if deadline_ms <= self.now_ms else 0
            assert fired_at_once < 100, "a deadline comes again and again"
            self.now_ms = max(self.now_ms, int(deadline_ms))
            for command in all_due(self.group_id, self.soft, self.now_ms):
                self.send(command)
        self.now_ms = until_ms
        return tuple(self.events[seen:])

    def sleep_until_next(self) -> tuple[AnyEvent, ...]:
        """Advance the clock until the next deadline is due."""
        deadline_ms = next_deadline_ms(self.soft)
        assert deadline_ms != float("inf"), "nothing will ever happen"
        return self.sleep(max(0, int(deadline_ms) - self.now_ms))

    def stand_still(self, late_ms: int) -> int:
        """Stall the machine at the next deadline for this long; return how long it ran before that."""
        deadline_ms = next_deadline_ms(self.soft)
        assert deadline_ms != float("inf"), "nothing will ever happen"
        ran_ms = max(0, int(deadline_ms) - self.now_ms)
        self.now_ms += ran_ms + late_ms
        rearm(self.group, self.soft, self.now_ms, late_ms=late_ms)
        for command in all_due(self.group_id, self.soft, self.now_ms):
            self.send(command)
        return ran_ms

    # ---- takeover -------------------------------------------------------------------------------

    def takeover(self, records: Iterable[StoredRecord] | None = None) -> None:
        """Take over as a new owner: parked requests are lost, and the group is projected from its encoded records."""
        projector = Projector()
        for record in self.records if records is None else records:
            projector.feed(record)
        assert projector.groups.get(self.group_id) == self.group
        for call in self._open.values():
            call.lost = True
        self._open.clear()
        self.group = projector.groups.get(self.group_id)
        self.owner_epoch += 1
        self.soft = SoftState() if self.group is None else restore_soft_state(self.group, self.now_ms, self.settings)
        check_soft(self.group, self.soft)
        if self.group is not None and len(self.group.members) > self.settings.max_size:
            self.send(CheckCapacity(group_id=self.group_id))

    # ---- one command ----------------------------------------------------------------------------

    def ask(self, command: AnyRequest, learn: Callable[[O], None] | None = None) -> Call[O]:
        call = Call[O](command, learn)
        self._remember(call)
        call.decision = self.send(command)
        return call

    def _remember(self, call: Call[Any]) -> None:
        request_id = call.command.caller.request_id
        assert request_id == len(self.calls)
        self.calls[request_id] = self._open[request_id] = call

    def send(self, command: AnyCommand) -> Decision:
        """Decide the command, check everything, and apply the decision as the shell does."""
        group, soft = self.group, self.soft
        group_before, soft_before = (group.copy() if group is not None else None), copy.deepcopy(soft)
        decision = decide(command, group, soft, self._now(), self.settings)
        assert group == group_before, "decide changed its input"
        assert soft == soft_before, "decide changed its input"
        if decision.refreshed_session is not None:
            assert isinstance(command, Request)
            decision.refreshed_session.refresh(command.caller.arrived_ms, command.caller.connection)
        self._check(group, decision)
        check_promises(command, group, soft, decision, self.now_ms)
        if isinstance(command, JoinGroup):
            self._check_refusal(command, group, soft, decision)
        for reply in decision.replies:
            request = self.calls[reply.request_id].command
            check_answer(request, reply.outcome, decision.group, decision.soft)
            check_heard(request, reply.outcome, decision.soft)
        self.group, self.soft = decision.group, decision.soft
        self._store(decision.events)
        self.decisions.append(decision)
        for reply in decision.replies:
            self.calls[reply.request_id].take(reply.outcome)
        self._lose_superseded(command)
        return decision

    def _check(self, before: Group | None, decision: Decision) -> None:
        check_transition(before, decision.events, decision.group)
        check_soft(decision.group, decision.soft)
        if decision.group is None:
            return
        check_hard(decision.group)
        if before is None:
            before = new_group(self.group_id, incarnation=decision.group.incarnation, wall_ms=self.wall_ms)
        assert evolve(before, decision.events) == decision.group

    def _check_refusal(self, command: JoinGroup, group: Group | None, soft: SoftState, decision: Decision) -> None:
        refused = would_refuse(command, group, soft, self._now(), self.settings)
        answers = [reply.outcome for reply in decision.replies if reply.request_id == command.caller.request_id]
        errors = {answer.error for answer in answers if isinstance(answer, JoinGroupOutcome)}
        assert errors == {refused} or (refused is ErrorCode.none and errors <= {refused, ErrorCode.member_id_required})

    def _store(self, events: tuple[AnyEvent, ...]) -> None:
        for record in records_of(events, FORMAT_LEVEL):
            stored = StoredRecord(
                partition=0,
                offset=len(self.records),
                timestamp_ms=self.wall_ms,
                key=record.key,
                value=record.value,
            )
            self.records.append(stored)
            self._projector.feed(stored)
        self.events.extend(events)
        self.transition_ends.append(len(self.records))
        assert self._projector.groups.get(self.group_id) == self.group

    def _lose_superseded(self, command: AnyCommand) -> None:
        """A request that is neither parked nor answered must have been replaced by its own retry (J13, SG17)."""
        held = (arrival.join.caller for arrival in self.soft.held_joins.values() if arrival.parked)
        parked = {
            caller.request_id for caller in (*self.soft.parked_joins.values(), *self.soft.parked_syncs.values(), *held)
        }
        self._open = {request_id: call for request_id, call in self._open.items() if call.parked}
        assert parked <= self._open.keys(), "parked, but answered"
        for request_id in self._open.keys() - parked:
            call = self._open.pop(request_id)
            assert is_superseded_by(call.command, command), f"never answered: {call.command}"
            call.lost = True

    def _now(self) -> Now:
        return Now(
            monotonic_ms=self.now_ms,
            wall_ms=self.wall_ms,
            owner_epoch=self.owner_epoch,
            incarnation=max(self.wall_ms, self._projector.incarnation_max + 1),
        )
