"""Sorts the errors of aiokafka and of the event loop: not sent, not answered, refused.

Classifies errors and words them. Knows nothing of the connection's user, or of retries.
"""

import ssl
from typing import Final

from aiokafka.errors import (
    AuthenticationFailedError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

UNANSWERED: Final = (KafkaError, OSError)
"""The errors of waiting for a response; a TimeoutError is an OSError."""
NOT_SENT: Final = (*UNANSWERED, RuntimeError)
"""The errors of sending a request: uvloop raises RuntimeError for a closed transport."""
NOT_OPENED: Final = (*NOT_SENT, ValueError)
"""The errors of opening a connection: ValueError is SCRAM's, or that of an invalid host name."""

_REFUSED: Final = (
    AuthenticationFailedError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
    IllegalSaslStateError,
    ssl.SSLCertVerificationError,
    ValueError,  # SCRAM: the server does not know our password either
)


def is_refusal(error: BaseException) -> bool:
    """Return whether the server refuses us, or we refuse its certificate: waiting does not help."""
    return isinstance(error, _REFUSED) or tls_failure(error) is not None


def hung_up(error: BaseException) -> bool:
    """Return whether the broker closed the connection before it was open, as for a wrong security.protocol."""
    return isinstance(error, KafkaConnectionError | ConnectionResetError)


def tls_failure(error: BaseException) -> ssl.SSLError | None:
    """Return TLS's error, if any. With TLS 1.3 a broker refuses our certificate only after the handshake."""
    cause = error.__cause__ or error
    return cause if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError) else None


def refusal(error: BaseException, *, user: str | None, presents_certificate: bool) -> str:
    """Format an error for which `is_refusal` is true, with the properties to check."""
    if isinstance(error, IllegalSaslStateError):
        return "it does not use SASL at this listener: see security.protocol"
    if isinstance(error, ValueError | AuthenticationFailedError | SaslAuthenticationFailed) and not isinstance(
        error, UnicodeError | ssl.SSLError
    ):
        return f"user {user} (sasl.username, sasl.password): {describe_failure(error)}"
    tls = tls_failure(error)
    if isinstance(tls, ssl.SSLCertVerificationError):
        return describe_failure(error) + where_trust_is_set(tls)
    wants_ours = "CERTIFICATE" in ((tls and tls.reason) or "")
    if wants_ours and not presents_certificate:
        missing = "it may require a client certificate, and none is given (ssl.certificate.location)"
        return f"{describe_failure(error)}; {missing}"
    return describe_failure(error)


def where_trust_is_set(error: BaseException) -> str:
    """Name the property to check, in brackets, if the broker's certificate is not trusted; else return ""."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return ""
    is_other_name = error.verify_message.startswith(("Hostname mismatch", "IP address mismatch"))
    return f" ({'ssl.endpoint.identification.algorithm' if is_other_name else 'ssl.ca.location'})"


def describe_failure(error: BaseException) -> str:
    """Format an error with its cause: aiokafka reports only a closed connection, TLS's reason is in the cause."""
    if isinstance(error, TimeoutError) and not error.errno:  # its cause only shows how asyncio ended the wait
        return "no answer in time"
    words = str(error) or type(error).__name__
    return f"{words}: {describe_failure(error.__cause__)}" if error.__cause__ is not None else words
