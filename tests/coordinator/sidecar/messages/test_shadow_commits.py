"""A commit under the shadow's name, read by kio: three fields are replaced, the rest is the client's."""

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from muster.coordinator.sidecar.messages.shadow_commits import (
    OFFSET_COMMIT,
    TXN_OFFSET_COMMIT,
    hide_shadow_errors,
    with_identity,
)
from muster.coordinator.upstream.shadow import CommitIdentity
from muster.coordinator.wire.api import Fault, ProtocolError
from muster.events.kafka.codec.primitives import tagged_fields_size
from muster.events.steps import finished
from tests.coordinator.kio_client import filled
from tests.coordinator.sidecar.scripted_broker import asking, read_response, response, response_bytes

IDENTITY = CommitIdentity(member_id="muster-log-4b1c", generation_id=77, group_instance_id="muster-log")
TOPICS = [
    {
        "name": name,
        "partitions": [
            {
                "partition_index": number,
                "committed_offset": 2**40 + number,
                "committed_leader_epoch": 3,
                "committed_metadata": metadata,
            }
            for number, metadata in enumerate([None, "", "für später"])
        ],
    }
    for name in ("orders", "clicks")
]
VERSIONS = [(OFFSET_COMMIT, version) for version in range(2, 11)]
VERSIONS += [(TXN_OFFSET_COMMIT, version) for version in range(3, 6)]  # before v3 it has no member, and is relayed
MEMBERS = [("consumer-1", None), ("consumer-1", "a"), ("", None), ("m" * 200, "i" * 200)]
"""Longer and shorter than the shadow's, and lengths of two bytes where they are varints."""


def commit(api_key: int, version: int, member: tuple[str, str | None], client_id: str | None = "shop") -> bytes:
    """A request without its length."""
    member_id, instance_id = member
    values = {
        "group_id": "orders-group",
        "transactional_id": "orders-1",
        "producer_id": 2**40,
        "producer_epoch": 5,
        "generation_id": 12,
        "generation_id_or_member_epoch": 12,
        "member_id": member_id,
        "group_instance_id": instance_id,
        "retention_time": timedelta(hours=1),
        "topics": TOPICS if version < 10 else [topic | {"topic_id": None} for topic in TOPICS],
    }
    return asking(filled(load_request_schema(api_key, version), values), client_id=client_id)[4:]


def read(api_key: int, version: int, frame: bytes) -> tuple[Any, dict[str, Any]]:
    """The header and the fields, to the last byte."""
    schema: Any = load_request_schema(api_key, version)
    header, at = entity_reader(schema.__header_schema__)(frame, 0)
    body, size = entity_reader(schema)(frame, at)
    assert at + size == len(frame)
    return header, {field.name: getattr(body, field.name) for field in fields(body)}


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("client_id", [None, "shop"])
def test_only_the_identity_is_changed(
    api_key: int, version: int, member: tuple[str, str | None], client_id: str | None
) -> None:
    frame = commit(api_key, version, member, client_id)
    header, before = read(api_key, version, frame)
    header_now, after = read(api_key, version, with_identity(frame, IDENTITY))
    generation = "generation_id" if "generation_id" in before else "generation_id_or_member_epoch"
    changed = {generation: IDENTITY.generation_id, "member_id": IDENTITY.member_id}
    if "group_instance_id" in before:
        changed["group_instance_id"] = IDENTITY.group_instance_id
    assert header_now == header
    assert after == before | changed


@pytest.mark.parametrize(("api_key", "version"), [(OFFSET_COMMIT, 8), (OFFSET_COMMIT, 10), (TXN_OFFSET_COMMIT, 5)])
def test_tagged_fields_stay(api_key: int, version: int) -> None:
    """Those of the header, before the changed fields, and those of the body, after them."""
    frame = commit(api_key, version, ("consumer-1", "a"))
    at = 8 + 2 + len("shop")
    assert (frame[at], frame[-1]) == (0, 0)
    tagged = b"\x01\x05\x02hi"
    frame = frame[:at] + tagged + frame[at + 1 : -1] + tagged
    changed = with_identity(frame, IDENTITY)
    assert changed[: at + len(tagged)] == frame[: at + len(tagged)]
    assert tagged_fields_size(changed, at) == len(tagged)
    assert changed.endswith(tagged)
    _, after = read(api_key, version, changed[:at] + b"\x00" + changed[at + len(tagged) : -len(tagged)] + b"\x00")
    assert after["member_id"] == IDENTITY.member_id


# ---- the response -----------------------------------------------------------------------------------------

STAY = [
    ErrorCode.none,
    ErrorCode.rebalance_in_progress,
    ErrorCode.topic_authorization_failed,
    ErrorCode.unknown_topic_or_partition,
]
GO = [ErrorCode.illegal_generation, ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id]


def answer(api_key: int, version: int, errors: list[ErrorCode]) -> bytes:
    """The same errors for two topics. Partition indexes look like error codes."""
    partitions = [{"partition_index": 25 + at, "error_code": error} for at, error in enumerate(errors)]
    topics = [{"name": name, "topic_id": None, "partitions": partitions} for name in ("orders", "clicks")]
    return response_bytes(response(api_key, version, topics=topics))


def errors_of(api_key: int, version: int, payload: bytes) -> list[list[ErrorCode]]:
    """The errors of each topic's partitions."""
    topics = read_response(api_key, version, payload).topics
    return [[partition.error_code for partition in topic.partitions] for topic in topics]


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_errors_about_the_shadow_are_not_sent_to_the_client(api_key: int, version: int) -> None:
    """It would rejoin (22), leave the group (25), or end (82)."""
    doubted: list[str] = []
    rewrite = hide_shadow_errors(api_key, version, lambda: doubted.append("once"))
    reported = finished(rewrite(answer(api_key, version, [*STAY, *GO, *STAY])))
    again = ErrorCode.coordinator_load_in_progress
    assert reported == answer(api_key, version, [*STAY, *[again] * len(GO), *STAY])
    assert errors_of(api_key, version, reported) == [[*STAY, *[again] * len(GO), *STAY]] * 2
    assert doubted == ["once"]


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_any_other_answer_is_passed_on_as_it_is(api_key: int, version: int) -> None:
    doubted: list[str] = []
    rewrite = hide_shadow_errors(api_key, version, lambda: doubted.append("never"))
    for payload in (answer(api_key, version, STAY), answer(api_key, version, []), b"of a newer form"):
        assert finished(rewrite(payload)) == payload
    assert doubted == []


def test_tagged_fields_of_an_answer_stay() -> None:
    """Those of the header, and those of the body."""
    tagged = b"\x01\x05\x02hi"
    before, after = (
        tagged + answer(OFFSET_COMMIT, 9, [error])[1:-1] + tagged
        for error in (ErrorCode.unknown_member_id, ErrorCode.coordinator_load_in_progress)
    )
    assert finished(hide_shadow_errors(OFFSET_COMMIT, 9, lambda: None)(before)) == after


def test_an_answer_that_ends_too_early_is_the_brokers_fault() -> None:
    whole = answer(OFFSET_COMMIT, 9, GO)
    rewrite = hide_shadow_errors(OFFSET_COMMIT, 9, lambda: None)
    with pytest.raises(ProtocolError) as raised:
        finished(rewrite(whole[:-6]))
    assert raised.value.fault is Fault.BROKER_ANSWER
