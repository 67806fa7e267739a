"""The frames between one client and its broker, without their sockets.

Adds relaying to a client's connection (net/frames.py): what happens to each frame, and how much may be buffered. Knows
nothing of sockets, of time or of what a request means; a `RequestPlan` says what to do with it. The broker's responses
are in answers.py.

    bytes from the client -> relayed frames go to the broker as they arrive, never buffered whole
                          -> a request to be handled here is returned whole by `next_request`, once everything relayed
                             before it is answered; nothing behind it is read until it is answered (`answer`) or
                             relayed after all (`relay`)
    bytes from the broker -> each response is matched with its request: relayed, rewritten, or our own

So responses leave in the order of the requests, and a commit reaches the broker before the LeaveGroup that follows it
is handled, as in Kafka, which handles one request of a connection at a time (CC5). Relayed requests are pipelined. Our
own requests (`ask`) use the same connection, with the client's principal.
"""

import struct
from collections.abc import Callable

from muster.coordinator.net.frames import AT_ONCE, LENGTH, REQUEST_START, Connection, Fast, check_bound
from muster.coordinator.sidecar.messages.request_plan import CheckStream, Inspect, PlanOf, RequestPlan, Rewrite
from muster.coordinator.sidecar.relay.answers import Answers, Expected
from muster.coordinator.sidecar.relay.limits import RelayLimits
from muster.coordinator.upstream.coordinators import Heard
from muster.coordinator.wire.api import Fault, ProtocolError
from muster.coordinator.wire.messages import HEADER_START_BYTES

IN_FLIGHT_MAX = 1_000
"""Limit of relayed requests without a response; at this limit no more is read."""

BEGINNING_BYTES_MAX = 128 * 1024
"""The fields that are read here must end within this many bytes; only three strings precede them."""

FIRST_BYTES_MAX = 16_384
"""How many bytes of a client's first request to wait for; clients begin with small requests."""

_USUAL_BEGINNING_BYTES = 256
_NEED_NO_AUTHENTICATION = frozenset({17, 18, 36})  # SaslHandshake, ApiVersions, SaslAuthenticate


class Conversation(Connection):
    """A conversation between a client and its broker, without I/O. `for_broker`: bytes to send; the sender clears them.

    `new_id` returns an unguessable correlation id for each request of ours. Otherwise a client that gets the broker to
    send an extra response could pass it off as the response to our request.
    """

    def __init__(
        self, *, plan_of: PlanOf, fast: Fast, limits: RelayLimits, new_id: Callable[[], bytes], heard: Heard
    ) -> None:
        super().__init__(fast=fast, frame_bytes_max=limits.frame_bytes_max, waiting_bytes_max=limits.waiting_bytes_max)
        self.answers = Answers(limits, self.for_client, heard)
        self.for_broker: list[bytes] = []
        self._new_id = new_id
        self._plan_of = plan_of
        self._handled_bytes_max = limits.first_bytes_max
        self.unauthenticated_request: bytes | None = None
        """First bytes of an unauthenticated client's last request that needs authentication; else None."""
        self._is_unauthenticated = limits.authenticates
        self._passing_request = 0  # bytes of a relayed request that are still to come
        self._is_answer_to_passing_due = False
        self._has_relayed_unanswered = False  # e.g. Produce with acks=0: no response proves that the broker has read it
        self._check_stream: CheckStream | None = None
        self._frame = b""  # the request that is handled here, which may still be relayed
        self._is_ending = False
        self._now_ms = 0  # the last time requests were taken

    @property
    def is_owed(self) -> bool:
        """True if the client has sent a whole request and waits for its response."""
        return self.is_handling or self._is_answer_due

    @property
    def is_parked(self) -> bool:
        """True also while a request waits for the broker, which closes connections that it considers idle."""
        return super().is_parked or self._is_answer_due

    @property
    def is_all_answered(self) -> bool:
        """True if the broker has answered every whole request; always False after a request that has no response."""
        return not (self._has_relayed_unanswered or self._is_answer_due)

    @property
    def _is_answer_due(self) -> bool:
        """True if the broker has a whole request and has not completed its response."""
        half_sent = 1 if self._passing_request and self._is_answer_to_passing_due else 0
        return self.answers.expected > half_sent or self.answers.is_one_begun

    @property
    def is_under_way(self) -> bool:
        """True if a request has begun and is not finished, even if it is partly relayed."""
        return self.is_owed or self._passing_request > 0

    @property
    def is_of_interest(self) -> bool:
        """True if requests remain to be handled, or responses to be decoded, even if the client is gone."""
        return self.is_handling or self.waiting_bytes > 0 or self.answers.has_response_to_decode

    @property
    def held_bytes(self) -> int:
        """Includes responses that are buffered here."""
        return super().held_bytes + self.answers.held_bytes

    def end(self) -> None:
        """Begin no more requests; those in progress continue. Raises ProtocolError as `Answers.receive` does."""
        self._is_ending = True
        self.answers.end()

    def forget(self) -> None:
        """Drop all bytes: both connections are closed."""
        super().forget()
        self._frame = b""
        self.answers.forget()

    def has_request(self) -> bool:
        """Return whether a whole request has arrived, or the first `FIRST_BYTES_MAX` of one.

        Raises ProtocolError for a request that would be rejected whatever follows.
        """
        start = self._next_start()
        if start is None:
            return False
        length, api_key, api_version, _ = start
        plan = self._plan_of(api_key, api_version)
        if plan.is_handled:
            self._check_handled(plan, length, api_key, api_version)
        return self._incoming.has(min(LENGTH.size + length, FIRST_BYTES_MAX))

    def authenticated(self) -> None:
        """Lift the limits for clients that have not authenticated."""
        self._handled_bytes_max = self._frame_bytes_max
        self._is_unauthenticated, self.unauthenticated_request = False, None

    def next_request(self, now_ms: int) -> bytes | None:
        """Return the next frame to be handled here, without its length; None if there is none yet.

        Puts requests to be relayed into `for_broker`, and answers heartbeats that the fast path knows; stops after
        `AT_ONCE` of them if there are more (`is_interrupted`). Raises ProtocolError; do not call it again after that.
        """
        done, self.is_interrupted, self._now_ms = 0, False, now_ms
        while self._taken is None:
            if self._passing_request and not self._pass_on():
                return None
            if not self._may_begin(done):
                return None
            if self.answers.are_all_given and (answered := self._answer_heartbeats(now_ms)):
                done += answered
                continue
            start = self._next_start()
            if start is None:
                return None
            length, api_key, api_version, correlation_id = start
            plan = self._planned(api_key, api_version)
            if plan.inspect is not None:
                looked = self._plan_next(plan.inspect, length, api_key, api_version)
                if looked is None:
                    return None
                plan = looked
            if not plan.is_handled:
                self._relay_from_here(length, api_key, correlation_id, plan)
                done += 1
                continue
            self._check_handled(plan, length, api_key, api_version)
            frame = self._take(length, api_key, correlation_id) if self.answers.are_all_given else None
            self._frame = frame or b""
            return frame
        return None

    def _planned(self, api_key: int, api_version: int) -> RequestPlan:
        if self._is_unauthenticated and api_key not in _NEED_NO_AUTHENTICATION:
            self.unauthenticated_request = self._incoming.peek(_USUAL_BEGINNING_BYTES)
        return self._plan_of(api_key, api_version)

    def _check_handled(self, plan: RequestPlan, length: int, api_key: int, api_version: int) -> None:
        check_bound(api_key, api_version, length, min(plan.handled_bytes_max, self._handled_bytes_max))

    def _may_begin(self, done: int) -> bool:
        """Return whether another request may begin in this turn, after `done` of them."""
        self.is_interrupted = done >= AT_ONCE and self.waiting_bytes > 0
        return not (self.is_interrupted or self._is_ending or self.answers.expected >= IN_FLIGHT_MAX)

    def receive_known(self, data: bytes, now_ms: int) -> bool:
        """Do as the base class does, unless a relayed request is ahead of these bytes."""
        if self._passing_request or self._is_ending or not self.answers.are_all_given:
            self.receive(data)
            return False
        return super().receive_known(data, now_ms)

    def answer(self, *payload: bytes) -> None:
        """Answer the request that is handled here. `payload`: the response after the correlation id."""
        super().answer(*payload)
        self._frame = b""

    def supersede(self) -> None:
        """Abandon the request that is handled here."""
        super().supersede()
        self._frame = b""

    def relay(self, frame: bytes | None = None, rewrite: Rewrite | None = None) -> None:
        """Relay the request that was to be handled here: unchanged, or as `frame` (without its length)."""
        assert self._taken is not None
        relayed = self._frame if frame is None else frame
        self.for_broker += (LENGTH.pack(len(relayed)), relayed)
        api_key = int.from_bytes(self._frame[:2], "big")
        needs_no_authentication = api_key in _NEED_NO_AUTHENTICATION
        self.answers.expect(
            Expected(
                self._taken, self._now_ms, rewrite, needs_no_authentication=needs_no_authentication, api_key=api_key
            )
        )
        self._taken, self._taken_bytes, self._frame = None, 0, b""

    def ask(self, api_key: int, api_version: int, rest: bytes, answered: Callable[[bytes], None]) -> None:
        """Send a request of ours while a request of the client is handled, when no other of the client's is in flight.

        So it never gets between the steps of an authentication (P19). `rest` is the request after the correlation id;
        `answered` gets the response after its correlation id.
        """
        assert self._taken is not None
        correlation_id = self._new_id()
        while correlation_id == self._taken:  # the client chose the same id
            correlation_id = self._new_id()
        frame_start = REQUEST_START.pack(HEADER_START_BYTES + len(rest), api_key, api_version, correlation_id)
        self.for_broker += (frame_start, rest)
        self.answers.expect(Expected(correlation_id, self._now_ms, own=answered))

    # ---- frames --------------------------------------------------------------------------------------

    def _relay_from_here(self, length: int, api_key: int, correlation_id: bytes, plan: RequestPlan) -> None:
        """Begin to relay a request."""
        self._is_answer_to_passing_due = plan.is_answered
        self._has_relayed_unanswered |= not plan.is_answered
        if plan.is_answered:
            needs_no_authentication = api_key in _NEED_NO_AUTHENTICATION
            self.answers.expect(
                Expected(
                    correlation_id,
                    self._now_ms,
                    plan.rewrite,
                    plan.delays_changed,
                    needs_no_authentication,
                    api_key=api_key,
                )
            )
        self._passing_request = LENGTH.size + length
        self._check_stream = plan.check_stream
        self._has_begun = True

    def _pass_on(self) -> bool:
        """Relay the bytes of a request that have arrived; return True once it is complete."""
        begins = len(self.for_broker)
        self._passing_request -= self._incoming.pass_on(self._passing_request, self.for_broker)
        if self._check_stream is not None:
            try:
                for chunk in self.for_broker[begins:]:
                    self._check_stream(chunk)
            except ProtocolError:
                del self.for_broker[begins:]  # the broker never gets the whole request, so it does nothing
                raise
        return not self._passing_request

    def _plan_next(self, inspect: Inspect, length: int, api_key: int, api_version: int) -> RequestPlan | None:
        """Plan the next request from its first bytes; return None if too few have arrived."""
        for size in (_USUAL_BEGINNING_BYTES, BEGINNING_BYTES_MAX):
            beginning = self._incoming.peek(LENGTH.size + min(size, length))
            try:
                return inspect(beginning[LENGTH.size :])
            except (struct.error, IndexError) as error:
                if len(beginning) == LENGTH.size + min(BEGINNING_BYTES_MAX, length):
                    raise ProtocolError(
                        Fault.MALFORMED_REQUEST, f"a request of API key {api_key} v{api_version} cannot be read"
                    ) from error
        return None
