"""Memory of requests and responses: which connections are closed at the limit, which are not, and its release."""

import asyncio
from random import Random
from typing import Any

import structlog
from kio.schema.errors import ErrorCode
from prometheus_client import CollectorRegistry

from muster.coordinator.assembly import new_owner
from muster.coordinator.clock import SystemClock
from muster.coordinator.group.outcomes import DescribedMember, DescribeGroupOutcome, JoinedMember, JoinGroupOutcome
from muster.coordinator.load.answer_memory import AnswerMemory
from muster.coordinator.load.slices import Slices
from muster.coordinator.net.memory import FREE_BYTES, EvictionOrder, Memory
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.offsets.memory import MemoryOffsetStore
from muster.coordinator.settings.settings import Settings
from muster.events.ids import MemberId
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from tests.coordinator.kio_client import frame, parse, with_length
from tests.coordinator.running_server import DESCRIBE, HEARTBEAT, JOIN, JOINED, Running, running
from tests.waiting import until

KB, MB = 1_024, 1_048_576
MORE_THAN_SOCKETS_TAKE = 40_000_000


class FakeConnection:
    """A connection that closes when it is evicted."""

    def __init__(self, name: str, eviction_order: EvictionOrder, evicted: list[str], whose: str) -> None:
        self.client_host = name
        self.whose = whose
        self.eviction_order = eviction_order
        self._evicted = evicted

    def evict(self) -> None:
        self._evicted.append(self.client_host)


class LimitedMemory:
    """A memory with 100 KB for connections, and the evicted ones."""

    def __init__(self) -> None:
        self.metrics = ServerMetrics({})
        self.answer_memory = AnswerMemory(25 * KB)
        self.memory = Memory(125 * KB, self.metrics, self.answer_memory)
        self.evicted: list[str] = []

    def new(self, name: str, eviction_order: EvictionOrder, whose: str | None = None) -> FakeConnection:
        return FakeConnection(name, eviction_order, self.evicted, whose or name)


def test_the_lowest_priority_is_closed_first_and_then_the_largest() -> None:
    subject = LimitedMemory()
    named = {
        subject.new("stranger", EvictionOrder.UNAUTHENTICATED): 17,
        subject.new("small", EvictionOrder.STALLED): 18,
        subject.new("large", EvictionOrder.STALLED): 20,
        subject.new("parked", EvictionOrder.AWAITING_ANSWER): 40,
    }
    for holder, size in named.items():
        subject.memory.hold(holder, size * KB)
    assert subject.evicted == []
    for n in range(8):
        subject.memory.hold(subject.new(f"newcomer {n}", EvictionOrder.AWAITING_ANSWER), 30 * KB)
    assert subject.evicted[:4] == ["stranger", "large", "small", "parked"]
    assert subject.metrics.connections_closed_for_memory == len(subject.evicted)


def test_a_connection_that_takes_too_much_at_once_is_closed_itself() -> None:
    subject = LimitedMemory()
    small, large = subject.new("small", EvictionOrder.STALLED), subject.new("large", EvictionOrder.STALLED)
    subject.memory.hold(small, 50 * KB)
    subject.memory.hold(large, 60 * KB)
    assert subject.evicted == ["large"]
    assert subject.metrics.held_bytes == 50 * KB


def test_a_connection_that_parks_more_than_half_is_closed_first() -> None:
    """The others do not matter; its largest connection goes first."""
    subject = LimitedMemory()
    for n in range(3):
        subject.memory.hold(subject.new(f"parked {n}", EvictionOrder.AWAITING_ANSWER, "mallory"), (20 + n) * KB)
    subject.memory.hold(subject.new("half sent", EvictionOrder.STALLED, "alice"), 40 * KB)
    assert subject.evicted == ["parked 2"]
    subject.memory.hold(subject.new("another", EvictionOrder.AWAITING_ANSWER, "bob"), 30 * KB)
    assert subject.evicted == ["parked 2", "half sent"]


def test_the_log_names_the_address_whose_connections_used_most() -> None:
    """Its connections are added up, even if another address has a larger one."""
    subject = LimitedMemory()
    for name, size in (("a", 17), ("a", 17), ("b", 18)):
        subject.memory.hold(subject.new(name, EvictionOrder.STALLED), size * KB)
    with structlog.testing.capture_logs() as lines:
        for name, size in (("c", 48), ("d", 40)):
            subject.memory.hold(subject.new(name, EvictionOrder.AWAITING_ANSWER), size * KB)
    (line,) = lines
    assert (line["connections"], line["most_by"], line["held_bytes"]) == (3, "a", 52 * KB)


class CountedConnection(FakeConnection):
    """Counts how often its eviction order is read."""

    times = 0

    @property
    def eviction_order(self) -> EvictionOrder:
        CountedConnection.times += 1
        return EvictionOrder.STALLED

    @eviction_order.setter
    def eviction_order(self, _order: EvictionOrder) -> None:
        """Always stalled."""


def test_the_victim_is_chosen_once_for_many() -> None:
    """Thousands of connections grow a little at a time: none of them blocks the loop for long."""
    CountedConnection.times = 0
    subject = LimitedMemory()
    metrics = ServerMetrics({})
    memory = Memory(100_000 * KB, metrics, AnswerMemory(0))
    count = 5_000
    with structlog.testing.capture_logs() as lines:
        for n in range(2 * count):
            memory.hold(CountedConnection(str(n), EvictionOrder.STALLED, subject.evicted, f"of {n % 100}"), 20 * KB)
    assert metrics.connections_closed_for_memory == len(subject.evicted) >= count
    assert metrics.held_bytes <= 100_000 * KB
    assert CountedConnection.times < 20 * count
    assert len(lines) < 30
    assert sum(line["connections"] for line in lines) == len(subject.evicted)


def test_a_usual_request_is_not_counted() -> None:
    """It is never evicted, however much the others use."""
    subject = LimitedMemory()
    many = [subject.new(str(n), EvictionOrder.UNAUTHENTICATED) for n in range(100)]
    for holder in many:
        subject.memory.hold(holder, FREE_BYTES)
    assert (subject.evicted, subject.metrics.held_bytes) == ([], 0)


def test_used_bytes_are_counted() -> None:
    random = Random(11)
    subject = LimitedMemory()
    holders = [subject.new(str(n), random.choice(list(EvictionOrder)), random.choice("ab")) for n in range(9)]
    held: dict[str, int] = {}
    for _ in range(3_000):
        holder, size = random.choice(holders), random.randrange(60 * KB)
        before = len(subject.evicted)
        subject.memory.hold(holder, size)
        held[holder.client_host] = size if size > FREE_BYTES else 0
        for gone in subject.evicted[before:]:
            held[gone] = 0
        assert subject.metrics.held_bytes == sum(held.values()) <= 100 * KB


def test_no_connection_is_closed_for_answers_that_are_being_written() -> None:
    """They count, but eviction would not free them; they have a separate limit, and connections have the rest."""
    subject, answer = LimitedMemory(), object()
    subject.answer_memory.take(1_000 * KB)
    assert subject.metrics.held_bytes == 1_000 * KB
    for n in range(5):
        subject.memory.hold(subject.new(str(n), EvictionOrder.AWAITING_ANSWER), 20 * KB)
    assert subject.evicted == []
    subject.answer_memory.give_back(answer, 1_000 * KB)
    assert subject.metrics.held_bytes == 100 * KB
    subject.memory.hold(subject.new("greedy", EvictionOrder.STALLED), 17 * KB)
    assert subject.evicted == ["greedy"]


def test_they_have_a_quarter_of_what_is_set() -> None:
    given: dict[str, Any] = {"log": "memory:", "queued_max_request_bytes": 40 * MB, "frame_bytes_max": MB}
    settings = Settings(**given)
    owner = new_owner(settings, MemoryEventLog(MemoryStorage()), MemoryOffsetStore(), SystemClock())
    assert (owner.slices.answer_memory.bytes_max, Slices().answer_memory.bytes_max) == (10 * MB, 64 * MB)


# ---- connections ---------------------------------------------------------------------------------


def half_sent(size: int) -> bytes:
    """The first bytes of a much longer request."""
    whole = with_length(frame("JoinGroup", 3, **JOIN | {"protocols": [{"name": "range", "metadata": bytes(2 * size)}]}))
    return whole[:size]


def join_of(size: int) -> bytes:
    return with_length(frame("JoinGroup", 3, **JOIN | {"protocols": [{"name": "range", "metadata": bytes(size)}]}))


async def holds(subject: Running, size: int) -> None:
    await until(lambda: subject.metrics.held_bytes == size)


async def test_half_sent_requests_give_way_and_small_ones_are_always_read() -> None:
    """The join that ends a rebalance may be among those that arrive when the memory is full."""
    async with running(queued_max_request_bytes=1_000 * KB) as subject:
        first, second, third = [await subject.connect() for _ in range(3)]
        first.writer.write(half_sent(300 * KB))
        await holds(subject, 300 * KB)
        second.writer.write(half_sent(400 * KB))
        await holds(subject, 700 * KB)
        third.writer.write(half_sent(350 * KB))
        assert await second.is_closed()
        await holds(subject, 650 * KB)
        last = await subject.connect()
        last.send("JoinGroup", 3, 1, **JOIN)
        await until(lambda: len(subject.groups.parked) == 1)
        subject.groups.release(JOINED)
        assert (await last.answer())[0] == 1
        assert subject.metrics.connections_closed_for_memory == 1
        first.writer.close()
        third.writer.close()
        await holds(subject, 0)


async def test_a_request_that_waits_for_us_stays_until_it_is_answered() -> None:
    """Half-sent ones, and those whose client does not read, are evicted first."""
    async with running(queued_max_request_bytes=1_000 * KB) as subject:
        parked, half = [await subject.connect() for _ in range(2)]
        whole = join_of(700 * KB)
        parked.writer.write(whole)
        await until(lambda: len(subject.groups.parked) == 1)
        await holds(subject, len(whole))
        half.writer.write(half_sent(400 * KB))
        assert await half.is_closed()
        subject.groups.release(JOINED)
        assert parse("JoinGroup", 3, (await parked.answer())[1]).error_code is ErrorCode.none
        await holds(subject, 0)


async def test_answers_that_are_not_read_count_and_go_first() -> None:
    async with running(queued_max_request_bytes=2_100 * KB) as subject:
        subject.groups.outcome = lambda _: None
        parked, greedy = await subject.connect(), await subject.connect()
        whole = join_of(1_500 * KB)
        parked.writer.write(whole)
        await until(lambda: len(subject.groups.parked) == 1)
        await holds(subject, len(whole))
        greedy.writer.transport.pause_reading()  # type: ignore[attr-defined]
        greedy.send("JoinGroup", 3, **JOIN)
        await until(lambda: len(subject.groups.parked) == 2)
        subject.groups.parked.reverse()
        large = JoinedMember(member_id=MemberId("m"), group_instance_id=None, metadata=bytes(MORE_THAN_SOCKETS_TAKE))
        subject.groups.release(JoinGroupOutcome(member_id=MemberId("m"), generation_id=1, members=(large,)))
        await until(lambda: subject.metrics.connections_closed_for_memory == 1)
        await until(lambda: subject.metrics.connections == 1)
        await holds(subject, len(whole))
        subject.groups.release(JOINED)
        assert (await parked.answer())[0] == 7


async def test_nothing_is_counted_when_all_have_disconnected() -> None:
    async with running() as subject:
        clients = [await subject.connect() for _ in range(3)]
        clients[0].writer.write(half_sent(200 * KB))
        clients[1].writer.write(join_of(300 * KB))
        clients[2].writer.write(join_of(10) + half_sent(400 * KB))
        await until(lambda: subject.metrics.held_bytes >= 900 * KB)
        for client in clients:
            client.writer.transport.abort()
        await holds(subject, 0)


async def test_long_answers_for_many_clients_stay_within_a_small_limit() -> None:
    """At most a quarter of it and one response more, though together they take three times as much; each client gets
    its own.
    """
    member = DescribedMember(
        member_id=MemberId("m"), group_instance_id=None, client_id="", client_host="", metadata=bytes(140),
        assignment=b"",
    )  # fmt: skip
    async with running(queued_max_request_bytes=40 * MB) as subject:
        subject.groups.outcome = lambda _: None
        answer_memory, most = subject.service.slices.answer_memory, 0
        clients = [await subject.connect() for _ in range(8)]
        for client in clients:
            client.send("DescribeGroups", 5, **DESCRIBE)
        await until(lambda: len(subject.groups.parked) == 8)
        for _ in clients:
            subject.groups.release(DescribeGroupOutcome(members=(member,) * 30_000))
        reading = asyncio.gather(*(client.answer() for client in clients))
        while not reading.done():
            most = max(most, answer_memory.written_bytes)
            await asyncio.sleep(0)
        assert {len(answer) > 4 * MB for _, answer in await reading} == {True}
        assert most < 15 * MB
        await until(lambda: subject.metrics.held_bytes == 0)


async def test_used_memory_is_a_metric() -> None:
    registry = CollectorRegistry()
    async with running() as subject:
        registry.register(subject.metrics)
        client = await subject.connect()
        client.writer.write(half_sent(200 * KB))
        await holds(subject, 200 * KB)
        assert registry.get_sample_value("muster_held_bytes") == 200 * KB
        assert registry.get_sample_value("muster_connections_closed_for_memory_total") == 0


async def test_the_rest_of_a_request_that_trickles_in_does_not_keep_a_connection() -> None:
    """The whole request has connections.max.idle.ms from its first byte."""
    async with running(connections_max_idle_ms=10_000) as subject:
        trickling, talking = await subject.connect(), await subject.connect()
        join = with_length(frame("JoinGroup", 3, **JOIN))
        received = 0
        for n in range(5):
            trickling.writer.write(join[n : n + 1])
            talking.send("Heartbeat", 4, n, **HEARTBEAT)
            await talking.answer()
            received = subject.metrics.bytes_received
            subject.now_ms += 2_500
            subject.timers.pass_all()
        assert await trickling.is_closed()
        assert received < subject.metrics.bytes_received + len(join)
        assert subject.metrics.connections_idle_closed == 1
        talking.send("Heartbeat", 4, 9, **HEARTBEAT)
        assert (await talking.answer())[0] == 9
