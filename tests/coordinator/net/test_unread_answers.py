"""Clients that do not read their responses: how long the unsent data is kept."""

import asyncio

from tests.coordinator.running_server import HEARTBEAT, Client, Running, running
from tests.waiting import until

ANSWERS = 40
GROUPS = [f"g{n}" for n in range(40)]  # of 30 KB each, more than sockets buffer


async def owed(subject: Running) -> Client:
    """A client with many pending responses that reads none of them."""
    before = stuck(subject)
    client = await subject.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for number in range(ANSWERS):
        client.send("DescribeGroups", 5, number, groups=GROUPS, include_authorized_operations=False)
    await until(lambda: stuck(subject) == before + 1)
    return client


def stuck(subject: Running) -> int:
    return sum(each.unread_since_ms is not None for each in subject.server._listening.connections)


async def test_a_client_that_does_not_read_its_responses_is_disconnected() -> None:
    """A client that reads in time gets all of them, and others are not affected."""
    async with running(unread_answers_max_ms=10_000) as subject:
        unread = await owed(subject)
        subject.now_ms += 5_000
        slow, other = await owed(subject), await subject.connect()
        subject.now_ms += 4_999
        subject.timers.pass_all()
        other.send("Heartbeat", 4, 1, **HEARTBEAT)
        assert (await other.answer())[0] == 1
        assert subject.metrics.connections == 3
        subject.now_ms += 1
        subject.timers.pass_all()
        await until(lambda: subject.metrics.connections == 2)
        assert subject.metrics.connections_unread_closed == 1
        unread.writer.close()
        slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert [(await slow.answer())[0] for _ in range(ANSWERS)] == list(range(ANSWERS))
        await until(lambda: not stuck(subject))
        subject.now_ms += 10_000
        subject.timers.pass_all()
        other.send("Heartbeat", 4, 2, **HEARTBEAT)
        assert (await other.answer())[0] == 2
        assert subject.metrics.connections == 2


async def test_a_draining_client_that_does_not_read_is_disconnected() -> None:
    """Closing an idle connection waits for the client to read, but with a limit."""
    async with running(connections_max_idle_ms=10_000, unread_answers_max_ms=1_000_000) as subject:
        client = await owed(subject)
        subject.now_ms += 10_000
        subject.timers.pass_all()
        (connection,) = subject.server._listening.connections
        assert connection.is_closing
        subject.now_ms += 999
        subject.timers.pass_all()
        await asyncio.sleep(0)
        assert subject.metrics.connections == 1
        subject.now_ms += 1
        subject.timers.pass_all()
        await until(lambda: subject.metrics.connections == 0)
        assert subject.metrics.connections_idle_closed == 1
        client.writer.close()


async def test_a_client_that_does_not_read_does_not_delay_shutdown() -> None:
    async with running() as subject:
        client = await owed(subject)
        closing = asyncio.create_task(subject.server._listening.close(within_s=0.05))
        await asyncio.wait({closing}, timeout=10)
        held_up = not closing.done()
        client.writer.transport.abort()
        await closing
        assert not held_up
