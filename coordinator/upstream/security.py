"""How the upstream cluster is reached: by our own connections, and by those that are relayed.

What belongs here: what of Kafka's client properties each of the two needs. What it must not know: how the properties
are read and checked, which is one thing for every cluster (`events/kafka/security.py`).

How it works: our own connections authenticate as Muster. A relayed connection is encrypted as ours are, and whoever
speaks through it authenticates there as itself. Where certificates say who somebody is, relayed connections show one
that was given for all clients, and never ours, which may do what no client should. Where SASL does, ours opens them.
"""

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from muster.events.kafka.security import NOT_SECURED, BadSecurity, KafkaSecurity, kafka_security
from muster.events.kafka.tls_files import BadTlsFile, NamedFile, is_same_certificate, present

_OURS_ALONE = ("ssl.certificate.location", "ssl.key.location", "ssl.key.password")


class ClientsCertificate(msgspec.Struct, frozen=True):
    """The files of the certificate that is shown for all clients, and of its key."""

    certificate: NamedFile
    key: NamedFile


class UpstreamSecurity(msgspec.Struct, frozen=True):
    """Neither encrypted nor authenticated, unless it was made `of` properties."""

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
        """From Kafka's client properties. Raises BadSecurity; `where` and `name_of` as in `kafka_security`."""
        own = kafka_security(properties, where, name_of)
        if own.ssl_context is None or (for_clients is None and own.security_protocol != "SSL"):
            return cls(own, own)
        without = {name: value for name, value in properties.items() if name not in _OURS_ALONE}
        relayed = kafka_security(without, where, name_of)
        if for_clients is not None:
            _show(relayed, for_clients, properties)
        return cls(own, relayed)

    def kafka_security(self) -> KafkaSecurity:
        """For our own connections."""
        return self.own

    @property
    def authenticates(self) -> bool:
        """Whether who connects has to authenticate with SASL: we, and everybody whose connection is relayed."""
        return self.own.security_protocol.startswith("SASL_")

    def relay_context(self) -> ssl.SSLContext | None:
        """For relayed connections; None where the broker is not reached through TLS."""
        return self.relayed.ssl_context


def _show(relayed: KafkaSecurity, files: ClientsCertificate, properties: Mapping[str, str]) -> None:
    """Have it shown for clients. Raises BadSecurity."""
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
