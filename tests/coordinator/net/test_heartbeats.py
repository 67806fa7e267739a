"""The cache of the fast path: its answers, evictions and size."""

import sys
from types import FrameType

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.connections import ConnectionRecord
from muster.coordinator.group.outcomes import HeartbeatOutcome
from muster.coordinator.group.soft_state import Session
from muster.coordinator.net import listening
from muster.coordinator.net.heartbeats import (
    HEARTBEAT_BYTES_MAX,
    SHARED_BYTES_MAX,
    UNSHARED_BYTES_MAX,
    HeartbeatCache,
    SharedBytes,
)
from muster.coordinator.runtime.partition.group_context import Ticket, new_context
from muster.events.ids import GroupId, MemberId
from tests.coordinator.kio_client import frame, parse, versions, with_length
from tests.coordinator.running_server import running
from tests.coordinator.scripted import ScriptedTicket
from tests.coordinator.serving import enter, heartbeat_body, serving, sync_body
from tests.coordinator.sidecar.relaying import relaying
from tests.coordinator.sidecar.scripted_broker import scripted_broker
from tests.waiting import until

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
    cache = HeartbeatCache(SharedBytes())
    ticket = keep(cache, heartbeat(version))
    payload = cache.answer(version, heartbeat(version, correlation_id=8)[8:], 123)
    assert payload is not None
    assert parse("Heartbeat", version, payload).error_code is ErrorCode.none
    assert ticket.touched == [123]
    assert cache.hits == 1


def test_any_other_heartbeat_is_not() -> None:
    cache = HeartbeatCache(SharedBytes())
    ticket = keep(cache, heartbeat(2))
    assert cache.answer(1, heartbeat(1)[8:], 0) is None  # the same bytes, but answered in another form
    assert cache.answer(2, heartbeat(2, generation_id=2)[8:], 0) is None
    assert cache.answer(2, heartbeat(2, member_id="n")[8:], 0) is None
    assert (ticket.touched, cache.hits) == ([], 0)


def test_a_ticket_that_is_refused_is_forgotten() -> None:
    cache = HeartbeatCache(SharedBytes())
    ticket = keep(cache, heartbeat())
    ticket.valid = False
    assert cache.answer(4, heartbeat()[8:], 0) is None
    ticket.valid = True
    assert cache.answer(4, heartbeat()[8:], 0) is None


def test_a_member_has_one_entry() -> None:
    """The bytes of the next generation replace those of the older one."""
    cache = HeartbeatCache(SharedBytes())
    keep(cache, heartbeat(generation_id=1))
    keep(cache, heartbeat(generation_id=2))
    assert cache.answer(4, heartbeat(generation_id=1)[8:], 0) is None
    assert cache.answer(4, heartbeat(generation_id=2)[8:], 0) is not None


def fill(cache: HeartbeatCache, members: int, *, length: int = 60) -> list[str]:
    """Cache a heartbeat of this many members; return their ids."""
    names = [f"{number}".rjust(length, "m") for number in range(members)]
    for name in names:
        keep(cache, heartbeat(member_id=name), name)
    return names


def answered(cache: HeartbeatCache, names: list[str]) -> list[str]:
    return [name for name in names if cache.answer(4, heartbeat(member_id=name)[8:], 0) is not None]


@pytest.mark.parametrize("length", [60, HEARTBEAT_BYTES_MAX // 2])
def test_without_memory_that_is_shared_the_oldest_members_make_room(length: int) -> None:
    """They only use memory that is not counted."""
    cache = HeartbeatCache(SharedBytes(0))
    names = fill(cache, 1_000, length=length)
    fill(cache, 1_000, length=length)  # each replaces its own
    kept = answered(cache, names)
    assert kept == names[-len(kept) :]
    entry_bytes = 512 + 2 * len(heartbeat(member_id=names[0])[8:])
    assert len(kept) == UNSHARED_BYTES_MAX // entry_bytes


def test_a_connection_that_speaks_for_a_thousand_members_caches_them_all() -> None:
    cache = HeartbeatCache(SharedBytes())
    names = fill(cache, 1_000)
    assert answered(cache, names) == names


def test_the_memory_that_is_shared_bounds_all_connections_together() -> None:
    """A connection can use what another releases; each one's own part is always available."""
    shared = SharedBytes()
    first, second, third = (HeartbeatCache(shared) for _ in range(3))
    names = fill(first, SHARED_BYTES_MAX // 512)
    held = len(answered(first, names))
    assert SHARED_BYTES_MAX / 800 < held < SHARED_BYTES_MAX / 512
    alone = len(answered(second, fill(second, 100)))
    assert 10 < alone < 30
    first.end()
    assert len(answered(third, fill(third, held + 100))) == held
    assert len(answered(second, fill(second, 100))) == alone


def test_a_connection_that_is_gone_caches_nothing_any_more() -> None:
    cache = HeartbeatCache(SharedBytes())
    names = fill(cache, 10)
    cache.end()
    assert answered(cache, names) == answered(cache, fill(cache, 10)) == []


def test_after_clearing_the_cache_has_its_whole_size() -> None:
    cache = HeartbeatCache(SharedBytes(0))
    for _ in range(3):
        names = fill(cache, 20)
        assert answered(cache, names) == names
        cache.clear()


def test_long_heartbeats_are_not_kept() -> None:
    cache = HeartbeatCache(SharedBytes())
    content = heartbeat(member_id="m" * HEARTBEAT_BYTES_MAX)
    keep(cache, content, "m" * HEARTBEAT_BYTES_MAX)
    assert cache.answer(4, content[8:], 0) is None


async def test_the_heartbeats_of_a_group_that_is_stable_are_answered_without_being_decoded() -> None:
    """With real groups behind it: from the second heartbeat on, which has the same bytes."""
    async with serving() as muster:
        connection = await muster.connect("app")
        joined = await enter(connection, 9)
        await connection.ask("SyncGroup", 5, **sync_body(joined))
        for _ in range(3):
            assert (await connection.ask("Heartbeat", 4, **heartbeat_body(joined)))["error_code"] == 0
        assert muster.metrics.fast_heartbeats == 2


def test_a_known_heartbeat_costs_three_python_calls() -> None:
    """Most requests are heartbeats: the lookup, the check that the group is unchanged, and the session."""
    context = new_context(GROUP, None)
    session = Session(timeout_ms=10_000, last_seen_ms=0, deadline_ms=10_000)
    cache, content = HeartbeatCache(SharedBytes()), heartbeat()
    cache.keep(content, GROUP, MemberId("m"), Ticket(context, context.version, session, None, ConnectionRecord()))
    calls: list[str] = []

    def note(executed: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls.append(executed.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        cache.answer(4, content[8:], 1_000)
    finally:
        sys.setprofile(before)
    assert (calls, session.deadline_ms) == (["answer", "accept", "refresh"], 11_000)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> SharedBytes:
    """The memory shared by the listener's connections."""
    one = SharedBytes()
    monkeypatch.setattr(listening, "SharedBytes", lambda: one)
    return one


def heartbeats_of(members: int) -> list[bytes]:
    return [with_length(heartbeat(member_id=f"{number}".rjust(60))) for number in range(members)]


async def test_a_connection_of_a_standalone_coordinator_that_is_gone_gives_back_what_is_shared(
    shared: SharedBytes,
) -> None:
    async with running() as subject:
        subject.groups.gives_tickets = True
        client = await subject.connect()
        for _ in range(2):
            for each in heartbeats_of(100):
                client.writer.write(each)
                await client.answer()
        assert subject.metrics.fast_heartbeats == 100
        assert shared.left_bytes < SHARED_BYTES_MAX
        client.writer.close()
        await until(lambda: shared.left_bytes == SHARED_BYTES_MAX)


async def test_a_connection_through_a_sidecar_that_is_gone_gives_back_what_is_shared(shared: SharedBytes) -> None:
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        relay.groups.gives_tickets = True
        relay.groups.outcome = lambda _: HeartbeatOutcome(error=ErrorCode.none)
        client = await relay.connect(1)
        for _ in range(2):
            for each in heartbeats_of(100):
                await client.ask(each)
        assert relay.metrics.fast_heartbeats == 100
        assert shared.left_bytes < SHARED_BYTES_MAX
        client.vanish()
        await until(lambda: shared.left_bytes == SHARED_BYTES_MAX)
