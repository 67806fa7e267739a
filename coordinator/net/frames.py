"""A client's connection without its socket: bytes in, one request at a time out, answers in, bytes out.

What belongs here: frames, the order of answers, the limit of waiting bytes; for both modes: the broker's side is in
sidecar/relay/conversation.py. What it must not know: sockets, time, the meaning of requests (but for the keys of a
heartbeat, which the fast path may answer before it is decoded, and of those that wait for other members).

A request is taken with `next_request`, answered with `answer`, and until it is answered there is no next one: so
answers leave in the order of requests, and requests of one connection are decided in that order, as in Kafka (CC5,
CA8). What arrives meanwhile waits as bytes; `is_full` says when no more should be read.

Heartbeats that the fast path knows are not taken: one loop answers them over the bytes as they lie. Where nothing else
is there, `receive_known` does so before they come into the buffer, since each step of the usual way costs a lone
heartbeat some percent more.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from muster.coordinator.net.buffer import Incoming
from muster.coordinator.wire import heartbeat
from muster.coordinator.wire.api import Fault, ProtocolError
from muster.coordinator.wire.bounds import bound_of
from muster.coordinator.wire.messages import HEADER_START_BYTES
from muster.coordinator.wire.registry import PARKED

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


Fast = Callable[[int, bytes, int], bytes | None]
"""Takes a heartbeat's version, its bytes behind the correlation id, and its arrival; returns those of the answer."""

AT_ONCE = 64
"""The limit of requests that the fast path answers, or that are relayed, before others have their turns."""

LENGTH = Struct(">i")
REQUEST_START = Struct(">ihh4s")
"""The length, the API key and version, the correlation id."""
_CORRELATION_ID_BYTES = 4


def put_answer(out: list[bytes], correlation_id: bytes, *payload: bytes) -> None:
    """Add an answer to the output; `payload`: its chunks behind the correlation id."""
    out += (LENGTH.pack(sum(map(len, payload)) + _CORRELATION_ID_BYTES), correlation_id, *payload)


def check_length(length: int, bytes_max: int) -> None:
    """Check the length of a request. Raises ProtocolError."""
    if HEADER_START_BYTES <= length <= bytes_max:
        return
    if length < 0:
        raise ProtocolError(Fault.NEGATIVE_LENGTH, f"a request announces {length} bytes")
    if length < HEADER_START_BYTES:
        raise ProtocolError(
            Fault.SHORT_FRAME, f"a request of {length} bytes is too short for a header of {HEADER_START_BYTES}"
        )
    raise oversized_frame(length, bytes_max)


def check_bound(api_key: int, api_version: int, length: int, bytes_max: int) -> None:
    """Check the length of a request against the limit of its API. Raises ProtocolError."""
    if length > bytes_max:
        raise ProtocolError(
            Fault.OVERSIZED_FRAME,
            f"a request of API key {api_key} v{api_version} announces {length} bytes, {bytes_max} are allowed",
        )


class Connection:
    """`frame_bytes_max` bounds one request; `waiting_bytes_max` what may wait behind one that is not answered yet.

    `for_client` are the bytes to be sent now; whoever sends them clears them.
    """

    def __init__(self, *, fast: Fast, frame_bytes_max: int, waiting_bytes_max: int) -> None:
        self.for_client: list[bytes] = []
        self.is_interrupted = False
        """Whether `next_request` has left something for a later turn."""
        self._fast = fast
        self._frame_bytes_max = frame_bytes_max
        self._waiting_bytes_max = waiting_bytes_max
        self._incoming = Incoming()
        self._taken: bytes | None = None  # the correlation id of the request that is not answered yet
        self._taken_bytes = 0  # of that request
        self._taken_key = -1
        self._is_superseded = False
        self._has_begun = False  # a request, since the last `take_progress`
        self._was_half_sent = False

    @property
    def is_handling(self) -> bool:
        """Whether a request was taken that will be answered, and is not yet."""
        return self._taken is not None and not self._is_superseded

    @property
    def is_parked(self) -> bool:
        """Whether a join or a sync was taken, which waits for other members for as long as they take."""
        return self.is_handling and self._taken_key in PARKED

    @property
    def is_under_way(self) -> bool:
        """Whether something has begun that is not at its end."""
        return self.is_handling

    @property
    def waiting_bytes(self) -> int:
        """The bytes that have arrived and were neither taken nor passed on."""
        return self._incoming.waiting_bytes

    @property
    def held_bytes(self) -> int:
        """The bytes in memory: the request that is being handled, and those that have arrived behind it."""
        return self._taken_bytes + self._incoming.waiting_bytes

    @property
    def is_full(self) -> bool:
        """Whether so much waits behind what is under way that no more should be read."""
        return self._incoming.waiting_bytes >= self._waiting_bytes_max and self.is_under_way

    def take_progress(self) -> bool:
        """Return whether a request has begun or ended since the last call.

        More bytes in the middle of a request are no progress, so a client that sends them slowly is idle.
        """
        went_on = self._has_begun or not (self._was_half_sent or self._is_superseded)
        self._has_begun = False
        self._was_half_sent = self._incoming.waiting_bytes > 0 and not self.is_under_way
        return went_on

    def receive(self, data: bytes) -> None:
        """Receive bytes from the client, cut anywhere."""
        if not self._is_superseded:
            self._incoming.add(data)

    def receive_known(self, data: bytes, now_ms: int) -> bool:
        """Receive bytes, and answer the heartbeats that the fast path knows, if nothing waits before them.

        Returns whether that was all: the usual case, after which nothing else has to be looked at.
        """
        incoming = self._incoming
        if self._taken is not None or incoming.waiting_bytes:
            self.receive(data)
            return False
        answered, at = self._answer_known(data, 0, AT_ONCE, now_ms)
        if answered and at == len(data):
            self._has_begun = self._was_half_sent = False
            return True
        incoming.add(data)
        if answered:
            self._has_begun = True
            incoming.skip_to(at)
        return False

    def next_request(self, now_ms: int) -> bytes | None:
        """Take the next frame that has to be handled here, without its length; None when there is none yet.

        Heartbeats that the fast path knows are answered on the way, `AT_ONCE` of them if there are more
        (`is_interrupted`). Raises ProtocolError; nothing may follow then.
        """
        self.is_interrupted = False
        if self._taken is not None:
            return None
        if self._answer_heartbeats(now_ms) >= AT_ONCE and self._incoming.waiting_bytes:
            self.is_interrupted = True
            return None
        start = self._next_start()
        if start is None:
            return None
        length, api_key, api_version, correlation_id = start
        check_bound(api_key, api_version, length, bound_of(api_key).bytes_max)
        return self._take(length, api_key, correlation_id)

    def answer(self, *payload: bytes) -> None:
        """Answer the request that was taken, with chunks of bytes behind the correlation id."""
        assert self._taken is not None
        put_answer(self.for_client, self._taken, *payload)
        self._taken, self._taken_bytes = None, 0

    def supersede(self) -> None:
        """Give up the request that was taken: it is never answered (J13, SG17).

        So nothing behind it ever is, as in Kafka, and what still comes is dropped; the connection is idle.
        """
        self._is_superseded = True
        self._incoming, self._taken_bytes = Incoming(), 0

    def forget(self) -> None:
        """Drop all bytes: the client is gone, even if its request is still being handled."""
        self._incoming, self._taken_bytes = Incoming(), 0
        self.for_client.clear()

    # ---- frames --------------------------------------------------------------------------------------

    def _answer_heartbeats(self, now_ms: int) -> int:
        """Answer the next heartbeats that the fast path knows, at most `AT_ONCE`; returns their number."""
        answered = self._answer_in_place(AT_ONCE, now_ms)
        if self._incoming.is_split and self._joins_next():
            answered += self._answer_in_place(AT_ONCE - answered, now_ms)
        return answered

    def _answer_in_place(self, at_most: int, now_ms: int) -> int:
        """Answer those that came in one piece."""
        data, begins_at = self._incoming.in_place
        answered, at = self._answer_known(data, begins_at, at_most, now_ms)
        if answered:
            self._has_begun = True
            self._incoming.skip_to(at)
        return answered

    def _answer_known(self, data: bytes, at: int, at_most: int, now_ms: int) -> tuple[int, int]:
        """Answer heartbeats in place, from `at` on; returns their number and end. They are most requests."""
        size, out, fast, answered = len(data), self.for_client, self._fast, 0
        while size - at >= REQUEST_START.size and answered < at_most:
            length, api_key, api_version, correlation_id = REQUEST_START.unpack_from(data, at)
            end = at + LENGTH.size + length
            if api_key != heartbeat.KEY or end > size:
                break
            payload = fast(api_version, data[at + REQUEST_START.size : end], now_ms)
            if payload is None:
                break
            out += (LENGTH.pack(len(payload) + _CORRELATION_ID_BYTES), correlation_id, payload)
            at = end
            answered += 1
        return answered, at

    def _joins_next(self) -> bool:
        """Whether a heartbeat comes next and is there, in pieces; they are joined then."""
        start = self._incoming.look(REQUEST_START.size)
        if len(start) < REQUEST_START.size:
            return False
        length, api_key, _, _ = REQUEST_START.unpack(start)
        return api_key == heartbeat.KEY and self._incoming.join(LENGTH.size + length)

    def _next_start(self) -> tuple[int, int, int, bytes] | None:
        """Return the `REQUEST_START` of the next frame; None when that has not come. Raises ProtocolError for a bad
        length as soon as its four bytes are there: more may never come.
        """
        start = self._incoming.look(REQUEST_START.size)
        if len(start) < LENGTH.size:
            return None
        length: int = LENGTH.unpack_from(start)[0]
        check_length(length, self._frame_bytes_max)
        return REQUEST_START.unpack(start) if len(start) == REQUEST_START.size else None

    def _take(self, length: int, api_key: int, correlation_id: bytes) -> bytes | None:
        """Take the next frame behind its length, which is known to be good, if it has come."""
        if not self._incoming.has(LENGTH.size + length):
            return None
        self._incoming.take(LENGTH.size)
        self._taken, self._taken_key = correlation_id, api_key
        self._taken_bytes = LENGTH.size + length
        self._has_begun = True
        return self._incoming.take(length)
