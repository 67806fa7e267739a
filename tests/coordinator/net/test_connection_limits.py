"""Connection limits: excess connections are closed, and the log names the limit and the largest client."""

import asyncio

from structlog.testing import capture_logs

from muster.coordinator.observability.metrics import RefusedConnection
from tests.coordinator.running_server import HEARTBEAT, Client, running
from tests.waiting import until


async def test_connections_over_the_limit_are_refused_and_the_log_names_the_largest_client() -> None:
    """One line, until some have closed."""
    async with running(connections_max=2) as subject:
        clients = [await subject.connect() for _ in range(2)]
        await until(lambda: subject.metrics.connections == 2)
        with capture_logs() as lines:
            for _ in range(2):
                assert await (await subject.connect()).is_closed()
        assert subject.metrics.connections_accepted == 2
        assert subject.metrics.connections_refused == {RefusedConnection.ALL: 2}
        (line,) = lines
        assert line["log_level"] == "warning"
        reported = {name: line[name] for name in ("limit", "address", "most_of_address")}
        assert reported == {
            "limit": "--connections-max",
            "address": "/127.0.0.1",
            "most_of_address": "/127.0.0.1: 2",
        }
        clients[0].writer.close()
        await until(lambda: subject.metrics.connections == 1)
        third = await subject.connect()
        third.send("Heartbeat", 4, **HEARTBEAT)
        await third.answer()
        with capture_logs() as lines:
            assert await (await subject.connect()).is_closed()
        assert len(lines) == 1


async def test_connections_of_one_address_are_limited_if_that_is_set() -> None:
    """Other addresses are not affected."""
    async with running(max_connections_per_ip=2) as subject:
        first, _second = [await subject.connect() for _ in range(2)]
        await until(lambda: subject.metrics.connections == 2)
        assert await (await subject.connect()).is_closed()
        assert subject.metrics.connections_refused == {RefusedConnection.ADDRESS: 1}
        other = Client(*await asyncio.open_connection("127.0.0.1", subject.server.port, local_addr=("127.0.0.2", 0)))
        other.send("Heartbeat", 4, **HEARTBEAT)
        await other.answer()
        first.writer.close()
        await until(lambda: subject.metrics.connections == 2)
        third = await subject.connect()
        third.send("Heartbeat", 4, **HEARTBEAT)
        await third.answer()


async def test_connections_of_one_principal_are_limited_if_that_is_set() -> None:
    """A connection counts for the principal that it authenticated as last; when it closes its place is freed."""
    async with running(connections_per_principal=1) as subject:
        clients = [await subject.connect() for _ in range(2)]
        listening = subject.server._listening
        await until(lambda: subject.metrics.connections == 2)
        first, second = listening.connections
        assert listening.authenticated(first, "alice")
        assert not listening.authenticated(second, "alice")
        assert subject.metrics.connections_refused == {RefusedConnection.PRINCIPAL: 1}
        assert listening.authenticated(first, "bob")
        assert listening.authenticated(second, "alice")
        first.abort()
        await until(lambda: subject.metrics.connections == 1)
        assert listening.authenticated(second, "bob")
        for client in clients:
            client.writer.close()
