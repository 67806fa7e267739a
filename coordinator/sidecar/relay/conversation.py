"""The frames between one client and its broker, without their sockets.

What belongs here: what a relay adds to a client's connection (net/frames.py): what is done with each frame, and how
much may wait. What it must not know: sockets, time, what a request means: its `RequestPlan` says what is done with it.
The broker's answers are in answers.py.

    bytes of the client -> relayed frames flow to the broker as they come, never whole in memory
                        -> a request to be handled here is returned by `next_request`, whole, once all that was
                           relayed before it is answered; nothing behind it is read until it is answered (`answer`)
                           or relayed after all (`relay`)
    bytes of the broker -> each answer is matched with the request that is due: streamed, rewritten, or our own

So answers leave in the order of requests, and a commit reaches the broker before the LeaveGroup behind it is decided,
as in Kafka, which handles one request of a connection at a time (CC5). Relayed requests are pipelined. Our own requests
(`ask`) go on the same connection, under the client's principal.
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
"""Limit of relayed requests that wait for answers; at it no more is read."""

BEGINNING_BYTES_MAX = 128 * 1024
"""Limit within which the fields to be read must stand: only three strings come before them."""

FIRST_BYTES_MAX = 16_384
"""The bytes of a client's first request that are waited for: clients begin with small ones."""

_USUAL_BEGINNING_BYTES = 256
_NEED_NO_AUTHENTICATION = frozenset({17, 18, 36})  # SaslHandshake, ApiVersions, SaslAuthenticate


class Conversation(Connection):
    """A pure conversation between a client and its broker. `for_broker`: bytes to send now; the sender clears them.

    `new_id`: an unguessable correlation id for each request of ours. Else a client that makes the broker send an extra
    answer could have it taken for the answer to our request.
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
        """First bytes of the last request that needed authentication, of an unauthenticated client; else None."""
        self._is_unauthenticated = limits.authenticates
        self._passing_request = 0  # bytes of a relayed request that are still to come
        self._is_answer_to_passing_due = False
        self._has_relayed_unanswered = False  # as by acks=0: nothing shows that the broker has read it
        self._check_stream: CheckStream | None = None
        self._frame = b""  # of the request that is handled here, which may go to the broker yet
        self._is_ending = False
        self._now_ms = 0  # when requests were taken the last time

    @property
    def is_owed(self) -> bool:
        """Whether the client has sent a whole request and waits for its answer."""
        return self.is_handling or self._is_answer_due

    @property
    def is_parked(self) -> bool:
        """Includes whatever waits for the broker, which closes connections that are idle as it sees it."""
        return super().is_parked or self._is_answer_due

    @property
    def is_all_answered(self) -> bool:
        """Whether the broker has answered each request that it has whole; never, if it had one that has no answer."""
        return not (self._has_relayed_unanswered or self._is_answer_due)

    @property
    def _is_answer_due(self) -> bool:
        """Whether the broker has a whole request that it has not answered to the end."""
        half_sent = 1 if self._passing_request and self._is_answer_to_passing_due else 0
        return self.answers.expected > half_sent or self.answers.is_one_begun

    @property
    def is_under_way(self) -> bool:
        """Whether a request has begun and is not over, even one that is half relayed."""
        return self.is_owed or self._passing_request > 0

    @property
    def is_of_interest(self) -> bool:
        """Whether requests are left to be handled, or answers to be read, even if nobody reads what is sent."""
        return self.is_handling or self.waiting_bytes > 0 or self.answers.is_one_to_be_read

    @property
    def held_bytes(self) -> int:
        """Includes answers that are buffered here."""
        return super().held_bytes + self.answers.held_bytes

    def end(self) -> None:
        """Begin no more requests; those begun go on. Raises ProtocolError as `Answers.receive` does."""
        self._is_ending = True
        self.answers.end()

    def forget(self) -> None:
        """Drop all bytes: both sides are gone."""
        super().forget()
        self._frame = b""
        self.answers.forget()

    def has_request(self) -> bool:
        """Whether a whole request has come, or `FIRST_BYTES_MAX` of it.

        Raises ProtocolError for what cannot be taken, however much more may come.
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

        What is to be relayed is in `for_broker` then, and heartbeats that the fast path knows are answered: `AT_ONCE`
        of them, if there are more (`is_interrupted`). Raises ProtocolError; nothing may follow then.
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
                looked = self._looked(plan.inspect, length, api_key, api_version)
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
            self.unauthenticated_request = self._incoming.look(_USUAL_BEGINNING_BYTES)
        return self._plan_of(api_key, api_version)

    def _check_handled(self, plan: RequestPlan, length: int, api_key: int, api_version: int) -> None:
        check_bound(api_key, api_version, length, min(plan.handled_bytes_max, self._handled_bytes_max))

    def _may_begin(self, done: int) -> bool:
        """Whether another request may begin, after `done` ones in this turn."""
        self.is_interrupted = done >= AT_ONCE and self.waiting_bytes > 0
        return not (self.is_interrupted or self._is_ending or self.answers.expected >= IN_FLIGHT_MAX)

    def receive_known(self, data: bytes, now_ms: int) -> bool:
        """Like the base's, unless a relayed request stands before them."""
        if self._passing_request or self._is_ending or not self.answers.are_all_given:
            self.receive(data)
            return False
        return super().receive_known(data, now_ms)

    def answer(self, *payload: bytes) -> None:
        """Answer the request that is handled here: chunks behind the correlation id."""
        super().answer(*payload)
        self._frame = b""

    def supersede(self) -> None:
        """Give up the request that is handled here."""
        super().supersede()
        self._frame = b""

    def relay(self, frame: bytes | None = None, rewrite: Rewrite | None = None) -> None:
        """Relay the request that was to be handled here: as it came, or `frame` (without its length) instead."""
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
        """Send a request of ours while one of the client's is handled: nothing else of the client's is in flight then.

        So it never comes between the steps of an authentication (P19). `rest` begins behind the correlation id, and so
        does what `answered` gets.
        """
        assert self._taken is not None
        correlation_id = self._new_id()
        while correlation_id == self._taken:  # the client's own, by chance
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
        """Relay the bytes that have come of a request; returns whether that was its end."""
        begins = len(self.for_broker)
        self._passing_request -= self._incoming.pass_on(self._passing_request, self.for_broker)
        if self._check_stream is not None:
            try:
                for chunk in self.for_broker[begins:]:
                    self._check_stream(chunk)
            except ProtocolError:
                del self.for_broker[begins:]  # the broker gets no end of it, and so does nothing
                raise
        return not self._passing_request

    def _looked(self, look: Inspect, length: int, api_key: int, api_version: int) -> RequestPlan | None:
        """Plan the next request by its first bytes; None if too few have come."""
        for size in (_USUAL_BEGINNING_BYTES, BEGINNING_BYTES_MAX):
            beginning = self._incoming.look(LENGTH.size + min(size, length))
            try:
                return look(beginning[LENGTH.size :])
            except (struct.error, IndexError) as error:
                if len(beginning) == LENGTH.size + min(BEGINNING_BYTES_MAX, length):
                    raise ProtocolError(
                        Fault.MALFORMED_REQUEST, f"a request of API key {api_key} v{api_version} cannot be read"
                    ) from error
        return None
