"""Histories written by hand: a builder for the typed events of a group, one transition at a time.

It knows the form of transitions (member events, then an event on the group's own key) but not the rules, so that tests
can also use histories that the current rules would not produce.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from muster.events.avro.codec import records_of
from muster.events.causes import Cause
from muster.events.events import (
    AnyEvent,
    AnyMemberEvent,
    AnyPartitionEvent,
    CoordinatorElected,
    CoordinatorPaused,
    CoordinatorReady,
    CoordinatorStopped,
    GroupAdvanced,
    GroupCreated,
    GroupDeleted,
    GroupEmptied,
    GroupStabilized,
    JoinPhaseCompleted,
    JoinRefused,
    MemberAssigned,
    MemberFenced,
    PartitionEvent,
    RebalanceStarted,
    Why,
)
from muster.events.evolve import evolve
from muster.events.ids import MemberId
from muster.events.ownership import OwnershipEnd
from muster.events.records import FORMAT_LEVEL, Record, StoredRecord, Transition
from muster.events.state import NO_GENERATION, GroupState, Member, new_group
from muster.replay.history.items import Coordinated, Happened, LogPosition, Told, with_gaps
from tests.replay.member_events import MemberEvents
from tests.replay.whole import History

BEGIN_MS = 1_795_226_400_000
"""2026-11-21T02:00:00Z."""

Assignment = Mapping[str, Sequence[int]]


def assignment_bytes(assignment: Assignment) -> bytes:
    """Return a ConsumerProtocolAssignment, version 0."""
    encoded = struct.pack(">hi", 0, len(assignment))
    for topic, partitions in assignment.items():
        name = topic.encode()
        encoded += struct.pack(f">h{len(name)}si", len(name), name, len(partitions))
        encoded += struct.pack(f">{len(partitions)}i", *partitions)
    return encoded + struct.pack(">i", -1)


class Script(MemberEvents):
    """A group's history under construction. `wait` advances the time; all else happens at the same time."""

    def __init__(self, group_id: str = "orders", *, partition: int = 3, begin_ms: int = BEGIN_MS) -> None:
        super().__init__(group_id, begin_ms=begin_ms)
        self.partition = partition
        self.owner = "coordinator-a:100"
        self.transitions: list[tuple[int, tuple[AnyEvent | AnyPartitionEvent, ...]]] = []

    # ---- the clock, the coordinator -------------------------------------------------------------

    def wait(self, ms: int) -> "Script":
        self.now_ms += ms
        return self

    def coordinator(self, owner: str, *, took_ms: int = 800, end: OwnershipEnd | None = None) -> "Script":
        """A process takes the partition over; `end`: why the former owner lost it, if the log has that."""
        owner_before, self.owner = self.owner, owner
        self.epoch += 1
        self._append(
            CoordinatorElected(
                **self._partition(),
                elected_ms=self.now_ms,
                version="0.1.0",
                format_level=1,
                settings={"group.initial.rebalance.delay.ms": "3000"},
            )
        )
        self.wait(took_ms)
        self._append(
            CoordinatorReady(
                **self._partition(),
                ready_ms=self.now_ms,
                took_ms=took_ms,
                events_read=len(self.transitions),
                groups=1,
                members=len(self.group.members),
                incarnation_max=self.group.incarnation,
                owner_before=None if end is None else owner_before,
                owner_before_end=end,
            )
        )
        return self

    def stopped(self) -> "Script":
        self._append(CoordinatorStopped(**self._partition(), stopped_ms=self.now_ms))
        return self

    def paused(self, late_ms: int) -> "Script":
        sessions = len(self.group.members)
        self._append(CoordinatorPaused(**self._partition(), paused_ms=self.now_ms, late_ms=late_ms, sessions=sessions))
        return self

    def _partition(self) -> dict[str, Any]:
        return {"partition": self.partition, "owner_epoch": self.epoch, "owner": self.owner}

    # ---- transitions ----------------------------------------------------------------------------

    def created(self) -> "Script":
        return self.transition(self._of_group(GroupCreated, why=self.why(Cause.GROUP_CREATED)))

    def advanced(self, *members: AnyMemberEvent) -> "Script":
        return self.transition(*members, self._of_group(GroupAdvanced, why=members[-1].why))

    def start(self, *members: AnyMemberEvent, why: Why | None = None, timeout_ms: int = 300_000) -> "Script":
        return self.transition(*members, self.started(why or members[0].why, timeout_ms=timeout_ms))

    def started(self, why: Why, *, timeout_ms: int = 300_000) -> RebalanceStarted:
        fields = (
            {"assigned_generation_id": NO_GENERATION} if self.group.state is GroupState.COMPLETING_REBALANCE else {}
        )
        started: RebalanceStarted = self._of_group(
            RebalanceStarted, timeout_ms=timeout_ms, why=why, enter=GroupState.PREPARING_REBALANCE, **fields
        )
        return started

    def complete(
        self,
        *members: AnyMemberEvent,
        cause: Cause = Cause.ALL_JOINED,
        leader: Member | None = None,
        absent: Sequence[Member] = (),
    ) -> "Script":
        """End the join phase; the leader is the given one, or the previous one, or the first member."""
        after = evolve(self.group, members)
        leader_id = leader.member_id if leader else self.group.leader_id
        if leader_id not in after.members:
            leader_id = min(after.members.values(), key=lambda member: member.joined_ms).member_id
        return self.transition(
            *members,
            self._of_group(
                JoinPhaseCompleted,
                absent=tuple(member.member_id for member in absent),
                timed_out=cause is Cause.JOIN_PHASE_TIMED_OUT,
                why=self.why_of_timer(cause),
                enter=GroupState.COMPLETING_REBALANCE,
                generation_id=self.group.generation_id + 1,
                protocol_type="consumer",
                protocol_name="range",
                leader_id=leader_id,
            ),
        )

    def stabilize(self, assignments: Mapping[str, Assignment | bytes]) -> "Script":
        """The leader's assignment arrives, by instance id or member id."""
        leader = self.group.members[self.group.leader_id or MemberId("")]
        generation_id = self.group.generation_id
        why = self.why(Cause.ASSIGNMENT_RECEIVED, leader)
        events = []
        for member in self.group.members.values():
            given = assignments.get(member.group_instance_id or member.member_id, {})
            encoded = given if isinstance(given, bytes) else assignment_bytes(given)
            assigned = msgspec.structs.replace(member, assignment=encoded, assigned_generation_id=generation_id)
            events.append(MemberAssigned(**self._member(assigned), why=why))
        stabilized = self._of_group(
            GroupStabilized, why=why, enter=GroupState.STABLE, assigned_generation_id=generation_id
        )
        return self.transition(*events, stabilized)

    def emptied(self, *members: AnyMemberEvent, cause: Cause = Cause.ALL_JOINED) -> "Script":
        return self.transition(
            *members,
            self._of_group(
                GroupEmptied,
                why=self.why_of_timer(cause),
                enter=GroupState.EMPTY,
                generation_id=self.group.generation_id + 1,
                protocol_name=None,
                leader_id=None,
                assigned_generation_id=NO_GENERATION,
            ),
        )

    def deleted(self, cause: Cause = Cause.GROUP_DELETED) -> "Script":
        return self.transition(self._of_group(GroupDeleted, why=self.why(cause), enter=GroupState.DEAD))

    def made_anew(self) -> "Script":
        """Let the next event belong to a new incarnation of the group."""
        self.group = new_group(self.group_id, incarnation=self.now_ms, wall_ms=self.now_ms)
        return self

    def refused(self, member: Member, error_code: int, cause: Cause, *, suppressed: int = 0) -> "Script":
        why = self.why(cause, member)
        return self.transition(self._of_group(JoinRefused, error_code=error_code, suppressed=suppressed, why=why))

    def fenced(self, sender: Member, current: Member, *, suppressed: int = 0) -> "Script":
        return self.transition(
            self._of_group(
                MemberFenced,
                error_code=82,
                current_member_id=current.member_id,
                current_client_id=current.client_id,
                current_client_host=current.client_host,
                suppressed=suppressed,
                why=self.why(Cause.INSTANCE_FENCED, sender),
            )
        )

    def transition(self, *events: AnyEvent) -> "Script":
        """Number, apply and keep the events."""
        first = self.group.seq + 1
        numbered = tuple(msgspec.structs.replace(event, seq=first + position) for position, event in enumerate(events))
        self.group = evolve(self.group, numbered)
        self._append(*numbered)
        return self

    def _append(self, *events: AnyEvent | AnyPartitionEvent) -> None:
        self.transitions.append((self.now_ms, events))

    def _of_group(self, event_type: Any, *, enter: GroupState | None = None, why: Why, **fields: Any) -> Any:
        image = self.group.image
        names = image.__struct_fields__
        changes = {name: fields.pop(name) for name in list(fields) if name in names}
        if enter is not None:
            changes.update(state=enter, previous_state=image.state, state_since_ms=self.now_ms)
        return event_type(**self._head(), group=msgspec.structs.replace(image, **changes), why=why, **fields)

    # ---- what comes of it -----------------------------------------------------------------------

    def of(self, name: str) -> Member:
        """Return a member by its instance id, or by the beginning of its member id."""
        for member in self.group.members.values():
            if member.group_instance_id == name or member.member_id.startswith(name):
                return member
        raise KeyError(name)

    @property
    def reads(self) -> list[Told]:
        """Return the events as a log yields them, one offset each."""
        reads: list[Told] = []
        for timestamp_ms, events in self.transitions:
            for event in events:
                position = LogPosition(partition=self.partition, offset=len(reads), timestamp_ms=timestamp_ms)
                if isinstance(event, PartitionEvent):
                    reads.append(Coordinated(position=position, event=event))
                else:
                    reads.append(Happened(position=position, event=event))
        return reads

    def history(self, *, reads: Iterable[Told] | None = None) -> History:
        items = with_gaps(self.reads if reads is None else reads)
        return History(group_id=self.group_id, log="memory", items=tuple(items))

    def stored_transitions(self) -> list[Transition]:
        """Return the transitions as a coordinator appends them."""
        return [records_of(events, FORMAT_LEVEL) for _, events in self.transitions]

    def stored_records(self) -> list[StoredRecord]:
        """Return the records as a log keeps them."""
        flat: list[tuple[int, Record]] = [
            (timestamp_ms, record)
            for timestamp_ms, events in self.transitions
            for record in records_of(events, FORMAT_LEVEL)
        ]
        return [
            StoredRecord(self.partition, offset, timestamp_ms, record.key, record.value)
            for offset, (timestamp_ms, record) in enumerate(flat)
        ]
