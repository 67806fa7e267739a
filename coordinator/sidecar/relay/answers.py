"""Matches the broker's responses to one client with its requests, in the order in which the requests were sent.

A response is

    relayed                  as its bytes arrive, never buffered whole
    rewritten                buffered whole; a long one in steps, which the caller runs
    rewritten and delayed    kept until `release_delayed`, if rewriting has changed it
    our own                  buffered whole, and passed to the request's callback

While a response is being rewritten or is delayed, those behind it wait, so responses leave in order. Knows nothing of
sockets or clocks; conversation.py calls `expect` for each request that it sends.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable
from struct import Struct

import msgspec

from muster.coordinator.load.slices import Slices
from muster.coordinator.net.buffer import Incoming
from muster.coordinator.net.frames import LENGTH, put_answer
from muster.coordinator.service import Cancel
from muster.coordinator.sidecar.messages.request_plan import Rewrite
from muster.coordinator.sidecar.relay.limits import RelayLimits
from muster.coordinator.upstream.coordinators import Heard
from muster.coordinator.wire.api import Fault, ProtocolError
from muster.events.steps import ENTRIES_AT_ONCE, Steps

_ANSWER_START = Struct(">i4s")
_TLS_ALERT = re.compile(rb"\x15\x03[\x00-\x04]\x00\x02[\x01\x02].", re.DOTALL)


class Expected(msgspec.Struct, frozen=True):
    """A response that the broker owes. `sent_ms`: when its request was sent, or earlier (monotonic).

    `own`: the callback for a request of ours; the client never sees that response. `needs_no_authentication`: the
    broker sends this response to unauthenticated clients too.
    """

    correlation_id: bytes
    sent_ms: int
    rewrite: Rewrite | None = None
    delays_changed: bool = False
    needs_no_authentication: bool = False
    own: Callable[[bytes], None] | None = None
    api_key: int = -1


class Answers:
    """Matches responses to a client's requests. `for_client`: bytes to send (net/frames.py).

    `heard` is called with the send time of each request whose response begins. `is_served`: the broker has answered a
    request that needs authentication.
    """

    def __init__(self, limits: RelayLimits, for_client: list[bytes], heard: Heard) -> None:
        self.is_served = False
        self.is_rewriting = False
        """True while a response is being rewritten (see `take_rewriting`)."""
        self.for_client = for_client
        self._heard = heard
        self._frame_bytes_max = limits.frame_bytes_max
        self._waiting_bytes_max = limits.waiting_bytes_max
        self._incoming = Incoming()
        self._expected: deque[Expected] = deque()
        self._passing = 0  # bytes still to come of a response that is relayed as it arrives
        self._rewriting: Steps[None] | None = None  # the rewriting of a response, until it is in `for_client`
        self._rewriting_bytes = 0  # the size of that response, before and after
        self._delayed: tuple[bytes, bytes] | None = None  # the correlation id of a delayed response, and the rest of it
        self._is_ending = False

    @property
    def expected(self) -> int:
        """The number of responses that the broker has not begun to send."""
        return len(self._expected)

    @property
    def is_one_begun(self) -> bool:
        """True if a response has begun and is not yet complete in `for_client`."""
        return self._passing > 0 or self.is_rewriting or self._delayed is not None

    @property
    def are_all_given(self) -> bool:
        """True if no response is expected or incomplete."""
        return not (self._expected or self._passing or self.is_rewriting or self._delayed is not None)

    @property
    def has_response_to_decode(self) -> bool:
        """True if an expected response must be decoded here."""
        return any(each.rewrite is not None for each in self._expected)

    @property
    def held_bytes(self) -> int:
        """Bytes in memory: the response that is being rewritten or delayed, and everything received behind it."""
        held = 0 if self._delayed is None else len(self._delayed[1])
        return self._incoming.waiting_bytes + self._rewriting_bytes + held

    @property
    def is_delaying(self) -> bool:
        """True while a response is delayed, until `release_delayed`."""
        return self._delayed is not None

    @property
    def has_many_waiting(self) -> bool:
        """True if so much waits behind a delayed response that no more should be read from the broker."""
        return self._delayed is not None and self._incoming.waiting_bytes >= self._waiting_bytes_max

    @property
    def begins_next(self) -> Expected | None:
        """The response that the broker's next bytes begin; None in the middle of one, or if none is expected."""
        is_within = self._passing or self._incoming.waiting_bytes or self.is_rewriting or self._delayed is not None
        return self._expected[0] if self._expected and not is_within else None

    def expect(self, expected: Expected) -> None:
        """Expect another response, after those already expected."""
        self._expected.append(expected)

    def end(self) -> None:
        """Stop delaying responses. Raises ProtocolError as `receive` does."""
        self._is_ending = True
        self.release_delayed()

    def forget(self) -> None:
        """Drop all bytes."""
        self._incoming = Incoming()
        self._delayed, self._rewriting, self._rewriting_bytes = None, None, 0

    def receive(self, data: bytes) -> None:
        """Process bytes from the broker, split anywhere. Raises ProtocolError for invalid data; do not call it again
        then.

        The caller rewrites a long response by running its steps (`take_rewriting`). Bytes behind it wait until the
        steps are done and this is called again.
        """
        if data:
            self._incoming.add(data)
        incoming = self._incoming
        while not self.is_rewriting and self._delayed is None:
            if self._passing:
                self._passing -= incoming.pass_on(self._passing, self.for_client)
                if self._passing:
                    return
            start = incoming.peek(_ANSWER_START.size)
            if len(start) < _ANSWER_START.size:
                if start:
                    self._check_no_alert()  # an alert is shorter
                return
            length, correlation_id = _ANSWER_START.unpack(start)
            expected = self._due(length, correlation_id)
            if expected.own is None and expected.rewrite is None:
                self._expected.popleft()
                self._passing = LENGTH.size + length
                continue
            if length > self._frame_bytes_max:
                raise ProtocolError(
                    Fault.BROKER_ANSWER, f"a response of {length} bytes; the limit is {self._frame_bytes_max}"
                )
            if not incoming.has(LENGTH.size + length):
                return
            self._expected.popleft()
            incoming.take(LENGTH.size)
            payload = incoming.take(length)[len(correlation_id) :]
            if expected.own is not None:
                expected.own(payload)
            elif expected.rewrite is not None:
                self._rewrite(expected, payload, expected.rewrite(payload))

    def release_delayed(self) -> None:
        """Send the delayed response, if any, and those that wait behind it. Raises as `receive` does."""
        if self._delayed is not None:
            delayed, self._delayed = self._delayed, None
            put_answer(self.for_client, *delayed)
            self.receive(b"")

    def take_rewriting(self) -> Steps[None] | None:
        """Return the remaining steps of a rewrite, once; None if there are none. Raises ProtocolError."""
        steps, self._rewriting = self._rewriting, None
        return steps

    def _rewrite(self, expected: Expected, payload: bytes, steps: Steps[bytes]) -> None:
        """Rewrite a response: at once if it is short, as almost all responses are."""
        entries = 0
        try:
            while entries < ENTRIES_AT_ONCE:
                entries += next(steps)
        except StopIteration as end:
            self._put_rewritten(expected, payload, end.value)
        else:
            self.is_rewriting, self._rewriting_bytes = True, 2 * len(payload)
            self._rewriting = self._rewritten(expected, payload, steps)

    def _rewritten(self, expected: Expected, payload: bytes, steps: Steps[bytes]) -> Steps[None]:
        rewritten = yield from steps
        self._put_rewritten(expected, payload, rewritten)
        self.is_rewriting, self._rewriting_bytes = False, 0

    def _put_rewritten(self, expected: Expected, payload: bytes, rewritten: bytes) -> None:
        if expected.delays_changed and rewritten != payload and not self._is_ending:
            self._delayed = expected.correlation_id, rewritten
        else:
            put_answer(self.for_client, expected.correlation_id, rewritten)

    def _due(self, length: int, correlation_id: bytes) -> Expected:
        if not self._expected or length < len(correlation_id):
            self._check_no_alert()
            raise ProtocolError(Fault.BROKER_ANSWER, f"the broker sent {length} bytes that no request asked for")
        expected = self._expected[0]
        if expected.correlation_id != correlation_id:
            self._check_no_alert()
            raise ProtocolError(
                Fault.BROKER_ANSWER,
                f"the broker answered correlation id {correlation_id.hex()}; expected {expected.correlation_id.hex()}",
            )
        self._heard.answered(expected.sent_ms)
        self.is_served = self.is_served or not expected.needs_no_authentication
        return expected

    def _check_no_alert(self) -> None:
        """Raise ProtocolError if the bytes are a TLS alert, which looks like a very long response (P6)."""
        if _TLS_ALERT.match(self._incoming.peek(_ANSWER_START.size)):
            raise ProtocolError(Fault.BROKER_ANSWER, "the broker speaks TLS, but was contacted in plain text")


class AnswerScheduler:
    """Runs rewrites in slices and times delays.

    `went_on` is called after a step, `rewritten` after a long rewrite, `failed` on a bad response or an internal error.
    """

    def __init__(
        self,
        answers: Answers,
        slices: Slices,
        *,
        delay_ms: int,
        went_on: Callable[[], None],
        rewritten: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._answers = answers
        self._slices = slices
        self._delay_s = delay_ms / 1000
        self._went_on = went_on
        self._rewritten = rewritten
        self._failed = failed
        self._delay: asyncio.TimerHandle | None = None
        self._cancel_rewriting: Cancel | None = None

    def resume(self, step: Callable[[], None]) -> None:
        """Run a step; schedule the rest of a rewrite in slices, and the timer of a delayed response."""
        try:
            step()
            steps = self._answers.take_rewriting()
            if steps is not None:
                self._cancel_rewriting = self._slices.later(steps, lambda _: self._rewritten(), self._failed)
        except ProtocolError as error:
            self._failed(error)
            return
        if self._answers.is_delaying and self._delay is None:
            self._delay = asyncio.get_running_loop().call_later(self._delay_s, self._release_delayed)
        self._went_on()

    def _release_delayed(self) -> None:
        self._delay = None
        self.resume(self._answers.release_delayed)

    def stop(self) -> None:
        """Cancel the rewrite and the timer."""
        if self._delay is not None:
            self._delay.cancel()
        if self._cancel_rewriting is not None:
            self._cancel_rewriting()
            self._cancel_rewriting = None
