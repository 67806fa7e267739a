"""The principal claimed in relayed SASL messages: for the event history, and for quotas.

The broker authenticates and authorizes: nothing here decides on either, and no client has a name before the broker has
accepted it. Connections and parked joins are counted by that name. A message is read once; nothing of passwords, proofs
and tokens is kept or logged. Pure: no sockets, no requests.

    mechanism        the name is in                                      the last answer
    PLAIN            authcid (RFC 4616)                                  is empty
    SCRAM-SHA-*      the client's first message, escaped (RFC 5802)      has the server's signature
    OAUTHBEARER      authzid (RFC 7628), or the token's claim `sub`      is empty (else the token was refused)
    any other        is not known                                        is not known

Where the last answer is not known, the end of the exchange shows when the broker answers another request: to a client
that has not authenticated it answers only ApiVersions and the exchange itself.

This is how Kafka names principals, unless the broker has a principal builder of its own. The name is not known for
other mechanisms, nor for delegation tokens, whose owner only the broker knows.
"""

import base64
import json
from collections.abc import Callable
from typing import Final

from muster.coordinator.principals import UNKNOWN_PRINCIPAL

MESSAGE_BYTES_MAX: Final = 524_288
"""Kafka's default of sasl.server.max.receive.size. Longer messages are not read."""


class SaslExchange:
    """The SASL exchange of one connection, until the broker has accepted or refused it."""

    def __init__(self) -> None:
        self._mechanism = ""
        self._name: str | None = None
        self._is_unproven = False
        self.is_refused = False
        """Whether the broker has refused the last try."""

    @property
    def has_begun(self) -> bool:
        """Whether the client has sent a SaslHandshake."""
        return bool(self._mechanism)

    def begin(self, mechanism: str) -> None:
        """Begin an exchange (SaslHandshake), the first one or a reauthentication (KIP-368)."""
        self._mechanism = mechanism.upper()
        self._name, self.is_refused = None, False
        self._is_unproven = self._mechanism not in _NAMES

    def received(self, message: bytes) -> None:
        """Read a client's token (SaslAuthenticate)."""
        read = _NAMES.get(self._mechanism)
        if read is not None and self._name is None and len(message) <= MESSAGE_BYTES_MAX:
            self._name = read(message)

    def accepted(self, answer: bytes) -> str | None:
        """Return the principal if this answer, without error, ends the exchange; None if it goes on."""
        if self._mechanism not in _NAMES:
            return None
        is_last = answer.startswith(b"v=") if self._mechanism.startswith("SCRAM-") else not answer
        if not is_last:
            return None
        name, self._name = self._name, None
        return f"User:{name}" if name else UNKNOWN_PRINCIPAL

    def refused(self) -> str | None:
        """Note that the broker refused the client; return the name it claimed, None if not known."""
        name, self._name = self._name, None
        self.is_refused = True
        return name

    def proved(self) -> str | None:
        """Return the principal if the answer proves that an exchange has ended; None if it proves nothing new.

        Brokers answer such a request only after authentication.
        """
        is_proof, self._is_unproven = self._is_unproven, False
        return UNKNOWN_PRINCIPAL if is_proof else None


def _plain(message: bytes) -> str | None:
    """`[authzid] NUL authcid NUL password`."""
    parts = message.split(b"\0")
    return _text(parts[1]) if len(parts) > 2 else None


def _scram(message: bytes) -> str | None:
    """`n,[a=authzid],n=name,r=nonce`, with `,` as `=2C` and `=` as `=3D`. A token's id is nobody's name (KIP-48)."""
    fields = (_text(message) or "").split(",")
    if len(fields) < 4 or not fields[2].startswith("n=") or "tokenauth=true" in fields[4:]:
        return None
    return fields[2].removeprefix("n=").replace("=2C", ",").replace("=3D", "=")


def _bearer(message: bytes) -> str | None:
    """`n,[a=authzid],^Aauth=Bearer header.claims.signature^A...`; the claims are JSON in base64url."""
    head, *pairs = message.split(b"\1")
    authzid = (_text(head) or "").split(",")[1:2]
    if authzid and authzid[0].startswith("a="):  # the broker refuses one that is not the token's
        return authzid[0].removeprefix("a=").replace("=2C", ",").replace("=3D", "=")
    token = next((pair[len(_BEARER) :] for pair in pairs if pair[: len(_BEARER)].lower() == _BEARER), b"")
    parts = token.strip().split(b".")
    if len(parts) < 2:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None  # the broker judges it
    name = claims.get("sub") if isinstance(claims, dict) else None
    return name if isinstance(name, str) else None


def _text(encoded: bytes) -> str | None:
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        return None


_BEARER: Final = b"auth=bearer "
_NAMES: Final[dict[str, Callable[[bytes], str | None]]] = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram,
    "SCRAM-SHA-512": _scram,
    "OAUTHBEARER": _bearer,
}
