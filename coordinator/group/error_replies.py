"""The response to a request that was not decided, as each API phrases an error (Kafka's `getErrorResponse`)."""

from collections.abc import Callable, Mapping

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import (
    AlterGroupConfig,
    AnyCommand,
    AuthorizeCommit,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    DescribeGroupConfig,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ReleaseGroup,
    Request,
    SyncGroup,
)
from muster.coordinator.group.describe import describe
from muster.coordinator.group.outcomes import (
    AlterGroupConfigOutcome,
    AuthorizeCommitOutcome,
    CommitOffsetsOutcome,
    DeleteGroupOutcome,
    DeleteOffsetsOutcome,
    DescribeGroupConfigOutcome,
    HeartbeatOutcome,
    JoinGroupOutcome,
    LeaveGroupOutcome,
    Outcome,
    ReleaseGroupOutcome,
    Reply,
    SyncGroupOutcome,
)

_ERROR_ALONE: Mapping[type[Request], Callable[..., Outcome]] = {
    SyncGroup: SyncGroupOutcome,
    Heartbeat: HeartbeatOutcome,
    LeaveGroup: LeaveGroupOutcome,
    CommitOffsets: CommitOffsetsOutcome,
    AuthorizeCommit: AuthorizeCommitOutcome,
    DeleteOffsets: DeleteOffsetsOutcome,
    DeleteGroup: DeleteGroupOutcome,
    ReleaseGroup: ReleaseGroupOutcome,
    AlterGroupConfig: AlterGroupConfigOutcome,
    DescribeGroupConfig: DescribeGroupConfigOutcome,
}
"""The outcomes that need nothing but the error."""


def error_replies(command: AnyCommand, error: ErrorCode) -> tuple[Reply, ...]:
    """Answer a request with an error, because it cannot be decided here or its decision could not be made durable.

    Deadlines and the other commands that no client sent get no response.
    """
    if not isinstance(command, Request):
        return ()
    match command:
        case JoinGroup():
            outcome: Outcome = JoinGroupOutcome(error=error, member_id=command.member_id)
        case DescribeGroup():
            outcome = msgspec.structs.replace(describe(None), error=error)
        case _:
            outcome = _ERROR_ALONE[type(command)](error=error)
    return (Reply(command.caller.request_id, outcome),)
