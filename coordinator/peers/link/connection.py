"""One connection between two processes, either end: frames, the proof, what is written at a time.

What belongs here: bytes to messages and back, and their limits. What it must not know: clients, groups, who is asked.

What is sent in one turn of the loop is written at once. Messages that came are handled a slice at a time, and no more
is read meanwhile. Whoever has more than UNSENT_BYTES_MAX to send `is_full`, and should send nothing more for a while.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from muster.coordinator.peers.link.messages import (
    LENGTH,
    AnyMessage,
    BadMessage,
    Challenge,
    Denied,
    Proof,
    Welcome,
    decode,
    encode,
)

UNPROVEN_BYTES_MAX: Final = 4_096
"""Limit of a message of who has not proven that it has the secret."""

UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
MESSAGES_AT_ONCE: Final = 200

Handshake = Challenge | Proof | Welcome | Denied


class PeerConnection(asyncio.Protocol):
    """See the module. `begin` is called when the connection is made, `proving` with each message of the proof.

    `lost` is called once, at the end, with the reason for people.
    """

    def __init__(
        self,
        *,
        message_bytes_max: int,
        begin: Callable[["PeerConnection"], None],
        proving: Callable[["PeerConnection", Handshake], None],
        lost: Callable[["PeerConnection", str], None],
    ) -> None:
        self.handle: Callable[[AnyMessage], None] | None = None
        """Called with each message, once the other end is proven."""
        self.peer = ""
        self.reason = "it was closed by the other process"
        self._message_bytes_max = message_bytes_max
        self._begin = begin
        self._proving = proving
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._outgoing: list[bytes] = []
        self._is_handling = False

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_full(self) -> bool:
        """Whether the other end is so far behind that nothing more should be sent."""
        return self._transport is not None and self._transport.get_write_buffer_size() > UNSENT_BYTES_MAX

    def send(self, message: AnyMessage) -> None:
        """Send a message, with all others of this turn of the loop; nothing once the connection is lost."""
        if self._transport is None:
            return
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        encoded = encode(message)
        self._outgoing += (LENGTH.pack(len(encoded)), encoded)

    def close(self, reason: str) -> None:
        """Send what is to be sent, and close."""
        self.reason = reason
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        address = transport.get_extra_info("peername") or ("?", 0)
        self.peer = f"{address[0]}:{address[1]}"
        self._begin(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._is_handling:
            self._handle_some()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._outgoing.clear()
        self._received.clear()
        self._lost(self, str(error) if error is not None else self.reason)

    def _flush(self) -> None:
        if self._outgoing and self._transport is not None:
            self._transport.write(b"".join(self._outgoing))
        self._outgoing.clear()

    def _handle_some(self) -> None:
        """Handle a slice of the messages that have come; the rest with the next turn of the loop."""
        self._is_handling = False
        at = 0
        for _ in range(MESSAGES_AT_ONCE):
            message, at = self._next(at)
            if message is None:
                del self._received[:at]
                self._read(on=True)
                return
            if self.handle is not None:
                self.handle(message)
            elif isinstance(message, Handshake):
                self._proving(self, message)
            else:
                self.close("it has sent a message without a proof")
            if not self.is_open:
                return
        del self._received[:at]
        self._is_handling = True
        self._read(on=False)
        asyncio.get_running_loop().call_soon(self._handle_some)

    def _next(self, at: int) -> tuple[AnyMessage | None, int]:
        """The message that begins at this byte, and where it ends; None if it has not come whole."""
        if len(self._received) - at < LENGTH.size:
            return None, at
        (length,) = LENGTH.unpack_from(self._received, at)
        if length > (UNPROVEN_BYTES_MAX if self.handle is None else self._message_bytes_max):
            self.close(f"it has sent a message of {length} bytes")
            return None, at
        end = at + LENGTH.size + length
        if len(self._received) < end:
            return None, at
        try:
            return decode(bytes(memoryview(self._received)[at + LENGTH.size : end])), end
        except BadMessage as error:
            self.close(f"it has sent what is no message: {error}")
            return None, at

    def _read(self, *, on: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if on and not self._transport.is_reading():
            self._transport.resume_reading()
        elif not on and self._transport.is_reading():
            self._transport.pause_reading()
