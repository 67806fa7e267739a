"""The maximum size of a request handled here, by client, before and after authentication."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from muster.coordinator.observability.metrics import RefusedConnection
from muster.coordinator.principals import UNKNOWN_PRINCIPAL
from muster.coordinator.sidecar.relay.limits import SASL_AUTHENTICATE, SASL_HANDSHAKE
from muster.coordinator.sidecar.relay.sasl import MESSAGE_BYTES_MAX
from muster.coordinator.upstream.security import UpstreamSecurity
from muster.coordinator.wire.api import Fault
from muster.coordinator.wire.bounds import bound_of
from tests.coordinator.kio_client import frame, with_length
from tests.coordinator.running_server import JOIN
from tests.coordinator.sidecar.relaying import Client, Relay, relaying
from tests.coordinator.sidecar.scripted_broker import (
    API_VERSIONS,
    ReceivedRequest,
    ScriptedBroker,
    asking,
    request,
    response,
    scripted_broker,
)
from tests.waiting import until

FETCH, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, NOBODYS = 1, 12, 13, 14, 9_999


@asynccontextmanager
async def listening(*, authenticates: bool) -> AsyncIterator[tuple[ScriptedBroker, Relay, Client]]:
    """With Kafka's own request size limit."""
    async with (
        scripted_broker() as broker,
        relaying({1: broker}, frame_bytes_max=104_857_600, authenticates=authenticates) as relay,
    ):
        yield broker, relay, await relay.connect(1)


def begun(api_key: int, api_version: int, size: int) -> bytes:
    """The first bytes of a request with this many."""
    return size.to_bytes(4, "big") + request(api_key, api_version, 1, b"")[4:]


def join_of(size: int) -> bytes:
    """A join of at least this many bytes."""
    return with_length(frame("JoinGroup", 3, **JOIN | {"protocols": [{"name": "range", "metadata": bytes(size)}]}))


def lets_in(
    broker: ScriptedBroker, *answers: bytes, error: ErrorCode = ErrorCode.none, message: str | None = None
) -> None:
    """Script the broker's SaslAuthenticate responses."""
    left = list(answers)

    def script(requested: ReceivedRequest) -> None:
        if requested.api_key == SASL_HANDSHAKE:
            requested.tell(
                response(SASL_HANDSHAKE, 1, error_code=ErrorCode.none, mechanisms=("PLAIN", "SCRAM-SHA-256"))
            )
        elif requested.api_key == SASL_AUTHENTICATE:
            fields = {"error_code": error, "error_message": message, "auth_bytes": left.pop(0)}
            requested.tell(response(SASL_AUTHENTICATE, 2, **fields))
        else:
            broker.usual(requested)

    broker.script = script


def refuses_and_hangs_up(broker: ScriptedBroker) -> None:
    """Refuse like Kafka any credentials, and disconnect clients that send none."""
    lets_in(broker, *[b""] * 100, error=ErrorCode.sasl_authentication_failed)
    answers = broker.script

    def script(requested: ReceivedRequest) -> None:
        if requested.api_key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            answers(requested)
        if requested.api_key != SASL_HANDSHAKE:
            requested.connection.writer.close()

    broker.script = script


async def authenticate(client: Client, mechanism: str, *reported: bytes) -> None:
    """All steps."""
    await client.ask(asking(SaslHandshakeRequest(mechanism=mechanism)))
    for message in reported:
        await client.ask(asking(SaslAuthenticateRequest(auth_bytes=message)))


async def is_refused(relay: Relay, client: Client, frame: bytes) -> bool:
    """Return whether the connection is closed at once for it."""
    before = relay.metrics.protocol_errors[Fault.OVERSIZED_FRAME]
    client.send(frame)
    assert await client.rest() == b""
    return relay.metrics.protocol_errors[Fault.OVERSIZED_FRAME] == before + 1


@pytest.mark.parametrize(
    ("api_key", "api_version"),
    [
        (SASL_HANDSHAKE, 1),
        (SASL_AUTHENTICATE, 2),
        (API_VERSIONS, 99),
        (HEARTBEAT, 4),
        (LEAVE_GROUP, 5),
        (SYNC_GROUP, 5),
    ],
)
async def test_requests_that_are_never_long_are_not_accepted_longer(api_key: int, api_version: int) -> None:
    bytes_max = bound_of(api_key).bytes_max
    async with listening(authenticates=False) as (_, relay, client):
        other = await relay.connect(1)
        whole = begun(api_key, api_version, bytes_max)
        other.send(whole)
        assert await is_refused(relay, client, begun(api_key, api_version, bytes_max + 1))
        await until(lambda: relay.metrics.bytes_received == 2 * len(whole))
        assert len(relay.listening.connections) == 1


async def test_nothing_long_is_taken_before_the_client_has_authenticated() -> None:
    """A relayed request is streamed as usual: the broker limits its size."""
    async with listening(authenticates=True) as (_, relay, client):
        assert await client.ask(request(NOBODYS, 0, 1, bytes(2 * MESSAGE_BYTES_MAX))) == b""
        assert await is_refused(relay, client, begun(SYNC_GROUP, 5, MESSAGE_BYTES_MAX + 1))


async def test_without_authentication_a_long_request_is_accepted() -> None:
    async with listening(authenticates=False) as (_, relay, client):
        client.send(join_of(MESSAGE_BYTES_MAX))
        await until(lambda: relay.groups.parked)


async def test_an_authenticated_client_may_send_long_requests() -> None:
    """Not before the last step."""
    first, last = b"n,,n=alice,r=abc", b"c=biws,r=abc,p=cHJvb2Y="
    async with listening(authenticates=True) as (broker, relay, client):
        lets_in(broker, b"r=abcd,s=c2FsdA==,i=4096", b"r=abcd,s=c2FsdA==,i=4096", b"v=c2lnbmF0dXJl")
        await authenticate(client, "SCRAM-SHA-256", first)
        assert await is_refused(relay, client, join_of(MESSAGE_BYTES_MAX))
        other = await relay.connect(1)
        await authenticate(other, "SCRAM-SHA-256", first, last)
        other.send(join_of(MESSAGE_BYTES_MAX))
        await until(lambda: relay.groups.parked)


async def test_a_disabled_mechanism_is_logged_with_the_enabled_ones() -> None:
    """One line, however often the client tries; it is counted."""
    async with listening(authenticates=True) as (broker, relay, client):
        fields = {"error_code": ErrorCode.unsupported_sasl_mechanism, "mechanisms": ("PLAIN", "SCRAM-SHA-256")}
        broker.script = lambda requested: requested.tell(response(SASL_HANDSHAKE, 1, **fields))
        with structlog.testing.capture_logs() as reported:
            for _ in range(3):
                answer = await client.ask(asking(SaslHandshakeRequest(mechanism="SCRAM-SHA-512" + 100 * "x")))
                assert answer.endswith(b"PLAIN\x00\x0dSCRAM-SHA-256")
        (line,) = reported
        assert (line["event"], line["peer"]) == ("client refused by the broker", "/127.0.0.1")
        assert line["reason"] == (
            f"the broker has not enabled SASL mechanism 'SCRAM-SHA-512{27 * 'x'}' at this listener; enabled: PLAIN, "
            "SCRAM-SHA-256"
        )
        assert relay.relayed.authentications_refused == 3


@pytest.mark.parametrize("is_handled", [True, False])
async def test_a_client_that_does_not_authenticate_is_logged_and_not_the_broker(is_handled: bool) -> None:
    """Once a minute, even if the broker disconnects on one of our own requests."""
    async with listening(authenticates=True) as (broker, relay, _):
        broker.script = lambda requested: requested.connection.writer.close()
        with structlog.testing.capture_logs() as reported:
            for _ in range(3):
                client = await relay.connect(1)
                client.send(join_of(10) if is_handled else request(FETCH, 4, 1))
                assert await client.rest() == b""
    (line,) = reported
    assert (line["event"], line["log_level"]) == ("client refused by the broker", "warning")
    assert line["client_id"] == ("shop" if is_handled else "not known")
    api = "JoinGroup" if is_handled else "Fetch"
    assert line["reason"] == f"it sent {api} without authenticating, and the broker closed the connection"


async def test_refused_clients_behind_one_address_are_each_logged_and_not_the_broker() -> None:
    """A client without credentials that retries hides no others; the broker disconnects because of the clients'
    mistakes.
    """
    async with listening(authenticates=True) as (broker, relay, _):
        refuses_and_hangs_up(broker)

        async def tries(mechanism: str, message: bytes) -> None:
            client = await relay.connect(1)
            if mechanism:
                await authenticate(client, mechanism, message)
            else:
                client.send(join_of(10))
            assert await client.rest() == b""

        with structlog.testing.capture_logs() as reported:
            for _ in range(3):
                await tries("", b"")
                await tries("PLAIN", b"\0alice\0guessed")
                await tries("SCRAM-SHA-256", b"n,,n=bob,r=abc")
    assert [(line["event"], line["user"], line["client_id"]) for line in reported] == [
        ("client refused by the broker", None, "shop"),
        ("client refused by the broker", "alice", "shop"),
        ("client refused by the broker", "bob", "shop"),
    ]


async def test_a_broker_that_disconnects_during_authentication_is_logged() -> None:
    async with listening(authenticates=True) as (broker, _, client):
        lets_in(broker, b"")
        await authenticate(client, "PLAIN", b"\0alice\0secret")
        broker.script = lambda requested: requested.connection.writer.close()
        with structlog.testing.capture_logs() as reported:
            client.send(request(FETCH, 4, 1))
            assert await client.rest() == b""
    assert [line["event"] for line in reported] == ["broker closed the connection"]


async def test_an_unknown_mechanism_is_trusted_when_the_broker_answers_something_else() -> None:
    """Not after its first or second step: it is unknown which is the last. ApiVersions proves nothing."""
    async with listening(authenticates=True) as (broker, relay, client):
        lets_in(broker, *[b"go on", b""] * 2)
        await authenticate(client, "GSSAPI", b"first", b"last")
        await client.ask(asking(ApiVersionsRequest(client_software_name="a", client_software_version="1")))
        assert await is_refused(relay, client, join_of(MESSAGE_BYTES_MAX))
        other = await relay.connect(1)
        await authenticate(other, "GSSAPI", b"first", b"last")
        await other.ask(request(NOBODYS, 0, 1))
        other.send(join_of(MESSAGE_BYTES_MAX))
        await until(lambda: relay.groups.parked)
        (connection,) = relay.listening.connections
        assert connection.peer.principal == UNKNOWN_PRINCIPAL


@pytest.mark.parametrize("message", [None, "Authentication failed: Invalid username or password"])
async def test_an_unauthenticated_client_may_not_send_long_requests(message: str | None) -> None:
    """It is counted, and logged once a minute, with the address, the user and the broker's message. Never the
    password.
    """
    async with listening(authenticates=True) as (broker, relay, client):
        lets_in(broker, b"", b"", error=ErrorCode.sasl_authentication_failed, message=message)
        with structlog.testing.capture_logs() as reported:
            for _ in range(2):
                await authenticate(client, "PLAIN", b"\0alice\0guessed")
        (line,) = reported
        assert (line["log_level"], line["peer"], line["user"]) == ("warning", "/127.0.0.1", "alice")
        assert line["reason"] == f"SASL authentication failed: {message or 'SASL_AUTHENTICATION_FAILED'}"
        assert relay.relayed.authentications_refused == 2
        assert await is_refused(relay, client, join_of(MESSAGE_BYTES_MAX))


async def test_connections_of_one_principal_are_limited() -> None:
    """An excess connection is closed once its principal is known; others, and those that use a freed place, are
    served.
    """
    async with scripted_broker() as broker, relaying({1: broker}, authenticates=True, per_principal_max=2) as relay:
        lets_in(broker, *[b""] * 6)
        alices = [await relay.connect(1) for _ in range(3)]
        for client in alices[:2]:
            await authenticate(client, "PLAIN", b"\0alice\0secret")
            await authenticate(client, "PLAIN", b"\0alice\0secret")  # again (KIP-368), not another connection
        alices[2].send(asking(SaslHandshakeRequest(mechanism="PLAIN")))
        await alices[2].answer()
        alices[2].send(asking(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")))
        assert await alices[2].rest() == b""
        assert relay.metrics.connections_refused == {RefusedConnection.PRINCIPAL: 1}
        lets_in(broker, *[b""] * 2)
        bob, another = await relay.connect(1), await relay.connect(1)
        await authenticate(bob, "PLAIN", b"\0bob\0secret")
        alices[0].close()
        await until(lambda: len(relay.listening.connections) == 3)
        await authenticate(another, "PLAIN", b"\0alice\0secret")


@pytest.mark.parametrize(
    ("protocol", "authenticates"),
    [("PLAINTEXT", False), ("SSL", False), ("SASL_PLAINTEXT", True), ("SASL_SSL", True)],
)
def test_authentication_is_required_according_to_the_clusters_security_protocol(
    protocol: str, authenticates: bool
) -> None:
    sasl = {"sasl.mechanism": "PLAIN", "sasl.username": "muster", "sasl.password": "secret"}
    properties = {"security.protocol": protocol} | (sasl if authenticates else {})
    assert UpstreamSecurity.of(properties).authenticates is authenticates
