"""Commands: requests, independent of their API version, and deadlines that have passed.

Differences between API versions are named fields here, so that no rule checks a version. Member ids for new members
come with the command (`proposed_member_id`), since the rules use no randomness.
"""

import typing
from collections.abc import Mapping
from enum import IntEnum, unique

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.connections import ConnectionRecord
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.keys import RecordKey
from muster.events.state import Protocol, TopicSize


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of a request, and when it arrived. `request_id` is the runtime's token for the response.

    `arrived_ms` is monotonic, `arrived_wall_ms` is for events. `connection`: None for our own requests.
    """

    request_id: int
    client_id: str
    client_host: str
    principal: str
    api_key: int
    api_version: int
    arrived_ms: int
    arrived_wall_ms: int
    connection: ConnectionRecord | None = None
    request_bytes: int = 0
    """The size of the request, of which the command may be a part."""

    @property
    def connection_id(self) -> int | None:
        """The number of the connection that the request arrived on."""
        return None if self.connection is None else self.connection.number


class Command(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId


class Request(Command, frozen=True, kw_only=True):
    caller: Caller


class JoinGroup(Request, frozen=True, kw_only=True):
    """KIP-394 (`requires_known_member_id`: v4+ without instance id) and KIP-814 (`supports_skip_assignment`: v9+)."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    proposed_member_id: MemberId
    protocol_type: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    reason: str | None
    requires_known_member_id: bool
    supports_skip_assignment: bool


class SyncGroup(Request, frozen=True, kw_only=True):
    """`protocol_type` and `protocol_name` are None below v5."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[MemberId, bytes], ...]


class Heartbeat(Request, frozen=True, kw_only=True):
    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    generation_id: int


class LeavingMember(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a LeaveGroup; an instance id with an empty member id is an administrator's removal (KIP-345)."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    reason: str | None


class LeaveGroup(Request, frozen=True, kw_only=True):
    members: tuple[LeavingMember, ...]


class OffsetToCommit(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of an OffsetCommit. Times: wall clock ms; `expire_ms` is None unless the request (v2 to v4) set a
    retention time.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None


class Commit(Request, frozen=True, kw_only=True):
    """The sender of a commit. `unknown_group_error` is 69 from OffsetCommit v9 on, 22 before (OC2)."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    generation_id: int
    unknown_group_error: ErrorCode


class CommitOffsets(Commit, frozen=True, kw_only=True):
    offsets: tuple[OffsetToCommit, ...]


class AuthorizeCommit(Commit, frozen=True, kw_only=True):
    """Validate a commit whose offsets are stored elsewhere. `is_transactional`: it is a TxnOffsetCommit (KIP-447)."""

    is_transactional: bool


class DeleteOffsets(Request, frozen=True, kw_only=True):
    partitions: tuple[tuple[str, int], ...]


class DescribeGroup(Request, frozen=True, kw_only=True):
    pass


class DeleteGroup(Request, frozen=True, kw_only=True):
    pass


class ReleaseGroup(Request, frozen=True, kw_only=True):
    """Hand the group over to the cluster upstream (see `release.py`)."""


@unique
class ConfigOperation(IntEnum):
    """Kafka's AlterConfigOp, by its numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of an IncrementalAlterConfigs; `value` is None only for DELETE. Lists are comma-separated."""

    name: str
    operation: ConfigOperation
    value: str | None


class AlterGroupConfig(Request, frozen=True, kw_only=True):
    """Apply all changes, or none of them; `validate_only`: only validate them."""

    changes: tuple[ConfigChange, ...]
    validate_only: bool


class DescribeGroupConfig(Request, frozen=True, kw_only=True):
    pass


class Deadline(Command, frozen=True, kw_only=True):
    """A deadline has passed; `due_ms` is monotonic."""

    due_ms: int


class ExpireSession(Deadline, frozen=True, kw_only=True):
    member_id: MemberId


class ExpirePendingMember(Deadline, frozen=True, kw_only=True):
    member_id: MemberId


class EndJoinPhase(Deadline, frozen=True, kw_only=True):
    pass


class EndSyncPhase(Deadline, frozen=True, kw_only=True):
    pass


class EndHold(Deadline, frozen=True, kw_only=True):
    """A held join was parked for its maximum time, or was not retried."""

    member_id: MemberId


class EndMemberSync(Deadline, frozen=True, kw_only=True):
    """A member was given an assignment outside a rebalance, and has not synced."""

    member_id: MemberId


class EndRegistration(Deadline, frozen=True, kw_only=True):
    pass


class EndExpansion(Deadline, frozen=True, kw_only=True):
    pass


class EndRetirement(Deadline, frozen=True, kw_only=True):
    pass


class PromoteLearners(Deadline, frozen=True, kw_only=True):
    pass


class RejectAssignment(Command, frozen=True, kw_only=True):
    """Fail the parked syncs, and rebalance: the events of this sync can never be stored (SG13)."""

    sync: SyncGroup
    error: ErrorCode


class CheckCapacity(Command, frozen=True, kw_only=True):
    """After a takeover, rebalance a group over group.max.size, so that the surplus is refused (X8)."""


class RebalanceUnassigned(Command, frozen=True, kw_only=True):
    """Rebalance for those of these topics that are still unassigned (see `unassigned.py`), and settle the others."""

    topics: tuple[TopicSize, ...]


class RewriteEntities(Command, frozen=True, kw_only=True):
    """Write these entities again, since the last records under their keys are foreign.

    Compaction keeps the last record of a key, no matter who wrote it, and would remove the owner's.
    """

    entities: tuple[RecordKey, ...]


class CommittedAt(typing.Protocol):
    """The time of a commit, and of its expiry if the commit named one (v2 to v4); wall clock ms."""

    @property
    def commit_ms(self) -> int: ...

    @property
    def expire_ms(self) -> int | None: ...


class ExpireOffsets(Command, frozen=True, kw_only=True):
    """Expire the group's offsets, and the group if none is left (EX1).

    `offsets`: all of them, by (topic, partition). `wall_ms`: the time at which expiry is evaluated (wall clock).
    """

    offsets: Mapping[tuple[str, int], CommittedAt]
    wall_ms: int


AnyRequest = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | CommitOffsets
    | AuthorizeCommit
    | DeleteOffsets
    | DescribeGroup
    | DeleteGroup
    | ReleaseGroup
    | AlterGroupConfig
    | DescribeGroupConfig
)
AnyMemberDeadline = ExpireSession | ExpirePendingMember | EndHold | EndMemberSync
AnyGroupDeadline = EndJoinPhase | EndSyncPhase | EndRegistration | EndExpansion | EndRetirement | PromoteLearners
AnyDeadline = AnyMemberDeadline | AnyGroupDeadline
AnyUpkeep = RejectAssignment | CheckCapacity | RebalanceUnassigned | RewriteEntities
"""Commands of the runtime itself, not sent by a client."""
AnyCommand = AnyRequest | AnyDeadline | AnyUpkeep | ExpireOffsets
