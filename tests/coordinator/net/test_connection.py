"""A connection without its socket: frames split anywhere, responses in order, limits."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.net.frames import AT_ONCE, Connection
from muster.coordinator.wire import heartbeat
from muster.coordinator.wire.api import Fault, ProtocolError
from muster.coordinator.wire.bounds import bound_of

FRAME_BYTES_MAX = 64
WAITING_BYTES_MAX = 100


def slow(_version: int, _rest: bytes, _now_ms: int) -> bytes | None:
    return None


def connection(*, fast: object = None) -> Connection:
    return Connection(
        fast=fast if callable(fast) else slow, frame_bytes_max=FRAME_BYTES_MAX, waiting_bytes_max=WAITING_BYTES_MAX
    )


def request(correlation_id: int, content: bytes = b"", *, api_key: int = 11, version: int = 9) -> bytes:
    body = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big") + content
    return len(body).to_bytes(4, "big") + body


def answer(correlation_id: int, payload: bytes) -> bytes:
    return (4 + len(payload)).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + payload


def taken(from_: Connection) -> list[bytes]:
    """Take all requests, and answer each at once with its own content."""
    frames = []
    while (frame := from_.next_request(0)) is not None:
        frames.append(frame)
        from_.answer(frame[8:])
    return frames


def sent(by: Connection) -> bytes:
    """Everything that is to be sent now."""
    output = b"".join(by.for_client)
    by.for_client.clear()
    return output


REQUESTS = [request(1, b"one"), request(2), request(3, b"x" * 56), request(2**31 - 1, b"four")]
STREAM = b"".join(REQUESTS)
ANSWERS = answer(1, b"one") + answer(2, b"") + answer(3, b"x" * 56) + answer(2**31 - 1, b"four")


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_a_stream_cut_in_two_gives_the_same_requests(cut: int) -> None:
    subject = connection()
    frames = []
    for piece in (STREAM[:cut], STREAM[cut:]):
        subject.receive(piece)
        frames += taken(subject)
    assert frames == [each[4:] for each in REQUESTS]
    assert sent(subject) == ANSWERS


@settings(max_examples=500)
@given(cuts=st.lists(st.integers(0, len(STREAM))))
def test_a_stream_cut_anywhere_gives_the_same_requests(cuts: list[int]) -> None:
    subject = connection()
    places = [0, *sorted(cuts), len(STREAM)]
    frames = []
    for start, end in pairwise(places):
        subject.receive(STREAM[start:end])
        frames += taken(subject)
    assert frames == [each[4:] for each in REQUESTS]
    assert sent(subject) == ANSWERS
    assert subject.waiting_bytes == 0


def test_the_next_request_is_read_after_the_response() -> None:
    """Requests of one connection are decided one after another (CC5)."""
    subject = connection()
    subject.receive(REQUESTS[0] + REQUESTS[1])
    assert subject.next_request(0) == REQUESTS[0][4:]
    assert subject.is_handling
    assert subject.next_request(0) is None
    subject.answer(b"a")
    assert subject.next_request(0) == REQUESTS[1][4:]
    subject.answer(b"b")
    assert sent(subject) == answer(1, b"a") + answer(2, b"b")
    assert sent(subject) == b""


def test_the_start_of_a_request_after_idling_is_progress_and_its_next_bytes_are_not() -> None:
    """A silent client has the full time for its next request, from its first byte on."""
    subject = connection()
    subject.receive(request(1))
    taken(subject)
    assert [subject.take_progress(), subject.take_progress()] == [True, True]
    whole = request(2, b"some")
    progress = []
    for part in (whole[:5], whole[5:8], whole[8:]):
        subject.receive(part)
        taken(subject)
        progress.append(subject.take_progress())
    assert progress == [True, False, True]


def test_bytes_behind_an_unanswered_request_are_bounded() -> None:
    subject = connection()
    subject.receive(REQUESTS[0])
    assert subject.next_request(0) is not None
    subject.receive(bytes(WAITING_BYTES_MAX - 1))
    full = [subject.is_full]
    subject.receive(b"\x00")
    full += [subject.is_full]
    assert full == [False, True]
    subject.answer(b"")
    assert [subject.is_full, subject.is_handling] == [False, False]


def test_a_large_frame_that_is_on_its_way_is_not_too_much() -> None:
    """Only data behind a request counts, or no frame could be larger than the limit."""
    subject = Connection(fast=slow, frame_bytes_max=1_000, waiting_bytes_max=10)
    content = request(1, b"x" * 900)
    for byte in content[:-1]:
        subject.receive(bytes([byte]))
        assert subject.next_request(0) is None
        assert not subject.is_full
    subject.receive(content[-1:])
    assert subject.next_request(0) == content[4:]


@pytest.mark.parametrize(
    ("length", "fault"),
    [
        (-1, Fault.NEGATIVE_LENGTH),
        (-(2**31), Fault.NEGATIVE_LENGTH),
        (0, Fault.SHORT_FRAME),
        (7, Fault.SHORT_FRAME),
        (FRAME_BYTES_MAX + 1, Fault.OVERSIZED_FRAME),
        (2**31 - 1, Fault.OVERSIZED_FRAME),
        (int.from_bytes(b"GET ", "big"), Fault.OTHER_PROTOCOL),
    ],
)
@pytest.mark.parametrize("more", [b"", b"more than a header's worth of bytes"])
@pytest.mark.parametrize("pieces", [1, 4])
def test_a_bad_length_is_refused_as_soon_as_it_is_read(length: int, fault: Fault, more: bytes, pieces: int) -> None:
    subject = connection()
    subject.receive(REQUESTS[0])
    assert len(taken(subject)) == 1
    content = length.to_bytes(4, "big", signed=True) + more
    for place in range(pieces - 1):
        subject.receive(content[place : place + 1])
        assert subject.next_request(0) is None
    subject.receive(content[pieces - 1 :])
    with pytest.raises(ProtocolError, match=f"{length}|speaks HTTP") as raised:
        subject.next_request(0)
    assert raised.value.fault is fault
    assert sent(subject) == answer(1, b"one")


def test_the_largest_frame_is_taken() -> None:
    subject = connection()
    subject.receive(request(1, b"x" * (FRAME_BYTES_MAX - 8)))
    assert len(taken(subject)) == 1


def test_heartbeats_that_the_fast_path_knows_are_answered_in_their_place() -> None:
    requests: list[tuple[int, bytes, int]] = []

    def fast(version: int, rest: bytes, now_ms: int) -> bytes | None:
        requests.append((version, rest, now_ms))
        return b"ok" if rest == b"known" else None

    subject = connection(fast=fast)
    subject.receive(
        request(1, b"known", api_key=12, version=4)
        + request(2, b"known", api_key=11)
        + request(3, b"known", api_key=12, version=3)
        + request(4, b"other", api_key=12)
    )
    assert subject.next_request(77) == request(2, b"known")[4:]
    subject.answer(b"joined")
    assert subject.next_request(78) == request(4, b"other", api_key=12)[4:]
    assert sent(subject) == answer(1, b"ok") + answer(2, b"joined") + answer(3, b"ok")
    assert requests == [(4, b"known", 77), (3, b"known", 78), (9, b"other", 78)]


KNOWN = [request(number, b"known", api_key=12) for number in range(1, 9)]


def known(_version: int, rest: bytes, _now_ms: int) -> bytes | None:
    return b"ok" if rest == b"known" else None


@pytest.mark.parametrize("at_once", [True, False])
@given(cuts=st.lists(st.integers(0, len(b"".join(KNOWN)))))
def test_known_heartbeats_are_answered_however_they_are_cut(at_once: bool, cuts: list[int]) -> None:
    """Even in pieces, which are joined; nothing else is called."""
    subject = connection(fast=known)
    stream = b"".join(KNOWN)
    for start, end in pairwise([0, *sorted(cuts), len(stream)]):
        if not at_once:
            subject.receive(stream[start:end])
            assert subject.next_request(0) is None
        elif not subject.receive_known(stream[start:end], 0):
            assert subject.next_request(0) is None
    assert sent(subject) == b"".join(answer(number, b"ok") for number in range(1, 9))
    assert subject.waiting_bytes == 0


@pytest.mark.parametrize("before", [b"", REQUESTS[0], REQUESTS[0][:3]])
def test_only_heartbeats_without_earlier_requests_are_answered_at_once(before: bytes) -> None:
    subject = connection(fast=known)
    subject.receive(before)
    subject.next_request(0)
    assert subject.receive_known(KNOWN[0], 0) is (before == b"")
    assert sent(subject) == (answer(1, b"ok") if before == b"" else b"")


def test_other_requests_wait_behind_known_heartbeats() -> None:
    subject = connection(fast=known)
    assert not subject.receive_known(KNOWN[0] + REQUESTS[1] + KNOWN[2], 0)
    assert sent(subject) == answer(1, b"ok")
    assert subject.next_request(0) == REQUESTS[1][4:]


def test_known_heartbeats_answered_at_once_are_limited() -> None:
    subject = connection(fast=known)
    assert not subject.receive_known(KNOWN[0] * (2 * AT_ONCE + 1), 0)
    for number in (1, 2):
        assert sent(subject) == answer(1, b"ok") * AT_ONCE
        assert subject.next_request(0) is None
        assert subject.is_interrupted is (number == 1)
    assert sent(subject) == answer(1, b"ok")


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_random_bytes_raise_nothing_but_the_protocols_error(pieces: list[bytes]) -> None:
    subject = connection()
    fault = None
    try:
        for piece in pieces:
            subject.receive(piece)
            for frame in taken(subject):
                assert 8 <= len(frame) <= FRAME_BYTES_MAX
    except ProtocolError as error:
        fault = error.fault
    assert fault in {None, Fault.NEGATIVE_LENGTH, Fault.SHORT_FRAME, Fault.OVERSIZED_FRAME, Fault.OTHER_PROTOCOL}


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 400_000), max_size=4).map(sorted),
    st.sampled_from([heartbeat.KEY, 99]),
    st.integers(-1, 1),
)
def test_the_length_check_does_not_depend_on_fragmentation(cuts: list[int], api_key: int, over: int) -> None:
    """It may arrive in one read, or in any number of them."""
    bound = bound_of(api_key).bytes_max
    stream = request(1, b"one") + request(2, bytes(bound - 8 + over), api_key=api_key) + request(3)

    def outcome(pieces: list[bytes]) -> tuple[list[bytes], str]:
        subject = Connection(fast=slow, frame_bytes_max=2**30, waiting_bytes_max=WAITING_BYTES_MAX)
        frames = []
        try:
            for piece in pieces:
                subject.receive(piece)
                while (frame := subject.next_request(0)) is not None:
                    frames.append(frame)
                    subject.answer()
        except ProtocolError as error:
            return frames, f"{error.fault}: {error}"
        return frames, ""

    frames, fault = outcome([stream])
    assert len(frames) == (1 if over > 0 else 3)
    assert outcome([stream[begin:end] for begin, end in pairwise([0, *cuts, len(stream)])]) == (frames, fault)
