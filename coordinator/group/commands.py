"""What comes in: requests whose versions have been worn off, and deadlines that have passed.

Commands are imperative. What depends on an API version stands here as a named capability, so that no rule asks for a
version. Member ids for new members travel inside the command (`proposed_member_id`): the rules make no randomness.
"""

import msgspec
from kio.schema.errors import ErrorCode

from events.ids import GroupId, GroupInstanceId, MemberId
from events.state import Protocol


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


class CommitOffsets(Request, frozen=True, kw_only=True):
    """`unknown_group_error` is 69 from v9 on, 22 before (OC2)."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    generation_id: int
    unknown_group_error: ErrorCode
    offsets: tuple[OffsetToCommit, ...]


class DeleteOffsets(Request, frozen=True, kw_only=True):
    partitions: tuple[tuple[str, int], ...]


class DescribeGroup(Request, frozen=True, kw_only=True):
    pass


class DeleteGroup(Request, frozen=True, kw_only=True):
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


class RejectAssignment(Command, frozen=True, kw_only=True):
    """The events of this sync can never be stored: its members are told so, and the group rebalances (SG13)."""

    sync: SyncGroup
    error: ErrorCode


class CheckCapacity(Command, frozen=True, kw_only=True):
    """After a takeover: a group over group.max.size rebalances, so that the surplus can be refused (X8)."""


AnyRequest = (
    JoinGroup | SyncGroup | Heartbeat | LeaveGroup | CommitOffsets | DeleteOffsets | DescribeGroup | DeleteGroup
)
AnyDeadline = ExpireSession | ExpirePendingMember | EndJoinPhase | EndSyncPhase
AnyCommand = AnyRequest | AnyDeadline | RejectAssignment | CheckCapacity
