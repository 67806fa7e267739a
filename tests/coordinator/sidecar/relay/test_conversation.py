"""The frames between a client and its broker: split anywhere, responses in order, limits."""

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from muster.coordinator.net.frames import AT_ONCE
from muster.coordinator.sidecar.messages.request_plan import RequestPlan
from muster.coordinator.sidecar.relay.answers import Expected
from muster.coordinator.sidecar.relay.conversation import IN_FLIGHT_MAX, Conversation
from muster.coordinator.sidecar.relay.limits import RelayLimits
from muster.coordinator.upstream.coordinators import Heard
from muster.coordinator.wire.api import Fault, ProtocolError
from muster.events.steps import ENTRIES_AT_ONCE, Steps, finished
from tests.coordinator.sidecar.relay.talk import (
    COMMIT,
    FETCH,
    FRAME_BYTES_MAX,
    HEARTBEAT,
    JOIN,
    KNOWN,
    METADATA,
    QUESTION,
    SYNC,
    UNKNOWN,
    WAITING_BYTES_MAX,
    Talk,
    new_conversation,
    produce,
    rewritten,
)
from tests.coordinator.sidecar.scripted_broker import framed, request

contents = st.binary(max_size=40) | st.binary(min_size=FRAME_BYTES_MAX - 50, max_size=FRAME_BYTES_MAX - 50)
CLIENTS_FAULTS = {
    Fault.NEGATIVE_LENGTH,
    Fault.SHORT_FRAME,
    Fault.OVERSIZED_FRAME,
    Fault.OTHER_PROTOCOL,
    Fault.MALFORMED_REQUEST,
}

kinds = st.sampled_from(
    ["fetch", "unknown", "metadata", "acks=0", "acks=1", "join", "known", "sync", "commit", "theirs"]
)


def numbered(number: int, kind: str, content: bytes) -> tuple[bytes, list[bytes], list[bytes]]:
    """A request, the broker's request for it, and the client's response; without lengths."""
    correlation_id = number.to_bytes(4, "big")
    if kind.startswith("acks"):
        frame = produce(number, int(kind[-1]), content)
        return frame, [frame[4:]], [] if kind == "acks=0" else [correlation_id + b"to " + frame[12:]]
    key = {"fetch": FETCH, "unknown": UNKNOWN, "metadata": METADATA, "commit": COMMIT, "sync": SYNC}
    key |= {"known": HEARTBEAT, "join": JOIN, "theirs": JOIN}
    rest = {"known": KNOWN, "theirs": b"relay", "join": b"join " + content}.get(kind, content)
    frame = request(key[kind], 7, number, rest)
    if kind == "sync":
        questions = [b"\x00\x0f\x00\x05must" + words for words in (b"first", b"again")]
        return frame, questions, [correlation_id + b"to firstto again" + rest]
    if kind == "commit":
        moved = b"under shadow " + rest
        return frame, [frame[4:12] + moved], [correlation_id + b"moved to " + moved]
    ours = {"known": b"fast", "join": b"ours to " + rest}
    if kind in ours:
        return frame, [], [correlation_id + ours[kind]]
    return frame, [frame[4:]], [correlation_id + (b"moved to " if kind == "metadata" else b"to ") + rest]


@settings(max_examples=500)
@example(requests=[("acks=0", b""), ("known", b"")], cuts=[("client", 19)])
@given(
    requests=st.lists(st.tuples(kinds, contents), max_size=12),
    cuts=st.lists(st.tuples(st.sampled_from(["client", "broker", "handler"]), st.integers(1, 60)), max_size=120),
)
def test_however_the_streams_are_cut_frames_order_and_answers_are_the_same(
    requests: list[tuple[str, bytes]], cuts: list[tuple[str, int]]
) -> None:
    reported = [numbered(number, kind, content) for number, (kind, content) in enumerate(requests)]
    talk = Talk([frame for frame, _, _ in reported])
    for who, size in cuts:
        if who == "client":
            talk.client_sends(size)
        elif who == "broker":
            talk.broker_sends(size)
        else:
            talk.handler_goes_on()
    talk.end()
    assert talk.asked == list(itertools.chain.from_iterable(requested for _, requested, _ in reported))
    assert talk.answers == list(itertools.chain.from_iterable(answers for _, _, answers in reported))


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=60)), max_size=10))
def test_random_bytes_of_either_side_raise_nothing_but_the_protocols_error(pieces: list[tuple[bool, bytes]]) -> None:
    subject = new_conversation()
    fault = None
    try:
        for is_clients, piece in pieces:
            if is_clients:
                subject.receive(piece)
                while subject.next_request(0) is not None:
                    subject.answer(b"")
            else:
                subject.answers.receive(piece)
    except ProtocolError as error:
        fault = error.fault
    assert fault in {None, *CLIENTS_FAULTS, Fault.BROKER_ANSWER}


FETCHED = framed(1, b"x" * 100)


@pytest.mark.parametrize(
    ("asked", "answered", "is_all"),
    [
        (request(FETCH, 7, 1), FETCHED, True),
        (request(FETCH, 7, 1) + request(FETCH, 7, 2, bytes(500))[:100], FETCHED, True),
        (request(FETCH, 7, 1) + produce(2, 1, bytes(500))[:100], FETCHED, True),
        (request(FETCH, 7, 1), b"", False),
        (request(FETCH, 7, 1), FETCHED[:50], False),
        (request(FETCH, 7, 1) + request(FETCH, 7, 2), FETCHED, False),
        (request(FETCH, 7, 1) + produce(2, 0), FETCHED, False),
        (request(FETCH, 7, 1) + produce(2, 0, bytes(500))[:100], FETCHED, False),
        (produce(2, 0) + request(FETCH, 7, 1), FETCHED, False),
    ],
    ids=[
        "answered",
        "half a Fetch",
        "half a Produce",
        "unanswered",
        "half an answer",
        "one unanswered",
        "acks=0 last",
        "half of acks=0",
        "acks=0 first",
    ],
)
def test_all_is_answered_only_if_nothing_that_the_broker_has_whole_could_be_lost(
    asked: bytes, answered: bytes, is_all: bool
) -> None:
    """Only then is its connection reset: a broker would not read a pending request after that."""
    subject = new_conversation()
    subject.receive(asked)
    assert subject.next_request(0) is None
    assert b"".join(subject.for_broker) == asked
    subject.answers.receive(answered)
    assert subject.is_all_answered is is_all


def test_a_relayed_request_is_never_whole_in_memory() -> None:
    subject = new_conversation()
    frame = request(FETCH, 7, 1, b"x" * 4_000)
    for at in range(0, len(frame), 100):
        subject.receive(frame[at : at + 100])
        assert subject.next_request(0) is None
        assert b"".join(subject.for_broker) == frame[: at + 100]
        assert subject.waiting_bytes == 0
        if at + 100 < len(frame):
            subject.for_broker = [b"".join(subject.for_broker)]


def test_an_answer_longer_than_any_request_may_be_is_streamed() -> None:
    subject = new_conversation()
    subject.receive(request(FETCH, 7, 1))
    assert subject.next_request(0) is None
    size = 100 * FRAME_BYTES_MAX
    answer = framed(1, b"y" * size)
    for at in range(0, len(answer), 1_000):
        subject.answers.receive(answer[at : at + 1_000])
        assert b"".join(subject.for_client) == answer[at : at + 1_000]
        subject.for_client.clear()
    assert not subject.is_owed


def test_a_response_that_must_be_read_whole_has_a_length_limit() -> None:
    subject = new_conversation()
    subject.receive(request(METADATA, 7, 1))
    assert subject.next_request(0) is None
    with pytest.raises(ProtocolError, match=f"{FRAME_BYTES_MAX + 1} bytes; the limit is {FRAME_BYTES_MAX}") as raised:
        subject.answers.receive((FRAME_BYTES_MAX + 1).to_bytes(4, "big") + bytes(3) + b"\x01")
    assert raised.value.fault is Fault.BROKER_ANSWER


@pytest.mark.parametrize(
    ("length", "fault"),
    [
        (-1, Fault.NEGATIVE_LENGTH),
        (FRAME_BYTES_MAX + 1, Fault.OVERSIZED_FRAME),
    ],
)
def test_a_bad_length_is_refused_and_earlier_requests_are_relayed(length: int, fault: Fault) -> None:
    """All bad lengths are in tests/coordinator/net/test_connection.py."""
    subject = new_conversation()
    before = request(FETCH, 7, 1)
    content = length.to_bytes(4, "big", signed=True)
    subject.receive(before + content[:3])
    assert subject.next_request(0) is None
    subject.receive(content[3:])
    with pytest.raises(ProtocolError, match=f"{length}") as raised:
        subject.next_request(0)
    assert raised.value.fault is fault
    assert b"".join(subject.for_broker) == before


def test_a_first_request_that_is_too_long_is_refused_before_it_has_come() -> None:
    """Its length is enough: a client that sends no more would keep its place for nothing."""
    limits = RelayLimits(
        frame_bytes_max=FRAME_BYTES_MAX,
        waiting_bytes_max=WAITING_BYTES_MAX,
        authorization_cache_ms=0,
        authenticates=False,
    )
    plan = RequestPlan(is_handled=True, handled_bytes_max=50)
    subject = Conversation(
        plan_of=lambda *_: plan, fast=lambda *_: None, limits=limits, new_id=lambda: b"must", heard=Heard()
    )
    subject.receive(request(JOIN, 7, 1, bytes(100))[:12])
    with pytest.raises(ProtocolError, match="the limit is 50") as raised:
        subject.has_request()
    assert raised.value.fault is Fault.OVERSIZED_FRAME


@pytest.mark.parametrize("rest", [b"", b"\xff", b"\xff\xff\xff\xff\x00", b"\x7f\xff" + b"x" * 40])
def test_a_produce_without_acks_is_refused(rest: bytes) -> None:
    """It would be unknown whether there will be a response."""
    subject = new_conversation()
    subject.receive(request(0, 3, 1, rest))
    with pytest.raises(ProtocolError, match="API key 0 v3 cannot be read") as raised:
        subject.next_request(0)
    assert raised.value.fault is Fault.MALFORMED_REQUEST
    assert subject.for_broker == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (framed(2, b"x"), "answered correlation id 00000002; expected 00000001"),
        (framed(1, b"x") + framed(1, b"x"), "no request asked for"),
        ((3).to_bytes(4, "big") + bytes(4), "sent 3 bytes that no request asked for"),
        ((-5).to_bytes(4, "big", signed=True) + bytes(4), "sent -5 bytes that no request asked for"),
        (b"HTTP/1.1 400 Bad Request\r\n", "answered correlation id 2f312e31"),
    ],
)
def test_answers_that_make_no_sense_are_refused(answer: bytes, said: str) -> None:
    subject = new_conversation()
    subject.receive(request(FETCH, 7, 1))
    assert subject.next_request(0) is None
    with pytest.raises(ProtocolError, match=said) as raised:
        subject.answers.receive(answer)
    assert raised.value.fault is Fault.BROKER_ANSWER


def test_bytes_behind_a_request_that_is_handled_are_bounded() -> None:
    subject = new_conversation()
    subject.receive(request(JOIN, 7, 1))
    assert subject.next_request(0) is not None
    subject.receive(bytes(WAITING_BYTES_MAX - 1))
    full = [subject.is_full]
    subject.receive(b"\x00")
    full += [subject.is_full]
    subject.answer(b"")
    assert [*full, subject.is_full] == [False, True, False]


def test_a_large_request_that_is_on_its_way_here_is_not_too_much() -> None:
    """Only data behind a request counts, or no request could be larger than the limit."""
    subject = new_conversation()
    frame = request(JOIN, 7, 1, bytes(10 * WAITING_BYTES_MAX))
    for at in range(0, len(frame) - 1, 100):
        subject.receive(frame[at : min(at + 100, len(frame) - 1)])
        assert subject.next_request(0) is None
        assert not subject.is_full
    subject.receive(frame[-1:])
    assert subject.next_request(0) == frame[4:]


def test_relayed_requests_in_flight_are_limited() -> None:
    subject = new_conversation()
    subject.receive(b"".join(request(FETCH, 7, number) for number in range(IN_FLIGHT_MAX + 50)))
    nothing_left(subject)
    assert len(b"".join(subject.for_broker)) == IN_FLIGHT_MAX * len(request(FETCH, 7, 0))
    assert subject.is_full
    subject.answers.receive(b"".join(framed(number, b"") for number in range(50)))
    assert subject.next_request(0) is None
    assert subject.waiting_bytes == 0


def nothing_left(subject: Conversation) -> None:
    """All turns have run, and nothing is left to handle."""
    assert subject.next_request(0) is None
    while subject.is_interrupted:
        assert subject.next_request(0) is None


@pytest.mark.parametrize("are_known", [True, False], ids=["heartbeats", "relayed"])
def test_in_one_turn_some_are_worked_off_and_the_others_in_the_next(are_known: bool) -> None:
    subject = new_conversation()
    frame = request(HEARTBEAT, 7, 1, KNOWN) if are_known else request(FETCH, 7, 1)
    subject.receive(frame * (2 * AT_ONCE + 1))
    for left in (AT_ONCE + 1, 1):
        assert subject.next_request(0) is None
        assert (subject.is_interrupted, subject.waiting_bytes) == (True, left * len(frame))
    assert subject.next_request(0) is None
    assert (subject.is_interrupted, subject.waiting_bytes) == (False, 0)


def test_a_half_sent_request_is_in_progress_and_not_awaited_yet() -> None:
    """Such a client may be idle for good; a client whose request is complete waits for us (P17)."""
    subject = new_conversation()
    frame = request(FETCH, 7, 1, b"x" * 100)
    subject.receive(frame[:50])
    assert subject.next_request(0) is None
    assert [subject.is_owed, subject.is_under_way] == [False, True]
    subject.receive(frame[50:])
    assert subject.next_request(0) is None
    assert [subject.is_owed, subject.is_under_way] == [True, True]
    subject.answers.receive(framed(1, b""))
    assert [subject.is_owed, subject.is_under_way] == [False, False]


def test_the_rest_of_a_buffered_request_is_no_sign_of_life() -> None:
    """Its start and its end refresh the idle time; in between a slow client may be idle for good."""
    subject = new_conversation()
    frame = request(JOIN, 7, 1, b"x" * 100)
    seen = []
    for piece in (frame[:20], frame[20:40], frame[40:60], frame[60:]):
        subject.receive(piece)
        seen.append((subject.next_request(0), subject.take_progress()))
    assert seen == [(None, True), (None, False), (None, False), (frame[4:], True)]


def test_each_piece_of_a_request_that_is_relayed_is_a_sign_of_life() -> None:
    """It goes to the broker as it arrives."""
    subject = new_conversation()
    frame = request(FETCH, 7, 1, b"x" * 100)
    for at in range(0, len(frame), 20):
        subject.receive(frame[at : at + 20])
        assert subject.next_request(0) is None
        assert subject.take_progress()


def test_bytes_behind_a_delayed_response_are_bounded() -> None:
    """Beyond it no more is read from the broker; what has arrived is sent in order."""
    answers = new_conversation().answers
    answers.expect(Expected(b"\0\0\0\1", 0, rewrite=rewritten, delays_changed=True))
    answers.expect(Expected(b"\0\0\0\2", 0))
    behind = framed(2, bytes(WAITING_BYTES_MAX - 8))
    answers.receive(framed(1, b"") + behind[:-1])
    many = [answers.has_many_waiting]
    answers.receive(behind[-1:])
    many.append(answers.has_many_waiting)
    assert answers.for_client == []
    answers.release_delayed()
    assert [*many, answers.has_many_waiting] == [False, True, False]
    assert b"".join(answers.for_client) == framed(1, b"moved ") + behind


def test_an_answer_that_is_held_is_counted_until_it_is_gone() -> None:
    """The data behind it is counted, too."""
    subject = new_conversation()
    subject.answers.expect(Expected(b"\0\0\0\1", 0, rewrite=rewritten, delays_changed=True))
    subject.answers.receive(framed(1, bytes(60)) + bytes(4))
    assert subject.held_bytes == len(b"moved ") + 60 + 4
    subject.forget()
    assert subject.held_bytes == 0


@pytest.mark.parametrize("ends_by", ["being written", "the client's end"])
def test_an_answer_that_is_being_rewritten_is_counted_twice(ends_by: str) -> None:
    """The original and the rewritten response exist together until it is written."""

    def slowly(payload: bytes) -> Steps[bytes]:
        yield ENTRIES_AT_ONCE
        yield ENTRIES_AT_ONCE
        return payload.upper()

    subject = new_conversation()
    subject.answers.expect(Expected(b"\0\0\0\1", 0, rewrite=slowly))
    subject.answers.receive(framed(1, b"abc"))
    steps = subject.answers.take_rewriting()
    assert steps is not None
    assert subject.held_bytes == 6
    if ends_by == "being written":
        finished(steps)
        assert b"".join(subject.answers.for_client) == framed(1, b"ABC")
    else:
        subject.forget()
    assert subject.held_bytes == 0


@pytest.mark.parametrize("acks", [0, 1])
def test_at_shutdown_half_sent_requests_complete_and_none_begins(acks: int) -> None:
    subject = new_conversation()
    frame = produce(1, acks, b"x" * 100)
    subject.receive(frame[:50])
    assert subject.next_request(0) is None
    subject.end()
    subject.receive(frame[50:] + request(FETCH, 7, 2) + request(JOIN, 7, 3))
    assert subject.next_request(0) is None
    assert b"".join(subject.for_broker) == frame
    assert subject.is_under_way is (acks == 1)


@pytest.mark.parametrize("taken", [b"must", b"have"])
def test_each_question_of_ours_has_an_id_of_its_own(taken: bytes) -> None:
    """A random id equal to that of the request being handled is skipped."""
    drawn = iter([b"must", b"have", b"need"])
    subject = new_conversation(lambda: next(drawn))
    subject.receive(request(SYNC, 7, int.from_bytes(taken, "big")))
    assert subject.next_request(0) is not None
    requests = []
    for _ in range(2):
        subject.ask(QUESTION, 5, b"?", lambda _: None)
        requests.append(b"".join(subject.for_broker)[8:12])
        subject.for_broker.clear()
        subject.answers.receive(framed(int.from_bytes(requests[-1], "big"), b"!"))
    assert requests == [each for each in (b"must", b"have", b"need") if each != taken][:2]


def test_an_answer_too_many_is_never_taken_for_that_to_a_question_of_ours() -> None:
    """A client that gets the broker to answer twice would have to guess the id."""
    subject = new_conversation(lambda: b"\x9e\x11\x07\xc4")
    subject.receive(request(SYNC, 7, 1))
    assert subject.next_request(0) is not None
    reported: list[bytes] = []
    subject.ask(QUESTION, 5, b"?", reported.append)
    with pytest.raises(ProtocolError, match="expected 9e1107c4"):
        subject.answers.receive(framed(int.from_bytes(b"must", "big"), b"all is allowed"))
    assert reported == []


def test_our_own_requests_are_hidden_from_clients() -> None:
    subject = new_conversation()
    subject.receive(request(SYNC, 7, 1))
    assert subject.next_request(0) is not None
    reported: list[bytes] = []
    subject.ask(QUESTION, 5, b"?", reported.append)
    subject.answers.receive(framed(int.from_bytes(b"must", "big"), b"!"))
    assert reported == [b"!"]
    assert subject.for_client == []
    subject.answer(b"done")
    assert b"".join(subject.for_client) == framed(1, b"done")
