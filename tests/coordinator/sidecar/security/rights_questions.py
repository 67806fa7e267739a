"""A request for each row of the table of rights, by a user without groups, about what others have set up.

It only has the requests; other modules check the responses.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from muster.events.records import Record
from tests.conformance.wire import ms
from tests.coordinator.sidecar.security.rights_table import IDS, KAFKAS, MEMBERS, MUSTERS, MUSTERS_ALL, OWN_TOPICS
from tests.coordinator.sidecar.security.security_stage import TOPIC, Member, join_body
from tests.events.log.kafka.foreign_batches import batch

Question = tuple[str, int, dict[str, Any]]
"""API, version, body."""
Asked = list[tuple[int, dict[str, Any]]]
"""Versions and bodies of one API."""

OWN_TOPIC: Final = "__muster_events"
OWN_ID: Final = f"muster-{OWN_TOPIC}-0"
_GROUP_RESOURCE: Final = 32
_NOBODY: Final = {"member_id": "nobody", "group_instance_id": None}
_NO_PRODUCER: Final = {"producer_id": -1, "producer_epoch": -1}
_TIMEOUT: Final = {"timeout": ms(5_000), "transaction_timeout": ms(60_000)}


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """The subjects of the requests: a group with a member, and a transactional id with its producer."""

    member: Member
    transactional_id: str
    producer: Mapping[str, int]
    own_topic_id: UUID


def questions(stage: Stage, api: str, about: str) -> list[Question]:
    """All tested forms of this request, those that change something last."""
    return [(api, version, body) for version, body in _BY_REQUEST[api, about](stage)]


def _group(stage: Stage) -> dict[str, Any]:
    return {"group_id": stage.member.group_id}


def _find(stage: Stage) -> Asked:
    return [(4, {"key_type": 0, "coordinator_keys": [stage.member.group_id]})]


def _find_of_transactions(stage: Stage) -> Asked:
    return [(4, {"key_type": 1, "coordinator_keys": [stage.transactional_id]})]


def _join(stage: Stage) -> Asked:
    # It has another protocol type than the group, as a successful join would change the group.
    return [(version, join_body(stage.member.group_id, protocol_type="another")) for version in (3, 9)]


def _sync(stage: Stage) -> Asked:
    named = {"protocol_type": "consumer", "protocol_name": "range"}  # without them it is refused earlier
    return [(5, {**stage.member.beating, **named, "assignments": []})]


def _beat(stage: Stage) -> Asked:
    return [(4, stage.member.beating)]


def _leave(stage: Stage) -> Asked:
    left = {"member_id": stage.member.member_id, "group_instance_id": None, "reason": None}
    return [(2, {**_group(stage), "member_id": "nobody"}), (5, {**_group(stage), "members": [left]})]


def _newer_heartbeat(stage: Stage) -> Asked:
    body = {
        **_group(stage),
        "member_id": "nobody",
        "member_epoch": -1,  # by an unknown member: otherwise it is deferred when there is a shadow
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": ms(-1),
        "subscribed_topic_names": [TOPIC],
        "server_assignor": None,
        "topic_partitions": None,
    }
    return [(0, body)]


def _topics() -> list[dict[str, Any]]:
    partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": None}
    return [{"name": TOPIC, "partitions": [partition]}]


def _commit(stage: Stage) -> Asked:
    body = {
        **stage.member.beating,
        "generation_id_or_member_epoch": stage.member.generation_id,
        "topics": _topics(),
    }
    return [(version, body) for version in (7, 9)]


def _fetch(stage: Stage) -> Asked:
    topics = [{"name": TOPIC, "partition_indexes": [0]}]
    return [(8, {"groups": [{**_group(stage), "topics": topics}], "require_stable": False})]


def _delete_offsets(stage: Stage) -> Asked:
    return [(0, {**_group(stage), "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]})]


def _describe(stage: Stage) -> Asked:
    return [(version, {"groups": [stage.member.group_id], "include_authorized_operations": True}) for version in (5, 6)]


def _list(_stage: Stage) -> Asked:
    return [(4, {"states_filter": []}), (5, {"states_filter": [], "types_filter": []})]


def _delete(stage: Stage) -> Asked:
    return [(2, {"groups_names": [stage.member.group_id]})]


def _described(stage: Stage, *names: str) -> Asked:
    shown = {"include_synonyms": False, "include_documentation": False}
    resource = {"resource_type": _GROUP_RESOURCE, "resource_name": stage.member.group_id}
    return [(4, {"resources": [{**resource, "configuration_keys": [name]}], **shown}) for name in names]


def _altered(stage: Stage, **values: str) -> Asked:
    resource = {"resource_type": _GROUP_RESOURCE, "resource_name": stage.member.group_id}
    changes = [{"name": name.replace("_", "."), "config_operation": 0, "value": each} for name, each in values.items()]
    return [(1, {"resources": [{**resource, "configs": [each]}], "validate_only": True}) for each in changes]


def _produce(stage: Stage, *, is_transactional: bool) -> Asked:
    records = batch([Record(b"key", b"value")], transactional=is_transactional)
    partitions = [{"index": 0, "records": records}]
    transactional_id = stage.transactional_id if is_transactional else None
    topic_data = [{"name": TOPIC, "partition_data": partitions}]
    return [(9, {"transactional_id": transactional_id, "acks": -1, "topic_data": topic_data, **_TIMEOUT})]


def _produce_to_own(stage: Stage) -> Asked:
    partitions = [{"index": 0, "records": batch([Record(b"key", b"value")])}]
    topic_data = [{"name": OWN_TOPIC, "topic_id": stage.own_topic_id, "partition_data": partitions}]
    body = {"transactional_id": None, "acks": -1, "topic_data": topic_data, **_TIMEOUT}
    return [(version, body) for version in (9, 13)]


def _init(transactional_id: str | None) -> Asked:
    return [(4, {"transactional_id": transactional_id, **_NO_PRODUCER, **_TIMEOUT})]


def _add_partitions(stage: Stage, transactional_id: str) -> Asked:
    names = ("transactional_id", "producer_id", "producer_epoch", "topics")
    values = (transactional_id, *stage.producer.values(), [{"name": TOPIC, "partitions": (0,)}])
    return [(3, {f"v3_and_below_{name}": value for name, value in zip(names, values, strict=True)})]


def _add_offsets(stage: Stage, transactional_id: str) -> Asked:
    return [(3, {"transactional_id": transactional_id, **stage.producer, **_group(stage)})]


def _commit_in_transaction(stage: Stage, transactional_id: str) -> Asked:
    named = {"transactional_id": transactional_id, **stage.producer, "topics": _topics()}
    return [(5, {**stage.member.beating, **named})]


def _end(stage: Stage, transactional_id: str) -> Asked:
    return [(3, {"transactional_id": transactional_id, **stage.producer, "committed": True})]


_BY_REQUEST: Final[Mapping[tuple[str, str], Callable[[Stage], Asked]]] = {
    ("FindCoordinator", "a group"): _find,
    ("FindCoordinator", "a transactional id"): _find_of_transactions,
    ("JoinGroup", ""): _join,
    ("SyncGroup", ""): _sync,
    ("Heartbeat", ""): _beat,
    ("LeaveGroup", ""): _leave,
    ("ConsumerGroupHeartbeat", ""): _newer_heartbeat,
    ("OffsetCommit", ""): _commit,
    ("OffsetFetch", ""): _fetch,
    ("OffsetDelete", ""): _delete_offsets,
    ("DescribeGroups", ""): _describe,
    ("ListGroups", ""): _list,
    ("DeleteGroups", ""): _delete,
    ("DescribeConfigs", KAFKAS): lambda stage: _described(stage, "consumer.session.timeout.ms"),
    ("DescribeConfigs", MUSTERS): lambda stage: _described(stage, "target.group.size"),
    ("DescribeConfigs", MEMBERS): lambda stage: _described(stage, "members", "members.move"),
    ("IncrementalAlterConfigs", KAFKAS): lambda stage: _altered(stage, consumer_session_timeout_ms="50000"),
    ("IncrementalAlterConfigs", MUSTERS_ALL): lambda stage: _altered(
        stage, target_group_size="3", members_coordinator="upstream"
    ),
    ("Produce", ""): lambda stage: _produce(stage, is_transactional=False),
    ("Produce", "in a transaction"): lambda stage: _produce(stage, is_transactional=True),
    ("Produce", OWN_TOPICS): _produce_to_own,
    ("InitProducerId", "without a transactional id"): lambda _: _init(None),
    ("InitProducerId", ""): lambda stage: _init(stage.transactional_id),
    ("InitProducerId", IDS): lambda _: _init(OWN_ID),
    ("AddPartitionsToTxn", ""): lambda stage: _add_partitions(stage, stage.transactional_id),
    ("AddPartitionsToTxn", IDS): lambda stage: _add_partitions(stage, OWN_ID),
    ("AddOffsetsToTxn", ""): lambda stage: _add_offsets(stage, stage.transactional_id),
    ("AddOffsetsToTxn", IDS): lambda stage: _add_offsets(stage, OWN_ID),
    ("TxnOffsetCommit", ""): lambda stage: _commit_in_transaction(stage, stage.transactional_id),
    ("TxnOffsetCommit", IDS): lambda stage: _commit_in_transaction(stage, OWN_ID),
    ("EndTxn", ""): lambda stage: _end(stage, stage.transactional_id),
    ("EndTxn", IDS): lambda stage: _end(stage, OWN_ID),
}
