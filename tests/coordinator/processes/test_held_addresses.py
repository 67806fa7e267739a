"""The addresses of the processes: an address in use is waited for, and none is lost to another program later."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import pytest
from structlog.testing import capture_logs

from muster.coordinator.assembly import CannotServe
from muster.coordinator.processes import held_addresses
from muster.coordinator.processes.held_addresses import TAKEN, hold_addresses
from muster.coordinator.settings.loading import load_settings
from muster.coordinator.settings.settings import Settings
from tests.brokers.broker import lasting_ports
from tests.waiting import until

FAMILIES = {"127.0.0.1": socket.AF_INET, "[::1]": socket.AF_INET6}


def of_host(host: str, port: int) -> Settings:
    return load_settings({"upstream": "kafka:9092", "processes": 2, "listen": f"{host}:{port}"}, [], None)


@asynccontextmanager
async def holding(settings: Settings) -> AsyncIterator[asyncio.Task[bool]]:
    """A supervisor that waits for its addresses, and then reserves them."""
    with ExitStack() as stack:
        task = asyncio.create_task(hold_addresses(settings, asyncio.Event(), stack))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("host", FAMILIES)
async def test_an_address_is_the_edges_alone_before_any_of_them_listens(host: str) -> None:
    """Clients are refused until then; another supervisor finds it taken, and each frontend may listen there."""
    (port,) = lasting_ports(1)
    at = host.strip("[]"), port
    async with holding(of_host(host, port)) as held:
        assert await held
        with socket.socket(FAMILIES[host]) as client, pytest.raises(ConnectionRefusedError):
            client.connect(at)
        with capture_logs() as logged:
            async with holding(of_host(host, port)) as other:
                await until(lambda: logged or other.done())
        assert [each["event"] for each in logged] == [TAKEN]
        frontends = [socket.create_server(at, family=FAMILIES[host], reuse_port=True) for _ in range(2)]
        for _ in range(20):
            with socket.create_connection(at):
                pass
        for frontend in frontends:
            frontend.close()


async def test_an_address_that_stays_in_use_belongs_to_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor waits for it, as its user may be stopping; also for the owner's address."""
    monkeypatch.setattr(held_addresses, "FREE_WITHIN_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with holding(of_host("127.0.0.1", port)) as held:
            with pytest.raises(CannotServe, match=f"--listen 127.0.0.1:{port}: Address already in use"):
                await held
    async with holding(of_host("127.0.0.1", port)) as held:
        assert await held


async def test_an_invalid_host_is_reported() -> None:
    async with holding(of_host("no-such-host.invalid", 1)) as held:
        with pytest.raises(CannotServe, match=r"--listen no-such-host\.invalid:1: "):
            await held


async def test_connections_in_time_wait_do_not_block_the_address() -> None:
    """TIME_WAIT connections of a Muster that listened there a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as alone:
        at = alone.getsockname()
        with socket.create_connection(at) as client:
            alone.accept()[0].close()
            assert client.recv(1) == b""
    async with holding(of_host(*at)) as held:
        assert await held
