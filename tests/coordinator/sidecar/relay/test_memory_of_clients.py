"""The memory that clients of a sidecar use, before and after they authenticate, and their time limits."""

import pytest

from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.net.memory import EvictionOrder
from muster.events.ids import MemberId
from tests.coordinator.kio_client import frame, with_length
from tests.coordinator.running_server import JOIN
from tests.coordinator.sidecar.relay.test_limits import authenticate, join_of, lets_in
from tests.coordinator.sidecar.relaying import MORE_THAN_SOCKETS_TAKE, Relay, relaying
from tests.coordinator.sidecar.scripted_broker import API_VERSIONS, request, scripted_broker
from tests.waiting import until

NOBODYS = 9_999
KB = 1_024
JOINED = JoinGroupOutcome(member_id=MemberId("m"), generation_id=1)


async def holds(relay: Relay, size: int) -> None:
    await until(lambda: relay.metrics.held_bytes == size)


async def test_unauthenticated_connections_are_closed_first() -> None:
    """Even if others use more."""
    async with (
        scripted_broker() as broker,
        relaying({1: broker}, authenticates=True, held_bytes_max=900 * KB) as relay,
    ):
        lets_in(broker, b"")
        alice, first, second = [await relay.connect(1) for _ in range(3)]
        await authenticate(alice, "PLAIN", b"\0alice\0secret")
        whole = join_of(400 * KB)
        alice.send(whole)
        await until(lambda: relay.groups.parked)
        await holds(relay, len(whole))
        first.send(join_of(300 * KB)[: 200 * KB])
        await holds(relay, len(whole) + 200 * KB)
        second.send(join_of(300 * KB)[: 150 * KB])
        assert await first.rest() == b""
        await holds(relay, len(whole) + 150 * KB)
        relay.groups.release(JOINED)
        assert (await alice.answer())[0] == 7
        await holds(relay, 150 * KB)
        assert relay.metrics.connections_closed_for_memory == 1


async def test_unread_bytes_of_client_and_broker_are_counted() -> None:
    async with (
        scripted_broker() as broker,
        scripted_broker() as slow,
        relaying({1: broker, 2: slow}, frame_bytes_max=2 * MORE_THAN_SOCKETS_TAKE) as relay,
    ):
        client, other = await relay.connect(1), await relay.connect(2)
        client.stop_reading()
        broker.script = lambda requested: requested.answer(bytes(MORE_THAN_SOCKETS_TAKE))
        client.send(request(NOBODYS, 0, 1))
        await until(lambda: relay.metrics.held_bytes)
        client.read_again()
        assert len((await client.answer())[1]) == MORE_THAN_SOCKETS_TAKE
        await holds(relay, 0)
        slow.reads = False
        other.send(request(NOBODYS, 0, 2, bytes(MORE_THAN_SOCKETS_TAKE)))
        await until(lambda: slow.connections and relay.relayed.bytes_to_brokers and relay.metrics.held_bytes)
        slow.connections[0].reads.set()
        assert await other.answer() == (2, b"")
        await holds(relay, 0)


async def test_a_broker_that_owes_a_response_is_awaited() -> None:
    """Not its client, although the start of that response is buffered."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        broker.script = lambda _: None
        client = await relay.connect(1)
        client.send(request(NOBODYS, 0, 1))
        await until(lambda: relay.relayed.bytes_to_brokers)
        (connection,) = relay.listening.connections
        assert connection._eviction_order() is EvictionOrder.AWAITING_ANSWER


async def test_a_client_that_does_not_read_relayed_responses_is_disconnected() -> None:
    async with (
        scripted_broker() as broker,
        relaying({1: broker}, frame_bytes_max=2 * MORE_THAN_SOCKETS_TAKE) as relay,
    ):
        client = await relay.connect(1)
        client.stop_reading()
        broker.script = lambda requested: requested.answer(bytes(MORE_THAN_SOCKETS_TAKE))
        client.send(request(NOBODYS, 0, 1))
        await until(lambda: any(each.unread_since_ms is not None for each in relay.listening.connections))
        relay.now_ms += 120_000
        relay.timers.pass_all()
        await until(lambda: not relay.listening.connections)
        assert relay.metrics.connections_unread_closed == 1
        await holds(relay, 0)


@pytest.mark.parametrize("vanishes", [True, False], ids=["reset", "closed"])
async def test_nothing_stays_counted_when_a_client_has_gone(vanishes: bool) -> None:
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        half, parked = await relay.connect(1), await relay.connect(1)
        half.send(join_of(300 * KB)[: 200 * KB])
        parked.send(join_of(300 * KB), join_of(100))
        await until(lambda: relay.groups.parked and relay.metrics.held_bytes > 500 * KB)
        for client in (half, parked):
            (client.vanish if vanishes else client.close)()
        relay.groups.release(JOINED)
        await until(lambda: not relay.listening.connections)
        while relay.groups.parked:
            relay.groups.release(JOINED)
        await holds(relay, 0)


async def test_authentication_may_not_take_longer_than_an_idle_connection() -> None:
    """Other requests and slow data do not extend the time. An authenticated client is idle when it sends nothing."""
    async with (
        scripted_broker() as broker,
        relaying({1: broker}, authenticates=True, connections_max_idle_ms=10_000) as relay,
    ):
        lets_in(broker, b"")
        alice, asking, trickling = [await relay.connect(1) for _ in range(3)]
        await until(lambda: len(relay.listening.connections) == 3)
        relay.now_ms += 1_000
        await authenticate(alice, "PLAIN", b"\0alice\0secret")
        join = with_length(frame("JoinGroup", 3, **JOIN))
        for n in range(4):
            await alice.ask(request(API_VERSIONS, 0, n))
            await asking.ask(request(API_VERSIONS, 0, n))
            before = relay.metrics.bytes_received
            trickling.send(join[n : n + 1])
            await until(lambda before=before: relay.metrics.bytes_received == before + 1)  # type: ignore[misc]
            relay.now_ms += 2_500
            relay.timers.pass_all()
        assert await asking.rest() == b""
        assert await trickling.rest() == b""
        assert relay.metrics.connections_idle_closed == 2
        assert await alice.ask(request(API_VERSIONS, 0, 1))
