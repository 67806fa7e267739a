"""The network between a process and its log, or between clients and a process, is cut for a while."""

import asyncio

from muster.drills.faults.fault import Stage, busiest
from muster.drills.plan import Between
from muster.drills.service.local import LocalService


async def cut(stage: Stage, service: LocalService) -> None:
    """Cut the process that coordinates most groups off, and heal it. Raises ServiceFailed."""
    process = busiest(stage, service)
    weather = service.weather[process.name]
    ends = f"{process.name} and its log" if stage.plan.between is Between.LOG else f"members and {process.name}"
    stage.note(f"nothing passes between {ends}", is_fault=True, process=process.name)
    weather.cut()
    try:
        await asyncio.sleep(stage.plan.fault_ms / 1000)
    finally:
        weather.heal()
    stage.note(f"{ends} reach each other again", is_fault=True, process=process.name)
    await service.shared(within_s=stage.plan.within_ms / 1000)
    await stage.answered("the network was whole again")
