"""Names in the SASL messages of clients."""

import base64
import json

import pytest

from muster.coordinator.principals import UNKNOWN_PRINCIPAL
from muster.coordinator.sidecar.relay.sasl import MESSAGE_BYTES_MAX, SaslExchange

SERVER_FIRST, SERVER_FINAL = b"r=abcdef,s=c2FsdA==,i=4096", b"v=c2lnbmF0dXJl"


def exchange(mechanism: str, *reported: bytes) -> SaslExchange:
    """An exchange that has started."""
    begun = SaslExchange()
    begun.begin(mechanism)
    for message in reported:
        begun.received(message)
    return begun


def token(claims: object, *, head: str = "n,,") -> bytes:
    """The first message of OAUTHBEARER, with an unsigned token."""
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    header, payload = (base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    return b"%s\1auth=Bearer %s.%s.\1\1" % (head.encode(), header, payload)


@pytest.mark.parametrize(
    ("message", "principal"),
    [
        (b"\0alice\0alice-secret", "User:alice"),
        (b"alice\0alice\0alice-secret", "User:alice"),
        (b"\0gr\xc3\xbcn\0secret", "User:grün"),
        (b"alice", UNKNOWN_PRINCIPAL),
        (b"\0\xff\0secret", UNKNOWN_PRINCIPAL),
        (b"\0\0secret", UNKNOWN_PRINCIPAL),
    ],
)
def test_plain_names_the_authcid(message: bytes, principal: str) -> None:
    """RFC 4616; the broker refuses a different authzid."""
    assert exchange("PLAIN", message).accepted(b"") == principal


@pytest.mark.parametrize(
    ("message", "principal"),
    [
        (b"n,,n=alice,r=abc", "User:alice"),
        (b"n,a=alice,n=alice,r=abc", "User:alice"),
        (b"n,,n=a=2Cb=3Dc=3D2C,r=abc", "User:a,b=c=2C"),
        (b"n,,n=token-id,r=abc,tokenauth=true", UNKNOWN_PRINCIPAL),
        (b"n,,r=abc", UNKNOWN_PRINCIPAL),
        (b"", UNKNOWN_PRINCIPAL),
    ],
)
def test_scram_names_the_user_of_the_first_message(message: bytes, principal: str) -> None:
    """RFC 5802: escapes undone; a delegation token has no name (KIP-48)."""
    begun = exchange("SCRAM-SHA-512", message)
    assert begun.accepted(SERVER_FIRST) is None
    begun.received(b"c=biws,r=abcdef,p=cHJvb2Y=")
    assert begun.accepted(SERVER_FINAL) == principal


@pytest.mark.parametrize(
    ("message", "principal"),
    [
        (token({"sub": "alice", "exp": 1}), "User:alice"),
        (token({"sub": "alice"}, head="n,a=al=2Cice,"), "User:al,ice"),
        (token({"sub": 7}), UNKNOWN_PRINCIPAL),
        (token({"name": "alice"}), UNKNOWN_PRINCIPAL),
        (token(["alice"]), UNKNOWN_PRINCIPAL),
        (b"n,,\1auth=Bearer none-at-all\1\1", UNKNOWN_PRINCIPAL),
        (b"n,,\1auth=Bearer a.b.c\1\1", UNKNOWN_PRINCIPAL),
        (b"n,,\1auth=Bearer a." + base64.urlsafe_b64encode(b"[" * 50_000) + b".c\1\1", UNKNOWN_PRINCIPAL),
        (b"\1", UNKNOWN_PRINCIPAL),
    ],
)
def test_a_token_names_its_subject(message: bytes, principal: str) -> None:
    """RFC 7628; the broker refuses invalid tokens."""
    assert exchange("OAUTHBEARER", message).accepted(b"") == principal


def test_a_refused_token_belongs_to_no_user() -> None:
    """The broker sends the reason in a response without an error, and waits for the client to give up."""
    begun = exchange("OAUTHBEARER", token({"sub": "alice"}))
    assert begun.accepted(b'{"status":"invalid_token"}') is None


def test_another_try_after_a_refusal_is_not_refused() -> None:
    """A client may start again on its connection."""
    begun = exchange("PLAIN", b"\0alice\0wrong")
    assert begun.refused() == "alice"
    assert begun.is_refused
    begun.begin("PLAIN")
    assert not begun.is_refused


@pytest.mark.parametrize("answer", [b"\x60", b"", b"v=c2lnbmF0dXJl"])
def test_other_mechanisms_reveal_neither_a_name_nor_their_end(answer: bytes) -> None:
    """Kerberos is between client and broker; a response to another request proves that the client was accepted."""
    begun = exchange("GSSAPI", b"\x60\x82")
    assert begun.accepted(answer) is None
    assert [begun.proved(), begun.proved()] == [UNKNOWN_PRINCIPAL, None]


def test_what_ends_by_itself_needs_no_proof() -> None:
    begun = exchange("PLAIN", b"\0alice\0alice-secret")
    assert begun.proved() is None


def test_a_later_exchange_begins_from_nothing() -> None:
    """KIP-368: the first exchange's name does not carry over."""
    begun = exchange("PLAIN", b"\0alice\0alice-secret")
    begun.begin("PLAIN")
    assert begun.accepted(b"") == UNKNOWN_PRINCIPAL


def test_messages_that_are_too_long_are_not_parsed() -> None:
    """An unauthenticated client may send it."""
    begun = exchange("PLAIN", b"\0alice\0" + b"x" * MESSAGE_BYTES_MAX)
    assert begun.accepted(b"") == UNKNOWN_PRINCIPAL


def test_nothing_is_kept_but_the_name() -> None:
    """No password, no proof, no token."""
    for mechanism, reported in (
        ("PLAIN", (b"\0alice\0s3cret",)),
        ("SCRAM-SHA-256", (b"n,,n=alice,r=s3cret", b"c=biws,r=x,p=s3cret")),
        ("OAUTHBEARER", (token({"sub": "alice", "jti": "s3cret"}),)),
    ):
        kept = [str(value) for value in vars(exchange(mechanism, *reported)).values()]
        assert kept == [mechanism, "alice", "False", "False"]
