"""OffsetCommit, OffsetFetch and OffsetDelete in all their versions."""

from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import CommitOffsets, DeleteOffsets, OffsetToCommit
from muster.coordinator.group.outcomes import CommitOffsetsOutcome, DeleteOffsetsOutcome, Outcome
from muster.coordinator.service import CommittedOffset
from muster.coordinator.wire.dispatch import dispatch
from muster.coordinator.wire.registry import APIS
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from tests.coordinator.kio_client import PEER, Exchange, frame, versions
from tests.coordinator.scripted import CLUSTER, NOW_WALL_MS, ScriptedGroups, new_service

ORDERS, CLICKS = CLUSTER.topics["orders"], CLUSTER.topics["clicks"]
NOBODYS_ID = UUID(int=99)
NONE = ErrorCode.none


def groups_answering(outcome: Outcome) -> ScriptedGroups:
    return ScriptedGroups(lambda _command: outcome)


def partition(index: int, metadata: str | None = "m") -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": 40 + index,
        "committed_leader_epoch": 3,
        "committed_metadata": metadata,
    }


def commit(*topics: dict[str, Any]) -> dict[str, Any]:
    return {
        "group_id": "orders",
        "generation_id_or_member_epoch": 4,
        "member_id": "a-2",
        "group_instance_id": "a",
        "topics": topics,
    }


def errors(response: Any) -> list[list[tuple[int, ErrorCode]]]:
    return [[(each.partition_index, each.error_code) for each in topic.partitions] for topic in response.topics]


@pytest.mark.parametrize("version", versions("OffsetCommit"))
def test_a_commit_becomes_a_command_with_the_partitions_that_exist(version: int) -> None:
    groups = groups_answering(CommitOffsetsOutcome(error=NONE))
    body = commit(
        {"name": "orders", "topic_id": ORDERS.topic_id, "partitions": [partition(2), partition(3), partition(-1)]},
        {"name": "nope", "topic_id": NOBODYS_ID, "partitions": [partition(0)]},
        {"name": "clicks", "topic_id": CLICKS.topic_id, "partitions": [partition(0, None)]},
    )
    response = Exchange(new_service(groups), "OffsetCommit", version, **body).response
    (command,) = groups.commands
    assert isinstance(command, CommitOffsets)
    epoch = 3 if version >= 6 else -1
    assert command == CommitOffsets(
        caller=command.caller,
        group_id=GroupId("orders"),
        member_id=MemberId("a-2"),
        group_instance_id=GroupInstanceId("a") if version >= 7 else None,
        generation_id=4,
        unknown_group_error=ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation,
        offsets=tuple(
            OffsetToCommit(
                topic=topic,
                partition=index,
                offset=40 + index,
                leader_epoch=epoch,
                metadata=metadata,
                commit_ms=NOW_WALL_MS,
                expire_ms=None,
            )
            for topic, index, metadata in [("orders", 2, "m"), ("clicks", 0, "")]
        ),
    )
    unknown = ErrorCode.unknown_topic_or_partition
    no_topic = ErrorCode.unknown_topic_id if version >= 10 else unknown
    assert errors(response) == [[(2, NONE), (3, unknown), (-1, unknown)], [(0, no_topic)], [(0, NONE)]]
    if version >= 10:
        assert [topic.topic_id for topic in response.topics] == [ORDERS.topic_id, NOBODYS_ID, CLICKS.topic_id]


@pytest.mark.parametrize("version", versions("OffsetCommit"))
def test_a_group_error_is_set_on_each_existing_partition(version: int) -> None:
    """Unknown partitions were handled before, and keep their own error (G4, OC13)."""
    groups = groups_answering(CommitOffsetsOutcome(error=ErrorCode.illegal_generation))
    body = commit({"name": "orders", "topic_id": ORDERS.topic_id, "partitions": [partition(0), partition(7)]})
    response = Exchange(new_service(groups), "OffsetCommit", version, **body).response
    assert errors(response) == [[(0, ErrorCode.illegal_generation), (7, ErrorCode.unknown_topic_or_partition)]]


@pytest.mark.parametrize("version", versions("OffsetCommit"))
def test_partitions_are_refused_one_by_one(version: int) -> None:
    refused = {("orders", 1): ErrorCode.offset_metadata_too_large}
    groups = groups_answering(CommitOffsetsOutcome(error=NONE, refused=refused))
    body = commit({"name": "orders", "topic_id": ORDERS.topic_id, "partitions": [partition(0), partition(1)]})
    response = Exchange(new_service(groups), "OffsetCommit", version, **body).response
    assert errors(response) == [[(0, NONE), (1, ErrorCode.offset_metadata_too_large)]]


@pytest.mark.parametrize("topics", [(), ({"name": "nope", "topic_id": NOBODYS_ID, "partitions": [partition(0)]},)])
def test_a_commit_of_nothing_that_exists_does_not_ask_the_group(topics: tuple[dict[str, Any], ...]) -> None:
    """Kafka then validates no member and creates no group (G5)."""
    groups = groups_answering(CommitOffsetsOutcome(error=ErrorCode.unknown_member_id))
    response = Exchange(new_service(groups), "OffsetCommit", 9, **commit(*topics)).response
    assert groups.commands == []
    assert errors(response) == [[(0, ErrorCode.unknown_topic_or_partition)] for _ in topics]


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("retention_ms", "expire_ms"),
    [(-1, None), (0, NOW_WALL_MS), (60_000, NOW_WALL_MS + 60_000), (2**63 - 1, 2**63 - 1)],
)
def test_old_commits_set_their_retention(version: int, retention_ms: int, expire_ms: int | None) -> None:
    """`Long.MAX_VALUE` means for ever; no timedelta could hold it (OC18)."""
    groups = groups_answering(CommitOffsetsOutcome(error=NONE))
    content = frame(
        "OffsetCommit",
        version,
        **commit({"name": "clicks", "partitions": [partition(0)]}),
    )
    marker = (-1).to_bytes(8, "big", signed=True)
    assert content.count(marker) == 1  # kio's default for the retention time
    content = content.replace(marker, retention_ms.to_bytes(8, "big", signed=True))
    dispatch(content, apis=APIS, service=new_service(groups), peer=PEER, answer=lambda _answered: None)
    (command,) = groups.commands
    assert isinstance(command, CommitOffsets)
    assert [offset.expire_ms for offset in command.offsets] == [expire_ms]


COMMITTED = {
    ("orders", 0): CommittedOffset(offset=41, leader_epoch=3, metadata="m"),
    ("gone", 5): CommittedOffset(offset=7, leader_epoch=-1, metadata=""),
}


def groups_with_offsets() -> ScriptedGroups:
    groups = groups_answering(CommitOffsetsOutcome(error=NONE))
    groups.committed = {GroupId("orders"): COMMITTED, GroupId(""): {("clicks", 0): COMMITTED["orders", 0]}}
    return groups


def fetch(groups: ScriptedGroups, version: int, group_id: str, topics: Any) -> Any:
    """One group's part of the response, or all of it below v8."""
    request = {"group_id": group_id, "topics": topics}
    response = Exchange(
        new_service(groups), "OffsetFetch", version, **request, groups=[request], require_stable=True
    ).response
    if version < 8:
        return response
    (group,) = response.groups
    assert group.group_id == group_id
    return group


def found(group: Any) -> list[tuple[Any, ...]]:
    return [
        (each.partition_index, each.committed_offset, each.metadata, each.error_code)
        for topic in group.topics
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", versions("OffsetFetch"))
def test_offsets_are_returned_for_the_requested_partitions(version: int) -> None:
    """A partition without a commit, or without a declared topic, is no error but has offset -1 (OF3)."""
    group = fetch(
        groups_with_offsets(),
        version,
        "orders",
        [{"name": "orders", "topic_id": ORDERS.topic_id, "partition_indexes": [0, 8]}],
    )
    assert found(group) == [(0, 41, "m", NONE), (8, -1, "", NONE)]
    if version >= 5:
        assert [each.committed_leader_epoch for each in group.topics[0].partitions] == [3, -1]
    if version >= 2:
        assert group.error_code is NONE
    if version >= 10:
        assert group.topics[0].topic_id == ORDERS.topic_id
    else:
        assert group.topics[0].name == "orders"


@pytest.mark.parametrize("version", versions("OffsetFetch"))
def test_undeclared_topics(version: int) -> None:
    """A name without a topic may still have offsets; an id without a topic is unknown."""
    requested = [{"name": "gone", "topic_id": NOBODYS_ID, "partition_indexes": [5]}]
    group = fetch(groups_with_offsets(), version, "orders", requested)
    assert found(group) == [(5, -1, "", ErrorCode.unknown_topic_id) if version >= 10 else (5, 7, "", NONE)]


@pytest.mark.parametrize("version", versions("OffsetFetch", 2))
def test_null_asks_for_all_that_is_committed(version: int) -> None:
    """A topic that is no longer declared has no id to be returned with."""
    group = fetch(groups_with_offsets(), version, "orders", None)
    assert found(group) == [(0, 41, "m", NONE)] + ([] if version >= 10 else [(5, 7, "", NONE)])


@pytest.mark.parametrize("version", versions("OffsetFetch", 2))
def test_unknown_groups_have_no_offsets_and_the_empty_name_is_one_like_any_other(version: int) -> None:
    assert found(fetch(groups_with_offsets(), version, "nope", None)) == []
    assert found(fetch(groups_with_offsets(), version, "", None)) == [(0, 41, "m", NONE)]


@pytest.mark.parametrize("version", versions("OffsetFetch"))
def test_a_group_that_is_loading_is_an_error_in_the_versions_own_way(version: int) -> None:
    """v1 can only have a group's error on its partitions (W18)."""
    groups = groups_with_offsets()
    groups.committed_error = ErrorCode.coordinator_load_in_progress
    requested = [{"name": "orders", "topic_id": ORDERS.topic_id, "partition_indexes": [0]}]
    group = fetch(groups, version, "orders", requested)
    if version < 2:
        assert found(group) == [(0, -1, "", ErrorCode.coordinator_load_in_progress)]
    else:
        assert group.error_code is ErrorCode.coordinator_load_in_progress
        assert found(group) == []


def test_several_groups_are_returned_in_request_order() -> None:
    requested = [{"group_id": name, "topics": None} for name in ("orders", "nope", "")]
    response = Exchange(
        new_service(groups_with_offsets()), "OffsetFetch", 9, groups=requested, require_stable=False
    ).response
    assert [group.group_id for group in response.groups] == ["orders", "nope", ""]
    assert [len(group.topics) for group in response.groups] == [2, 0, 1]


DELETE: dict[str, Any] = {
    "group_id": "orders",
    "topics": [
        {"name": "orders", "partitions": [{"partition_index": 0}, {"partition_index": 9}]},
        {"name": "nope", "partitions": [{"partition_index": 0}]},
        {"name": "clicks", "partitions": [{"partition_index": 0}]},
    ],
}


def test_offsets_are_deleted_where_partitions_exist() -> None:
    refused = {("clicks", 0): ErrorCode.group_subscribed_to_topic}
    groups = groups_answering(DeleteOffsetsOutcome(error=NONE, refused=refused))
    response = Exchange(new_service(groups), "OffsetDelete", 0, **DELETE).response
    (command,) = groups.commands
    assert isinstance(command, DeleteOffsets)
    assert (command.group_id, command.partitions) == ("orders", (("orders", 0), ("clicks", 0)))
    unknown = ErrorCode.unknown_topic_or_partition
    assert errors(response) == [
        [(0, NONE), (9, unknown)],
        [(0, unknown)],
        [(0, ErrorCode.group_subscribed_to_topic)],
    ]


def test_a_groups_error_replaces_all_results_of_a_deletion() -> None:
    """The group is asked even if no partition is left (G8)."""
    groups = groups_answering(DeleteOffsetsOutcome(error=ErrorCode.group_id_not_found))
    body = DELETE | {"topics": DELETE["topics"][1:2]}
    response = Exchange(new_service(groups), "OffsetDelete", 0, **body).response
    assert (response.error_code, response.topics) == (ErrorCode.group_id_not_found, ())
    assert len(groups.commands) == 1
