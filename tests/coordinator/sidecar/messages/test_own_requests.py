"""Responses to our own requests: read like kio does, whatever a newer broker adds, and not trusted."""

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from muster.coordinator.sidecar.apis.merging import as_fields
from muster.coordinator.sidecar.messages.own_requests import read_answer_in_steps
from muster.coordinator.sidecar.relay.limits import SASL_AUTHENTICATE
from muster.coordinator.wire import (
    delete_groups,
    describe_configs,
    describe_groups,
    incremental_alter_configs,
    list_groups,
    metadata,
    offset_delete,
)
from muster.coordinator.wire.api import Fault, ProtocolError
from muster.coordinator.wire.messages import message
from muster.events.steps import finished
from tests.coordinator.sidecar.messages.any_answer import any_answer
from tests.coordinator.sidecar.scripted_broker import response, response_bytes

DESCRIBE_GROUPS = describe_groups.API.key
WHOLE = [delete_groups, describe_configs, describe_groups, incremental_alter_configs, list_groups, offset_delete]
VERSIONS = [(module.API.key, version) for module in WHOLE for version in module.API.versions]
VERSIONS += [(SASL_AUTHENTICATE, version) for version in range(3)] + [(metadata.API.key, 9), (metadata.API.key, 12)]
TAGGED = b"\x01\x05\x02hi"


def read_answer(kind: Any, payload: bytes) -> Any:
    """Read in one go."""
    return finished(read_answer_in_steps(kind, payload))


def described(api_version: int = 5, error: ErrorCode = ErrorCode.none) -> Any:
    """A description of a group without members."""
    group = {"error_code": error, "group_id": "orders", "group_state": "Dead", "protocol_type": ""}
    groups = [{**group, "protocol_data": "", "members": ()}]
    return response(DESCRIBE_GROUPS, api_version, groups=groups)


@pytest.mark.parametrize(("api_key", "api_version"), VERSIONS)
def test_responses_are_rewritten_byte_for_byte(api_key: int, api_version: int) -> None:
    """To the last byte, durations included."""
    schema: Any = load_response_schema(api_key, api_version)
    random = Random(api_key * 100 + api_version)
    for _ in range(20):
        payload = response_bytes(any_answer(schema, random))
        assert message(api_key, api_version).write(as_fields(read_answer(schema, payload))) == payload


def test_tagged_fields_are_stepped_over() -> None:
    """In the header, and in the body (KIP-482)."""
    answer = described()
    payload = response_bytes(answer)
    assert (payload[0], payload[-1]) == (0, 0)
    read = read_answer(type(answer), TAGGED + payload[1:-1] + TAGGED)
    assert as_fields(read) == as_fields(read_answer(type(answer), payload))
    assert read.groups[0].group_id == "orders"


def test_an_error_that_is_not_known_yet_is_one() -> None:
    payload = response_bytes(described(error=ErrorCode.group_id_not_found))
    at = payload.index(ErrorCode.group_id_not_found.to_bytes(2, "big"))
    (group,) = read_answer(type(described()), payload[:at] + (9_999).to_bytes(2, "big") + payload[at + 2 :]).groups
    assert group.error_code is ErrorCode.unknown_server_error


@pytest.mark.parametrize("api_version", [1, 2])
def test_a_duration_that_python_cannot_hold_is_read(api_version: int) -> None:
    """`connections.max.reauth.ms` may be any long."""
    schema: Any = load_response_schema(SASL_AUTHENTICATE, api_version)
    fields = {"error_code": ErrorCode.none, "error_message": None, "auth_bytes": b""}
    payload = response_bytes(response(SASL_AUTHENTICATE, api_version, **fields))
    tail = b"\x00" if schema.__flexible__ else b""
    longest = payload[: len(payload) - 8 - len(tail)] + (2**63 - 1).to_bytes(8, "big") + tail
    assert read_answer(schema, longest).session_lifetime == 2**63 - 1


@pytest.mark.parametrize(
    ("api_version", "too_many"),
    [(0, b"\x7f\xff\xff\xff"), (5, bytes(5) + b"\xff\xff\xff\xff\x07"), (5, b"\xff" * 40)],
)
def test_a_truncated_response_is_the_brokers_fault(api_version: int, too_many: bytes) -> None:
    """For every length; and an array's length is checked against the remaining bytes."""
    answer = described(api_version)
    payload = response_bytes(answer)
    for size in range(len(payload)):
        with pytest.raises(ProtocolError) as raised:
            read_answer(type(answer), payload[:size])
        assert raised.value.fault is Fault.BROKER_ANSWER
    with pytest.raises(ProtocolError):
        read_answer(type(answer), too_many)


@given(st.sampled_from(VERSIONS), st.binary(max_size=60), st.integers(0, 40), st.binary(max_size=5))
def test_random_bytes_raise_nothing_but_the_protocols_error(
    what: tuple[int, int], noise: bytes, at: int, more: bytes
) -> None:
    """Random ones, and a response with some of them in it."""
    schema: Any = load_response_schema(*what)
    payload = response_bytes(any_answer(schema, Random(at)))
    for nonsense in (noise, payload[:at] + more + payload[at + len(more) :]):
        with suppress(ProtocolError):
            read_answer(schema, nonsense)
