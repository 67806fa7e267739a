"""A client's connection without its socket: bytes in, one request at a time out; responses in, bytes out.

It splits the bytes into frames, keeps responses in the order of requests, and limits the bytes that wait, in standalone
mode as well as in the sidecar (whose connection to the broker is in sidecar/relay/conversation.py). It knows nothing of
sockets, time or the meaning of requests, except for two sets of API keys: heartbeats, which the fast path may answer
without decoding them, and requests that wait for other members.

A request is taken with `next_request` and answered with `answer`; until it is answered, `next_request` returns None. So
responses are sent in the order of requests, and the requests of one connection are processed in that order, as in Kafka
(CC5, CA8). Bytes that arrive meanwhile wait; once `is_full` is true, the caller stops reading.

Heartbeats that the fast path knows are not taken: one loop answers them in place in the buffer. If the buffer is empty,
`receive_known` answers them before they enter it, since each step of the normal path makes a single heartbeat a few
percent more expensive.
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
    """Build the error for a length over `bytes_max`, which may be the beginning of another protocol."""
    spoken = _other_protocol(length)
    if spoken is not None:
        return ProtocolError(Fault.OTHER_PROTOCOL, spoken)
    return ProtocolError(Fault.OVERSIZED_FRAME, f"a request announces {length} bytes; the limit is {bytes_max}")


def _other_protocol(length: int) -> str | None:
    first = length.to_bytes(4, "big", signed=True)
    if first.startswith(_TLS_HANDSHAKE):
        return "the client speaks TLS, which is not served here (security.protocol)"
    if first in _HTTP_METHODS:
        return "the client speaks HTTP; /healthz is at --metrics"
    return None


Fast = Callable[[int, bytes, int], bytes | None]
"""Takes a heartbeat's version, its bytes after the correlation id, and its arrival; returns the response's bytes."""

AT_ONCE = 64
"""How many requests the fast path answers, or the sidecar relays, before other connections take their turns."""

LENGTH = Struct(">i")
REQUEST_START = Struct(">ihh4s")
"""The length, the API key, the version and the correlation id."""
_CORRELATION_ID_BYTES = 4


def put_answer(out: list[bytes], correlation_id: bytes, *payload: bytes) -> None:
    """Add a response to the output; `payload`: its chunks after the correlation id."""
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
            f"a request of API key {api_key} v{api_version} announces {length} bytes; the limit is {bytes_max}",
        )


class Connection:
    """`frame_bytes_max` limits one request, and `waiting_bytes_max` the bytes that may wait behind an unanswered one.

    `for_client` has the bytes to be sent now; the sender clears it.
    """

    def __init__(self, *, fast: Fast, frame_bytes_max: int, waiting_bytes_max: int) -> None:
        self.for_client: list[bytes] = []
        self.is_interrupted = False
        """True if `next_request` has left something for a later turn."""
        self._fast = fast
        self._frame_bytes_max = frame_bytes_max
        self._waiting_bytes_max = waiting_bytes_max
        self._incoming = Incoming()
        self._taken: bytes | None = None  # the correlation id of the unanswered request
        self._taken_bytes = 0  # of that request
        self._taken_key = -1
        self._is_superseded = False
        self._has_begun = False  # True if a request has begun since the last `take_progress`
        self._was_half_sent = False

    @property
    def is_handling(self) -> bool:
        """True if a request was taken and still has to be answered."""
        return self._taken is not None and not self._is_superseded

    @property
    def is_parked(self) -> bool:
        """True if the request that was taken is a join or a sync, which waits for other members, without a time
        limit.
        """
        return self.is_handling and self._taken_key in PARKED

    @property
    def is_under_way(self) -> bool:
        """True if a request has begun and is not finished."""
        return self.is_handling

    @property
    def waiting_bytes(self) -> int:
        """The number of bytes that have arrived and were neither taken nor passed on."""
        return self._incoming.waiting_bytes

    @property
    def held_bytes(self) -> int:
        """The number of bytes in memory: of the request that is being handled, and of those that arrived after it."""
        return self._taken_bytes + self._incoming.waiting_bytes

    @property
    def is_full(self) -> bool:
        """True if so much waits behind the current request that reading should stop."""
        return self._incoming.waiting_bytes >= self._waiting_bytes_max and self.is_under_way

    def take_progress(self) -> bool:
        """Return whether a request has begun or ended since the last call.

        More bytes in the middle of a request do not count as progress, so a client that sends them slowly is idle.
        """
        went_on = self._has_begun or not (self._was_half_sent or self._is_superseded)
        self._has_begun = False
        self._was_half_sent = self._incoming.waiting_bytes > 0 and not self.is_under_way
        return went_on

    def receive(self, data: bytes) -> None:
        """Add bytes from the client; they may begin and end in the middle of a frame."""
        if not self._is_superseded:
            self._incoming.add(data)

    def receive_known(self, data: bytes, now_ms: int) -> bool:
        """Receive bytes, and answer the heartbeats that the fast path knows, if nothing waits before them.

        Returns True if the bytes held nothing else. This is the most frequent case, in which the caller has nothing
        else to check.
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
        """Take the next frame that has to be handled here, without its length; None if there is none yet.

        Heartbeats that the fast path knows are answered on the way, at most `AT_ONCE` of them (then `is_interrupted`).
        Raises ProtocolError; nothing may follow then.
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
        """Answer the request that was taken, with the response's chunks after the correlation id."""
        assert self._taken is not None
        put_answer(self.for_client, self._taken, *payload)
        self._taken, self._taken_bytes = None, 0

    def supersede(self) -> None:
        """Give up the request that was taken: it is never answered (J13, SG17).

        So, as in Kafka, no later request is answered either: further bytes are dropped, and the connection is idle.
        """
        self._is_superseded = True
        self._incoming, self._taken_bytes = Incoming(), 0

    def forget(self) -> None:
        """Drop all bytes: the client has disconnected, even if its request is still being handled."""
        self._incoming, self._taken_bytes = Incoming(), 0
        self.for_client.clear()

    # ---- frames --------------------------------------------------------------------------------------

    def _answer_heartbeats(self, now_ms: int) -> int:
        """Answer the next heartbeats that the fast path knows, at most `AT_ONCE`; return their number."""
        answered = self._answer_in_place(AT_ONCE, now_ms)
        if self._incoming.is_split and self._joins_next():
            answered += self._answer_in_place(AT_ONCE - answered, now_ms)
        return answered

    def _answer_in_place(self, at_most: int, now_ms: int) -> int:
        """Answer the next heartbeats that lie in the buffer in one piece."""
        data, begins_at = self._incoming.in_place
        answered, at = self._answer_known(data, begins_at, at_most, now_ms)
        if answered:
            self._has_begun = True
            self._incoming.skip_to(at)
        return answered

    def _answer_known(self, data: bytes, at: int, at_most: int, now_ms: int) -> tuple[int, int]:
        """Answer heartbeats in place, from `at` on; return their number, and where they end. Most requests are
        heartbeats.
        """
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
        """Join the pieces of the next request if it is a complete heartbeat; return whether they were joined."""
        start = self._incoming.peek(REQUEST_START.size)
        if len(start) < REQUEST_START.size:
            return False
        length, api_key, _, _ = REQUEST_START.unpack(start)
        return api_key == heartbeat.KEY and self._incoming.join(LENGTH.size + length)

    def _next_start(self) -> tuple[int, int, int, bytes] | None:
        """Return the `REQUEST_START` of the next frame; None if it is incomplete.

        Raises ProtocolError for a bad length as soon as its four bytes have arrived, since no more may follow.
        """
        start = self._incoming.peek(REQUEST_START.size)
        if len(start) < LENGTH.size:
            return None
        length: int = LENGTH.unpack_from(start)[0]
        check_length(length, self._frame_bytes_max)
        return REQUEST_START.unpack(start) if len(start) == REQUEST_START.size else None

    def _take(self, length: int, api_key: int, correlation_id: bytes) -> bytes | None:
        """Take the next frame after its length, which is known to be valid, if it is complete."""
        if not self._incoming.has(LENGTH.size + length):
            return None
        self._incoming.take(LENGTH.size)
        self._taken, self._taken_key = correlation_id, api_key
        self._taken_bytes = LENGTH.size + length
        self._has_begun = True
        return self._incoming.take(length)
