"""Bugs of proxies in the protocol: versions, addresses, order, acknowledgements (P1 to P9, P14, P16, P19).

Each test has a sidecar in process between a scripted broker and a frame-level client; the listeners and connections are
real.
"""

from collections.abc import Mapping
from typing import Any

import pytest
import structlog
from kio.index import load_request_schema, load_response_schema
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import Heartbeat
from muster.coordinator.upstream.errors import UpstreamRefused
from muster.coordinator.upstream.upstream_link import REQUIRED_VERSIONS, UpstreamLink
from tests.coordinator.kio_client import filled
from tests.coordinator.sidecar.relaying import Client, relaying
from tests.coordinator.sidecar.scripted_broker import (
    API_VERSIONS,
    DESCRIBE_GROUPS,
    OFFERED,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    ReceivedRequest,
    ScriptedBroker,
    asking,
    read_response,
    request,
    response,
    scripted_broker,
)
from tests.waiting import until

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, HEARTBEAT, NOBODYS = 0, 1, 3, 10, 12, 9_999


def broker_fields(broker: ScriptedBroker) -> dict[str, Any]:
    """The broker's description of itself in its responses."""
    return {"node_id": 1, "host": "127.0.0.1", "port": broker.port, "rack": None}


def of(api_key: int, version: int, correlation_id: int = 7, **fields: Any) -> bytes:
    """A request as it is sent, by kio's names."""
    return asking(filled(load_request_schema(api_key, version), fields), correlation_id)


def api_versions(version: int, correlation_id: int = 7) -> bytes:
    return of(API_VERSIONS, version, correlation_id, client_software_name="t", client_software_version="1")


def heartbeat(correlation_id: int = 7, group_id: str = "orders") -> bytes:
    return of(HEARTBEAT, 3, correlation_id, group_id=group_id, generation_id=1, member_id="m", group_instance_id=None)


async def offered_to(client: Client, version: int = 3) -> dict[int, tuple[int, int]]:
    """The versions in ApiVersions, by API key."""
    response = read_response(API_VERSIONS, version, await client.ask(api_versions(version)))
    assert response.error_code is ErrorCode.none
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


async def test_p1_versions_are_offered_that_both_sides_know() -> None:
    """A proxy offered its own versions to newer clients of older brokers, and the broker's newer ones that it could not
    read itself: each API must be offered from the higher of the first versions to the lower of the last.
    """
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        broker.offered |= {METADATA: (2, 9), FIND_COORDINATOR: (0, 99), HEARTBEAT: (1, 9), FETCH: (4, 11)}
        offered = await offered_to(await relay.connect(1))
        assert (offered[METADATA], offered[FIND_COORDINATOR], offered[HEARTBEAT]) == ((2, 9), (0, 6), (1, 4))
        assert offered[FETCH] == (4, 11)


@pytest.mark.parametrize("version", [5, 127, 32_767])
async def test_p2_an_unknown_api_versions_version_is_answered(version: int) -> None:
    """A client newer than the proxy started with a version that crashed it: the response must be a v0 body with error
    35 and the known versions of this API, and the connection must continue.
    """
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        response = read_response(
            API_VERSIONS, 0, await client.ask(request(API_VERSIONS, version, 1, b"\x00\x00\xff" * 9))
        )
        assert response.error_code is ErrorCode.unsupported_version
        assert [(each.api_key, each.max_version) for each in response.api_keys] == [(API_VERSIONS, 4)]
        assert await offered_to(client, 4)
        assert broker.keys_asked() == [API_VERSIONS]


async def test_p3_a_brokers_refusal_in_the_form_of_v0_is_passed_on() -> None:
    """A broker too old for the version of ApiVersions answers in the form of v0, which a proxy read in the requested
    version: the client must get that form, and can ask again.
    """
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        broker.offered[API_VERSIONS] = (0, 2)
        client = await relay.connect(1)
        response = read_response(API_VERSIONS, 0, await client.ask(api_versions(4)))
        assert response.error_code is ErrorCode.unsupported_version
        assert [(each.api_key, each.max_version) for each in response.api_keys] == [(API_VERSIONS, 2)]
        assert (await offered_to(client, 2))[METADATA] == OFFERED[METADATA]


@pytest.mark.parametrize("last", [9, 12], ids=["an older broker", "one that will do"])
async def test_p4_no_request_of_ours_has_a_version_that_the_broker_does_not_offer(last: int) -> None:
    """A proxy requested metadata in the newest version that it knew itself, and each request stalled for 20 s: our own
    requests must use versions that the broker offers, or the broker must be refused at once, with what is missing.
    """
    async with scripted_broker() as broker:
        broker.offered[METADATA] = (0, last)
        metadata = {"brokers": [broker_fields(broker)], "cluster_id": "c", "controller_id": 1, "topics": []}

        def script(requested: ReceivedRequest) -> None:
            if requested.api_key == METADATA:
                requested.tell(response(METADATA, requested.api_version, **metadata))
            else:
                broker.usual(requested)

        broker.script = script
        link = UpstreamLink(f"127.0.0.1:{broker.port}", give_up=lambda error: pytest.fail(str(error)))
        try:
            if last == 12:
                await link.open()
            else:
                with pytest.raises(UpstreamRefused, match="Metadata"):
                    await link.open()
        finally:
            await link.close()
        for requested in broker.asked:
            first, known = broker.offered[requested.api_key]
            assert first <= requested.api_version <= known, requested.api_key
    # The requests on clients' connections are among those checked there.
    assert REQUIRED_VERSIONS["DescribeGroups"] == (DescribeGroupsRequest.__api_key__, DescribeGroupsRequest.__version__)


async def test_p5_produce_is_offered_from_version_0_as_the_broker_does() -> None:
    """librdkafka switches compression off when the first version of Produce is raised: it must stay unchanged."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        assert broker.offered[PRODUCE][0] == 0
        assert (await offered_to(await relay.connect(1)))[PRODUCE] == (0, 13)
        client = await relay.connect(1)
        client.send(request(PRODUCE, 0, 5, b"\x00\x00" + b"\x00\x01" + bytes(8)))
        assert (await client.answer())[0] == 5


async def test_p6_no_address_of_a_broker_gets_past_in_newer_versions() -> None:
    """New leaders' addresses, in responses to Produce v10 and Fetch v16, led clients past a proxy, to ports where they
    took a TLS alert for a length: Produce must be rewritten, and Fetch from v16 on neither offered nor relayed.
    """
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        answer: Mapping[str, Any] = {"responses": [], "node_endpoints": [broker_fields(broker)]}
        broker.script = lambda requested: requested.tell(response(PRODUCE, requested.api_version, **answer))
        for version in range(10, 14):
            client = await relay.connect(1)
            produce = request(PRODUCE, version, 1, b"\x00\x00" + b"\x00" + b"\x00" + b"\x00\x01" + bytes(5))
            (endpoint,) = read_response(PRODUCE, version, await client.ask(produce)).node_endpoints
            assert (endpoint.node_id, endpoint.host, endpoint.port) == (1, "sidecar", relay.port_of(1))
        broker.script = broker.usual
        assert (await offered_to(await relay.connect(1)))[FETCH] == (4, 15)
        client = await relay.connect(1)
        client.send(request(FETCH, 16, 1))
        assert await client.rest() == b""
        assert FETCH not in broker.keys_asked()


async def test_p6_a_tls_alert_is_not_taken_for_a_length() -> None:
    """Nor is a client's TLS: one clear log line each, and the connection is closed at once."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        broker.script = lambda requested: requested.connection.send(b"\x15\x03\x03\x00\x02\x02\x50")
        with structlog.testing.capture_logs() as reported:
            client = await relay.connect(1)
            client.send(api_versions(3))
            assert await client.rest() == b""
            client = await relay.connect(1)
            client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500))
            assert await client.rest() == b""
        assert [line["cause"] for line in reported if "cause" in line] == [
            "the broker speaks TLS, but was contacted in plain text",
            "the client speaks TLS, which is not served here (security.protocol)",
        ]


async def test_p7_the_newest_forms_that_carry_addresses_are_understood() -> None:
    """A proxy dropped responses to FindCoordinator for several groups, and to a new Metadata, and clients waited for
    ever: each offered version must be answered, and an unsupported one must close the connection.
    """
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        found = {"key": "orders", "error_code": ErrorCode.none, "error_message": None, **broker_fields(broker)}
        fields: Mapping[int, dict[str, Any]] = {
            FIND_COORDINATOR: {"coordinators": [found, found]},
            METADATA: {"brokers": [broker_fields(broker)], "cluster_id": None, "controller_id": 1, "topics": []},
        }
        broker.script = lambda requested: requested.tell(
            response(requested.api_key, requested.api_version, error_code=ErrorCode.none, **fields[requested.api_key])
        )
        client = await relay.connect(1)
        for key, version, entries in ((FIND_COORDINATOR, 6, "coordinators"), (METADATA, 13, "brokers")):
            answer = read_response(key, version, await client.ask(request(key, version, 1, bytes(12))))
            places = {(entry.host, entry.port) for entry in getattr(answer, entries)}
            assert places == {("sidecar", relay.port_of(1))}
        client.send(request(METADATA, 14, 1))
        assert await client.rest() == b""
        with pytest.raises(Exception, match="metadata"):
            load_response_schema(METADATA, 14)


async def test_p8_an_answer_of_ours_does_not_overtake_one_of_the_brokers() -> None:
    """A proxy's own responses were sent before pending ones of brokers: responses must be in the order of the requests,
    and a request must not be decided before earlier ones have taken effect.
    """
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        held: list[ReceivedRequest] = []
        broker.script = lambda requested: (
            held.append(requested) if requested.api_key == FETCH else broker.usual(requested)
        )
        client = await relay.connect(1)
        client.send(request(FETCH, 12, 1), heartbeat(2), request(FETCH, 12, 3), heartbeat(4), request(NOBODYS, 0, 5))
        for number in (1, 3):
            await until(lambda: held)
            assert len(relay.groups.commands) == number // 2
            held.pop().answer(b"fetched")
        assert [(await client.answer())[0] for _ in range(5)] == [1, 2, 3, 4, 5]
        assert broker.keys_asked() == [FETCH, DESCRIBE_GROUPS, FETCH, NOBODYS]
        assert [type(command) for command in relay.groups.commands] == [Heartbeat, Heartbeat]


async def test_p9_a_produce_without_acknowledgement_is_not_waited_for() -> None:
    """A Produce with acks=0 has no response: its bookkeeping piled up, and everything after it waited. Nothing may be
    kept, and the next response must belong to the next request.
    """
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        broker.script = lambda requested: None if requested.api_key == PRODUCE else broker.usual(requested)
        client = await relay.connect(1)
        silent = b"\x00\x00" + b"\x00" + b"\x00" + b"\x00\x00" + bytes(5)
        for number in range(5_000):
            client.send(request(PRODUCE, 11, number, silent))
        client.send(heartbeat(6_001), request(NOBODYS, 0, 6_002))
        assert [(await client.answer())[0] for _ in range(2)] == [6_001, 6_002]
        assert broker.keys_asked().count(PRODUCE) == 5_000
        (connection,) = relay.listening.connections
        assert not connection.is_parked


async def test_p14_unknown_requests_are_relayed_unchanged() -> None:
    """New and proprietary APIs were refused, or their headers misread: no byte may be changed in either direction."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        for key, version in ((NOBODYS, 0), (-3, -7), (68, 99), (32_767, 32_767)):
            frame = request(key, version, -1 & 0x7FFF_FFFF, bytes(range(256)))
            broker.script = lambda requested: requested.answer(bytes(range(255, -1, -1)))
            assert await client.ask(frame) == bytes(range(255, -1, -1))
            assert broker.asked[-1].frame == frame[4:]


async def test_p16_no_connection_is_reset_for_its_first_request() -> None:
    """A client that opens every connection with ApiVersions took a reset for an old broker, and went down version by
    version, slowly, each time: every version must be answered, on every connection.
    """
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        broker.offered[API_VERSIONS] = (0, 3)
        for version in (0, 3, 4, 5, 99):
            client = await relay.connect()
            payload = await client.ask(api_versions(version) if version <= 4 else request(API_VERSIONS, version, 7))
            refused = read_response(API_VERSIONS, version if version <= 3 else 0, payload)
            assert (refused.error_code is ErrorCode.none) is (version <= 3)
            assert await offered_to(client, 3)


async def test_p19_nothing_of_ours_comes_between_the_steps_of_a_new_authentication() -> None:
    """On a connection that reauthenticates a broker accepts nothing else, and closes it: later requests must wait,
    including our own, and earlier authorizations must be requested again.
    """
    async with scripted_broker() as broker, relaying({1: broker}, authorization_cache_ms=5_000) as relay:
        held: list[ReceivedRequest] = []
        broker.script = lambda requested: (
            held.append(requested) if requested.api_key in steps else broker.usual(requested)
        )
        steps = {SASL_HANDSHAKE, SASL_AUTHENTICATE}
        client = await relay.connect(1)
        await client.ask(heartbeat(1))
        client.send(
            of(SASL_HANDSHAKE, 1, 2, mechanism="SCRAM-SHA-256"),
            of(SASL_AUTHENTICATE, 2, 3, auth_bytes=b"first"),
            of(SASL_AUTHENTICATE, 2, 4, auth_bytes=b"final"),
            heartbeat(5),
            request(NOBODYS, 0, 6),
        )
        reported: Mapping[int, dict[str, Any]] = {
            SASL_HANDSHAKE: {"error_code": ErrorCode.none, "mechanisms": ("SCRAM-SHA-256",)},
            SASL_AUTHENTICATE: {"error_code": ErrorCode.none, "error_message": None, "auth_bytes": b""},
        }
        for _ in range(3):
            await until(lambda: held)
            requested = held.pop()
            assert requested is broker.asked[-1]
            requested.tell(response(requested.api_key, requested.api_version, **reported[requested.api_key]))
        assert [(await client.answer())[0] for _ in range(5)] == [2, 3, 4, 5, 6]
        assert broker.keys_asked() == [
            DESCRIBE_GROUPS,
            *[SASL_HANDSHAKE, *[SASL_AUTHENTICATE] * 2],
            DESCRIBE_GROUPS,
            NOBODYS,
        ]
