"""The upstream cluster, or a broker of it, is away or hangs: for how long does not matter; in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from structlog.testing import capture_logs

from coordinator.upstream.connections import UpstreamUnavailable
from coordinator.upstream.driver import Driver, Held
from coordinator.upstream.link import UpstreamLink
from coordinator.upstream.shadow import Shadow
from events.ids import GroupId
from tests.coordinator.upstream.simulated import SimulatedBroker
from tests.coordinator.upstream.stage import NAME, unexpected
from tests.coordinator.upstream.test_link import error_of, heartbeat
from tests.faults.process import story


@asynccontextmanager
async def linked(*brokers: SimulatedBroker) -> AsyncIterator[UpstreamLink]:
    """An open link to them, until the block ends."""
    link = UpstreamLink(",".join(broker.address for broker in brokers), give_up=unexpected)
    await link.open()
    yield link
    await link.close()


@story
async def test_a_shadow_waits_for_a_cluster_that_is_away_for_hours() -> None:
    """However often it was tried: it was the 1,024th attempt, after 25 minutes, that ended the process."""
    broker = SimulatedBroker(1)
    async with linked(broker) as link:
        broker.leave()
        held = Held(GroupId("g"), Shadow(wanted=1))
        with capture_logs():
            driving = asyncio.create_task(Driver(link, NAME, session_timeout_ms=1_800_000).drive(held))
            await asyncio.wait({driving}, timeout=6 * 3600)
        assert not driving.done(), driving.exception()
        assert "Connect call failed" in held.trouble
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)


@story
async def test_a_connection_that_takes_no_request_any_more_is_replaced() -> None:
    """Nothing was sent, so that the coordinator may be asked again: uvloop says it as no OSError."""
    broker = SimulatedBroker(1)
    async with linked(broker) as link:
        await link.ask(1, heartbeat("g"), HeartbeatResponse)
        for connection in broker.open:
            connection.is_refusing_writes = True
        with pytest.raises(UpstreamUnavailable, match="handler is closed"):
            await link.ask(1, heartbeat("g"), HeartbeatResponse)
        await link.ask_coordinator("g", heartbeat("g"), HeartbeatResponse, error_of=error_of)
