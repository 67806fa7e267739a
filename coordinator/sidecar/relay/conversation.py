"""What goes back and forth between one client and its broker, without their sockets.

What belongs here: the client's frames, what is done with each, and how much may wait. What it must not know: sockets,
time, what a request means. Its `Plan` says what is done with it. What the broker says is worked off in answers.py.

    bytes of the client -> relayed frames flow to the broker as they come, never whole in memory
                        -> a request that is handled here is *taken* by `next_request`, whole, once all that was
                           relayed before it is answered; nothing after it is looked at until it is answered
                           (`answer`) or goes to the broker after all (`relay`)
    bytes of the broker -> each answer is held against the request that is due: streamed, rewritten, or our own

So answers leave in the order of requests, and a commit reaches the broker before the LeaveGroup behind it is decided,
as if Kafka alone were there: it handles one request of a connection at a time (CC5). Clients pipeline among relayed
requests as before. Our own questions (`ask`) go on the same connection, under the client's identity.
"""

import struct
from collections.abc import Callable
from struct import Struct

from muster.coordinator.net.buffer import Incoming
from muster.coordinator.sidecar.messages.plan import Look, Plan, PlanOf, Rewrite, Walk
from muster.coordinator.sidecar.relay.answers import Answers, Expected
from muster.coordinator.sidecar.relay.limits import Limits
from muster.coordinator.wire import heartbeat
from muster.coordinator.wire.api import Fault, ProtocolError
from muster.coordinator.wire.messages import HEADER_START_BYTES
from muster.coordinator.wire.mistaken import too_long

Fast = Callable[[int, bytes, int], bytes | None]
"""As in net/frames.py: a heartbeat's version, what follows its correlation id, and when it came."""

AT_ONCE = 64
"""Requests that are relayed, or answered by the fast path, before others have their turns."""

IN_FLIGHT_MAX = 1_000
"""Relayed requests that may wait for their answers; then no more is read until one has come."""

BEGINNING_BYTES_MAX = 128 * 1024
"""What is looked for stands within so many bytes, or the request makes no sense: three strings come before it."""

_USUAL_BEGINNING_BYTES = 256
_LENGTH = Struct(">i")
_START = Struct(">ihh4s")
_ANSWERED_TO_STRANGERS = frozenset({17, 18, 36})  # SaslHandshake, ApiVersions, SaslAuthenticate


class Conversation:
    """See the module. `for_broker` and `for_client` are the bytes to be sent now; whoever sends them clears them.

    `new_id`: four bytes that nobody can guess, for each question of ours: or a client that has the broker give one
    answer more than it seems to could have it taken for that to our question.
    """

    def __init__(self, *, plan_of: PlanOf, fast: Fast, limits: Limits, new_id: Callable[[], bytes]) -> None:
        self.answers = Answers(limits)
        self.for_broker: list[bytes] = []
        self.for_client = self.answers.for_client
        self._new_id = new_id
        self._plan_of = plan_of
        self._fast = fast
        self._frame_bytes_max = limits.frame_bytes_max
        self._taken_bytes_max = limits.first_bytes_max
        self._waiting_bytes_max = limits.waiting_bytes_max
        self.sent_as_stranger: bytes | None = None
        """The beginning of the last request for which the client would have had to authenticate; None where it has."""
        self._is_stranger = limits.authenticates
        self._requests = Incoming()
        self._passing_request = 0  # bytes of a relayed request that are still to come
        self._is_answer_to_passing_due = False
        self._walk: Walk | None = None
        self._taken: bytes | None = None  # the correlation id of the request that is handled here
        self._frame = b""
        self._is_ending = False
        self.is_interrupted = False
        """Whether `next_request` has left something for a later turn."""
        self._has_begun = False  # a request, since `went_on` was asked
        self._was_half_sent = False

    @property
    def is_handling(self) -> bool:
        """Whether a request was taken and is not answered yet."""
        return self._taken is not None

    @property
    def is_owed(self) -> bool:
        """Whether the client waits for an answer, and has sent all of the request."""
        half_sent = 1 if self._passing_request and self._is_answer_to_passing_due else 0
        return self._taken is not None or self.answers.expected > half_sent or self.answers.is_one_begun

    @property
    def is_under_way(self) -> bool:
        """Whether something has begun that is not at its end, be it a request that is half there."""
        return self.is_owed or self._passing_request > 0

    @property
    def is_of_interest(self) -> bool:
        """Whether something is to be done here yet even if nobody reads answers, or learnt from one of the broker's."""
        return self.is_handling or self.waiting_bytes > 0 or self.answers.is_one_to_be_read

    @property
    def waiting_bytes(self) -> int:
        return self._requests.waiting_bytes

    @property
    def held_bytes(self) -> int:
        """How much is in memory of requests, and of answers that are not passed on as they come."""
        return len(self._frame) + self._requests.waiting_bytes + self.answers.waiting_bytes

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more should be read from the client."""
        return self._requests.waiting_bytes >= self._waiting_bytes_max and self.is_under_way

    def went_on(self) -> bool:
        """Whether more has come since this was asked last than the rest of a request that has to be whole here."""
        went_on = self._has_begun or not self._was_half_sent
        self._has_begun = False
        self._was_half_sent = self._requests.waiting_bytes > 0 and not self.is_under_way
        return went_on

    def receive(self, data: bytes) -> None:
        """Bytes from the client, cut anywhere."""
        self._requests.add(data)

    def end(self) -> None:
        """Begin nothing any more; what has begun goes on to its end. Raises ProtocolError as `Answers.receive` does."""
        self._is_ending = True
        self.answers.end()

    def forget(self) -> None:
        """Keep no bytes: both sides are gone, even if somebody has the request yet."""
        self._requests, self._frame = Incoming(), b""
        self.answers.forget()

    def trust(self) -> None:
        """The client has authenticated: its requests may be as long as any."""
        self._taken_bytes_max = self._frame_bytes_max
        self._is_stranger, self.sent_as_stranger = False, None

    def next_request(self, now_ms: int) -> bytes | None:
        """The next frame that is to be handled here, without its length; None when there is none (yet).

        What is to be relayed is in `for_broker` then, and heartbeats that the fast path knows are answered: `AT_ONCE`
        of them, if there are more (`is_interrupted`). Raises ProtocolError; nothing may follow then.
        """
        requests, done, self.is_interrupted = self._requests, 0, False
        while self._taken is None:
            if self._passing_request and not self._pass_on():
                return None
            if not self._may_begin(done):
                return None
            if self._is_all_answered and (answered := self._answer_heartbeats(now_ms)):
                done += answered
                continue
            start = requests.look(_START.size)
            if len(start) < _START.size:
                self._check_length_so_far(start)
                return None
            length, api_key, api_version, correlation_id = _START.unpack(start)
            self._check_length(length, self._frame_bytes_max)
            plan = self._planned(api_key, api_version)
            if plan.look is not None:
                looked = self._looked(plan.look, length, api_key, api_version)
                if looked is None:
                    return None
                plan = looked
            if not plan.is_taken:
                self._relay_from_here(length, api_key, correlation_id, plan)
                done += 1
                continue
            self._check_length(length, min(plan.taken_bytes_max, self._taken_bytes_max))
            if not self._is_all_answered:
                return None
            if not requests.has(_LENGTH.size + length):
                return None
            if api_key == heartbeat.KEY and (answered := self._answer_heartbeats(now_ms)):
                done += answered
                continue  # it came in pieces, which are joined only now
            frame = requests.take(_LENGTH.size + length)
            self._taken = correlation_id
            self._frame = frame
            self._has_begun = True
            return frame[_LENGTH.size :]
        return None

    def _planned(self, api_key: int, api_version: int) -> Plan:
        if self._is_stranger and api_key not in _ANSWERED_TO_STRANGERS:
            self.sent_as_stranger = self._requests.look(_USUAL_BEGINNING_BYTES)
        return self._plan_of(api_key, api_version)

    def _may_begin(self, done: int) -> bool:
        """Whether another request may begin after so many in this turn."""
        self.is_interrupted = done >= AT_ONCE and self.waiting_bytes > 0
        return not (self.is_interrupted or self._is_ending or self.answers.expected >= IN_FLIGHT_MAX)

    @property
    def _is_all_answered(self) -> bool:
        return not self.answers.expected and not self.answers.is_one_begun

    def answer_known(self, now_ms: int) -> bool:
        """Answer the heartbeats that the fast path knows, if nothing stands before them; whether that was all there is.

        It is the usual case of a member, for which nothing else has to be looked at.
        """
        if self._taken is not None or self._passing_request or self._is_ending or not self._is_all_answered:
            return False
        if not self._answer_heartbeats(now_ms) or self._requests.waiting_bytes:
            return False
        self._has_begun = self._was_half_sent = False
        return True

    def _answer_heartbeats(self, now_ms: int) -> int:
        """Answer the heartbeats that come next and that the fast path knows, where they lie; how many there were.

        They are most of what members send.
        """
        data, begins_at = self._requests.in_place
        at = begins_at
        size, out, answered = len(data), self.for_client, 0
        while size - at >= _START.size and answered < AT_ONCE:
            length, api_key, api_version, correlation_id = _START.unpack_from(data, at)
            end = at + _LENGTH.size + length
            if api_key != heartbeat.KEY or end > size:
                break
            payload = self._fast(api_version, data[at + _START.size : end], now_ms)
            if payload is None:
                break
            out += (_LENGTH.pack(len(payload) + len(correlation_id)), correlation_id, payload)
            at = end
            answered += 1
        if answered:
            self._has_begun = True
            self._requests.skip_to(at)
        return answered

    def answer(self, *payload: bytes) -> None:
        """The answer to the request that was taken: what follows the correlation id, in chunks."""
        assert self._taken is not None
        self.answers.put(self._taken, *payload)
        self._taken = None
        self._frame = b""

    def relay(self, frame: bytes | None = None, rewrite: Rewrite | None = None) -> None:
        """The request that was taken goes to the broker: as it came, or `frame` (without its length) instead."""
        assert self._taken is not None
        self.for_broker.append(self._frame if frame is None else _LENGTH.pack(len(frame)) + frame)
        _, api_key, _, _ = _START.unpack_from(self._frame)
        self.answers.expect(Expected(self._taken, rewrite, is_for_anybody=api_key in _ANSWERED_TO_STRANGERS))
        self._taken = None
        self._frame = b""

    def ask(self, api_key: int, api_version: int, rest: bytes, told: Callable[[bytes], None]) -> None:
        """A question of our own, while a request is handled: nothing else of the client's is under way then, so it
        never comes between the steps of an authentication (P19). `rest` follows the correlation id; `told` gets what
        follows it in the answer.
        """
        assert self._taken is not None
        correlation_id = self._new_id()
        while correlation_id == self._taken:  # the client's own, by chance
            correlation_id = self._new_id()
        frame_start = _START.pack(HEADER_START_BYTES + len(rest), api_key, api_version, correlation_id)
        self.for_broker += (frame_start, rest)
        self.answers.expect(Expected(correlation_id, own=told))

    # ---- frames --------------------------------------------------------------------------------------

    def _relay_from_here(self, length: int, api_key: int, correlation_id: bytes, plan: Plan) -> None:
        """Begin to pass a request on."""
        self._is_answer_to_passing_due = plan.is_answered
        if plan.is_answered:
            is_for_anybody = api_key in _ANSWERED_TO_STRANGERS
            self.answers.expect(Expected(correlation_id, plan.rewrite, plan.delays_changed, is_for_anybody))
        self._passing_request = _LENGTH.size + length
        self._walk = plan.walk
        self._has_begun = True

    def _pass_on(self) -> bool:
        """What has come of the request that is being relayed; whether that was its end."""
        begins = len(self.for_broker)
        self._passing_request -= self._requests.pass_on(self._passing_request, self.for_broker)
        if self._walk is not None:
            try:
                for chunk in self.for_broker[begins:]:
                    self._walk(chunk)
            except ProtocolError:
                del self.for_broker[begins:]  # the broker gets no end of it, and so does nothing
                raise
        return not self._passing_request

    def _looked(self, look: Look, length: int, api_key: int, api_version: int) -> Plan | None:
        """The plan for the request that comes next, by its beginning; None when that has not come yet."""
        for size in (_USUAL_BEGINNING_BYTES, BEGINNING_BYTES_MAX):
            beginning = self._requests.look(_LENGTH.size + min(size, length))
            try:
                return look(beginning[_LENGTH.size :])
            except (struct.error, IndexError) as error:
                if len(beginning) == _LENGTH.size + min(BEGINNING_BYTES_MAX, length):
                    raise ProtocolError(
                        Fault.MALFORMED_REQUEST, f"a request of API key {api_key} v{api_version} cannot be read"
                    ) from error
        return None

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
        raise too_long(length, bytes_max)
