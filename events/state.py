"""Hard state: the state of a group, built from its events. For soft state see `coordinator/group/soft_state.py`.

Invariants, numbered:

 1. `members` is keyed by each member's own member_id.
 2. `instances` maps the instance id of every static member to its member id, and has no other entries (KIP-345).
 3. `image.leader_id` is a member id, or None if there is no member.
 4. Empty and Dead groups have no members.
 5. `seq` is that of the last event applied.
 6. A member's assignment counts only if it was made for `image.assigned_generation_id`. A rebalance that starts
    while assignments are awaited (RB1) invalidates all of them by rewriting only the group's record, so no event
    depends on another one that compaction may have removed.
 7. `registrations` is keyed by each one's own instance id, and no member has one of these ids (KIP-469).
 8. `image.departures_gathered`, only in Stable: retired members have left, their partitions have no member, and
    another retiring member is still here, whose departure will start the rebalance.
 9. In CompletingRebalance and Stable the leader is active or called; in CompletingRebalance no member is called.
10. `image.emptied_by` is None while there are members.

`GroupImage`, `Member`, `Registration` and `GroupConfig` are the records that events carry. `Group` is the only mutable
value: nothing but `evolve.py` changes it, on copies of its own.
"""

from enum import StrEnum, unique

import msgspec

from muster.events.causes import Cause
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.tables import Table

NO_GENERATION = -1


@unique
class GroupState(StrEnum):
    """Kafka's own names (S1)."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@unique
class MemberRole(StrEnum):
    """The role of a member. Kafka has only active members.

    Learners and standbys are *inactive*: they heartbeat, are hidden from the leader, and have an empty assignment. A
    called standby has the assignment of a lost member, and has not synced yet.
    """

    ACTIVE = "Active"
    LEARNER = "Learner"
    STANDBY = "Standby"
    CALLED = "Called"


INACTIVE_ROLES = frozenset({MemberRole.LEARNER, MemberRole.STANDBY})


@unique
class HandedOutIdOutcome(StrEnum):
    """The outcome of a member id that was handed out. The values stay in logs forever: never change one."""

    JOINED = "joined"
    LEFT = "left"
    TIMED_OUT = "timed-out"
    REFUSED = "refused"
    """The client came back, but the group was full."""
    STILL_OUT = "still-out"
    UNKNOWN = "unknown"
    """Read from a log that a newer version wrote. Never written."""


class HandedOutId(msgspec.Struct, frozen=True, kw_only=True):
    """A member id that was handed out (KIP-394) and not used immediately. `age_ms`: how long it was outstanding."""

    member_id: MemberId
    client_id: str
    client_host: str
    age_ms: int
    outcome: HandedOutIdOutcome


class ReturnedMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member that was removed because it had gone silent, but was heard from at `heard_ms` (wall clock): it had not
    died.
    """

    member_id: MemberId
    heard_ms: int


class Protocol(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a member's protocol list: an assignor and the member's opaque metadata for it."""

    name: str
    metadata: bytes


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A complete member. `joined_ms` is wall clock, the timeouts are durations, all in ms."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    client_id: str
    client_host: str
    principal: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes
    assigned_generation_id: int
    joined_ms: int
    role: MemberRole = MemberRole.ACTIVE
    retiring: bool = False

    @property
    def is_inactive(self) -> bool:
        """True for a learner or a standby, which is left out of the assignment."""
        return self.role in INACTIVE_ROLES

    @property
    def name(self) -> str:
        """The member's name for administrators: its instance id if it has one, else its member id."""
        return self.group_instance_id or self.member_id

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for the protocol; empty if it does not offer it."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""


class GroupImage(msgspec.Struct, frozen=True, kw_only=True):
    """The group's own record. `emptied_by`: why the last member left, while the group has none."""

    state: GroupState
    previous_state: GroupState
    state_since_ms: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: MemberId | None
    assigned_generation_id: int
    departures_gathered: bool = False
    emptied_by: Cause | None = None


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """The registration of an instance that is expected to join. `registered_ms` is wall clock."""

    group_instance_id: GroupInstanceId
    registered_ms: int


class TopicSize(msgspec.Struct, frozen=True, kw_only=True):
    """A topic and the number of its partitions; 0: not known."""

    topic: str
    partitions: int


class GroupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configs of one group; None: not set. Names, defaults and limits: `coordinator/group/configs.py`.

    `rebalanced_for` is not a config: it holds the topics for which `unassigned_rebalance_delay_ms` made Muster request
    a rebalance, until they are assigned, so that it requests only one rebalance, even after the owner changes.
    """

    target_group_size: int | None = None
    expansion_delay_ms: int | None = None
    learner_timeout_ms: int | None = None
    registration_timeout_ms: int | None = None
    retirement_timeout_ms: int | None = None
    coordinator: str | None = None
    unassigned_rebalance_delay_ms: int | None = None
    rebalanced_for: tuple[TopicSize, ...] = ()


NOT_CONFIGURED = GroupConfig()


class Group(msgspec.Struct, kw_only=True):
    """A group, built from its events. Only `evolve` changes it."""

    group_id: GroupId
    incarnation: int
    seq: int
    image: GroupImage
    members: Table[MemberId, Member] = msgspec.field(default_factory=Table)
    instances: Table[GroupInstanceId, MemberId] = msgspec.field(default_factory=Table)
    registrations: Table[GroupInstanceId, Registration] = msgspec.field(default_factory=Table)
    config: GroupConfig = NOT_CONFIGURED

    @property
    def state(self) -> GroupState:
        return self.image.state

    @property
    def generation_id(self) -> int:
        return self.image.generation_id

    @property
    def leader_id(self) -> MemberId | None:
        return self.image.leader_id

    def assignment_of(self, member: Member) -> bytes:
        """Return the member's assignment, or empty bytes if it is no longer valid (invariant 6)."""
        if member.assigned_generation_id == self.image.assigned_generation_id:
            return member.assignment
        return b""

    def copy(self) -> "Group":
        """Return an independent copy; the cost does not depend on the size of the group."""
        return Group(
            group_id=self.group_id,
            incarnation=self.incarnation,
            seq=self.seq,
            image=self.image,
            members=self.members.copy(),
            instances=self.instances.copy(),
            registrations=self.registrations.copy(),
            config=self.config,
        )


def new_group(group_id: GroupId, *, incarnation: int, wall_ms: int) -> Group:
    """Create a group before its first event (S3)."""
    return Group(
        group_id=group_id,
        incarnation=incarnation,
        seq=0,
        image=GroupImage(
            state=GroupState.EMPTY,
            previous_state=GroupState.EMPTY,
            state_since_ms=wall_ms,
            generation_id=0,
            protocol_type=None,
            protocol_name=None,
            leader_id=None,
            assigned_generation_id=NO_GENERATION,
        ),
    )
