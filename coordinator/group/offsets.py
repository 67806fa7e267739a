"""Who may commit and delete offsets. The offsets themselves are kept elsewhere; they are no events."""

import msgspec
from kio.schema.errors import ErrorCode

from coordinator.group.commands import CommitOffsets, DeleteOffsets, OffsetToCommit
from coordinator.group.identity import validate_member
from coordinator.group.outcomes import CommitOffsetsOutcome, DeleteOffsetsOutcome
from coordinator.group.settings import GroupSettings
from coordinator.group.soft import Soft
from events.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from events.ids import GroupId
from events.state import Group, GroupState


class OffsetsChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision does to the offsets of its group. Partitions are (topic, partition)."""

    group_id: GroupId
    committed: tuple[OffsetToCommit, ...] = ()
    deleted: tuple[tuple[str, int], ...] = ()
    all_deleted: bool = False


def accepted_offsets(command: CommitOffsets, outcome: CommitOffsetsOutcome) -> OffsetsChange:
    """The offsets of a commit that were not refused one by one."""
    committed = tuple(o for o in command.offsets if (o.topic, o.partition) not in outcome.refused)
    return OffsetsChange(group_id=command.group_id, committed=committed)


def commit_error(group: Group | None, command: CommitOffsets) -> ErrorCode:
    """OC1 to OC10: a simple consumer (generation below 0) may commit while nobody is a member."""
    if group is None:
        return ErrorCode.none if command.generation_id < 0 else command.unknown_group_error
    if command.generation_id < 0 and group.image.state is GroupState.EMPTY:
        return ErrorCode.none
    error = validate_member(group, command.member_id, command.group_instance_id)
    if error is not ErrorCode.none:
        return error
    if command.generation_id != group.image.generation_id:
        return ErrorCode.illegal_generation
    if group.image.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def judge_commit(group: Group | None, command: CommitOffsets, settings: GroupSettings) -> CommitOffsetsOutcome:
    """The verdict on a commit; metadata is measured in characters, as Kafka does (K4, OC14)."""
    error = commit_error(group, command)
    if error is not ErrorCode.none:
        return CommitOffsetsOutcome(error=error)
    refused = {
        (offset.topic, offset.partition): ErrorCode.offset_metadata_too_large
        for offset in command.offsets
        if len(offset.metadata) > settings.offset_metadata_max_bytes
    }
    return CommitOffsetsOutcome(error=ErrorCode.none, refused=refused)


def judge_deletion(group: Group | None, soft: Soft, command: DeleteOffsets) -> DeleteOffsetsOutcome:
    """OD1 to OD6. A group known by its offsets alone reaches this as an Empty one."""
    if not command.group_id:
        return DeleteOffsetsOutcome(error=ErrorCode.invalid_group_id)
    if group is None:
        return DeleteOffsetsOutcome(error=ErrorCode.group_id_not_found)
    if group.image.state is GroupState.EMPTY:
        return DeleteOffsetsOutcome(error=ErrorCode.none)
    if group.image.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return DeleteOffsetsOutcome(error=ErrorCode.non_empty_group)
    subscribed = soft.subscribed_topics
    refused = {
        (topic, partition): ErrorCode.group_subscribed_to_topic
        for topic, partition in command.partitions
        if subscribed is None or topic in subscribed
    }
    return DeleteOffsetsOutcome(error=ErrorCode.none, refused=refused)
