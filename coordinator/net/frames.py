"""One client connection without its socket: bytes in, one request at a time out, answers in, bytes out.

What belongs here: frames, the order of answers, how much may wait. What it must not know: sockets, time, what a request
means (but for the key of a heartbeat, which may be answered by the fast path before anybody looks at it).

A request is taken with `next_request`, answered with `answer`, and until it is answered there is no next one: so
answers leave in the order of requests, and requests of one connection are decided in that order, as in Kafka (CC5,
CA8). What arrives meanwhile waits as bytes; `is_full` says when no more should be read.
"""

from collections.abc import Callable
from struct import Struct

from muster.coordinator.wire import heartbeat
from muster.coordinator.wire.api import Fault, ProtocolError
from muster.coordinator.wire.bounds import bound_of
from muster.coordinator.wire.messages import HEADER_START_BYTES
from muster.coordinator.wire.mistaken import too_long

Fast = Callable[[int, bytes, int], bytes | None]
"""A heartbeat's version, what follows its correlation id, and when it arrived: what follows the answer's, or None."""

AT_ONCE = 64
"""Requests that are answered by the fast path before others have their turns."""

_LENGTH = Struct(">i")
_START = Struct(">ihh4x")  # the length, then the API key and version; the correlation id is left as it is
_CORRELATION_ID_BYTES = 4


class Connection:
    """`frame_bytes_max` bounds one request; `waiting_bytes_max` what may wait behind one that is not answered yet."""

    def __init__(self, *, fast: Fast, frame_bytes_max: int, waiting_bytes_max: int) -> None:
        self._fast = fast
        self._frame_bytes_max = frame_bytes_max
        self._waiting_bytes_max = waiting_bytes_max
        self._data = b""  # the frames that are being cut ...
        self._at = 0  # ... from here on
        self._tail = bytearray()  # what arrived after `_data`, joined with it only when it completes a frame
        self._correlation_id: bytes | None = None  # of the request that is not answered yet
        self._deciding_bytes = 0  # of that request
        self.is_interrupted = False
        """Whether `next_request` has left something for a later turn."""
        self.is_half_sent = False
        """Whether, when a request was asked for last, there was but the beginning of one."""
        self._output: list[bytes] = []
        self.output_bytes = 0
        """How much of `_output` was given to `answer`: what the fast path adds is small."""

    @property
    def is_deciding(self) -> bool:
        """Whether a request was taken and is not answered yet."""
        return self._correlation_id is not None

    @property
    def waiting_bytes(self) -> int:
        """How much has arrived and was not taken."""
        return len(self._data) - self._at + len(self._tail)

    @property
    def held_bytes(self) -> int:
        """How much the request that is being decided has, and what has arrived behind it."""
        return self._deciding_bytes + len(self._data) - self._at + len(self._tail)

    @property
    def is_full(self) -> bool:
        """Whether so much waits behind an unanswered request that no more should be read."""
        return self.is_deciding and self.waiting_bytes >= self._waiting_bytes_max

    def receive(self, data: bytes) -> None:
        """Bytes from the client, cut anywhere."""
        if self._at == len(self._data) and not self._tail:
            self._data, self._at = data, 0
        else:
            self._tail += data

    def next_request(self, now_ms: int) -> bytes | None:
        """The next frame that has to be decided, without its length; None when there is none yet.

        Heartbeats that the fast path knows are answered on the way, `AT_ONCE` of them if there are more
        (`is_interrupted`). Raises ProtocolError; nothing may follow then.
        """
        answered, self.is_interrupted = 0, False
        while self._correlation_id is None:
            if answered >= AT_ONCE:
                self.is_interrupted = True
                return None
            data, at = self._data, self._at
            if len(data) - at < _START.size:
                if at == len(data) and not self._tail:  # as nearly always: nothing is left
                    self._data, self._at, self.is_half_sent = b"", 0, False
                    return None
                if not self._refill(_START.size):
                    self._check_length_so_far()
                    return None
                continue
            length, api_key, api_version = _START.unpack_from(data, at)
            if not HEADER_START_BYTES <= length <= self._frame_bytes_max:
                raise self._bad_length(length)
            end = at + _LENGTH.size + length
            if end > len(data):
                if not self._refill(end - at):
                    self._check_bound(api_key, api_version, length)
                    return None
                continue
            self._at = end
            correlation_id = data[at + 8 : at + 12]
            if api_key == heartbeat.KEY:
                payload = self._fast(api_version, data[at + 12 : end], now_ms)
                if payload is not None:
                    self._output += (_LENGTH.pack(len(payload) + _CORRELATION_ID_BYTES), correlation_id, payload)
                    answered += 1
                    continue
            self._correlation_id = correlation_id
            self._deciding_bytes = end - at
            self.is_half_sent = False
            return data[at + _LENGTH.size : end]
        return None

    def answer(self, *payload: bytes) -> None:
        """The answer to the request that was taken: what follows the correlation id, in chunks."""
        assert self._correlation_id is not None
        size = sum(map(len, payload))
        self._output += (_LENGTH.pack(size + _CORRELATION_ID_BYTES), self._correlation_id, *payload)
        self.output_bytes += size
        self._correlation_id = None
        self._deciding_bytes = 0

    def take_output(self) -> bytes:
        """The bytes that are to be sent now."""
        output = b"".join(self._output)
        self._output.clear()
        self.output_bytes = 0
        return output

    def take_chunks(self) -> list[bytes]:
        """The same as they are: where they are so many that joining them would take a while."""
        output, self._output = self._output, []
        self.output_bytes = 0
        return output

    def forget(self) -> None:
        """Keep no bytes: the client is gone, even if somebody has its request yet."""
        self._data, self._at, self._tail = b"", 0, bytearray()
        self._output.clear()

    def _refill(self, size: int) -> bool:
        """Join what has arrived if that makes `size` bytes from `_at` on; else keep no more than is needed."""
        if self.waiting_bytes >= size:
            self._data = self._data[self._at :] + self._tail
            self._at = 0
            self._tail = bytearray()
            return True
        if self._at:
            self._data = self._data[self._at :]
            self._at = 0
        self.is_half_sent = bool(self._data or self._tail)
        return False

    def _check_length_so_far(self) -> None:
        """Refuse a bad length as soon as its four bytes are there: more may never come."""
        first = self._data[: _LENGTH.size] + self._tail[: _LENGTH.size]
        if len(first) >= _LENGTH.size:
            length: int = _LENGTH.unpack_from(first)[0]
            if not HEADER_START_BYTES <= length <= self._frame_bytes_max:
                raise self._bad_length(length)

    def _check_bound(self, api_key: int, api_version: int, length: int) -> None:
        """Refuse a frame that is longer than its API may have before it is there."""
        bytes_max = bound_of(api_key).bytes_max
        if length > bytes_max:
            raise ProtocolError(
                Fault.OVERSIZED_FRAME,
                f"a request of API key {api_key} v{api_version} was said to have {length} bytes, {bytes_max} are"
                " allowed",
            )

    def _bad_length(self, length: int) -> ProtocolError:
        if length < 0:
            return ProtocolError(Fault.NEGATIVE_LENGTH, f"a request was said to have {length} bytes")
        if length < HEADER_START_BYTES:
            return ProtocolError(
                Fault.SHORT_FRAME, f"a request of {length} bytes is too short for a header of {HEADER_START_BYTES}"
            )
        return too_long(length, self._frame_bytes_max)
