"""Errors of the link to the upstream cluster that a retry does not fix, with texts that say what to do.

Explains why a connection could not be opened; the callers decide about retries.
"""

import ssl

from aiokafka.errors import IllegalSaslStateError
from kio.schema.errors import ErrorCode

from muster.events.kafka.addresses import BrokerAddress
from muster.events.kafka.errors import LinkError, LinkRefused, TryAgain
from muster.events.kafka.failures import describe_failure, hung_up, is_refusal, refusal, tls_failure, where_trust_is_set
from muster.events.kafka.security import KafkaSecurity


class UpstreamRefused(LinkRefused):
    """A retry cannot succeed: wrong credentials, missing ACLs, a broker that is too old.

    `error` is Kafka's error code, if a response had one.
    """

    def __init__(self, message: str, error: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.error = error


class BrokerNotTrusted(UpstreamRefused):
    """Muster does not trust the broker's certificate, so relayed connections cannot either."""


def connection_error(address: BrokerAddress, error: Exception, security: KafkaSecurity) -> LinkError:
    """Return the link's error for the reason why a connection could not be opened."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"{error.verify_message}{where_trust_is_set(error)}"
        return BrokerNotTrusted(f"the certificate of the broker at {address}: {why}")
    if (tls := tls_failure(error)) is not None:
        reason = (tls.reason or str(tls)).lower().replace("_", " ")
        if "certificate" in reason and not security.presents_certificate:
            reason += "; it may require a client certificate, and none is given (ssl.certificate.location)"
        return UpstreamRefused(f"TLS fails with the broker at {address}: {reason}")
    if isinstance(error, IllegalSaslStateError):
        return UpstreamRefused(f"the broker at {address} does not use SASL at this listener: see security.protocol")
    if isinstance(error, UnicodeError):
        return UpstreamRefused(f"{address}: {describe_failure(error)}")  # not a valid host name
    if is_refusal(error):
        words = refusal(error, user=security.sasl_plain_username, presents_certificate=True)
        return UpstreamRefused(f"the broker at {address} refuses Muster: {words}")
    if hung_up(error):
        return TryAgain(
            f"{address} closed the connection: does it use {security.security_protocol} (security.protocol)?"
        )
    return TryAgain(f"{address}: {describe_failure(error)}")
