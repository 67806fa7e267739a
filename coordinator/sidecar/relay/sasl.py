"""The principal claimed in relayed SASL messages: for the event history, and for quotas.

The broker authenticates and authorizes; nothing here decides either, and a client has no name until the broker has
accepted it. Connections and parked joins are counted by that name. Each message is read once; passwords, proofs and
tokens are neither kept nor logged. Pure: no sockets, no requests.

    mechanism        where the name is                                   the last response
    PLAIN            authcid (RFC 4616)                                  is empty
    SCRAM-SHA-*      the client's first message, escaped (RFC 5802)      has the server's signature
    OAUTHBEARER      authzid (RFC 7628), or the token's claim `sub`      is empty (else the token was refused)
    any other        unknown                                             unknown

For a mechanism whose last response is unknown, the exchange has ended once the broker answers another request: it
answers an unauthenticated client only on ApiVersions and the exchange itself.

Kafka builds principals in the same way, unless the broker has its own principal builder. The name is also unknown for
delegation tokens, whose owner only the broker knows.
"""

import base64
import json
from collections.abc import Callable
from typing import Final

from muster.coordinator.principals import UNKNOWN_PRINCIPAL

MESSAGE_BYTES_MAX: Final = 524_288
"""Kafka's default for sasl.server.max.receive.size. Longer messages are not read."""


class SaslExchange:
    """The SASL exchange of one connection, until the broker has accepted or refused it."""

    def __init__(self) -> None:
        self._mechanism = ""
        self._name: str | None = None
        self._is_unproven = False
        self.is_refused = False
        """True if the broker refused the last attempt."""

    @property
    def has_begun(self) -> bool:
        """True once the client has sent a SaslHandshake."""
        return bool(self._mechanism)

    def begin(self, mechanism: str) -> None:
        """Begin an exchange (SaslHandshake), the first one or a reauthentication (KIP-368)."""
        self._mechanism = mechanism.upper()
        self._name, self.is_refused = None, False
        self._is_unproven = self._mechanism not in _NAMES

    def received(self, message: bytes) -> None:
        """Read the client's token (SaslAuthenticate)."""
        read = _NAMES.get(self._mechanism)
        if read is not None and self._name is None and len(message) <= MESSAGE_BYTES_MAX:
            self._name = read(message)

    def accepted(self, answer: bytes) -> str | None:
        """Return the principal if this response, without error, ends the exchange; None if more is to come."""
        if self._mechanism not in _NAMES:
            return None
        is_last = answer.startswith(b"v=") if self._mechanism.startswith("SCRAM-") else not answer
        if not is_last:
            return None
        name, self._name = self._name, None
        return f"User:{name}" if name else UNKNOWN_PRINCIPAL

    def refused(self) -> str | None:
        """Note that the broker refused the client; return the name it claimed, or None if unknown."""
        name, self._name = self._name, None
        self.is_refused = True
        return name

    def proved(self) -> str | None:
        """Return the principal if the response proves that an exchange has ended; None if it proves nothing new.

        For responses that a broker sends only to authenticated clients.
        """
        is_proof, self._is_unproven = self._is_unproven, False
        return UNKNOWN_PRINCIPAL if is_proof else None


def _plain(message: bytes) -> str | None:
    """Parse `[authzid] NUL authcid NUL password`."""
    parts = message.split(b"\0")
    return _text(parts[1]) if len(parts) > 2 else None


def _scram(message: bytes) -> str | None:
    """Parse `n,[a=authzid],n=name,r=nonce`, with `,` as `=2C` and `=` as `=3D`. A token id is not a name (KIP-48)."""
    fields = (_text(message) or "").split(",")
    if len(fields) < 4 or not fields[2].startswith("n=") or "tokenauth=true" in fields[4:]:
        return None
    return fields[2].removeprefix("n=").replace("=2C", ",").replace("=3D", "=")


def _bearer(message: bytes) -> str | None:
    """Parse `n,[a=authzid],^Aauth=Bearer header.claims.signature^A...`; the claims are JSON in base64url."""
    head, *pairs = message.split(b"\1")
    authzid = (_text(head) or "").split(",")[1:2]
    if authzid and authzid[0].startswith("a="):  # the broker refuses an authzid that differs from the token's
        return authzid[0].removeprefix("a=").replace("=2C", ",").replace("=3D", "=")
    token = next((pair[len(_BEARER) :] for pair in pairs if pair[: len(_BEARER)].lower() == _BEARER), b"")
    parts = token.strip().split(b".")
    if len(parts) < 2:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None  # the broker decides
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
