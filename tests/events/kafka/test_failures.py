"""Failures of connections: whether we were refused, and the words that an operator reads."""

import ssl

import pytest
from aiokafka.errors import (
    AuthenticationFailedError,
    IllegalSaslStateError,
    KafkaConnectionError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from muster.events.kafka.failures import describe_failure, hung_up, is_refusal, refusal, tls_failure, where_trust_is_set


def tls(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


def untrusted(verify_message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = verify_message
    return error


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (AuthenticationFailedError("no"), True),
        (SaslAuthenticationFailed("no"), True),
        (UnsupportedSaslMechanismError("no"), True),
        (IllegalSaslStateError("no"), True),
        (untrusted("unable to get local issuer certificate"), True),
        (ValueError("the server's signature is wrong"), True),
        (tls("TLSV13_ALERT_CERTIFICATE_REQUIRED"), True),
        (caused(KafkaConnectionError("closed"), tls("TLSV1_ALERT_UNKNOWN_CA")), True),
        (caused(KafkaConnectionError("closed"), ssl.SSLEOFError(8, "EOF")), False),
        (KafkaConnectionError("closed"), False),
        (ConnectionResetError("reset"), False),
        (OSError("no route"), False),
        (TimeoutError(), False),
    ],
    ids=repr,
)
def test_a_refusal_is_what_waiting_does_not_help_against(error: Exception, is_one: bool) -> None:
    """A broker that is down, or closes connections, may return."""
    assert is_refusal(error) is is_one


def test_an_error_of_tls_may_be_the_cause_of_a_lost_connection() -> None:
    """The end of the stream is none: a broker that is stopped ends it so."""
    refused = tls("TLSV13_ALERT_CERTIFICATE_REQUIRED")
    assert tls_failure(caused(KafkaConnectionError("closed"), refused)) is refused
    assert tls_failure(refused) is refused
    assert tls_failure(ssl.SSLEOFError(8, "EOF")) is None
    assert tls_failure(KafkaConnectionError("closed")) is None


def test_a_connection_that_was_closed_was_hung_up_on() -> None:
    assert [hung_up(error) for error in (KafkaConnectionError(), ConnectionResetError(), OSError())] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("error", "presents", "told"),
    [
        (IllegalSaslStateError("x"), False, "it does not use SASL at this listener: see security.protocol"),
        (AuthenticationFailedError("no"), False, "user bob (sasl.username, sasl.password): "),
        (SaslAuthenticationFailed("no"), False, "user bob (sasl.username, sasl.password): "),
        (ValueError("wrong signature"), False, "user bob (sasl.username, sasl.password): wrong signature"),
        (UnicodeError("label too long"), False, "label too long"),
        (untrusted("Hostname mismatch, x"), False, "certificate verify failed (ssl.endpoint.identification.algorithm)"),
        (
            untrusted("IP address mismatch, x"),
            True,
            "certificate verify failed (ssl.endpoint.identification.algorithm)",
        ),
        (untrusted("self-signed certificate"), False, "certificate verify failed (ssl.ca.location)"),
        (
            tls("TLSV13_ALERT_CERTIFICATE_REQUIRED"),
            False,
            "; it may require a client certificate, and none is given (ssl.certificate.location)",
        ),
        (tls("TLSV13_ALERT_CERTIFICATE_REQUIRED"), True, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]"),
        (tls("WRONG_VERSION_NUMBER"), False, "[SSL: WRONG_VERSION_NUMBER]"),
        (UnsupportedSaslMechanismError("GSSAPI"), False, "GSSAPI"),
    ],
    ids=repr,
)
def test_a_refusal_names_the_properties_to_look_at(error: Exception, presents: bool, told: str) -> None:
    """Only those that can be wrong."""
    text = refusal(error, user="bob", presents_certificate=presents)
    assert told in text
    assert ("sasl.username" in text) == ("sasl.username" in told)
    assert ("ssl." in text) == ("ssl." in told)


def test_other_errors_do_not_mention_trust() -> None:
    assert where_trust_is_set(tls("WRONG_VERSION_NUMBER")) == ""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError("no route"), "no route"),
        (OSError(), "OSError"),
        (caused(OSError("closed"), ValueError("for a reason")), "closed: for a reason"),
        (caused(TimeoutError(), OSError("cancelled")), "no answer in time"),
        (TimeoutError(110, "Connection timed out"), "[Errno 110] Connection timed out"),
    ],
    ids=repr,
)
def test_an_error_is_shown_with_its_cause(error: Exception, words: str) -> None:
    assert describe_failure(error) == words
