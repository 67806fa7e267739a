"""A broker with authentication: each mechanism, TLS, and the authorizer."""

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from tests.brokers.acls import Acl, add_acls, remove_acls
from tests.brokers.broker import properties_text
from tests.brokers.certificates import Authority, CertificatesMissing, Issued
from tests.brokers.java_tools import JavaTool, run_tool
from tests.brokers.probes import WITHIN_S, make_topics
from tests.brokers.secured import MECHANISMS, SecuredBroker, java_properties, secured_broker

SEEN_BY_ALICE = "seen-by-alice"
WAYS = [(listener, mechanism) for listener in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS]


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    """A broker with a topic that `alice` may see, another without entries, and sessions of an hour."""
    with secured_broker({"connections.max.reauth.ms": "3600000"}) as running:
        make_topics(running.client("SASL_PLAINTEXT"), SEEN_BY_ALICE, "hidden")
        add_acls(running.admin(), Acl("alice", "topic", "seen-by-", "DESCRIBE", is_prefix=True))
        yield running


@pytest.fixture(scope="module")
def alice(broker: SecuredBroker) -> Issued:
    """A certificate in her name, with a password-protected key."""
    return broker.authority.issue("alice", password="open-sesame")


def seen(properties: dict[str, str]) -> list[str]:
    """The topics visible with these properties. Raises the client's errors."""
    return sorted(AdminClient(dict(properties)).list_topics(timeout=WITHIN_S).topics)


def refusal(properties: dict[str, Any]) -> str:
    """The first error that a client with these properties reports."""
    reported: list[KafkaError] = []
    client = AdminClient(properties | {"error_cb": reported.append})
    deadline = time.monotonic() + WITHIN_S
    while not reported:
        assert time.monotonic() < deadline, "nobody refused"
        client.poll(0.1)
    return reported[0].str()


class TestWhoIsThere:
    """Each listener identifies its users."""

    @pytest.mark.parametrize(("listener", "mechanism"), WAYS)
    def test_a_user_is_authenticated_by_each_mechanism(
        self, broker: SecuredBroker, listener: str, mechanism: str
    ) -> None:
        """One user sees her topic, another sees nothing."""
        assert seen(broker.client(listener, user="alice", mechanism=mechanism)) == [SEEN_BY_ALICE]
        assert seen(broker.client(listener, user="bob", mechanism=mechanism)) == []

    def test_a_client_is_authenticated_by_its_certificate(self, broker: SecuredBroker, alice: Issued) -> None:
        """On listeners that require one; elsewhere the client is anonymous."""
        assert seen(broker.client("MUTUAL", certificate=alice)) == [SEEN_BY_ALICE]
        assert seen(broker.client("MUTUAL", certificate=broker.authority.issue("bob"))) == []
        assert seen(broker.client("SSL", certificate=alice)) == []
        assert seen(broker.client("PLAINTEXT")) == []

    @pytest.mark.parametrize("mechanism", MECHANISMS[:3])
    def test_a_wrong_password_is_refused(self, broker: SecuredBroker, mechanism: str) -> None:
        """Each mechanism that has a password checks it."""
        properties = broker.client("SASL_PLAINTEXT", user="alice", mechanism=mechanism)
        assert "Authentication failed" in refusal({**properties, "sasl.password": "guessed"})

    def test_a_foreign_authority_is_refused_by_either_side(self, broker: SecuredBroker, tmp_path: Path) -> None:
        """A client that trusts another one, and one that presents another one's certificate."""
        foreign = Authority(tmp_path)
        distrustful = {**broker.client("SSL"), "ssl.ca.location": str(foreign.certificate)}
        assert "certificate verify failed" in refusal(distrustful)
        assert "SSL alert" in refusal(broker.client("MUTUAL", certificate=foreign.issue("alice")))

    def test_java_clients_are_authenticated_too(self, broker: SecuredBroker, alice: Issued, tmp_path: Path) -> None:
        """They have another form of properties."""
        for listener, mechanism in (("SASL_SSL", "SCRAM-SHA-256"), ("SASL_PLAINTEXT", "OAUTHBEARER"), ("MUTUAL", "")):
            certificate = alice if listener == "MUTUAL" else None
            client = broker.client(listener, user="alice", mechanism=mechanism, certificate=certificate)
            file = tmp_path / "client.properties"
            file.write_text(properties_text(java_properties(client)), encoding="utf-8")
            server = ("--bootstrap-server", client["bootstrap.servers"], "--command-config", str(file))
            listed = run_tool(JavaTool.TOPICS, *server, "--list")
            assert listed.stdout.split() == [SEEN_BY_ALICE], listed.stderr


class TestWhoMay:
    """The authorizer."""

    def test_an_entry_is_in_force_until_it_is_removed(self, broker: SecuredBroker) -> None:
        """As soon as the call returns, both ways; an entry that denies wins."""
        admin = broker.admin()
        bob = broker.client("SASL_PLAINTEXT", user="bob")
        allowed = Acl("bob", "topic", SEEN_BY_ALICE, "DESCRIBE")
        denied = Acl("bob", "topic", SEEN_BY_ALICE, "DESCRIBE", is_denied=True)
        add_acls(admin, allowed)
        assert seen(bob) == [SEEN_BY_ALICE]
        add_acls(admin, denied)
        assert seen(bob) == []
        remove_acls(admin, denied)
        assert seen(bob) == [SEEN_BY_ALICE]
        remove_acls(admin, allowed)
        assert seen(bob) == []

    def test_a_user_without_write_permission_is_refused(self, broker: SecuredBroker) -> None:
        """The right to see a topic does not include writing to it."""
        refused: list[KafkaError | None] = []
        producer = Producer(broker.client("SASL_SSL", user="alice"))
        producer.produce(SEEN_BY_ALICE, b"x", on_delivery=lambda error, _: refused.append(error))
        assert producer.flush(WITHIN_S) == 0
        assert [error and error.code() for error in refused] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


class TestCertificates:
    """Certificates that the tests' authority issues."""

    def test_python_reads_them(self, tmp_path: Path) -> None:
        """Including a password-protected key; a wrong password is refused."""
        authority = Authority(tmp_path)
        issued = authority.issue("muster", password="open-sesame")
        context = ssl.create_default_context(cafile=str(authority.certificate))
        context.load_cert_chain(issued.certificate, issued.key, password=issued.password)
        with pytest.raises(ssl.SSLError):
            context.load_cert_chain(issued.certificate, issued.key, password="guessed")

    def test_without_openssl_the_reason_is_given(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is named."""
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(CertificatesMissing, match="openssl, and it is not installed"):
            Authority(tmp_path)
