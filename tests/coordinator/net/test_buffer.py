"""A socket's bytes, split anywhere: the same bytes are returned, and copied only if necessary."""

import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.net.buffer import READ_BYTES_MAX, Incoming

CONTENT = bytes(range(200))

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 40)),
        st.tuples(st.just("take"), st.integers(0, 30)),
        st.tuples(st.just("join"), st.integers(0, 30)),
        st.tuples(st.just("pass on"), st.integers(0, 60)),
    ),
    max_size=40,
)


@settings(max_examples=500)
@given(steps)
def test_bytes_are_read_as_written_in_any_steps(taken: list[tuple[str, int]]) -> None:
    subject = Incoming()
    added, out = 0, b""
    for what, size in taken:
        if what == "add":
            subject.add(CONTENT[added : added + size])
            added = min(added + size, len(CONTENT))
        elif what == "take":
            assert subject.has(size) is (added - len(out) >= size)
            assert subject.peek(size) == CONTENT[len(out) : min(len(out) + size, added)]
            if subject.has(size):
                out += subject.take(size)
        elif what == "join":
            assert subject.join(size) is (added - len(out) >= size)
            data, at = subject.in_place
            assert not subject.has(size) or data[at : at + size] == CONTENT[len(out) : len(out) + size]
        else:
            passed: list[bytes] = []
            assert subject.pass_on(size, passed) == min(size, added - len(out))
            out += b"".join(passed)
        assert out == CONTENT[: len(out)]
        assert subject.waiting_bytes == added - len(out)


def test_a_chunk_that_is_passed_on_whole_is_not_copied() -> None:
    subject = Incoming()
    chunk = bytes(65_536)
    out: list[bytes] = []
    subject.add(chunk)
    subject.peek(12)
    assert subject.pass_on(100_000, out) == len(chunk)
    assert out[0] is chunk


@pytest.mark.parametrize("taken", ["whole", "in parts", "in place"])
def test_taken_bytes_are_released(taken: str) -> None:
    """It may have been long, and no more data may arrive for a while."""
    subject = Incoming()
    chunk = bytes(1_000)
    held = sys.getrefcount(chunk)
    subject.add(chunk)
    if taken == "in place":
        subject.skip_to(1_000)
    else:
        for size in (1_000,) if taken == "whole" else (400, 600):
            subject.take(size)
    assert sys.getrefcount(chunk) == held


@pytest.mark.parametrize("taken", ["taken", "in place"])
def test_read_bytes_are_released_before_the_next_byte(taken: str) -> None:
    """A client controls that byte: it used to keep 60 MB of each answered request, not counted anywhere."""
    subject = Incoming()
    chunk = bytes(READ_BYTES_MAX + 1) + b"x"
    held = sys.getrefcount(chunk)
    subject.add(chunk)
    if taken == "in place":
        subject.skip_to(READ_BYTES_MAX + 1)
    else:
        subject.take(READ_BYTES_MAX + 1)
    assert sys.getrefcount(chunk) == held
    assert subject.waiting_bytes == 1
    assert subject.take(1) == b"x"


def test_many_small_pieces_are_joined_once() -> None:
    """Not with each piece, or a frame of many pieces would take quadratic time."""
    subject = Incoming()
    for _ in range(100_000):
        subject.add(b"x")
        assert not subject.has(100_001)
    subject.add(b"y")
    assert subject.take(100_001 if subject.has(100_001) else 0) == b"x" * 100_000 + b"y"


@pytest.mark.parametrize("behind", [b"", b"more"])
def test_a_frame_in_many_chunks_is_joined_once(behind: bytes) -> None:
    """Only bytes after the frame make a copy necessary: a client that pipelines pays for it."""
    chunks, chunk = 160, bytes(65_536)
    frame_bytes = chunks * len(chunk)
    subject = Incoming()
    subject.add(frame_bytes.to_bytes(4, "big") + chunk)
    tracemalloc.start()
    try:
        for _ in range(chunks - 2):
            subject.add(chunk)
        subject.add(chunk + behind)
        begun, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        assert subject.take(4) == frame_bytes.to_bytes(4, "big")
        assert len(subject.take(frame_bytes)) == frame_bytes
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    copies = (peak - begun) / frame_bytes
    assert copies < (1.1 if behind else 0.1)
