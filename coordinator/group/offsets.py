"""Validation of offset commits and deletions. The offsets are stored elsewhere, and are not events."""

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AuthorizeCommit, Commit, CommitOffsets, DeleteOffsets, OffsetToCommit
from muster.coordinator.group.identity import validate_member
from muster.coordinator.group.outcomes import AuthorizeCommitOutcome, CommitOffsetsOutcome, DeleteOffsetsOutcome
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.soft_state import SoftState
from muster.events.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupId
from muster.events.state import NO_GENERATION, Group, GroupState


class OffsetsChange(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that a decision makes to its group's offsets. Partitions are (topic, partition)."""

    group_id: GroupId
    committed: tuple[OffsetToCommit, ...] = ()
    deleted: tuple[tuple[str, int], ...] = ()
    all_deleted: bool = False


def is_transactional(command: Commit) -> bool:
    """Return whether it is a TxnOffsetCommit (KIP-447), which refreshes no session (TO6)."""
    return isinstance(command, AuthorizeCommit) and command.is_transactional


def commit_error(group: Group | None, command: Commit) -> ErrorCode:
    """Return the error that answers a commit (OC1 to OC10).

    A simple consumer (generation below 0) may commit to Empty groups. A transaction may name no member at all (below
    v3), and may commit in CompletingRebalance (TO1 to TO5).
    """
    in_transaction = is_transactional(command)
    if group is None:
        unknown_group_error = ErrorCode.illegal_generation if in_transaction else command.unknown_group_error
        return ErrorCode.none if command.generation_id < 0 else unknown_group_error
    if command.generation_id < 0 and group.image.state is GroupState.EMPTY:
        return ErrorCode.none
    if in_transaction and names_no_member(command):
        return ErrorCode.none
    error = validate_member(group, command.member_id, command.group_instance_id)
    if error is not ErrorCode.none:
        return error
    if command.generation_id != group.image.generation_id:
        return ErrorCode.illegal_generation
    if group.image.state is GroupState.COMPLETING_REBALANCE and not in_transaction:
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def names_no_member(command: Commit) -> bool:
    """Return whether the commit names neither generation nor member nor instance."""
    return command.generation_id < 0 and command.member_id == UNKNOWN_MEMBER_ID and command.group_instance_id is None


def validate_commit(
    group: Group | None, command: CommitOffsets | AuthorizeCommit, settings: GroupSettings
) -> tuple[CommitOffsetsOutcome | AuthorizeCommitOutcome, OffsetsChange | None]:
    """Return the response to a commit, and the offsets to be stored here, or None."""
    error = commit_error(group, command)
    if isinstance(command, AuthorizeCommit):
        accepted_in = group if error is ErrorCode.none else None
        generation_id = accepted_in.image.generation_id if accepted_in is not None else NO_GENERATION
        return AuthorizeCommitOutcome(error=error, generation_id=generation_id), None
    if error is not ErrorCode.none:
        return CommitOffsetsOutcome(error=error), None
    refused = _refused_offsets(command, settings)
    committed = tuple(offset for offset in command.offsets if (offset.topic, offset.partition) not in refused)
    change = OffsetsChange(group_id=command.group_id, committed=committed)
    return CommitOffsetsOutcome(error=error, refused=refused), change


def _refused_offsets(command: CommitOffsets, settings: GroupSettings) -> dict[tuple[str, int], ErrorCode]:
    """Refuse offsets whose metadata is too large, in characters, as Kafka counts them (K4, OC14)."""
    return {
        (offset.topic, offset.partition): ErrorCode.offset_metadata_too_large
        for offset in command.offsets
        if len(offset.metadata) > settings.offset_metadata_max_bytes
    }


def validate_deletion(group: Group | None, soft: SoftState, command: DeleteOffsets) -> DeleteOffsetsOutcome:
    """Return the response to an OffsetDelete (OD1 to OD6). A group known only by its offsets counts as Empty here."""
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
