"""Responses for groups that cannot be served yet, on which clients retry; and advice for the operator when a record of
their partition cannot be read.
"""

import shlex

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest, Heartbeat, SyncGroup
from muster.coordinator.group.error_replies import error_replies
from muster.coordinator.group.outcomes import HeartbeatOutcome, Reply, SyncGroupOutcome
from muster.events.records import BrokenBatch, BrokenRecord


def loading_reply(command: AnyRequest) -> tuple[Reply, ...]:
    """Answer a request while its partition is loading (G19 to G21); heartbeats succeed, so that no member notices."""
    if isinstance(command, Heartbeat):
        return (Reply(command.caller.request_id, HeartbeatOutcome(error=ErrorCode.none)),)
    return retry_reply(command)


def retry_reply(command: AnyRequest) -> tuple[Reply, ...]:
    """Make the client retry, with COORDINATOR_LOAD_IN_PROGRESS; REBALANCE_IN_PROGRESS for a sync (QK8).

    Some clients fail if a sync gets COORDINATOR_LOAD_IN_PROGRESS; with REBALANCE_IN_PROGRESS they rejoin.
    """
    if isinstance(command, SyncGroup):
        return (Reply(command.caller.request_id, SyncGroupOutcome(error=ErrorCode.rebalance_in_progress)),)
    return error_replies(command, ErrorCode.coordinator_load_in_progress)


def way_out(broken: BrokenRecord, log_url: str = "URL") -> str:
    """Return advice for the operator when an unreadable record keeps its partition from being served. Kafka lets no
    client remove a batch from the middle of a topic.
    """
    if isinstance(broken, BrokenBatch):
        return (
            "another replica of the topic's partition, if its copy of the batch is complete: make it the leader "
            "(kafka-leader-election.sh, or stop the current leader's broker). Otherwise restore the topic, or "
            "start with another --log"
        )
    repair = f"muster log repair --log {shlex.quote(log_url)} --yes"
    return f"a newer version of Muster, if it wrote the record; otherwise stop this process, then run {repair}"
