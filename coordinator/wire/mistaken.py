"""What clients speak that have mistaken this port for another one, told by the first four bytes."""

from typing import Final

_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP_METHODS: Final = frozenset({b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC"})


def mistaken(length: int) -> str | None:
    """What it is, for people, if bytes that were read as the length of a request are none; None: nothing that is known.

    Read as lengths, all of these are beyond what a request may have.
    """
    first = length.to_bytes(4, "big", signed=True)
    if first.startswith(_TLS_HANDSHAKE):
        return "the client speaks TLS, which is not served here (security.protocol)"
    if first in _HTTP_METHODS:
        return "the client speaks HTTP; /healthz is at --metrics"
    return None
