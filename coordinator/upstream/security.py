"""TLS and SASL settings of the upstream cluster, for Muster's own connections and for relayed ones.

Selects which of Kafka's client properties each of the two uses; `events/kafka/security.py` reads and checks them.

Our own connections authenticate as Muster. A relayed connection is encrypted in the same way, and the client
authenticates through it as itself. With security.protocol=SSL, where the certificate determines the principal, relayed
connections present a certificate that is configured for all clients, never Muster's own with its ACLs. With SASL_SSL
they present Muster's.
"""

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from muster.events.kafka.security import NOT_SECURED, BadSecurity, KafkaSecurity, kafka_security
from muster.events.kafka.tls_files import BadTlsFile, NamedFile, is_same_certificate, present

_OURS_ALONE = ("ssl.certificate.location", "ssl.key.location", "ssl.key.password")


class ClientsCertificate(msgspec.Struct, frozen=True):
    """The certificate and key that relayed connections present for all clients."""

    certificate: NamedFile
    key: NamedFile


class UpstreamSecurity(msgspec.Struct, frozen=True):
    """The security of both kinds of connections; plaintext without authentication by default."""

    own: KafkaSecurity = NOT_SECURED
    relayed: KafkaSecurity = NOT_SECURED

    @classmethod
    def of(
        cls,
        properties: Mapping[str, str],
        *,
        where: str = "upstream:",
        name_of: Callable[[str], str] | None = None,
        for_clients: ClientsCertificate | None = None,
    ) -> "UpstreamSecurity":
        """Read Kafka's client properties. Raises BadSecurity; `where` and `name_of` as in `kafka_security`."""
        own = kafka_security(properties, where, name_of)
        if own.ssl_context is None or (for_clients is None and own.security_protocol != "SSL"):
            return cls(own, own)
        without = {name: value for name, value in properties.items() if name not in _OURS_ALONE}
        relayed = kafka_security(without, where, name_of)
        if for_clients is not None:
            _show(relayed, for_clients, properties)
        return cls(own, relayed)

    def kafka_security(self) -> KafkaSecurity:
        """Return the security of our own connections."""
        return self.own

    @property
    def authenticates(self) -> bool:
        """True if connections use SASL: Muster's own, and each relayed client's."""
        return self.own.security_protocol.startswith("SASL_")

    def relay_context(self) -> ssl.SSLContext | None:
        """Return the TLS context of relayed connections; None without TLS."""
        return self.relayed.ssl_context


def _show(relayed: KafkaSecurity, files: ClientsCertificate, properties: Mapping[str, str]) -> None:
    """Present this certificate for clients. Raises BadSecurity."""
    context = relayed.ssl_context
    assert context is not None
    try:
        present(context, files.certificate, files.key, pass_phrase=("give one without a pass phrase", None))
    except BadTlsFile as bad:
        raise BadSecurity(str(bad)) from bad
    own = properties.get("ssl.certificate.location")
    name, certificate = files.certificate
    if own is not None and is_same_certificate(Path(own), certificate):
        raise BadSecurity(
            f"{name}={certificate} is Muster's own (ssl.certificate.location): clients "
            "would have its rights; give them one of their own"
        )
