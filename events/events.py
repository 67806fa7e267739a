"""The events: one class per type, named in the past tense, each with an Avro schema of the same name in `schemas/v*/`.

`evolve.py` applies an event to a group, `avro/codec.py` encodes it, `keys.py` defines its key.

Every event carries the whole new value of its entity (no deltas, since the topic is compacted) and why it happened. A
transition is the events of one decision; it ends with an event on the group's own key, so that the highest `seq`
survives any compaction. All times are wall clock in ms, all durations ms.
"""

import msgspec

from muster.events.causes import Cause
from muster.events.connection import LastConnection
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.ownership import OwnershipEnd
from muster.events.state import GroupConfig, GroupImage, HandedOutId, Member, Registration, ReturnedMember


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why an event happened: its cause, and the request or the member behind it. schemas/v6 documents each field."""

    cause: Cause
    member_id: MemberId | None = None
    group_instance_id: GroupInstanceId | None = None
    client_id: str | None = None
    client_host: str | None = None
    principal: str | None = None
    api_key: int | None = None
    api_version: int | None = None
    client_reason: str | None = None
    arrived_ms: int
    decided_ms: int
    parked_ms: int = 0
    uptime_ms: int | None = None
    connection_id: int | None = None
    """The connection that the request came on, unique within one owner_epoch; None for a timer, or below level 6."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a group; (group_id, incarnation, seq) identifies it forever."""

    group_id: GroupId
    incarnation: int
    seq: int
    owner_epoch: int


class GroupEvent(Event, frozen=True, kw_only=True):
    """An event on the group's own key."""

    group: GroupImage


class GroupCreated(GroupEvent, frozen=True, kw_only=True):
    why: Why


class GroupAdvanced(GroupEvent, frozen=True, kw_only=True):
    """Ends a transition that changed only members, registrations or configs."""

    why: Why


class RebalanceStarted(GroupEvent, frozen=True, kw_only=True):
    """The join phase began; `why.cause` is what triggered it."""

    timeout_ms: int
    why: Why


class JoinPhaseCompleted(GroupEvent, frozen=True, kw_only=True):
    """The next generation began. The static members in `absent` are part of it although they did not rejoin.

    `absent_seen_ms`: when each of them was last heard from; None if it has not been heard from since a takeover.
    `handed_out_ids`: the member ids that the phase waited for, 16 at most; `handed_out_ids_more` counts the rest.
    `returned`: members that were removed because they had gone silent, and were heard from again since the previous
    phase; limited and counted the same way.
    """

    absent: tuple[MemberId, ...]
    absent_seen_ms: tuple[int | None, ...] = ()
    timed_out: bool
    handed_out_ids: tuple[HandedOutId, ...] = ()
    handed_out_ids_more: int = 0
    returned: tuple[ReturnedMember, ...] = ()
    returned_more: int = 0
    why: Why


class GroupStabilized(GroupEvent, frozen=True, kw_only=True):
    why: Why


class GroupEmptied(GroupEvent, frozen=True, kw_only=True):
    """The join phase ended without a member. `handed_out_ids`: as in JoinPhaseCompleted."""

    handed_out_ids: tuple[HandedOutId, ...] = ()
    handed_out_ids_more: int = 0
    why: Why


class GroupDeleted(GroupEvent, frozen=True, kw_only=True):
    """A tombstone of the group's key follows in the same batch. `retention_ms` is set if the group expired."""

    empty_since_ms: int | None = None
    retention_ms: int | None = None
    why: Why


class JoinRefused(GroupEvent, frozen=True, kw_only=True):
    """A join was refused. The event keeps its protocol type, protocol names (16 at most) and session timeout.

    If the group does not exist, it is created for this event and deleted immediately.
    """

    error_code: int
    suppressed: int
    protocol_type: str | None = None
    offered_protocols: tuple[str, ...] = ()
    session_timeout_ms: int | None = None
    why: Why


class MemberFenced(GroupEvent, frozen=True, kw_only=True):
    """A request was fenced because another process has its instance id; the event names both."""

    error_code: int
    current_member_id: MemberId | None
    current_client_id: str | None
    current_client_host: str | None
    suppressed: int
    why: Why


class MemberEvent(Event, frozen=True, kw_only=True):
    """An event on a member's key: the instance id of a static member, the member id of a dynamic one.

    All carry `last_seen_ms`. `heard` is True if this owner itself heard from the member then; otherwise the time is
    that of the takeover.
    """

    member: Member


class MemberJoined(MemberEvent, frozen=True, kw_only=True):
    last_seen_ms: int
    longest_silence_ms: int
    heard: bool | None = None
    why: Why


class MemberRejoined(MemberEvent, frozen=True, kw_only=True):
    """`last_connection`: the connection that the member used before; None: the same one, or unknown."""

    last_seen_ms: int
    longest_silence_ms: int
    heard: bool | None = None
    last_connection: LastConnection | None = None
    why: Why


class StaticMemberReplaced(MemberEvent, frozen=True, kw_only=True):
    """A new process took the instance id. `replaced_last_seen_ms`: when the old one was last heard from; None: unknown.

    `replaced_connection`: the connection that the old one last used; None: unknown.
    """

    replaced_member_id: MemberId
    replaced_client_id: str
    replaced_client_host: str
    replaced_last_seen_ms: int | None = None
    replaced_connection: LastConnection | None = None
    last_seen_ms: int
    longest_silence_ms: int
    heard: bool | None = None
    why: Why


class MemberAssigned(MemberEvent, frozen=True, kw_only=True):
    last_seen_ms: int
    longest_silence_ms: int
    heard: bool | None = None
    why: Why


class MemberRoleChanged(MemberEvent, frozen=True, kw_only=True):
    """The member's role or its retirement changed, or its record was written again unchanged
    (Cause.RECORD_OVERWRITTEN).
    """

    last_seen_ms: int
    longest_silence_ms: int
    heard: bool | None = None
    why: Why


class MemberRemoved(MemberEvent, frozen=True, kw_only=True):
    """A tombstone of the member's key follows in the same batch.

    `last_connection`: the connection that the member last used; None: it was not heard from since a takeover, or the
    log is below level 6.
    """

    last_seen_ms: int
    longest_silence_ms: int
    heard: bool | None = None
    last_connection: LastConnection | None = None
    why: Why


class RegistrationEvent(Event, frozen=True, kw_only=True):
    """An event on the key of a registered instance (KIP-469)."""

    registration: Registration


class InstanceRegistered(RegistrationEvent, frozen=True, kw_only=True):
    why: Why


class RegistrationEnded(RegistrationEvent, frozen=True, kw_only=True):
    """A tombstone of the registration's key follows in the same batch."""

    why: Why


class GroupConfigured(Event, frozen=True, kw_only=True):
    """The group's own configs; if none is left, a tombstone of their key follows in the same batch."""

    config: GroupConfig
    why: Why


class PartitionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event on the partition itself: its owner, and since when."""

    partition: int
    owner_epoch: int
    owner: str


class CoordinatorElected(PartitionEvent, frozen=True, kw_only=True):
    """The fence record: written with the new epoch before the partition is read.

    Its form never changes, so that every version can recognize a log that is too new for it.
    """

    elected_ms: int
    version: str
    format_level: int
    settings: dict[str, str]


class CoordinatorReady(PartitionEvent, frozen=True, kw_only=True):
    ready_ms: int
    took_ms: int
    events_read: int
    groups: int
    members: int
    incarnation_max: int
    uptime_ms: int | None = None
    owner_before: str | None = None
    owner_before_seen_ms: int | None = None
    """The last sign of life that `owner_before`, the last owner that was ready, left alongside the events, by its wall
    clock.
    """
    owner_before_end: OwnershipEnd | None = None
    """Why it lost the partition, as far as the new owner knew; None: unknown."""


class CoordinatorPaused(PartitionEvent, frozen=True, kw_only=True):
    """The process or its machine stalled for at least `late_ms`, the lateness of the next deadline's timer."""

    paused_ms: int
    late_ms: int
    sessions: int
    uptime_ms: int | None = None


class CoordinatorStopped(PartitionEvent, frozen=True, kw_only=True):
    stopped_ms: int
    uptime_ms: int | None = None


AnyMemberEvent = (
    MemberJoined | MemberRejoined | StaticMemberReplaced | MemberAssigned | MemberRoleChanged | MemberRemoved
)
AnyGroupEvent = (
    GroupCreated
    | GroupAdvanced
    | RebalanceStarted
    | JoinPhaseCompleted
    | GroupStabilized
    | GroupEmptied
    | GroupDeleted
    | JoinRefused
    | MemberFenced
)
AnyRegistrationEvent = InstanceRegistered | RegistrationEnded
AnyEvent = AnyGroupEvent | AnyMemberEvent | AnyRegistrationEvent | GroupConfigured
AnyPartitionEvent = CoordinatorElected | CoordinatorReady | CoordinatorPaused | CoordinatorStopped
AnyRecordedEvent = AnyEvent | AnyPartitionEvent

EVENT_TYPES: tuple[type[AnyRecordedEvent], ...] = (
    GroupCreated,
    GroupAdvanced,
    RebalanceStarted,
    JoinPhaseCompleted,
    GroupStabilized,
    GroupEmptied,
    GroupDeleted,
    JoinRefused,
    MemberFenced,
    MemberJoined,
    MemberRejoined,
    StaticMemberReplaced,
    MemberAssigned,
    MemberRoleChanged,
    MemberRemoved,
    InstanceRegistered,
    RegistrationEnded,
    GroupConfigured,
    CoordinatorElected,
    CoordinatorReady,
    CoordinatorPaused,
    CoordinatorStopped,
)
