"""The brokers that have the log answer late for a while, to every process."""

import asyncio

from muster.drills.faults.fault import Stage
from muster.drills.service.local import LocalService


async def slow_down(stage: Stage, service: LocalService) -> None:
    """Delay all answers of the brokers, and stop delaying them. Raises ServiceFailed."""
    stage.note(f"the brokers' answers come {stage.plan.delay_ms} ms later", is_fault=True)
    for weather in service.weather.values():
        weather.delay_s = stage.plan.delay_ms / 1000
    try:
        await asyncio.sleep(stage.plan.fault_ms / 1000)
    finally:
        for weather in service.weather.values():
            weather.delay_s = 0.0
    stage.note("the brokers answer at once again")
    await service.shared(within_s=stage.plan.within_ms / 1000)
    await stage.answered("the brokers were fast again")
