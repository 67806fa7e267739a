"""Naming TLS or HTTP where a client speaks that to this port, by the first four bytes."""

from typing import Final

from muster.coordinator.wire.api import Fault, ProtocolError

_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP_METHODS: Final = frozenset({b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC"})


def oversized_frame(length: int, bytes_max: int) -> ProtocolError:
    """Make the error for a length over `bytes_max`, which may be the beginning of another protocol."""
    spoken = _other_protocol(length)
    if spoken is not None:
        return ProtocolError(Fault.OTHER_PROTOCOL, spoken)
    return ProtocolError(Fault.OVERSIZED_FRAME, f"a request announces {length} bytes, {bytes_max} are allowed")


def _other_protocol(length: int) -> str | None:
    first = length.to_bytes(4, "big", signed=True)
    if first.startswith(_TLS_HANDSHAKE):
        return "the client speaks TLS, which is not served here (security.protocol)"
    if first in _HTTP_METHODS:
        return "the client speaks HTTP; /healthz is at --metrics"
    return None
