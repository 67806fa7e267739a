"""The values that describe a rebalance, which `timeline.py` makes and `why` prints.

All fields are plain values, and their names are those of the JSON output. Instants are ISO 8601 in UTC, durations are
in ms. None means that a value is not known, or not known yet: each field says which.
"""

from enum import StrEnum, unique

import msgspec

from muster.events.causes import Cause
from muster.events.events import AnyMemberEvent
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.state import Member
from muster.replay.text.times import Instant, instant, wall_ms_of


class MemberRef(msgspec.Struct, frozen=True, kw_only=True):
    """A member, with what one needs to find its process. `client_host` is as Kafka prints it, '/10.0.0.7'."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    client_id: str
    client_host: str

    @property
    def identity(self) -> tuple[str, str]:
        """The identity that a restart keeps: the instance id of a static member; the member id of a dynamic one."""
        if self.group_instance_id is not None:
            return ("static", self.group_instance_id)
        return ("dynamic", self.member_id)


def ref(member: Member | MemberRef) -> MemberRef:
    return MemberRef(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
    )


class Actor(MemberRef, frozen=True, kw_only=True):
    """A member that acted or was acted upon, with the times when it was last heard from, where they were recorded."""

    principal: str | None
    session_timeout_ms: int | None = None
    last_seen: Instant | None = None
    silence_ms: int | None = None  # from the time it was last heard from to the decision
    longest_silence_ms: int | None = None  # between two requests since its previous event


def actor(event: AnyMemberEvent) -> Actor:
    member = event.member
    is_seen = event.heard is not False  # else `last_seen_ms` is the time of a takeover, not of a request
    return Actor(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        principal=member.principal,
        session_timeout_ms=member.session_timeout_ms,
        last_seen=instant(event.last_seen_ms) if is_seen else None,
        silence_ms=max(0, event.why.decided_ms - event.last_seen_ms) if is_seen else None,
        longest_silence_ms=event.longest_silence_ms,
    )


class ValueChange(msgspec.Struct, frozen=True, kw_only=True):
    """A value of the group, mostly a config; None: not set."""

    name: str
    before: str | None
    after: str | None


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The plan behind a rebalance's trigger, and its result: which members joined, left, or did neither."""

    came: tuple[MemberRef, ...] = ()  # new members whose joins were delayed until now
    did_not_come: tuple[GroupInstanceId, ...] = ()  # registered instances
    went: tuple[MemberRef, ...] = ()  # retired members that left on their own since the previous rebalance
    removed: tuple[MemberRef, ...] = ()  # retired members that did not leave in time
    stay: tuple[MemberRef, ...] = ()  # members whose retirement was withdrawn
    promoted: tuple[MemberRef, ...] = ()  # learners
    configs: tuple[ValueChange, ...] = ()


class Requester(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of the request, which need not be the member: an administrator removes others."""

    client_id: str | None
    client_host: str | None
    principal: str | None
    api_version: int | None


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """A cause of the rebalance. `who`: all members that the decision concerned; `seq`: the first event."""

    cause: Cause
    at: Instant
    seq: int
    text: str
    who: tuple[Actor, ...]
    client_reason: str | None  # the reason that the client gave (KIP-800); None: it gave none
    request: Requester | None  # None: a deadline passed
    planned: Planned | None = None  # None: nothing was planned


class TopicPartitions(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partitions: tuple[int, ...]


class PartitionMove(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions that moved. `previous`: None if they had no owner; `owner`: None if they no longer have one."""

    previous: MemberRef | None
    owner: MemberRef | None
    partitions: tuple[TopicPartitions, ...]
    count: int


class Movement(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions that moved since the last stable assignment; static members are compared by instance id."""

    moves: tuple[PartitionMove, ...]
    moved: int  # partitions that moved from one member to another
    gained: int  # partitions that had no owner before
    lost: int  # partitions that lost their owner
    stayed: int
    undecodable: tuple[MemberRef, ...]  # members whose assignment cannot be read, before or after


@unique
class HappeningKind(StrEnum):
    """The kinds of happenings."""

    STATIC_RESTART = "static-restart"
    COORDINATOR_TAKEOVER = "coordinator-takeover"
    COORDINATOR_PAUSE = "coordinator-pause"
    JOIN_REFUSED = "join-refused"
    MEMBER_FENCED = "member-fenced"
    INSTANCE_DUEL = "instance-duel"
    GROUP_DELETED = "group-deleted"
    JOINS_GATHERED = "joins-gathered"
    RETIRED_MEMBER_WENT = "retired-member-went"
    STANDBY_CALLED = "standby-called"
    INACTIVE_MEMBER_CAME = "held-member-came"
    INACTIVE_MEMBER_WENT = "held-member-went"
    PLANNED = "planned"
    """An administrator registered, retired or configured something: an announcement, which avoided no rebalance."""


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence that started no rebalance. `times` includes repetitions that were suppressed in the log."""

    kind: HappeningKind
    at: Instant
    text: str
    times: int = 1
    seq: int | None = None  # None: an event of the partition, not of the group
    error: str | None = None  # Kafka's name of the error in the response
    who: MemberRef | None = None
    until: Instant | None = None  # the last of several times, or the end; None: a single point in time, or not over
    members: tuple[MemberRef, ...] = ()  # all members that it concerns, if there are several
    movement: Movement | None = None  # what a standby took over; None: nothing moved, or it is not known


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A member's join during a join phase, counted from the phase's start."""

    member: MemberRef
    after_ms: int


class JoinPhase(msgspec.Struct, frozen=True, kw_only=True):
    """The join phase. `ended_by` is None while it runs, or when its end is not in the log."""

    started_at: Instant
    ended_at: Instant | None
    duration_ms: int | None
    timeout_ms: int  # the rebalance timeout, or the initial rebalance delay
    ended_by: Cause | None
    timed_out: bool
    arrivals: tuple[Arrival, ...]
    last_to_join: Arrival | None
    dropped: tuple[Occurrence, ...]  # removed because they did not join
    absent: tuple[MemberRef, ...]  # static members that were kept although they did not join
    awaited: tuple[MemberRef, ...]  # not joined yet, while the phase runs


class SyncPhase(msgspec.Struct, frozen=True, kw_only=True):
    """The sync phase, in which all members wait for the leader's assignment. `ended_at` is None while it runs."""

    started_at: Instant
    ended_at: Instant | None
    duration_ms: int | None
    leader: MemberRef | None


@unique
class Outcome(StrEnum):
    """How a rebalance ended."""

    STABLE = "stable"
    EMPTIED = "emptied"
    SUPERSEDED = "superseded"
    """Another rebalance began before there was an assignment."""
    RUNNING = "running"
    UNKNOWN = "unknown"
    """The end of the rebalance is not in the log."""


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    """A rebalance.

    `to_generation` is None when it has led to no generation (yet). `movement` is None when it is not known: the
    rebalance did not end, the history before it is incomplete, or the protocol type is not 'consumer'.
    """

    group_id: GroupId
    incarnation: int
    from_generation: int
    to_generation: int | None
    initial: bool  # the group was Empty
    trigger: Occurrence
    folded: tuple[Occurrence, ...]  # causes during it that would have started a rebalance; in order
    folded_left_out: int  # how many are left out, from the middle
    outcome: Outcome
    started_at: Instant
    ended_at: Instant | None
    duration_ms: int | None
    join_phase: JoinPhase
    sync_phase: SyncPhase | None
    leader: MemberRef | None
    protocol_type: str | None
    protocol_name: str | None
    members_before: tuple[MemberRef, ...]
    members_after: tuple[MemberRef, ...]
    movement: Movement | None
    avoided: tuple[Happening, ...]  # between the previous rebalance and this one
    meanwhile: tuple[Happening, ...]  # while it ran
    first_seq: int
    last_seq: int
    notes: tuple[str, ...]  # what its history lacks
    partitions_before: int | None = None  # those that had an owner; None: not known
    held: tuple[MemberRef, ...] = ()  # of `members_after`: learners and standbys, which have no partitions

    @property
    def started_ms(self) -> int:
        """Wall clock ms of `started_at`."""
        return wall_ms_of(self.started_at)

    @property
    def ended_ms(self) -> int:
        """The end in wall clock ms: by the duration, else by `ended_at` unless the clock was set back meanwhile."""
        if self.duration_ms is not None or self.ended_at is None:
            return self.started_ms + (self.duration_ms or 0)
        return max(self.started_ms, wall_ms_of(self.ended_at))
