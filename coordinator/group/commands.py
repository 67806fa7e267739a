"""What comes in: requests whose versions have been worn off, and deadlines that have passed.

Commands are imperative. What depends on an API version stands here as a named capability, so that no rule asks for a
version. Member ids for new members travel inside the command (`proposed_member_id`): the rules make no randomness.
"""

import typing
from collections.abc import Mapping
from enum import IntEnum, unique

import msgspec
from kio.schema.errors import ErrorCode

from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.keys import RecordKey
from muster.events.state import Protocol


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a request, and when. `request_id` is the shell's token for the answer.

    `arrived_ms` is monotonic, `arrived_wall_ms` is what is written.
    """

    request_id: int
    client_id: str
    client_host: str
    principal: str
    api_key: int
    api_version: int
    arrived_ms: int
    arrived_wall_ms: int


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
    """One entry of a LeaveGroup; an empty member id with an instance id is an administrator's removal (KIP-345)."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    reason: str | None


class LeaveGroup(Request, frozen=True, kw_only=True):
    members: tuple[LeavingMember, ...]


class OffsetToCommit(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of an OffsetCommit. Times: wall clock ms; `expire_ms` is None unless v2 to v4 gave a retention."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None


class Commit(Request, frozen=True, kw_only=True):
    """Who commits. `unknown_group_error` is 69 from OffsetCommit v9 on, 22 before (OC2)."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    generation_id: int
    unknown_group_error: ErrorCode


class CommitOffsets(Commit, frozen=True, kw_only=True):
    offsets: tuple[OffsetToCommit, ...]


class AuthorizeCommit(Commit, frozen=True, kw_only=True):
    """May these offsets be committed? They are kept elsewhere. `is_transactional`: a TxnOffsetCommit asks (KIP-447)."""

    is_transactional: bool


class DeleteOffsets(Request, frozen=True, kw_only=True):
    partitions: tuple[tuple[str, int], ...]


class DescribeGroup(Request, frozen=True, kw_only=True):
    pass


class DeleteGroup(Request, frozen=True, kw_only=True):
    pass


class ReleaseGroup(Request, frozen=True, kw_only=True):
    """The group is to be served upstream from here on (see `release.py`)."""


@unique
class ConfigOperation(IntEnum):
    """Kafka's AlterConfigOp, by its numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of an IncrementalAlterConfigs; `value` is None for DELETE alone. Lists are separated by commas."""

    name: str
    operation: ConfigOperation
    value: str | None


class AlterGroupConfig(Request, frozen=True, kw_only=True):
    """All changes, or none of them; `validate_only`: say what would come of it."""

    changes: tuple[ConfigChange, ...]
    validate_only: bool


class DescribeGroupConfig(Request, frozen=True, kw_only=True):
    pass


class Deadline(Command, frozen=True, kw_only=True):
    """A deadline that has passed; `due_ms` is monotonic."""

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
    """An arrival has been parked for long enough, or has not come back."""

    member_id: MemberId


class EndCatchUp(Deadline, frozen=True, kw_only=True):
    """A member was given an assignment outside a rebalance, and has not asked for it."""

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
    """The events of this sync can never be stored: its members are told so, and the group rebalances (SG13)."""

    sync: SyncGroup
    error: ErrorCode


class CheckCapacity(Command, frozen=True, kw_only=True):
    """After a takeover: a group over group.max.size rebalances, so that the surplus can be refused (X8)."""


class RewriteEntities(Command, frozen=True, kw_only=True):
    """Write what is there of these entities again: the last records under their keys are not ours.

    Compaction keeps the last record of a key, whoever wrote it, and would drop the owner's.
    """

    entities: tuple[RecordKey, ...]


class CommittedAt(typing.Protocol):
    """When an offset was committed, and when it expires if the commit said so (v2 to v4); wall clock ms."""

    @property
    def commit_ms(self) -> int: ...

    @property
    def expire_ms(self) -> int | None: ...


class ExpireOffsets(Command, frozen=True, kw_only=True):
    """The sweep has come to this group (EX1). `offsets`: all that is committed for it, by (topic, partition)."""

    offsets: Mapping[tuple[str, int], CommittedAt]


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
AnyMemberDeadline = ExpireSession | ExpirePendingMember | EndHold | EndCatchUp
AnyGroupDeadline = EndJoinPhase | EndSyncPhase | EndRegistration | EndExpansion | EndRetirement | PromoteLearners
AnyDeadline = AnyMemberDeadline | AnyGroupDeadline
AnyUpkeep = RejectAssignment | CheckCapacity | RewriteEntities
"""What the shell finds to be done, and nobody asked for."""
AnyCommand = AnyRequest | AnyDeadline | AnyUpkeep | ExpireOffsets
