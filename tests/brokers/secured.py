"""A broker with every authentication mechanism, TLS, and an authorizer.

The recipe consists of broker settings and client properties.

listener        principal
PLAINTEXT       ANONYMOUS, without any rights (but Metadata works)
SASL_PLAINTEXT  a user, by PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; also the broker itself
SASL_SSL        the same with TLS
SSL             ANONYMOUS, with TLS
MUTUAL          TLS, and the user is the common name of the client's certificate, which is required

Everything needs an ACL (`acls.py`), except for `admin` and the broker, which are superusers. An OAUTHBEARER token is
not signed: any client may claim to be any user. For sessions that expire and must be renewed on the connection, pass
`settings={"connections.max.reauth.ms": "2000"}`.

    with secured_broker() as broker:
        add_acls(broker.admin(), Acl("alice", "group", "o", "READ"))
        consumer = Consumer({**broker.client("SASL_SSL", user="alice", mechanism="SCRAM-SHA-512"), "group.id": "o"})
"""

import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient

from tests.brokers.certificates import Authority, Issued
from tests.brokers.process import PreparedBroker, Security, prepared_broker
from tests.brokers.restartable import RestartableBroker
from tests.waiting import until_so

PROTOCOLS: Final[Mapping[str, str]] = {
    "PLAINTEXT": "PLAINTEXT",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "SSL": "SSL",
    "MUTUAL": "SSL",
}
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USERS: Final = ("alice", "bob", "muster")
"""Users that may do nothing at first."""
SUPER_USER: Final = "admin"
BROKER: Final = "broker"

_MODULES: Final = "org.apache.kafka.common.security"


def password_of(user: str) -> str:
    """A user's password, for both PLAIN and SCRAM."""
    return f"{user}-secret"


def secured(authority: Authority) -> Security:
    """The recipe for a broker, or for each of a cluster, with a certificate issued by `authority`."""
    server = authority.issue("server")
    listeners: dict[str, str] = {}
    for name in ("SASL_PLAINTEXT", "SASL_SSL"):
        listeners |= _sasl_settings(f"listener.name.{name.lower()}", MECHANISMS)
    # The controller's listener only accepts the broker's own certificate.
    listeners |= _sasl_settings("listener.name.controller", ("PLAIN",))
    return Security(
        protocols=PROTOCOLS,
        settings={
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in {**PROTOCOLS, "CONTROLLER": "SASL_PLAINTEXT"}.items()
            ),
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:{SUPER_USER};User:{BROKER}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(server.both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
            "listener.name.mutual.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/",
            **listeners,
        },
        format_arguments=tuple(_scram_users()),
    )


def _sasl_settings(prefix: str, mechanisms: tuple[str, ...]) -> dict[str, str]:
    users = " ".join(f'user_{user}="{password_of(user)}"' for user in (*USERS, SUPER_USER, BROKER))
    entries = {
        "PLAIN": f"plain.PlainLoginModule required {_login(BROKER)} {users};",
        "SCRAM-SHA-256": "scram.ScramLoginModule required;",
        "SCRAM-SHA-512": "scram.ScramLoginModule required;",
        "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule required;",
    }
    jaas = {f"{prefix}.{each.lower()}.sasl.jaas.config": f"{_MODULES}.{entries[each]}" for each in mechanisms}
    return {f"{prefix}.sasl.enabled.mechanisms": ",".join(mechanisms), **jaas}


def _login(user: str) -> str:
    return f'username="{user}" password="{password_of(user)}"'


def _scram_users() -> Iterator[str]:
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        for user in (*USERS, SUPER_USER):
            yield "--add-scram"
            yield f"{mechanism}=[name={user},password={password_of(user)}]"


def client_properties(
    protocol: str,
    *,
    authority: Authority | None = None,
    user: str = SUPER_USER,
    mechanism: str = "PLAIN",
    certificate: Issued | None = None,
) -> dict[str, str]:
    """Kafka's client properties of `user` by librdkafka's names, without the bootstrap address.

    `protocol` is Kafka's security protocol; `authority` is the one to trust with TLS.
    """
    properties = {"security.protocol": protocol}
    if protocol.startswith("SASL"):
        properties |= {"sasl.mechanism": mechanism, **_credentials(user, mechanism)}
    if protocol.endswith("SSL") and authority is not None:
        properties["ssl.ca.location"] = str(authority.certificate)
    if certificate is not None:
        properties["ssl.certificate.location"] = str(certificate.certificate)
        properties["ssl.key.location"] = str(certificate.key)
        if certificate.password is not None:
            properties["ssl.key.password"] = certificate.password
    return properties


def _credentials(user: str, mechanism: str) -> dict[str, str]:
    if mechanism == "OAUTHBEARER":
        return {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={user}"}
    return {"sasl.username": user, "sasl.password": password_of(user)}


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """A Java client's properties, equivalent to `client_properties`; Kafka's tools need a file of them."""
    java = {name: properties[name] for name in ("security.protocol", "sasl.mechanism") if name in properties}
    mechanism = properties.get("sasl.mechanism")
    if mechanism == "OAUTHBEARER":
        user = properties["sasl.oauthbearer.config"].removeprefix("principal=")
        claim = f'unsecuredLoginStringClaim_sub="{user}"'
        java["sasl.jaas.config"] = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required {claim};"
    elif mechanism is not None:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        java["sasl.jaas.config"] = f"{_MODULES}.{module} required {_login(properties['sasl.username'])};"
    if "ssl.ca.location" in properties:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": properties["ssl.ca.location"]}
    if "ssl.key.location" in properties:
        both = Path(properties["ssl.key.location"]).with_suffix(".both.pem")
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(both)}
    if "ssl.key.password" in properties:
        java["ssl.key.password"] = properties["ssl.key.password"]
    return java


class SecuredBroker(RestartableBroker):
    """A broker with authentication. On the listener of `bootstrap` no client may do anything."""

    def __init__(self, prepared: PreparedBroker, authority: Authority) -> None:
        super().__init__(prepared)
        self.authority = authority

    def start(self) -> None:
        """Start it, and wait until each of its listeners accepts: the broker opens them one after another."""
        super().start()
        for listener in PROTOCOLS:
            until_so(partial(self._accepts, listener), f"the listener {listener} accepts")

    def _accepts(self, listener: str) -> bool:
        host, _, port = self.address(listener).rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError:
            return False
        return True

    def address(self, listener: str) -> str:
        """`host:port` of one of the listeners."""
        return self._prepared.node.address(listener)

    def client(
        self, listener: str, *, user: str = SUPER_USER, mechanism: str = "PLAIN", certificate: Issued | None = None
    ) -> dict[str, Any]:
        """All properties with which a librdkafka client is `user` at this listener.

        A `certificate` is presented if TLS asks for one; at `MUTUAL` it names the user.
        """
        properties = client_properties(
            PROTOCOLS[listener], authority=self.authority, user=user, mechanism=mechanism, certificate=certificate
        )
        return {"bootstrap.servers": self.address(listener), **properties}

    def admin(self) -> AdminClient:
        """A superuser's admin client."""
        return AdminClient(self.client("SASL_PLAINTEXT"))


@contextmanager
def secured_broker(settings: Mapping[str, str] | None = None) -> Iterator[SecuredBroker]:
    """A secured broker, with `settings` over all others, while the block lasts.

    Raises `BrokerFailed`, and `CertificatesMissing` if there is no openssl.
    """
    with tempfile.TemporaryDirectory(prefix="muster-certificates-") as directory:
        authority = Authority(Path(directory))
        with prepared_broker(settings or {}, security=secured(authority)) as prepared:
            broker = SecuredBroker(prepared, authority)
            broker.start()
            try:
                yield broker
            finally:
                broker.kill()
