"""Requests of administrators to a harness, and other requests that need no client."""

from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import (
    AlterGroupConfig,
    AnyRequest,
    Caller,
    ConfigChange,
    ConfigOperation,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    DescribeGroupConfig,
    LeaveGroup,
    LeavingMember,
    OffsetToCommit,
    ReleaseGroup,
)
from muster.coordinator.group.connections import ConnectionRecord
from muster.coordinator.group.outcomes import (
    AlterGroupConfigOutcome,
    DeleteGroupOutcome,
    DeleteOffsetsOutcome,
    DescribeGroupConfigOutcome,
    DescribeGroupOutcome,
    LeaveGroupOutcome,
    ReleaseGroupOutcome,
)
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupId, GroupInstanceId
from tests.coordinator.group.client import LEAVE, Call, Client, O

DESCRIBE, DESCRIBE_CONFIGS, DELETE, ALTER_CONFIGS, DELETE_OFFSETS = 15, 32, 42, 44, 47
NO_API = -1


class Administrator:
    """Part of the harness, which provides the group, the clock and `send`."""

    group_id: GroupId
    now_ms: int
    calls: dict[int, Call[Any]]

    @property
    def wall_ms(self) -> int:
        raise NotImplementedError

    def ask(self, command: AnyRequest, learn: Callable[[O], None] | None = None) -> Call[O]:
        raise NotImplementedError

    def caller(
        self,
        api_key: int,
        api_version: int,
        *,
        client_id: str = "admin",
        client_host: str = "/10.0.0.9",
        principal: str = "User:admin",
        connection: ConnectionRecord | None = None,
    ) -> Caller:
        return Caller(
            request_id=len(self.calls),
            client_id=client_id,
            client_host=client_host,
            principal=principal,
            api_key=api_key,
            api_version=api_version,
            arrived_ms=self.now_ms,
            arrived_wall_ms=self.wall_ms,
            connection=connection,
        )

    def leave(self, *members: LeavingMember, client: Client | None = None) -> Call[LeaveGroupOutcome]:
        caller = client.caller(LEAVE, 5) if client else self.caller(LEAVE, 5)
        return self.ask(LeaveGroup(group_id=self.group_id, caller=caller, members=members))

    def leave_instance(self, *instances: str, reason: str | None = None) -> Call[LeaveGroupOutcome]:
        """Remove static members, as an administrator (KIP-345)."""
        return self.leave(
            *(
                LeavingMember(member_id=UNKNOWN_MEMBER_ID, group_instance_id=GroupInstanceId(instance), reason=reason)
                for instance in instances
            )
        )

    def describe(self) -> DescribeGroupOutcome:
        call: Call[DescribeGroupOutcome] = self.ask(
            DescribeGroup(group_id=self.group_id, caller=self.caller(DESCRIBE, 6))
        )
        return call.outcome

    def delete(self) -> Call[DeleteGroupOutcome]:
        return self.ask(DeleteGroup(group_id=self.group_id, caller=self.caller(DELETE, 2)))

    def release(self) -> Call[ReleaseGroupOutcome]:
        """Release the group, as `muster release`."""
        return self.ask(ReleaseGroup(group_id=self.group_id, caller=self.caller(NO_API, 0)))

    def delete_offsets(self, *partitions: tuple[str, int]) -> Call[DeleteOffsetsOutcome]:
        return self.ask(
            DeleteOffsets(group_id=self.group_id, caller=self.caller(DELETE_OFFSETS, 0), partitions=partitions)
        )

    def offset(self, topic: str = "orders", partition: int = 0, *, metadata: str = "") -> OffsetToCommit:
        return OffsetToCommit(
            topic=topic,
            partition=partition,
            offset=42,
            leader_epoch=-1,
            metadata=metadata,
            commit_ms=self.wall_ms,
            expire_ms=None,
        )

    def alter(
        self, *changes: tuple[str, ConfigOperation, str | None], validate_only: bool = False
    ) -> Call[AlterGroupConfigOutcome]:
        """Change the group's configs, as an administrator."""
        named = tuple(ConfigChange(name=name, operation=operation, value=value) for name, operation, value in changes)
        caller = self.caller(ALTER_CONFIGS, 1)
        command = AlterGroupConfig(group_id=self.group_id, caller=caller, changes=named, validate_only=validate_only)
        return self.ask(command)

    def set(self, **settings: str) -> Call[AlterGroupConfigOutcome]:
        """Set configs by name, with `_` for `.`; they must be accepted."""
        call = self.alter(*((name.replace("_", "."), ConfigOperation.SET, value) for name, value in settings.items()))
        assert call.error is ErrorCode.none, call.outcome
        return call

    def describe_config(self) -> DescribeGroupConfigOutcome:
        call: Call[DescribeGroupConfigOutcome] = self.ask(
            DescribeGroupConfig(group_id=self.group_id, caller=self.caller(DESCRIBE_CONFIGS, 4))
        )
        return call.outcome
