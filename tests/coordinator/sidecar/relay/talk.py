"""A complete exchange between client and broker through a `Conversation`, without sockets, split anywhere.

The API key selects the kind of request: relayed, rewritten, a Produce, or handled here in one of four ways. The broker
answers each request with distinct bytes, so that a misrouted response is detected.
"""

from collections.abc import Callable, Sequence

from muster.coordinator.sidecar.messages.produce import plan_produce
from muster.coordinator.sidecar.messages.request_plan import RELAY, RequestPlan
from muster.coordinator.sidecar.messages.reserved_names import ReservedNames
from muster.coordinator.sidecar.relay.conversation import Conversation
from muster.coordinator.sidecar.relay.limits import RelayLimits
from muster.coordinator.upstream.coordinators import Heard
from muster.events.steps import Steps
from tests.coordinator.sidecar.scripted_broker import framed, request

PRODUCE, FETCH, METADATA, COMMIT, JOIN, HEARTBEAT, SYNC, QUESTION, UNKNOWN = 0, 1, 3, 8, 11, 12, 14, 15, 999
KNOWN = b"known"
FRAME_BYTES_MAX, WAITING_BYTES_MAX = 5_000, 300


def rewritten(payload: bytes) -> Steps[bytes]:
    """Rewrite, as the plan for Metadata does."""
    yield 1
    return b"moved " + payload


def plan_of(api_key: int, api_version: int) -> RequestPlan:
    """One plan for each kind."""
    if api_key == PRODUCE:
        return RequestPlan(inspect=lambda frame: plan_produce(frame, api_version, None, ReservedNames(None)))
    if api_key == METADATA:
        return RequestPlan(rewrite=rewritten)
    return RequestPlan(is_handled=True) if api_key in {COMMIT, JOIN, HEARTBEAT, SYNC} else RELAY


def fast(_api_version: int, rest: bytes, _now_ms: int) -> bytes | None:
    """A heartbeat that is cached."""
    return b"fast" if rest == KNOWN else None


def must() -> bytes:
    """The correlation id of each request of ours, which is random in production."""
    return b"must"


def new_conversation(new_id: Callable[[], bytes] = must) -> Conversation:
    """A conversation with small limits."""
    limits = RelayLimits(
        frame_bytes_max=FRAME_BYTES_MAX,
        waiting_bytes_max=WAITING_BYTES_MAX,
        authorization_cache_ms=0,
        authenticates=False,
    )
    return Conversation(plan_of=plan_of, fast=fast, limits=limits, new_id=new_id, heard=Heard())


def produce(correlation_id: int, acks: int, content: bytes = b"") -> bytes:
    """v3, from a client without a name."""
    return request(PRODUCE, 3, correlation_id, b"\xff\xff\xff\xff" + acks.to_bytes(2, "big", signed=True) + content)


def frames_of(stream: bytes) -> tuple[list[bytes], bytes]:
    """The complete frames, without their lengths, and the rest."""
    frames = []
    while len(stream) >= 4 and len(stream) >= 4 + int.from_bytes(stream[:4], "big"):
        size = 4 + int.from_bytes(stream[:4], "big")
        frames.append(stream[4:size])
        stream = stream[size:]
    return frames, stream


class Talk:
    """See the module. `answers` and `asked` are what client and broker have received, in order."""

    def __init__(self, requests: Sequence[bytes]) -> None:
        self.subject = new_conversation()
        self.to_send = b"".join(requests)
        self.asked: list[bytes] = []
        self.answers: list[bytes] = []
        self._to_answer = b""
        self._at_broker = b""
        self._at_client = b""
        self._steps: list[Callable[[], None]] = []

    def client_sends(self, size: int) -> None:
        """The client's next bytes arrive."""
        sent, self.to_send = self.to_send[:size], self.to_send[size:]
        if self.subject.receive_known(sent, 0):
            assert (self.subject.waiting_bytes, self.subject.is_under_way) == (0, False)
            self._exchange()
        else:
            self._work()

    def broker_sends(self, size: int) -> None:
        """The broker's next bytes arrive."""
        self.subject.answers.receive(self._to_answer[:size])
        self._to_answer = self._to_answer[size:]
        self._work()

    def handler_goes_on(self) -> None:
        """Continue the request that is being handled, if any."""
        if self._steps:
            self._steps.pop(0)()
            self._work()

    def end(self) -> None:
        """Run until nothing is left to do."""
        while self.to_send or self._to_answer or self._steps:
            self.client_sends(len(self.to_send))
            self.broker_sends(len(self._to_answer))
            self.handler_goes_on()
        assert (self._at_client, self._at_broker) == (b"", b"")
        assert not self.subject.is_under_way
        assert self.subject.waiting_bytes == 0

    def _work(self) -> None:
        while (frame := self.subject.next_request(0)) is not None:
            self._handle(frame)
        self._exchange()

    def _exchange(self) -> None:
        frames, self._at_broker = frames_of(self._at_broker + b"".join(self.subject.for_broker))
        self.subject.for_broker.clear()
        for frame in frames:
            self.asked.append(frame)
            if frame[:2] != b"\x00\x00" or frame[12:14] != b"\x00\x00":  # except for a Produce with acks=0
                self._to_answer += framed(int.from_bytes(frame[4:8], "big"), b"to " + frame[8:])
        frames, self._at_client = frames_of(self._at_client + b"".join(self.subject.for_client))
        self.subject.for_client.clear()
        self.answers += frames

    def _handle(self, frame: bytes) -> None:
        assert not self._to_answer, "taken while the broker owes an answer"
        key = int.from_bytes(frame[:2], "big")
        if key == SYNC:
            self._steps = [lambda: self._ask(frame)]
        elif key == COMMIT:
            self._steps = [lambda: self.subject.relay(frame[:8] + b"under shadow " + frame[8:], rewritten)]
        elif frame[8:] == b"relay":
            self._steps = [self.subject.relay]
        else:
            self._steps = [lambda: self.subject.answer(b"ours to " + frame[8:])]

    def _ask(self, frame: bytes) -> None:
        """Send two requests; their results are the response."""

        def reported(payload: bytes) -> None:
            self.subject.ask(QUESTION, 5, b"again", lambda again: self._steps.append(lambda: answer(payload + again)))

        def answer(payload: bytes) -> None:
            self.subject.answer(payload + frame[8:])

        self.subject.ask(QUESTION, 5, b"first", reported)
