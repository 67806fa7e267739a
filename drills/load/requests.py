"""A member's commit. Its other requests are those that Muster itself sends upstream (upstream/group_requests.py)."""

from typing import Final

import msgspec
from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v8.response import OffsetCommitResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from muster.coordinator.upstream.group_requests import AsMember, GroupRequest

PROTOCOL_TYPE: Final = "consumer"
PROTOCOL: Final = "range"
REASON: Final = "muster drill"


class Membership(msgspec.Struct, kw_only=True):
    """A member's ids in its group at the moment; empty before it has joined, and when it has lost its place."""

    member_id: str = ""
    generation_id: int = -1
    partition: int | None = None


def commit(
    who: AsMember, at: Membership, *, topic: str, partition: int, offset: int, metadata: str = ""
) -> GroupRequest:
    """OffsetCommit v8 of one partition."""
    entry = OffsetCommitRequestPartition(
        partition_index=i32(partition), committed_offset=i64(offset), committed_metadata=metadata
    )
    request = OffsetCommitRequest(
        group_id=GroupId(who.group_id),
        generation_id_or_member_epoch=i32(at.generation_id),
        member_id=at.member_id,
        group_instance_id=who.group_instance_id,
        topics=(OffsetCommitRequestTopic(name=TopicName(topic), partitions=(entry,)),),
    )
    return GroupRequest(request, OffsetCommitResponse, _error_of)


def _error_of(answer: OffsetCommitResponse) -> ErrorCode:
    return answer.topics[0].partitions[0].error_code
