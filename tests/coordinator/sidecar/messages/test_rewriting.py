"""Rewritten responses: kio writes the input and reads the output, in every version."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from muster.coordinator.sidecar.messages.produce import PRODUCE
from muster.coordinator.sidecar.messages.rewriting import (
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    AnswerRewriter,
)
from muster.coordinator.wire.api import Fault, ProtocolError
from muster.events.steps import finished
from tests.coordinator.sidecar.messages.any_answer import any_answer
from tests.coordinator.sidecar.scripted_broker import API_VERSIONS, read_response, response, response_bytes

WITHOUT_LISTENER = 7
VERSIONS: Mapping[int, range] = {
    METADATA: range(14),
    FIND_COORDINATOR: range(7),
    DESCRIBE_CLUSTER: range(3),
    PRODUCE: range(10, 14),
    SHARE_FETCH: range(1, 3),
    SHARE_ACKNOWLEDGE: range(1, 3),
}
ALL = [(api_key, version) for api_key, versions in VERSIONS.items() for version in versions]
FLEXIBLE = [(api_key, version) for api_key, version in ALL if load_response_schema(api_key, version).__flexible__]
ENTRIES = {METADATA: "brokers", DESCRIBE_CLUSTER: "brokers", FIND_COORDINATOR: "coordinators"}
JOIN_GROUP, SASL_HANDSHAKE, OWN_KEY = 11, 17, 9_999


def address_of(node_id: int, host: str, port: int) -> tuple[str, int] | None:
    """The result shows the original address."""
    return None if node_id == WITHOUT_LISTENER else (f"sidecar-for-{host}", port % 1_000 + 10_000)


SUBJECT = AnswerRewriter(address_of, {JOIN_GROUP: range(2, 6), SASL_HANDSHAKE: range(1, 2)})


def rewriting(api_key: int, version: int) -> Callable[[bytes], bytes]:
    """The rewriting of a version that needs it."""
    rewrite = SUBJECT.of(api_key, version)
    assert rewrite is not None
    return lambda payload: finished(rewrite(payload))


def moved(entry: Any) -> Any:
    """The expected entry with an address; None if it is left out."""
    node_id = entry.broker_id if hasattr(entry, "broker_id") else entry.node_id
    if node_id < 0:
        return entry
    address = address_of(node_id, entry.host, entry.port)
    if address is not None:
        return replace(entry, host=address[0], port=address[1])
    if not hasattr(entry, "error_code"):
        return None
    return replace(entry, error_code=ErrorCode.coordinator_not_available, node_id=-1, host="", port=-1)


def expected(api_key: int, answer: Any) -> Any:
    """The whole expected response."""
    name = ENTRIES.get(api_key, "node_endpoints")
    if not hasattr(answer, name):
        return moved(answer)
    entries = (moved(entry) for entry in getattr(answer, name))
    return replace(answer, **{name: tuple(entry for entry in entries if entry is not None)})


@pytest.mark.parametrize(("api_key", "version"), ALL)
def test_addresses_are_changed_and_nothing_else(api_key: int, version: int) -> None:
    schema = load_response_schema(api_key, version)
    for seed in range(25):
        answer = any_answer(schema, Random(seed))
        rewritten = rewriting(api_key, version)(response_bytes(answer))
        assert read_response(api_key, version, rewritten) == expected(api_key, answer)


@pytest.mark.parametrize(("api_key", "version"), FLEXIBLE)
def test_unknown_fields_of_a_newer_broker_are_kept(api_key: int, version: int) -> None:
    """Tagged fields unknown at the time of writing (KIP-482), in the header and in the body."""
    schema = load_response_schema(api_key, version)
    answer = response_bytes(any_answer(schema, Random(3)))
    plain = rewriting(api_key, version)(answer)
    tagged = b"\x01\x50\x03new"
    # kio's output has its own tagged fields, and those of a Produce follow an array of any length, so only at the end.
    assert answer[0] == 0
    rewritten = rewriting(api_key, version)(tagged + answer[1:])
    assert rewritten == tagged + plain[1:]
    if api_key != PRODUCE:
        assert answer[-1] == 0
        assert rewriting(api_key, version)(answer[:-1] + tagged) == plain[:-1] + tagged


def test_an_unknown_error_code_stays() -> None:
    """Errors that kio's own reader does not know."""
    answer = response(FIND_COORDINATOR, 2, error_code=ErrorCode.none, node_id=1, host="h", port=5, error_message=None)
    payload = bytearray(response_bytes(answer))
    payload[4:6] = (9_999).to_bytes(2, "big")
    assert rewriting(FIND_COORDINATOR, 2)(bytes(payload))[4:6] == (9_999).to_bytes(2, "big")


@pytest.mark.parametrize(("api_key", "version"), ALL)
def test_an_answer_that_is_cut_off_is_refused(api_key: int, version: int) -> None:
    """At any length; if the cut is in a part that is not read, it is passed on unchanged; no other error is raised."""
    answer = response_bytes(any_answer(load_response_schema(api_key, version), Random(5)))
    whole = rewriting(api_key, version)(answer)
    passed_on = []
    for size in range(len(answer)):
        with contextlib.suppress(ProtocolError):
            passed_on.append(rewriting(api_key, version)(answer[:size]))
    assert all(whole.startswith(each) for each in passed_on)
    assert len(passed_on) < len(answer)


@pytest.mark.parametrize(("api_key", "version"), [(METADATA, 3), (METADATA, 12), (PRODUCE, 11), (SHARE_FETCH, 1)])
def test_a_length_that_is_a_lie_takes_no_memory(api_key: int, version: int) -> None:
    start = b"" if version == 3 else b"\x00"
    lie = b"\x7f\xff\xff\xff" if version == 3 else b"\xff\xff\xff\xff\x0f"
    with pytest.raises(ProtocolError, match="cannot be read") as raised:
        rewriting(api_key, version)(start + bytes(4) * (api_key != PRODUCE) + lie + b"\x00" * 10)
    assert raised.value.fault is Fault.BROKER_ANSWER


@pytest.mark.parametrize("version", range(5))
def test_versions_are_those_of_both_sides(version: int) -> None:
    """Known bug P1; APIs that are not decoded are offered as by the broker, and those without a common version
    are not.
    """
    offered = [(PRODUCE, 0, 20), (FETCH, 4, 18), (METADATA, 5, 12), (JOIN_GROUP, 6, 9), (SASL_HANDSHAKE, 0, 1)]
    offered += [(OWN_KEY, 3, 77)]
    entries = [{"api_key": key, "min_version": first, "max_version": last} for key, first, last in offered]
    features = {
        "supported_features": [{"name": "group.version", "min_version": 0, "max_version": 1}],
        "finalized_features_epoch": 12,
        "finalized_features": [{"name": "group.version", "max_version_level": 1, "min_version_level": 0}],
        "zk_migration_ready": True,
    }
    answer = response(API_VERSIONS, version, error_code=ErrorCode.none, api_keys=entries, **features)
    reply = read_response(API_VERSIONS, version, rewriting(API_VERSIONS, version)(response_bytes(answer)))
    assert [(each.api_key, each.min_version, each.max_version) for each in reply.api_keys] == [
        (PRODUCE, 0, 13),
        (FETCH, 4, 15),
        (METADATA, 5, 12),
        (SASL_HANDSHAKE, 1, 1),
        (OWN_KEY, 3, 77),
    ]
    assert replace(reply, api_keys=()) == replace(answer, api_keys=())


@pytest.mark.parametrize("version", range(5))
def test_versions_offered_before_are_not_processed_again(version: int) -> None:
    """Only a limited number of them is cached."""
    rewrite = SUBJECT.of(API_VERSIONS, version)
    assert rewrite is not None
    answers = []
    for last in range(100):
        entry = {"api_key": OWN_KEY, "min_version": 0, "max_version": last}
        answer = response(API_VERSIONS, version, error_code=ErrorCode.none, api_keys=[entry])
        answers.append(response_bytes(answer))
    assert [sum(rewrite(answers[0])) for _ in range(3)] == [1, 0, 0]
    assert finished(rewrite(answers[0])) == answers[0]
    assert [sum(rewrite(answer)) for answer in answers] == [0, *[1] * 99]
    assert sum(rewrite(answers[0])) == 1


@pytest.mark.parametrize("api_key", [FETCH, SASL_HANDSHAKE, 9, 19, 36, OWN_KEY])
@pytest.mark.parametrize("version", [0, 5, 99, -1])
def test_other_responses_are_unchanged(api_key: int, version: int) -> None:
    assert SUBJECT.of(api_key, version) is None


@pytest.mark.parametrize("version", range(3, 10))
def test_a_produce_response_without_endpoints_is_unchanged(version: int) -> None:
    assert SUBJECT.of(PRODUCE, version) is None


TELL_CLUSTER = [each for each in ALL if each[0] == DESCRIBE_CLUSTER or (each[0] == METADATA and each[1] >= 2)]


@pytest.mark.parametrize(("api_key", "version"), TELL_CLUSTER)
def test_brokers_of_another_cluster_are_advertised_to_no_client(api_key: int, version: int) -> None:
    """Behind an address that was reassigned; a response without a cluster id, such as an error, counts as this
    cluster's.
    """
    rewrite = AnswerRewriter(address_of, {}, "ours").of(api_key, version)
    assert rewrite is not None
    schema = load_response_schema(api_key, version)
    for seed in range(10):
        answer = any_answer(schema, Random(seed))
        for cluster_id in ("ours", ""):
            answer = replace(answer, cluster_id=cluster_id)
            reported = finished(rewrite(response_bytes(answer)))
            assert read_response(api_key, version, reported) == expected(api_key, answer)
        with pytest.raises(ProtocolError, match="cluster theirs; expected cluster ours"):
            finished(rewrite(response_bytes(replace(answer, cluster_id="theirs"))))
