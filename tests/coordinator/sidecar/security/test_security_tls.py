"""TLS towards clients and towards brokers: which certificates are accepted, and the errors for others."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.cimpl import NewTopic

from muster.coordinator.upstream.errors import UpstreamRefused
from muster.coordinator.upstream.security import UpstreamSecurity
from muster.coordinator.upstream.upstream_link import UpstreamLink
from tests.brokers.acls import Acl, add_acls
from tests.brokers.certificates import LOCAL_NAMES, Authority, Issued
from tests.brokers.secured import SecuredBroker, client_properties
from tests.clients.consumers import Confluent
from tests.conformance.wire import Connection
from tests.coordinator.sidecar.security.security_stage import (
    TOPIC,
    new_group,
    own_ports,
    refused_start,
    shared_broker,
    sidecar,
    upstream_options,
)
from tests.muster_process import MusterProcess
from tests.waiting import until_so

pytestmark = pytest.mark.broker

FAILED: Final = "TLS with a client failed"
API_VERSIONS: Final = b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\0\0"
"""Version 0, with correlation id 1."""


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with shared_broker() as running:
        rights = [Acl(user, "topic", TOPIC, "READ") for user in ("alice", "muster")]
        add_acls(running.admin(), Acl("alice", "group", "*", "READ"), *rights)
        yield running


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Trusted by clients, but not by the brokers."""
    return Authority(tmp_path_factory.mktemp("ours"), name="The sidecar's authority")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority of clients' certificates for the sidecar."""
    return Authority(tmp_path_factory.mktemp("theirs"), name="The clients' authority")


@pytest.fixture(scope="module")
def shown(ours: Authority) -> Issued:
    """The sidecar's certificate."""
    return ours.issue("sidecar")


@pytest.fixture(scope="module")
def muster(broker: SecuredBroker, shown: Issued, theirs: Authority) -> Iterator[MusterProcess]:
    """Mutual TLS on both sides: clients have the rights of the certificate that is presented for them."""
    certificate, for_clients = broker.authority.issue("muster"), broker.authority.issue("alice")
    upstream = (
        *("--upstream-config", f"ssl.certificate.location={certificate.certificate}"),
        *("--upstream-config", f"ssl.key.location={certificate.key}"),
    )
    shows = (
        *("--single-identity-certificate", str(for_clients.certificate)),
        *("--single-identity-key", str(for_clients.key)),
    )
    options = (*upstream, "--single-identity", *shows, *of_listeners(shown), "--tls-client-ca", str(theirs.certificate))
    with sidecar(broker, *options, listener="MUTUAL") as running:
        yield running


def of_listeners(shown: Issued) -> tuple[str, ...]:
    return ("--tls-certificate", str(shown.certificate), "--tls-key", str(shown.key))


def joins_and_commits(bootstrap: str, properties: dict[str, Any]) -> None:
    """A real client with all its requests."""
    of_a_user = type("Secured", (Confluent,), {"OTHER_CONFIG": properties})
    consumer = of_a_user(bootstrap, new_group(), TOPIC).start()
    try:
        until_so(lambda: consumer.assigned == {0} or consumer.error is not None, lambda: consumer.error)
        consumer.commit(0, 5)
        assert consumer.committed(0) == 5
    finally:
        consumer.close()


def test_tls_on_both_sides_with_a_password(broker: SecuredBroker, ours: Authority, shown: Issued) -> None:
    """The client authenticates with the broker, through two TLS sessions."""
    with sidecar(broker, *of_listeners(shown), listener="SASL_SSL") as muster:
        alice = client_properties("SASL_SSL", authority=ours, user="alice", mechanism="SCRAM-SHA-256")
        joins_and_commits(muster.bootstrap, alice)


def test_certificates_on_both_sides(muster: MusterProcess, ours: Authority, theirs: Authority) -> None:
    """Clients present one to the sidecar, which presents the one configured for them to the broker."""
    app = client_properties("SSL", authority=ours, certificate=theirs.issue("app"))
    joins_and_commits(muster.bootstrap, app)


def test_no_client_has_the_rights_of_muster(
    muster: MusterProcess, broker: SecuredBroker, ours: Authority, theirs: Authority
) -> None:
    """No client gets the rights of Muster's own principal through the sidecar."""
    only_musters = f"muster-only-{uuid4().hex[:8]}"
    admin = broker.admin()
    admin.create_topics([NewTopic(only_musters, 1)])[only_musters].result(30)
    rights = Acl("muster", "topic", only_musters, "WRITE"), Acl("alice", "topic", only_musters, "DESCRIBE")
    add_acls(admin, *rights)
    app = client_properties("SSL", authority=ours, certificate=theirs.issue("app"))
    reported: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": muster.bootstrap, **app})
    producer.produce(only_musters, b"x", partition=0, on_delivery=lambda error, _: reported.append(error))
    assert producer.flush(30) == 0
    assert [error and error.code() for error in reported] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


def test_a_renewed_certificate_is_shown_without_a_restart(
    muster: MusterProcess, ours: Authority, theirs: Authority
) -> None:
    """The listeners present it to clients that connect from then on."""
    host, _, port = muster.bootstrap.partition(":")
    context = trusting(ours, theirs.issue("app"))

    def serial() -> object:
        with (
            socket.create_connection((host, int(port)), timeout=30) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            return (connection.getpeercert() or {})["serialNumber"]

    before = serial()
    ours.issue("sidecar")
    until_so(lambda: serial() != before, lambda: before)
    until_so(lambda: bool(muster.events("certificates reloaded")), lambda: "no line of it")


def test_a_certificate_as_identity_is_refused(broker: SecuredBroker) -> None:
    """Without `--single-identity`, which confirms that all clients share one principal."""
    certificate = broker.authority.issue("muster")
    options = upstream_options(
        broker,
        "MUTUAL",
        ssl_certificate_location=str(certificate.certificate),
        ssl_key_location=str(certificate.key),
    )
    assert "--single-identity" in refused_start(*options, *own_ports(), "--log", "memory:")


def shakes_hands(muster: MusterProcess, context: ssl.SSLContext | None) -> None:
    """Connect like this, send a request, and wait for the end of the connection."""
    host, _, port = muster.bootstrap.partition(":")
    with (
        socket.create_connection((host, int(port)), timeout=30) as plain,
        suppress(ssl.SSLError, ConnectionResetError),
        context.wrap_socket(plain, server_hostname=host) if context else plain as connection,
    ):
        connection.sendall(API_VERSIONS)
        while connection.recv(4096):
            pass


def trusting(ours: Authority, certificate: Issued | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ours.certificate))
    if certificate is not None:
        context.load_cert_chain(certificate.certificate, certificate.key)
    return context


@pytest.mark.parametrize("wrong", ["plain", "without", "of another", "expired", "distrusts us"])
async def test_a_client_that_does_not_match_is_closed_alone(
    muster: MusterProcess, ours: Authority, theirs: Authority, wrong: str
) -> None:
    """A line has the reason; connected clients are not affected."""
    host, _, port = muster.bootstrap.partition(":")
    context: ssl.SSLContext | None
    match wrong:
        case "plain":
            context, reason = None, "it does not speak TLS"
        case "without":
            context, reason = trusting(ours), "it presented no certificate, which --tls-client-ca requires"
        case "of another":
            context = trusting(ours, ours.issue("stranger"))
            reason = "its certificate: self-signed certificate in certificate chain"
        case "expired":
            context = trusting(ours, theirs.issue("late", days=-1))
            reason = "its certificate: certificate has expired"
        case _:
            context = trusting(theirs)
            reason = "the client does not trust the certificate of --tls-certificate (its ssl.ca.location)"
    good = trusting(ours, theirs.issue("app"))
    reader, writer = await asyncio.open_connection(host, int(port), ssl=good)
    seen = len(muster.events(FAILED))
    await asyncio.to_thread(shakes_hands, muster, context)
    async with asyncio.timeout(30):
        while len(muster.events(FAILED)) == seen:  # noqa: ASYNC110 -- another process tells
            await asyncio.sleep(0.02)
    assert [event["reason"] for event in muster.events(FAILED)[seen:]] == [reason]
    writer.write(API_VERSIONS)
    assert (await reader.readexactly(8))[4:] == b"\0\0\0\1"
    writer.close()


async def test_tls_at_a_plain_listener(broker: SecuredBroker, ours: Authority) -> None:
    """Its first bytes are not a valid length, and are recognized."""
    with sidecar(broker) as muster:
        other = await Connection.open(muster.bootstrap)
        await asyncio.to_thread(shakes_hands, muster, trusting(ours))
        closed = muster.wait_for_event("connection closed")
        assert "TLS, which is not served here" in closed["cause"]
        assert (await other.ask("ApiVersions", 0))["error_code"] == 0
        other.close()


@asynccontextmanager
async def shows(certificate: Issued) -> AsyncIterator[str]:
    """The address of a silent server that presents this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("name", "IP address mismatch"),
        ("date", "certificate has expired"),
        ("authority", "unable to get local issuer certificate"),
    ],
)
async def test_a_broker_with_a_mismatched_certificate_is_refused(
    ours: Authority, theirs: Authority, wrong: str, reason: str
) -> None:
    """Another name, expired, or signed by another authority: a retry makes no sense."""
    names, days = "DNS:elsewhere" if wrong == "name" else LOCAL_NAMES, -1 if wrong == "date" else 2
    authority = theirs if wrong == "authority" else ours
    async with shows(ours.issue("broker", names=names, days=days)) as address:
        properties = {"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)}
        link = UpstreamLink(address, UpstreamSecurity.of(properties), give_up=_unexpected)
        with pytest.raises(UpstreamRefused, match=f"the certificate of the broker at {address}: .*{reason}"):
            await link.open()
        await link.close()


@pytest.mark.parametrize(
    ("listener", "spoken", "said"),
    [
        ("SSL", "PLAINTEXT", r"closed the connection: does it use PLAINTEXT \(security\.protocol\)\?"),
        ("SASL_SSL", "SASL_PLAINTEXT", r"closed the connection: does it use SASL_PLAINTEXT \(security\.protocol\)\?"),
        ("SASL_PLAINTEXT", "SASL_SSL", r"closed the connection: does it use SASL_SSL \(security\.protocol\)\?"),
        ("SASL_PLAINTEXT", "PLAINTEXT", r"does it require credentials\?"),
        ("PLAINTEXT", "SASL_PLAINTEXT", "does not use SASL at this listener: see security.protocol"),
        ("MUTUAL", "SSL", "TLS fails with the broker at .* certificate"),
    ],
)
async def test_a_broker_that_is_spoken_to_in_the_wrong_way(
    broker: SecuredBroker, listener: str, spoken: str, said: str
) -> None:
    """The line suggests the property to set."""
    properties = client_properties(spoken, authority=broker.authority, user="muster", mechanism="SCRAM-SHA-512")
    link = UpstreamLink(broker.address(listener), UpstreamSecurity.of(properties), give_up=_unexpected)
    with pytest.raises(Exception, match=said):
        await link.open()
    await link.close()


def _unexpected(error: Exception) -> None:
    raise AssertionError("nothing may fail unheard") from error
