"""Either end of a connection between two processes: frames, the handshake, batching of writes.

Converts bytes to messages and back, enforces limits, and detects a dead peer. Knows nothing of clients and groups.

    writing     all messages of one event-loop iteration are written at once. A long message is sent in parts, and other
                messages go between the parts, so that it does not delay them. So messages about one client keep their
                order only if they are short, or if each answers the one before
    reading     a few messages are handled per time slice; if more have arrived, reading is paused until the next one
    overload    an end with more than UNSENT_BYTES_MAX to send `is_full`, and should stop sending until the other end
                catches up. The accepting end takes no more requests until its responses are read; the connecting end
                always reads, so they never wait for each other
    silence     the connecting end sends a Ping every TICK_S. Ticks are counted instead of time, because a process that
                was itself suspended then misses one tick, not all of them
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, cast

import structlog

from muster.coordinator.load.slices import SLICE_S
from muster.coordinator.peers.link.peer_messages import (
    LENGTH,
    AnyMessage,
    BadMessage,
    Challenge,
    Denied,
    MessagePart,
    Ping,
    Pong,
    Proof,
    Welcome,
    decode,
    encode,
)

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

UNPROVEN_BYTES_MAX: Final = 4_096
"""Message size limit until the other end has proven that it has the secret."""

UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
MESSAGES_AT_ONCE: Final = 50
"""Messages per event-loop iteration: each may wake a task, which runs in the next iteration."""
PART_BYTES: Final = 256 * 1024
"""Longer messages are sent in parts of this size."""

TICK_S: Final = 0.5
HUNG_TICKS: Final = 4
"""A process that is silent for this many ticks, 2 s, counts as unreachable: its groups may have another owner
by then.
"""
SILENT_TICKS_MAX: Final = 60
"""If a process sends nothing for this many ticks, 30 s, its machine is gone and could not close the connection."""
CLOSE_TIMEOUT_S: Final = 5.0
"""How long a closed connection may take to send the rest and to end TLS."""

Handshake = Challenge | Proof | Welcome | Denied


class PeerConnection(asyncio.Protocol):
    """Either end of a peer connection. `begin` is called once the connection is open, `proving` with each handshake
    message.

    `lost` is called once, at the end, with a human-readable reason.
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
        """Called with each message, once the other end has proven that it has the secret."""
        self.peer = ""
        self.node_id: int | None = None
        """The node id of the other end, once the other end is proven."""
        self.highest_tag = 0
        """The highest message tag that the other end understands, if the other end connected."""
        self.reason = "it was closed by the other process"
        self._message_bytes_max = message_bytes_max
        self._begin = begin
        self._proving = proving
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._parts = bytearray()
        """The received parts of a long message."""
        self._outgoing: list[bytes] = []
        self._long: deque[memoryview] = deque()
        """Long messages that are not completely sent."""
        self._is_flush_due = False
        self._is_writable = True
        self._is_waiting = False
        """True if received data is left for the next iteration of the event loop, or until the other end reads our
        responses.
        """
        self._is_handling_due = False
        self._has_backpressure = False
        self._is_heard = True
        self._silent_ticks = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """The number of bytes that the other end has not read yet."""
        if self._transport is None:
            return 0
        return self._transport.get_write_buffer_size() + sum(map(len, self._long))

    @property
    def is_full(self) -> bool:
        """Return whether the other end is so far behind that nothing more should be sent."""
        return self.unsent_bytes > UNSENT_BYTES_MAX

    def send(self, message: AnyMessage) -> None:
        """Send a message, with all others of this event-loop iteration; dropped once the connection is lost."""
        if self._transport is None:
            return
        encoded = encode(message)
        if len(encoded) > PART_BYTES:
            self._long.append(memoryview(encoded))
        else:
            self._outgoing += (LENGTH.pack(len(encoded)), encoded)
        self._flush_soon()

    def close(self, reason: str) -> None:
        """Send what is queued, then close; abort if that takes too long."""
        if self._transport is None or self._transport.is_closing():
            return
        self.reason = reason
        while self._long:
            self._put_part()
        self._flush()
        self._transport.close()
        asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, self.abort, reason)

    def abort(self, reason: str) -> None:
        if self._transport is not None:
            self.reason = reason
            self._transport.abort()

    def answer_back(self) -> None:
        """Act as the accepting end: apply backpressure while responses are not read; abort after a long silence."""
        self._has_backpressure = True
        self._tick(SILENT_TICKS_MAX, asks=False)

    def keep_alive(self) -> None:
        """Act as the connecting end: send pings, and abort if nothing comes back."""
        self._tick(HUNG_TICKS, asks=True)

    # ---- the socket ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are not subclasses
        self._transport.set_write_buffer_limits(high=4 * PART_BYTES, low=PART_BYTES)
        address = transport.get_extra_info("peername") or ("?", 0)
        self.peer = f"{address[0]}:{address[1]}"
        self._begin(self)

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = self._is_heard = True
        self._flush_soon()

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._is_heard = True
        if not self._is_waiting:
            self._handle_some()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._outgoing.clear()
        self._long.clear()
        self._received.clear()
        self._parts.clear()
        self._lost(self, str(error) if error is not None else self.reason)

    # ---- sending -------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush_some)

    def _flush_some(self) -> None:
        self._is_flush_due = False
        if self._transport is None or self._transport.is_closing():
            return
        if self._long and self._is_writable:
            self._put_part()
        self._flush()
        if self._long and self._is_writable:
            self._flush_soon()
        if self._is_waiting and not self._must_wait:
            self._handle_soon()

    def _put_part(self) -> None:
        message = self._long[0]
        part, rest = message[:PART_BYTES], message[PART_BYTES:]
        if rest:
            self._long[0] = rest
        else:
            self._long.popleft()
        encoded = encode(MessagePart(bytes(part), is_last=not rest))
        self._outgoing += (LENGTH.pack(len(encoded)), encoded)

    def _flush(self) -> None:
        if self._outgoing and self._transport is not None:
            self._transport.write(b"".join(self._outgoing))
        self._outgoing.clear()

    # ---- receiving -----------------------------------------------------------------------------------

    @property
    def _must_wait(self) -> bool:
        return self._has_backpressure and self.is_full

    def _handle_soon(self) -> None:
        if not self._is_handling_due:
            self._is_handling_due = True
            asyncio.get_running_loop().call_soon(self._handle_some)

    def _handle_some(self) -> None:
        """Handle messages for one time slice, and the rest in the next iteration of the event loop."""
        self._is_handling_due = False
        if self._transport is None or self._transport.is_closing():
            return
        at, until_s = 0, time.perf_counter() + SLICE_S
        self._is_waiting = False
        for _ in range(MESSAGES_AT_ONCE):
            message, at = self._next(at)
            if message is None:
                break
            self._take(message)
            if not self.is_open:
                return
            if self._must_wait or time.perf_counter() >= until_s:
                self._is_waiting = True
                break
        else:
            self._is_waiting = True
        del self._received[:at]
        self._read(on=not self._is_waiting)
        if self._is_waiting and not self._must_wait:
            self._handle_soon()

    def _take(self, message: AnyMessage) -> None:
        """Handle a message; an internal error only affects this connection."""
        try:
            if isinstance(message, MessagePart) and self.handle is not None:
                whole = self._whole(message)
                if whole is None:
                    return
                message = whole
            self._handle(message)
        except BadMessage as error:
            self.close(f"it sent an unreadable message: {error}")
        except Exception as error:
            log.exception("could not handle a message of another process", peer=self.peer)
            self.close(f"could not handle a message of it: {error!r}")

    def _handle(self, message: AnyMessage) -> None:
        if isinstance(message, Handshake):
            self._proving(self, message)
        elif self.handle is None:
            self.close("it sent a message before its proof")
        elif isinstance(message, Ping):
            self.send(Pong())
        elif not isinstance(message, Pong):
            self.handle(message)

    def _whole(self, part: MessagePart) -> AnyMessage | None:
        """The message that this part completes. Raises BadMessage."""
        self._parts += part.content
        if len(self._parts) > self._message_bytes_max:
            raise BadMessage(f"more than {self._message_bytes_max} bytes")
        if not part.is_last:
            return None
        parts, self._parts = self._parts, bytearray()
        return decode(parts)

    def _next(self, at: int) -> tuple[AnyMessage | None, int]:
        """The message that starts at this byte, and its end; None if it is incomplete."""
        if len(self._received) - at < LENGTH.size:
            return None, at
        (length,) = LENGTH.unpack_from(self._received, at)
        if length > (UNPROVEN_BYTES_MAX if self.handle is None else self._message_bytes_max):
            self.close(f"it sent a message of {length} bytes")
            return None, at
        end = at + LENGTH.size + length
        if len(self._received) < end:
            return None, at
        try:
            return decode(bytes(memoryview(self._received)[at + LENGTH.size : end])), end
        except BadMessage as error:
            self.close(f"it sent an unreadable message: {error}")
            return None, at

    def _read(self, *, on: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if on and not self._transport.is_reading():
            self._transport.resume_reading()
        elif not on and self._transport.is_reading():
            self._transport.pause_reading()

    # ---- silence -------------------------------------------------------------------------------------

    def _tick(self, ticks_max: int, *, asks: bool) -> None:
        self._silent_ticks = 0 if self._is_heard else self._silent_ticks + 1
        self._is_heard = False
        if self._silent_ticks >= ticks_max:
            self.abort(f"it has sent nothing for {ticks_max * TICK_S:.0f} s")
            return
        if asks:
            self.send(Ping())
        self._timer = asyncio.get_running_loop().call_later(TICK_S, lambda: self._tick(ticks_max, asks=asks))
