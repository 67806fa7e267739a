"""The upstream cluster, or a broker of it, is away or hangs: for how long does not matter; in virtual time."""

import asyncio

from structlog.testing import capture_logs

from coordinator.upstream.driver import Driver, Held
from coordinator.upstream.link import UpstreamLink
from coordinator.upstream.shadow import Shadow
from events.ids import GroupId
from tests.coordinator.upstream.simulated import SimulatedBroker
from tests.coordinator.upstream.stage import NAME, unexpected
from tests.faults.process import story


@story
async def test_a_shadow_waits_for_a_cluster_that_is_away_for_hours() -> None:
    """However often it was tried: it was the 1,024th attempt, after 25 minutes, that ended the process."""
    broker = SimulatedBroker(1)
    link = UpstreamLink(broker.address, give_up=unexpected)
    await link.open()
    broker.leave()
    held = Held(GroupId("g"), Shadow(wanted=1))
    with capture_logs():
        driving = asyncio.create_task(Driver(link, NAME, session_timeout_ms=1_800_000).drive(held))
        await asyncio.wait({driving}, timeout=6 * 3600)
    assert not driving.done(), driving.exception()
    assert "Connect call failed" in held.trouble
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    await link.close()
