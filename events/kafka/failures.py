"""What aiokafka and the event loop raise of a connection to a broker, sorted by what follows from it.

What belongs here: kinds of errors, and their words. What it must not know: whose connection it is, and what becomes of
the request.
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
"""While an answer is waited for; a TimeoutError is an OSError."""
NOT_SENT: Final = (*UNANSWERED, RuntimeError)
"""While a request is sent: RuntimeError is what uvloop says of a closed transport."""
NOT_OPENED: Final = (*NOT_SENT, ValueError)
"""While a connection is opened: ValueError is SCRAM's, or that of a name which no host can have."""

_REFUSED: Final = (
    AuthenticationFailedError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
    IllegalSaslStateError,
    ssl.SSLCertVerificationError,
    ValueError,  # SCRAM: whoever answers does not know our password either
)


def is_refusal(error: BaseException) -> bool:
    """Whether who listens there refuses us, or we them: waiting mends nothing."""
    return isinstance(error, _REFUSED) or tls_failure(error) is not None


def hung_up(error: BaseException) -> bool:
    """Whether a broker has ended the connection before it was open, as it does where it is spoken to in another way."""
    return isinstance(error, KafkaConnectionError | ConnectionResetError)


def tls_failure(error: BaseException) -> ssl.SSLError | None:
    """What TLS finds wrong. With TLS 1.3 a broker tells only afterwards that it wants another certificate, or any."""
    cause = error.__cause__ or error
    return cause if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError) else None


def refusal(error: BaseException, *, user: str | None, presents_certificate: bool) -> str:
    """What `is_refusal` is true of, with the properties to look at."""
    if isinstance(error, IllegalSaslStateError):
        return "it takes no SASL there: see security.protocol"
    if isinstance(error, ValueError | AuthenticationFailedError | SaslAuthenticationFailed) and not isinstance(
        error, UnicodeError | ssl.SSLError
    ):
        return f"user {user} (sasl.username, sasl.password): {said(error)}"
    tls = tls_failure(error)
    if isinstance(tls, ssl.SSLCertVerificationError):
        return said(error) + where_trust_is_set(tls)
    wants_ours = "CERTIFICATE" in ((tls and tls.reason) or "")
    if wants_ours and not presents_certificate:
        return f"{said(error)}; it may demand a client's certificate, and none is given (ssl.certificate.location)"
    return said(error)


def where_trust_is_set(error: BaseException) -> str:
    """The property to look at, in brackets, where it is the broker's certificate that is not trusted."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return ""
    is_other_name = error.verify_message.startswith(("Hostname mismatch", "IP address mismatch"))
    return f" ({'ssl.endpoint.identification.algorithm' if is_other_name else 'ssl.ca.location'})"


def said(error: BaseException) -> str:
    """Its words: aiokafka says that a connection was closed; why, as TLS tells it, is in the cause."""
    if isinstance(error, TimeoutError) and not error.errno:  # its cause is how asyncio ended the waiting
        return "no answer in time"
    words = str(error) or type(error).__name__
    return f"{words}: {said(error.__cause__)}" if error.__cause__ is not None else words
