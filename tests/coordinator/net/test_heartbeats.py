"""The cache of the fast path: what it answers, what it forgets, how much it holds."""

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.net.heartbeats import CACHED_BYTES_MAX, HEARTBEAT_BYTES_MAX, MEMBERS_MAX, HeartbeatCache
from muster.events.ids import GroupId, MemberId
from tests.coordinator.kio_client import frame, parse, versions
from tests.coordinator.scripted import ScriptedTicket
from tests.coordinator.serving import enter, heartbeat_body, serving, sync_body

GROUP = GroupId("orders")


def heartbeat(version: int = 4, *, generation_id: int = 1, member_id: str = "m", correlation_id: int = 7) -> bytes:
    return frame(
        "Heartbeat",
        version,
        correlation_id=correlation_id,
        group_id=GROUP,
        generation_id=generation_id,
        member_id=member_id,
    )


def keep(cache: HeartbeatCache, content: bytes, member_id: str = "m") -> ScriptedTicket:
    ticket = ScriptedTicket()
    cache.keep(content, GROUP, MemberId(member_id), ticket)
    return ticket


@pytest.mark.parametrize("version", versions("Heartbeat"))
def test_the_same_heartbeat_is_answered_whatever_its_correlation_id(version: int) -> None:
    cache = HeartbeatCache()
    ticket = keep(cache, heartbeat(version))
    payload = cache.answer(version, heartbeat(version, correlation_id=8)[8:], 123)
    assert payload is not None
    assert parse("Heartbeat", version, payload).error_code is ErrorCode.none
    assert ticket.touched == [123]
    assert cache.hits == 1


def test_any_other_heartbeat_is_not() -> None:
    cache = HeartbeatCache()
    ticket = keep(cache, heartbeat(2))
    assert cache.answer(1, heartbeat(1)[8:], 0) is None  # the same bytes, but answered in another form
    assert cache.answer(2, heartbeat(2, generation_id=2)[8:], 0) is None
    assert cache.answer(2, heartbeat(2, member_id="n")[8:], 0) is None
    assert (ticket.touched, cache.hits) == ([], 0)


def test_a_ticket_that_is_refused_is_forgotten() -> None:
    cache = HeartbeatCache()
    ticket = keep(cache, heartbeat())
    ticket.valid = False
    assert cache.answer(4, heartbeat()[8:], 0) is None
    ticket.valid = True
    assert cache.answer(4, heartbeat()[8:], 0) is None


def test_a_member_has_one_entry() -> None:
    """The bytes of an older generation make room for those of the next."""
    cache = HeartbeatCache()
    keep(cache, heartbeat(generation_id=1))
    keep(cache, heartbeat(generation_id=2))
    assert cache.answer(4, heartbeat(generation_id=1)[8:], 0) is None
    assert cache.answer(4, heartbeat(generation_id=2)[8:], 0) is not None


def test_the_oldest_member_makes_room() -> None:
    cache = HeartbeatCache()
    for number in range(MEMBERS_MAX + 1):
        keep(cache, heartbeat(member_id=f"m{number}"), f"m{number}")
    assert cache.answer(4, heartbeat(member_id="m0")[8:], 0) is None
    assert cache.answer(4, heartbeat(member_id="m1")[8:], 0) is not None
    assert cache.answer(4, heartbeat(member_id=f"m{MEMBERS_MAX}")[8:], 0) is not None


def test_all_of_a_connection_together_take_no_more_than_is_not_counted() -> None:
    cache = HeartbeatCache()
    names = [f"{number}".rjust(HEARTBEAT_BYTES_MAX // 2, "m") for number in range(MEMBERS_MAX)]
    for _ in range(2):  # each replaces its own
        for name in names:
            keep(cache, heartbeat(member_id=name), name)
    answered = [name for name in names if cache.answer(4, heartbeat(member_id=name)[8:], 0) is not None]
    assert answered == names[-len(answered) :]
    frame_bytes = len(heartbeat(member_id=names[0]))
    assert CACHED_BYTES_MAX - frame_bytes < len(answered) * frame_bytes <= CACHED_BYTES_MAX + frame_bytes


def test_after_clearing_there_is_room_for_as_many() -> None:
    cache = HeartbeatCache()
    count = CACHED_BYTES_MAX // HEARTBEAT_BYTES_MAX
    names = [f"{number}".rjust(HEARTBEAT_BYTES_MAX // 2, "m") for number in range(count)]
    for _ in range(3):
        for name in names:
            keep(cache, heartbeat(member_id=name), name)
        assert all(cache.answer(4, heartbeat(member_id=name)[8:], 0) is not None for name in names)
        cache.clear()


def test_long_heartbeats_are_not_kept() -> None:
    cache = HeartbeatCache()
    content = heartbeat(member_id="m" * HEARTBEAT_BYTES_MAX)
    keep(cache, content, "m" * HEARTBEAT_BYTES_MAX)
    assert cache.answer(4, content[8:], 0) is None


async def test_the_heartbeats_of_a_group_that_is_stable_are_answered_without_being_decoded() -> None:
    """With the real groups behind it: from the second one on, which has the same bytes."""
    async with serving() as muster:
        connection = await muster.connect("app")
        joined = await enter(connection, 9)
        await connection.ask("SyncGroup", 5, **sync_body(joined))
        for _ in range(3):
            assert (await connection.ask("Heartbeat", 4, **heartbeat_body(joined)))["error_code"] == 0
        assert muster.metrics.fast_heartbeats == 2
