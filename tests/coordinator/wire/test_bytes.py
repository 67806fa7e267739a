"""Reading and writing bytes: malformed requests, and values that a version cannot hold."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest
from muster.coordinator.group.outcomes import (
    AlterGroupConfigOutcome,
    CommitOffsetsOutcome,
    DeleteGroupOutcome,
    DeleteOffsetsOutcome,
    DescribeGroupConfigOutcome,
    DescribeGroupOutcome,
    HeartbeatOutcome,
    JoinGroupOutcome,
    LeaveGroupOutcome,
    Outcome,
    SyncGroupOutcome,
)
from muster.coordinator.load.answer_memory import AnswerMemory
from muster.coordinator.wire.api import Fault, ProtocolError
from muster.coordinator.wire.dispatch import dispatch
from muster.coordinator.wire.messages import message
from muster.coordinator.wire.registry import APIS
from muster.events.ids import MemberId
from muster.events.kafka.codec.writing import CHUNK_BYTES
from tests.coordinator.kio_client import ALL_VERSIONS, KEYS, PEER, Exchange, frame, keep_response, parse
from tests.coordinator.scripted import ScriptedGroups, new_service

OUTCOMES: dict[str, Outcome] = {
    "JoinGroup": JoinGroupOutcome(error=ErrorCode.unknown_member_id, member_id=MemberId("")),
    "SyncGroup": SyncGroupOutcome(),
    "Heartbeat": HeartbeatOutcome(error=ErrorCode.none),
    "LeaveGroup": LeaveGroupOutcome(),
    "CommitOffsets": CommitOffsetsOutcome(error=ErrorCode.none),
    "DeleteOffsets": DeleteOffsetsOutcome(error=ErrorCode.none),
    "DescribeGroup": DescribeGroupOutcome(error=ErrorCode.group_id_not_found),
    "DeleteGroup": DeleteGroupOutcome(error=ErrorCode.none),
    "AlterGroupConfig": AlterGroupConfigOutcome(error=ErrorCode.none),
    "DescribeGroupConfig": DescribeGroupConfigOutcome(),
}


def outcome(command: AnyRequest) -> Outcome:
    return OUTCOMES[type(command).__name__]


def send(content: bytes) -> list[bytes | ProtocolError]:
    answers: list[bytes | ProtocolError] = []
    service = new_service(ScriptedGroups(outcome))
    dispatch(content, apis=APIS, service=service, peer=PEER, answer=keep_response(answers))
    return answers


def fault_of(content: bytes) -> Fault:
    with pytest.raises(ProtocolError) as raised:
        send(content)
    return raised.value.fault


def start(name: str, version: int) -> bytes:
    """A header, with a null client id and no tagged fields."""
    flexible = bool(getattr(load_request_schema(KEYS[name], version), "__flexible__", False))
    return (
        KEYS[name].to_bytes(2, "big")
        + version.to_bytes(2, "big")
        + b"\x00\x00\x00\x07\xff\xff"
        + (b"\x00" if flexible else b"")
    )


HEARTBEAT: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "m"}


@pytest.mark.parametrize(("name", "version"), ALL_VERSIONS)
@given(body=st.binary(max_size=80))
@settings(max_examples=25)
def test_random_bodies_are_answered_or_refused(name: str, version: int, body: bytes) -> None:
    """Only the protocol's own error is ever raised."""
    answers: list[bytes | ProtocolError] = []
    fault = None
    try:
        answers = send(start(name, version) + body)
    except ProtocolError as error:
        fault = error.fault
    assert fault in {None, Fault.MALFORMED_REQUEST}
    for answered in answers:
        assert not isinstance(answered, ProtocolError)
        parse(name, version, answered)


@given(content=st.binary(min_size=8, max_size=200))
def test_random_frames_are_answered_or_refused(content: bytes) -> None:
    fault = None
    try:
        send(content)
    except ProtocolError as error:
        fault = error.fault
    assert fault in {None, Fault.UNKNOWN_API, Fault.UNSUPPORTED_VERSION, Fault.MALFORMED_REQUEST}


@pytest.mark.parametrize(
    ("version", "length"),
    [
        (5, b"\x7f\xff\xff\xff"),
        (5, b"\x00\x00\x00\x20"),
        (5, b"\x80\x00\x00\x00"),
        (6, b"\xff\xff\xff\xff\x0f"),
        (6, b"\xff\xff\xff\xff\x07"),
        (6, b"\x20"),
    ],
)
def test_an_array_longer_than_its_frame_asks_for_no_memory(version: int, length: bytes) -> None:
    """Allocating for a length of two thousand million would end the process."""
    old = b"\x00\x01g" + b"\x00\x00\x17\x70" * 2 + b"\x00\x01m" + b"\xff\xff" + b"\x00\x01c"
    flexible = b"\x02g" + b"\x00\x00\x17\x70" * 2 + b"\x02m" + b"\x00" + b"\x02c"
    content = start("JoinGroup", version) + (flexible if version == 6 else old) + length + bytes(8)
    assert fault_of(content) is Fault.MALFORMED_REQUEST


@pytest.mark.parametrize("version", [3, 4])
def test_a_request_that_ends_early_is_refused_wherever_it_ends(version: int) -> None:
    content = frame("Heartbeat", version, **HEARTBEAT)
    for length in range(8, len(content)):
        assert fault_of(content[:length]) is Fault.MALFORMED_REQUEST


@pytest.mark.parametrize("version", [3, 4])
def test_bytes_behind_a_request_are_left_alone(version: int) -> None:
    """Kafka 4.3.1 does the same."""
    (answered,) = send(frame("Heartbeat", version, **HEARTBEAT) + b"more")
    assert isinstance(answered, bytes)
    assert parse("Heartbeat", version, answered).error_code is ErrorCode.none


def test_a_string_has_a_bound() -> None:
    """The compact form could hold more; Kafka has the same limit (K7)."""
    (answered,) = send(frame("Heartbeat", 4, **HEARTBEAT | {"member_id": "m" * 32_767}))
    assert isinstance(answered, bytes)
    for field in ("member_id", "group_instance_id"):
        assert fault_of(frame("Heartbeat", 4, **HEARTBEAT | {field: "m" * 32_768})) is Fault.MALFORMED_REQUEST


def test_unknown_tagged_fields_are_stepped_over() -> None:
    """KIP-482; in a message with arrays, and in one without."""
    for name, body in (("Heartbeat", HEARTBEAT), ("DeleteGroups", {"groups_names": ["g"]})):
        version = APIS[KEYS[name]].versions[-1]
        content = frame(name, version, **body)
        assert content.endswith(b"\x00")
        (answered,) = send(content[:-1] + b"\x02\x05\x01x\x87\x01\x02yz")
        assert isinstance(answered, bytes)
        assert fault_of(content[:-1] + b"\x01\x05\x7fx") is Fault.MALFORMED_REQUEST


def test_unknown_tagged_fields_of_the_header_are_stepped_over() -> None:
    content = frame("Heartbeat", 4, client_id="c", **HEARTBEAT)
    header = b"\x00\x0c\x00\x04\x00\x00\x00\x07\x00\x01c"
    assert content.startswith(header + b"\x00")
    (answered,) = send(header + b"\x01\x09\x03abc" + content[len(header) + 1 :])
    assert isinstance(answered, bytes)
    assert parse("Heartbeat", 4, answered).error_code is ErrorCode.none


@pytest.mark.parametrize("name", [api.name for api in APIS.values() if api.name != "ApiVersions"])
def test_versions_that_are_not_offered_close_the_connection(name: str) -> None:
    offered = APIS[KEYS[name]].versions
    assert fault_of(start(name, offered[-1])[:2] + b"\x00\x63" + bytes(4)) is Fault.UNSUPPORTED_VERSION
    assert fault_of(start(name, offered[-1])[:2] + b"\xff\xff" + bytes(4)) is Fault.UNSUPPORTED_VERSION
    if offered[0]:
        assert fault_of(start(name, offered[-1])[:2] + bytes(6)) is Fault.UNSUPPORTED_VERSION


@pytest.mark.parametrize("key", [22, 25, 68, 999, 2**15 - 1])
def test_apis_that_are_not_offered_close_the_connection(key: int) -> None:
    """InitProducerId is among them: there are no transactions."""
    assert fault_of(key.to_bytes(2, "big") + bytes(30)) is Fault.UNKNOWN_API


@pytest.mark.parametrize("version", [5, 99, 2**15 - 1])
def test_api_versions_of_an_unknown_version_are_answered_in_v0(version: int) -> None:
    """A newer client can then ask again (KIP-511, known bug P2)."""
    (answered,) = send(b"\x00\x12" + version.to_bytes(2, "big") + b"\x00\x00\x00\x07anything")
    assert isinstance(answered, bytes)
    response = parse("ApiVersions", 0, answered)
    assert response.error_code is ErrorCode.unsupported_version
    assert [(each.api_key, each.min_version, each.max_version) for each in response.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize("version", [3, 5])
def test_an_unrepresentable_response_fails_only_its_connection(version: int) -> None:
    """A string of 40,000 bytes does not fit into the old form; the code that replied must not get the error."""
    groups = ScriptedGroups(lambda _command: None)
    exchange = Exchange(
        new_service(groups), "DescribeGroups", version, groups=["g"], include_authorized_operations=False
    )
    groups.release(DescribeGroupOutcome(protocol_type="m" * 40_000))
    (answered,) = exchange.answers
    if version < 5:
        assert isinstance(answered, ProtocolError)
        assert answered.fault is Fault.UNWRITABLE_RESPONSE
    else:
        assert exchange.response.groups[0].protocol_type == "m" * 40_000


@pytest.mark.parametrize("protocol_type", ["consumer", "m" * 40_000], ids=["it is written", "it cannot be"])
def test_an_answer_gives_the_memory_back_that_it_was_written_in(protocol_type: str) -> None:
    """Others wait for it; also if the version cannot hold the response."""
    answer_memory = AnswerMemory(CHUNK_BYTES)
    group = {
        "error_code": ErrorCode.none,
        "group_id": "g",
        "group_state": "Stable",
        "protocol_type": protocol_type,
        "protocol_data": "",
        "members": [],
        "authorized_operations": 0,
    }
    member = {"member_id": "m" * 1_000, "group_instance_id": None, "client_id": "", "client_host": ""}
    large = [{**member, "member_metadata": b"", "member_assignment": b""}] * (2 * CHUNK_BYTES // 1_000)
    groups = [{**group, "protocol_type": "", "members": large}, group]
    taken = 0
    with suppress(ProtocolError):
        for _ in message(15, 4).write_in_steps({"throttle_time": 0, "groups": groups}, answer_memory):
            taken = max(taken, answer_memory.written_bytes)
    assert taken >= CHUNK_BYTES
    assert answer_memory.written_bytes == 0
