"""What goes back and forth between one client and its broker, without their sockets.

What belongs here: frames, the order of answers, correlation ids, how much may wait. What it must not know: sockets,
time, what a request means (but for the acks of a Produce, which say whether there will be an answer).

    bytes of the client -> relayed frames flow to the broker as they come, never whole in memory
                        -> a request that is handled here is *taken* by `next_request`, whole, once all that was
                           relayed before it is answered; nothing after it is looked at until it is answered
                           (`answer`) or goes to the broker after all (`relay`)
    bytes of the broker -> each answer is held against the request that is due: streamed, rewritten, or our own

So answers leave in the order of requests, and a commit reaches the broker before the LeaveGroup behind it is decided,
as if Kafka alone were there: it handles one request of a connection at a time (CC5). Clients pipeline among relayed
requests as before. Our own questions (`ask`) go on the same connection, under the client's identity.
"""

import re
import struct
from collections import deque
from collections.abc import Callable
from struct import Struct

import msgspec
from kio.serial.errors import SerialError

from coordinator.group.settings import INT32_MAX
from coordinator.sidecar.buffer import Incoming
from coordinator.sidecar.limits import Limits
from coordinator.sidecar.produce import PREFIX_BYTES_MAX, PRODUCE, acks_of
from coordinator.wire import heartbeat
from coordinator.wire.api import Fault, ProtocolError
from coordinator.wire.messages import HEADER_START_BYTES

Fast = Callable[[int, bytes, int], bytes | None]
"""As in connection.py: a heartbeat's version, what follows its correlation id, and when it came."""

Rewrite = Callable[[bytes], bytes]
"""From what follows the correlation id of an answer to what the client gets instead. Raises ProtocolError."""

IN_FLIGHT_MAX = 1_000
"""Relayed requests that may wait for their answers; then no more is read until one has come."""

_USUAL_PREFIX_BYTES = 256
_LENGTH = Struct(">i")
_START = Struct(">ihh4s")
_ANSWER_START = Struct(">i4s")
_TLS_HANDSHAKE = 0x1603  # how a client that speaks TLS begins, read as the upper half of a length
_TLS_ALERT = re.compile(rb"\x15\x03[\x00-\x04]\x00\x02[\x01\x02].", re.DOTALL)
_OWN_CORRELATION_ID = b"must"  # ours are told from the client's by their place, not by this


class Plan(msgspec.Struct, frozen=True):
    """What is done with a request: handled here, or relayed, and its answer perhaps rewritten.

    `taken_bytes_max`: of one that is handled here, whatever others may have.
    """

    is_taken: bool = False
    rewrite: Rewrite | None = None
    taken_bytes_max: int = INT32_MAX


RELAY = Plan()

PlanOf = Callable[[int, int], Plan]
"""By API key and version. Raises ProtocolError for what can be neither relayed nor handled."""


class Expected(msgspec.Struct, frozen=True):
    """An answer that the broker owes. `own`: it is to a question of ours, and goes nowhere else."""

    correlation_id: bytes
    rewrite: Rewrite | None = None
    own: Callable[[bytes], None] | None = None


class Conversation:
    """See the module. `for_broker` and `for_client` are the bytes to be sent now; whoever sends them clears them."""

    def __init__(self, *, plan_of: PlanOf, fast: Fast, limits: Limits) -> None:
        self._plan_of = plan_of
        self._fast = fast
        self._frame_bytes_max = limits.frame_bytes_max
        self._taken_bytes_max = limits.first_bytes_max
        self._waiting_bytes_max = limits.waiting_bytes_max
        self._requests = Incoming()
        self._answers = Incoming()
        self._passing_request = 0  # bytes of a relayed request that are still to come
        self._is_answer_to_passing_due = False
        self._passing_answer = 0
        self._expected: deque[Expected] = deque()
        self._taken: bytes | None = None  # the correlation id of the request that is handled here
        self._frame = b""
        self._is_ending = False
        self.for_broker: list[bytes] = []
        self.for_client: list[bytes] = []

    # ---- the client's side ---------------------------------------------------------------------------

    @property
    def is_handling(self) -> bool:
        """Whether a request was taken and is not answered yet."""
        return self._taken is not None

    @property
    def is_owed(self) -> bool:
        """Whether the client waits for an answer, and has sent all of the request."""
        half_sent = 1 if self._passing_request and self._is_answer_to_passing_due else 0
        return self._taken is not None or len(self._expected) > half_sent or self._passing_answer > 0

    @property
    def is_under_way(self) -> bool:
        """Whether something has begun that is not at its end, be it a request that is half there."""
        return self.is_owed or self._passing_request > 0

    @property
    def is_of_interest(self) -> bool:
        """Whether something is to be done here yet even if nobody reads answers, or learnt from one of the broker's."""
        return self.is_handling or self.waiting_bytes > 0 or any(each.rewrite is not None for each in self._expected)

    @property
    def waiting_bytes(self) -> int:
        return self._requests.waiting_bytes

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more should be read from the client."""
        return self._requests.waiting_bytes >= self._waiting_bytes_max and self.is_under_way

    def receive(self, data: bytes) -> None:
        """Bytes from the client, cut anywhere."""
        self._requests.add(data)

    def end(self) -> None:
        """Begin nothing any more; what has begun goes on to its end."""
        self._is_ending = True

    def trust(self) -> None:
        """The client has authenticated: its requests may be as long as any."""
        self._taken_bytes_max = self._frame_bytes_max

    def next_request(self, now_ms: int) -> bytes | None:
        """The next frame that is to be handled here, without its length; None when there is none (yet).

        What is to be relayed is in `for_broker` then, and heartbeats that the fast path knows are answered. Raises
        ProtocolError; nothing may follow then.
        """
        requests = self._requests
        while self._taken is None:
            if self._passing_request:
                self._passing_request -= requests.pass_on(self._passing_request, self.for_broker)
                if self._passing_request:
                    return None
            if self._is_ending or len(self._expected) >= IN_FLIGHT_MAX:
                return None
            if not self._expected and not self._passing_answer:
                self._answer_heartbeats(now_ms)
            start = requests.look(_START.size)
            if len(start) < _START.size:
                self._check_length_so_far(start)
                return None
            length, api_key, api_version, correlation_id = _START.unpack(start)
            self._check_length(length, self._frame_bytes_max)
            plan = self._plan_of(api_key, api_version)
            if not plan.is_taken:
                if not self._relay_from_here(length, api_key, api_version, correlation_id, plan):
                    return None
                continue
            self._check_length(length, min(plan.taken_bytes_max, self._taken_bytes_max))
            if self._expected or self._passing_answer or not requests.has(_LENGTH.size + length):
                return None
            frame = requests.take(_LENGTH.size + length)
            self._taken = correlation_id
            self._frame = frame
            return frame[_LENGTH.size :]
        return None

    def _answer_heartbeats(self, now_ms: int) -> None:
        """Those that come next and that the fast path knows, where they lie: most of what members send."""
        data, at = self._requests.in_place
        size, out = len(data), self.for_client
        while size - at >= _START.size:
            length, api_key, api_version, correlation_id = _START.unpack_from(data, at)
            end = at + _LENGTH.size + length
            if api_key != heartbeat.KEY or end > size:
                break
            payload = self._fast(api_version, data[at + _START.size : end], now_ms)
            if payload is None:
                break
            out += (_LENGTH.pack(len(payload) + len(correlation_id)), correlation_id, payload)
            at = end
        self._requests.skip_to(at)

    def answer(self, payload: bytes) -> None:
        """The answer to the request that was taken: what follows the correlation id."""
        assert self._taken is not None
        self._put(self._taken, payload)
        self._taken = None
        self._frame = b""

    def relay(self, frame: bytes | None = None, rewrite: Rewrite | None = None) -> None:
        """The request that was taken goes to the broker: as it came, or `frame` (without its length) instead."""
        assert self._taken is not None
        self.for_broker.append(self._frame if frame is None else _LENGTH.pack(len(frame)) + frame)
        self._expected.append(Expected(self._taken, rewrite))
        self._taken = None
        self._frame = b""

    def ask(self, api_key: int, api_version: int, rest: bytes, told: Callable[[bytes], None]) -> None:
        """A question of our own, while a request is handled: nothing else of the client's is under way then, so it
        never comes between the steps of an authentication (P19). `rest` follows the correlation id; `told` gets what
        follows it in the answer.
        """
        assert self._taken is not None
        frame_start = _START.pack(HEADER_START_BYTES + len(rest), api_key, api_version, _OWN_CORRELATION_ID)
        self.for_broker += (frame_start, rest)
        self._expected.append(Expected(_OWN_CORRELATION_ID, own=told))

    # ---- the broker's side ---------------------------------------------------------------------------

    def receive_answers(self, data: bytes) -> None:
        """Bytes from the broker, cut anywhere. Raises ProtocolError when they make no sense; nothing may follow."""
        answers = self._answers
        answers.add(data)
        while True:
            if self._passing_answer:
                self._passing_answer -= answers.pass_on(self._passing_answer, self.for_client)
                if self._passing_answer:
                    return
            start = answers.look(_ANSWER_START.size)
            if len(start) < _ANSWER_START.size:
                if start:
                    self._check_no_alert()  # which is shorter
                return
            length, correlation_id = _ANSWER_START.unpack(start)
            expected = self._due(length, correlation_id)
            if expected.own is None and expected.rewrite is None:
                self._expected.popleft()
                self._passing_answer = _LENGTH.size + length
                continue
            if length > self._frame_bytes_max:
                raise ProtocolError(
                    Fault.BROKER_ANSWER, f"an answer of {length} bytes, {self._frame_bytes_max} are read"
                )
            if not answers.has(_LENGTH.size + length):
                return
            self._expected.popleft()
            payload = answers.take(_LENGTH.size + length)[_ANSWER_START.size :]
            if expected.own is not None:
                expected.own(payload)
            elif expected.rewrite is not None:
                self._put(correlation_id, expected.rewrite(payload))

    def _due(self, length: int, correlation_id: bytes) -> Expected:
        if not self._expected or length < len(correlation_id):
            self._check_no_alert()
            raise ProtocolError(Fault.BROKER_ANSWER, f"the broker sent {length} bytes that nobody asked for")
        expected = self._expected[0]
        if expected.correlation_id != correlation_id:
            self._check_no_alert()
            raise ProtocolError(
                Fault.BROKER_ANSWER,
                f"the broker answered {correlation_id.hex()}, next is {expected.correlation_id.hex()}",
            )
        return expected

    def _check_no_alert(self) -> None:
        """What looks like a very long answer may be the end of a misunderstanding (P6)."""
        if _TLS_ALERT.match(self._answers.look(_ANSWER_START.size)):
            raise ProtocolError(Fault.BROKER_ANSWER, "the broker speaks TLS, and was spoken to in plain text")

    # ---- frames --------------------------------------------------------------------------------------

    def _relay_from_here(self, length: int, api_key: int, api_version: int, correlation_id: bytes, plan: Plan) -> bool:
        """Begin to pass a request on. False when more of it has to come before it is known what to expect."""
        acks = self._acks(length, api_version) if api_key == PRODUCE else 1
        if acks is None:
            return False
        self._is_answer_to_passing_due = acks != 0  # a Produce with acks=0 is never answered (P9)
        if acks:
            self._expected.append(Expected(correlation_id, plan.rewrite))
        self._passing_request = _LENGTH.size + length
        return True

    def _acks(self, length: int, api_version: int) -> int | None:
        """The acks of the Produce that comes next; None when they have not come yet."""
        for size in (_USUAL_PREFIX_BYTES, PREFIX_BYTES_MAX):
            prefix = self._requests.look(_LENGTH.size + min(size, length))
            try:
                return acks_of(prefix[_LENGTH.size :], api_version)
            except (SerialError, struct.error, IndexError) as error:
                if len(prefix) == _LENGTH.size + min(PREFIX_BYTES_MAX, length):
                    raise ProtocolError(Fault.MALFORMED_REQUEST, f"a Produce v{api_version} without acks") from error
        return None

    def _put(self, correlation_id: bytes, payload: bytes) -> None:
        self.for_client += (_LENGTH.pack(len(payload) + len(correlation_id)), correlation_id, payload)

    def _check_length_so_far(self, start: bytes) -> None:
        if len(start) >= _LENGTH.size:
            self._check_length(_LENGTH.unpack_from(start)[0], self._frame_bytes_max)

    def _check_length(self, length: int, bytes_max: int) -> None:
        if HEADER_START_BYTES <= length <= bytes_max:
            return
        if length < 0:
            raise ProtocolError(Fault.NEGATIVE_LENGTH, f"a request was said to have {length} bytes")
        if length < HEADER_START_BYTES:
            raise ProtocolError(
                Fault.SHORT_FRAME, f"a request of {length} bytes is too short for a header of {HEADER_START_BYTES}"
            )
        what = "TLS, which is not served here" if length >> 16 == _TLS_HANDSHAKE else f"{bytes_max} are allowed"
        raise ProtocolError(Fault.OVERSIZED_FRAME, f"a request was said to have {length} bytes: {what}")
