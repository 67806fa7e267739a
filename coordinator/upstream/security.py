"""How the upstream cluster is reached: by our own connections, and by those that are relayed.

What belongs here: what of Kafka's client properties each of the two needs. What it must not know: how the properties
are read and checked, which is one thing for every cluster (`events/log/kafka_security.py`).

How it works: our own connections authenticate as Muster. A relayed connection is encrypted as ours are, with our
certificate if there is one, and whoever speaks through it authenticates there as itself.
"""

import ssl
from collections.abc import Mapping

import msgspec

from events.log.kafka_security import NOT_SECURED, KafkaSecurity, kafka_security


class UpstreamSecurity(msgspec.Struct, frozen=True):
    """Neither encrypted nor authenticated, unless it was made `of` properties."""

    own: KafkaSecurity = NOT_SECURED

    @classmethod
    def of(cls, properties: Mapping[str, str], *, where: str = "upstream:") -> "UpstreamSecurity":
        """From Kafka's client properties. Raises BadSecurity, with one clear line that begins with `where`."""
        return cls(kafka_security(properties, where))

    def kafka_security(self) -> KafkaSecurity:
        """For our own connections."""
        return self.own

    @property
    def authenticates(self) -> bool:
        """Whether who connects has to authenticate with SASL: we, and everybody whose connection is relayed."""
        return self.own.security_protocol.startswith("SASL_")

    def relay_context(self) -> ssl.SSLContext | None:
        """For relayed connections; None where the broker is not reached through TLS."""
        return self.own.ssl_context
