"""Sessions as the running process ends them, in virtual time. The rules of their length: `group/test_sessions.py`."""

import asyncio

from kio.schema.errors import ErrorCode

from muster.events.log.memory import MemoryStorage
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate


def test_a_session_that_became_shorter_ends_in_time() -> None:
    """ST8: the restarted member's own timeout counts from its first heartbeat on, though a later end was planned."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage()).start()
        told = await process.stable_group("a", "b")
        back = await process.join("b", session_timeout_ms=1_000)
        assert (await process.heartbeat(back)).error is ErrorCode.none
        await asyncio.sleep(0.9)
        assert (await process.heartbeat(told["a"])).error is ErrorCode.none
        await asyncio.sleep(0.2)
        assert (await process.heartbeat(told["a"])).error is ErrorCode.rebalance_in_progress
        assert (await process.heartbeat(back)).error is ErrorCode.unknown_member_id
        await process.runtime.stop()

    simulate(story())
