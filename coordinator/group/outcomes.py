"""Outcomes: responses, independent of the API version. Clients' rule violations are outcomes with an error code."""

from enum import StrEnum, unique

import msgspec
from kio.schema.errors import ErrorCode

from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import NO_GENERATION, GroupState


class JoinedMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member in the leader's JoinGroup response."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    metadata: bytes


class JoinGroupOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are the values of every error response (W12)."""

    error: ErrorCode = ErrorCode.none
    member_id: MemberId
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: MemberId = MemberId("")
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class Superseded(msgspec.Struct, frozen=True):
    """No response: the same member's next JoinGroup or SyncGroup has taken the place of this one (J13, SG17)."""


class SyncGroupOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are the values of every error response (W14)."""

    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class HeartbeatOutcome(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode


class LeftMember(msgspec.Struct, frozen=True, kw_only=True):
    """Ids exactly as they were sent (L2)."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    error: ErrorCode


class LeaveGroupOutcome(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.none
    members: tuple[LeftMember, ...] = ()


class CommitOffsetsOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """`error` applies to all partitions (OC13); `refused` has those refused individually (OC14)."""

    error: ErrorCode
    refused: dict[tuple[str, int], ErrorCode] = {}


class AuthorizeCommitOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """`generation_id`: the group's when the commit was accepted; the default with an error, or without a group."""

    error: ErrorCode
    generation_id: int = NO_GENERATION


class DeleteOffsetsOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """`error` replaces all results; `refused` has the partitions that were not deleted."""

    error: ErrorCode
    refused: dict[tuple[str, int], ErrorCode] = {}


class DescribedMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribeGroupOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """`error` is 69 for a group that does not exist; below v6 it is shown as state Dead without an error (DG1)."""

    error: ErrorCode = ErrorCode.none
    state: GroupState | None = None
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


class DeleteGroupOutcome(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode


class ReleasedMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a released group, which has to rejoin upstream.

    `was_parked`: its parked request was answered at the release; other members learn of it from their next response.
    """

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    was_parked: bool


class ReleaseGroupOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """`error` is 69 for a group that does not exist. In that case, or if the group had no members, `members` is
    empty.
    """

    error: ErrorCode = ErrorCode.none
    members: tuple[ReleasedMember, ...] = ()


class AlterGroupConfigOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """`message` names the config, its value and how to fix it; None without an error. `released`: see `release.py`."""

    error: ErrorCode
    message: str | None = None
    released: tuple[ReleasedMember, ...] = ()


@unique
class Standing(StrEnum):
    """The status of a member, or of an expected instance, as `muster members list` shows it."""

    ACTIVE = "Active"
    LEARNER = "Learner"
    STANDBY = "Standby"
    CALLED = "Called"
    EXPECTED = "Expected"
    """Registered, but has not joined."""
    WAITING = "Waiting"
    """Its join is held until the other registered instances have joined, or the expansion delay is over."""


class ListedMember(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `muster members list`. `since_ms`: wall clock. `session_left_ms`: None without a session.

    `join_left_ms`: the time left for the first join to be answered; the session begins then.
    """

    group_instance_id: GroupInstanceId | None
    member_id: MemberId
    client_id: str
    client_host: str
    standing: Standing
    retiring: bool
    is_leader: bool
    session_left_ms: int | None
    join_left_ms: int | None = None
    since_ms: int


@unique
class MoveState(StrEnum):
    MOVING = "moving"
    DONE = "done"
    GIVEN_UP = "given up"


class MovingMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member that a move waits for, or that is late.

    `is_notified`: a response has asked it to rejoin, and it has not done so yet. `wait_ms`: the longest that the move
    will still wait for it; None if unknown. `was_dropped`: the cluster upstream removed it before that response.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    is_notified: bool = msgspec.field(name="is_told")
    wait_ms: int | None = None
    was_dropped: bool = False


class GroupMove(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a move; `to` is a value of members.coordinator.

    `members`: the number of all members. `told`: members that were notified that they must join again. `back`: members
    that have revoked their partitions and asked to join; they join once all have asked. `left`: members that have left
    the group instead. `late`: members that have done neither in time.
    """

    to: str
    state: MoveState
    members: int
    told: int
    back: int
    left: int = 0
    waits_for: tuple[MovingMember, ...] = ()
    late: tuple[MovingMember, ...] = ()
    took_ms: int
    reason: str | None = None


class UnreadableRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The last record of a group's entity cannot be read. `entity_id`: of a member or an instance, or empty."""

    kind: str
    entity_id: str
    offset: int
    reason: str


class GroupDamage(msgspec.Struct, frozen=True, kw_only=True):
    """The damage of a quarantined group: what a repair loses, and what it keeps.

    `generation_id`: None if it cannot be read. `members`: how many can be read; all of them have to join again. A
    repair keeps `registered` and `configs`.
    """

    partition: int
    unreadable: tuple[UnreadableRecord, ...]
    generation_id: int | None
    members: int
    registered: tuple[str, ...]
    configs: dict[str, str]


class DescribeGroupConfigOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """`values` has the configs set for this group, by name; the others have their defaults (`configs.py`).

    `move`: the last move, added by the sidecar. `damage`: the damage of a quarantined group.
    """

    error: ErrorCode = ErrorCode.none
    values: dict[str, str] = {}
    members: tuple[ListedMember, ...] = ()
    move: GroupMove | None = None
    damage: GroupDamage | None = None


Outcome = (
    JoinGroupOutcome
    | SyncGroupOutcome
    | Superseded
    | HeartbeatOutcome
    | LeaveGroupOutcome
    | CommitOffsetsOutcome
    | AuthorizeCommitOutcome
    | DeleteOffsetsOutcome
    | DescribeGroupOutcome
    | DeleteGroupOutcome
    | ReleaseGroupOutcome
    | AlterGroupConfigOutcome
    | DescribeGroupConfigOutcome
)


class Reply(msgspec.Struct, frozen=True):
    """An outcome, and the request that it answers."""

    request_id: int
    outcome: Outcome
