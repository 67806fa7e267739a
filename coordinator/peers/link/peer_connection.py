"""One connection between two processes, either end: frames, the proof, what is written at a time.

What belongs here: bytes to messages and back, their limits, and whether the other end lives. What it must not know:
clients, groups, who is asked.

    written     what is sent in one turn of the loop at once. A long message goes in parts, with others between them: it
                holds up nobody, so messages about one client keep their order only if they are short, or answer each
                other
    read        for a slice of time at once, and a few at most, and no more meanwhile
    too much    whoever has more than UNSENT_BYTES_MAX to send `is_full`, and should send nothing more for a while. Who
                accepts takes no more requests until its answers are read; who connects always reads, so both never wait
    silence     who connects asks each TICK_S whether the other end lives. Ticks are counted, not time: a process that
                was suspended itself has missed one, and not all
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
"""Limit of a message of who has not proven that it has the secret."""

UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
MESSAGES_AT_ONCE: Final = 50
"""In one turn of the loop: each may wake a task, whose work comes in the next one."""
PART_BYTES: Final = 256 * 1024
"""A longer message is sent in parts of so many bytes."""

TICK_S: Final = 0.5
HUNG_TICKS: Final = 4
"""A process that answers nothing for so long, 2 s, is not reached: others may own its groups meanwhile."""
GONE_TICKS: Final = 60
"""A process that asks nothing for so long, 30 s, is gone with its machine: no break of the connection told it."""
CLOSE_TIMEOUT_S: Final = 5.0
"""How long a closed connection may take to send the rest, and to end its TLS."""

Handshake = Challenge | Proof | Welcome | Denied


class PeerConnection(asyncio.Protocol):
    """Either end of a peer connection. `begin` is called when it is made, `proving` with each message of the proof.

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
        self.node_id: int | None = None
        """Node id of the other end, once it is proven."""
        self.knows = 0
        """The highest tag of the messages that the other end understands, where that is who connects."""
        self.reason = "it was closed by the other process"
        self._message_bytes_max = message_bytes_max
        self._begin = begin
        self._proving = proving
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._parts = bytearray()
        """The parts of a long message that have come."""
        self._outgoing: list[bytes] = []
        self._long: deque[memoryview] = deque()
        """Long messages, as far as they are not sent."""
        self._is_flush_due = False
        self._is_writable = True
        self._is_waiting = False
        """Whether what was received waits for the next turn of the loop, or until the other end reads."""
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
        """How much waits until the other end reads."""
        if self._transport is None:
            return 0
        return self._transport.get_write_buffer_size() + sum(map(len, self._long))

    @property
    def is_full(self) -> bool:
        """Whether the other end is so far behind that nothing more should be sent."""
        return self.unsent_bytes > UNSENT_BYTES_MAX

    def send(self, message: AnyMessage) -> None:
        """Send a message, with all others of this turn of the loop; nothing once the connection is lost."""
        if self._transport is None:
            return
        encoded = encode(message)
        if len(encoded) > PART_BYTES:
            self._long.append(memoryview(encoded))
        else:
            self._outgoing += (LENGTH.pack(len(encoded)), encoded)
        self._flush_soon()

    def close(self, reason: str) -> None:
        """Send what is to be sent, and close: at once, if that takes long."""
        if self._transport is None or self._transport.is_closing():
            return
        self.reason = reason
        while self._long:
            self._put_part()
        self._flush()
        self._transport.close()
        asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, self.abort, reason)

    def abort(self, reason: str) -> None:
        """Close at once."""
        if self._transport is not None:
            self.reason = reason
            self._transport.abort()

    def answer_back(self) -> None:
        """Be the end that accepts: take no more requests while answers are not read; close when none come for long."""
        self._has_backpressure = True
        self._tick(GONE_TICKS, asks=False)

    def keep_alive(self) -> None:
        """Be the end that connects: close the connection when nothing comes any more."""
        self._tick(HUNG_TICKS, asks=True)

    # ---- the socket ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
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

    # ---- what is sent --------------------------------------------------------------------------------

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

    # ---- what comes ----------------------------------------------------------------------------------

    @property
    def _must_wait(self) -> bool:
        return self._has_backpressure and self.is_full

    def _handle_soon(self) -> None:
        if not self._is_handling_due:
            self._is_handling_due = True
            asyncio.get_running_loop().call_soon(self._handle_some)

    def _handle_some(self) -> None:
        """Handle messages for a slice of time; the rest with the next turn of the loop."""
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
        """Handle a message; an error of ours is this connection's alone."""
        try:
            if isinstance(message, MessagePart) and self.handle is not None:
                whole = self._whole(message)
                if whole is None:
                    return
                message = whole
            self._handle(message)
        except BadMessage as error:
            self.close(f"it has sent what is no message: {error}")
        except Exception as error:
            log.exception("a message of another process could not be handled", peer=self.peer)
            self.close(f"a message of it could not be handled: {error!r}")

    def _handle(self, message: AnyMessage) -> None:
        if isinstance(message, Handshake):
            self._proving(self, message)
        elif self.handle is None:
            self.close("it has sent a message without a proof")
        elif isinstance(message, Ping):
            self.send(Pong())
        elif not isinstance(message, Pong):
            self.handle(message)

    def _whole(self, part: MessagePart) -> AnyMessage | None:
        """The message that ends with this part. Raises BadMessage."""
        self._parts += part.content
        if len(self._parts) > self._message_bytes_max:
            raise BadMessage(f"more than {self._message_bytes_max} bytes")
        if not part.is_last:
            return None
        parts, self._parts = self._parts, bytearray()
        return decode(parts)

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

    # ---- silence -------------------------------------------------------------------------------------

    def _tick(self, ticks_max: int, *, asks: bool) -> None:
        self._silent_ticks = 0 if self._is_heard else self._silent_ticks + 1
        self._is_heard = False
        if self._silent_ticks >= ticks_max:
            self.abort(f"nothing has come from it for {ticks_max * TICK_S:.0f} s")
            return
        if asks:
            self.send(Ping())
        self._timer = asyncio.get_running_loop().call_later(TICK_S, lambda: self._tick(ticks_max, asks=asks))
