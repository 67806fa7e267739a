"""Errors of the link to the upstream cluster that a retry does not mend, and their texts.

What belongs here: what a connection that could not be opened means, in words with the way out. What it must not know:
when it is tried again.
"""

import ssl

from aiokafka.errors import IllegalSaslStateError
from kio.schema.errors import ErrorCode

from muster.events.kafka.addresses import BrokerAddress
from muster.events.kafka.errors import LinkError, LinkRefused, TryAgain
from muster.events.kafka.failures import describe_failure, hung_up, is_refusal, refusal, tls_failure, where_trust_is_set
from muster.events.kafka.security import KafkaSecurity


class UpstreamRefused(LinkRefused):
    """A retry cannot succeed: credentials, ACLs, a broker that is too old.

    `error` is Kafka's error code, if an answer had one.
    """

    def __init__(self, message: str, error: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.error = error


class BrokerNotTrusted(UpstreamRefused):
    """Muster's settings do not trust the broker's certificate, so relayed connections do not either."""


def connection_error(address: BrokerAddress, error: Exception, security: KafkaSecurity) -> LinkError:
    """Turn what kept a connection from being opened into one of the link's errors."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"{error.verify_message}{where_trust_is_set(error)}"
        return BrokerNotTrusted(f"the certificate of the broker at {address}: {why}")
    if (tls := tls_failure(error)) is not None:
        reason = (tls.reason or str(tls)).lower().replace("_", " ")
        if "certificate" in reason and not security.presents_certificate:
            reason += "; it may demand a client's certificate, and none is given (ssl.certificate.location)"
        return UpstreamRefused(f"TLS fails with the broker at {address}: {reason}")
    if isinstance(error, IllegalSaslStateError):
        return UpstreamRefused(f"the broker at {address} does not use SASL at this listener: see security.protocol")
    if isinstance(error, UnicodeError):
        return UpstreamRefused(f"{address}: {describe_failure(error)}")  # no name of a host
    if is_refusal(error):
        words = refusal(error, user=security.sasl_plain_username, presents_certificate=True)
        return UpstreamRefused(f"the broker at {address} does not let us in: {words}")
    if hung_up(error):
        return TryAgain(f"{address} hung up: does it speak {security.security_protocol} (security.protocol)?")
    return TryAgain(f"{address}: {describe_failure(error)}")
