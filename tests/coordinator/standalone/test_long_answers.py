"""Many long responses at once: their buffers have a common limit, and short ones do not wait."""

import asyncio
import tracemalloc
from collections.abc import Callable

import pytest

from muster.coordinator.group.outcomes import DescribedMember, DescribeGroupOutcome
from muster.coordinator.load.answer_memory import AnswerMemory
from muster.coordinator.load.slices import Slices
from muster.coordinator.wire.describe_groups import encode
from muster.coordinator.wire.in_flight import Answered, InFlightRequest
from muster.coordinator.wire.messages import message
from muster.events.ids import GroupId, MemberId
from muster.events.kafka.codec.writing import CHUNK_BYTES
from muster.events.steps import WAIT

KB, MB = 1_024, 1_048_576
ASKED = message(15, 5)
METADATA = bytes(8 * KB)


def members(count: int, metadata: bytes = METADATA) -> tuple[DescribedMember, ...]:
    return tuple(
        DescribedMember(
            member_id=MemberId(f"m{n}"),
            group_instance_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            metadata=metadata,
            assignment=b"",
        )
        for n in range(count)
    )


LONG = DescribeGroupOutcome(members=members(1_250))  # some 10 MB


def write(slices: Slices, outcome: DescribeGroupOutcome, answer: Callable[[Answered], None]) -> Callable[[], None]:
    """Write a response like a DescribeGroups; return what cancels it."""
    in_flight = InFlightRequest(ASKED, slices, answer)
    in_flight.write({"groups": [encode(GroupId("g"), outcome, 5, 0)]})
    return in_flight.cancel


async def all_done(slices: Slices) -> None:
    async with asyncio.timeout(60):
        while slices.waiting:  # noqa: ASYNC110 -- slices set no event
            await asyncio.sleep(0)


def size(answered: Answered) -> int:
    assert isinstance(answered, list)
    return sum(map(len, answered))


async def test_answers_that_are_written_side_by_side_have_a_bound_together() -> None:
    """A quarter of the limit's default, and one response more; each is sent in the end."""
    slices, reported = Slices(), list[int]()
    tracemalloc.start()
    try:
        for _ in range(24):
            write(slices, LONG, lambda answered: reported.append(size(answered)))
        await all_done(slices)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(reported) == 24
    assert set(reported) == {reported[0]}
    assert reported[0] > 10_000_000
    assert peak < 85 * MB


async def test_each_long_entry_waits_for_room() -> None:
    """However many responses start with one; written at once are one response more, and one entry."""
    slices, reported = Slices(AnswerMemory(20 * MB)), list[int]()
    outcome = DescribeGroupOutcome(members=members(20, metadata=bytes(MB)))
    for _ in range(200):
        write(slices, outcome, lambda answered: reported.append(size(answered)))
    most = slices.answer_memory.written_bytes
    while slices.waiting:
        await asyncio.sleep(0)
        most = max(most, slices.answer_memory.written_bytes)
    assert most < 42 * MB
    assert len(reported) == 200


async def test_short_answers_do_not_wait_for_long_ones() -> None:
    """Neither those that are written at once, nor those with many short entries."""
    slices, reported = Slices(AnswerMemory(MB)), list[str]()
    for _ in range(8):
        write(slices, LONG, lambda _: reported.append("long"))
    write(slices, DescribeGroupOutcome(members=members(2)), lambda _: reported.append("short"))
    assert reported == ["short"]
    write(slices, DescribeGroupOutcome(members=members(700, metadata=b"")), lambda _: reported.append("many"))
    await all_done(slices)
    assert reported.index("many") <= 2  # one that was nearly complete may come before it
    assert (reported.count("long"), slices.answer_memory.written_bytes) == (8, 0)


async def test_clients_that_go_give_back_their_room_whether_they_write_or_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.coordinator.load.slices.SLICE_S", 0.0)  # or a response may be written at once
    slices, reported = Slices(AnswerMemory(MB)), list[int]()
    cancels = [write(slices, LONG, lambda answered: reported.append(size(answered))) for _ in range(6)]
    while slices.answer_memory.written_bytes <= MB:  # noqa: ASYNC110 -- nor does the memory
        await asyncio.sleep(0)
    before = len(reported)
    for cancel in cancels[:5]:
        cancel()
    await all_done(slices)
    assert (len(reported), slices.answer_memory.written_bytes) == (before + 1, 0)


async def test_an_answer_that_cannot_be_written_gives_back_its_room() -> None:
    slices, reported = Slices(AnswerMemory(MB)), list[Answered]()
    too_long = DescribeGroupOutcome(members=members(13_000))  # over 100 MB
    for outcome in (too_long, LONG, too_long):
        write(slices, outcome, reported.append)
    await all_done(slices)
    assert sum(isinstance(each, list) for each in reported) == 1
    assert (len(reported), slices.answer_memory.written_bytes) == (3, 0)


@pytest.mark.parametrize("is_full", [True, False])
def test_a_waiting_response_keeps_no_more_long_entries_than_there_was_room_for(is_full: bool) -> None:
    """None, or the one that fills the memory; not as many as with short ones."""
    answer_memory, other = AnswerMemory(0), object()
    answer_memory.take(1)
    assert answer_memory.may_grow(other)
    if not is_full:
        answer_memory.give_back(object(), 1)
    outcome = DescribeGroupOutcome(members=members(20, metadata=bytes(CHUNK_BYTES)))
    steps = ASKED.write_in_steps({"groups": [encode(GroupId("g"), outcome, 5, 0)]}, answer_memory)
    assert next(steps) == WAIT
    if is_full:
        assert answer_memory.written_bytes == 1
    else:
        assert CHUNK_BYTES < answer_memory.written_bytes < CHUNK_BYTES + KB
    steps.close()
    assert answer_memory.written_bytes == is_full
