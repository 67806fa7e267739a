"""Runs the steps of a drill in order: prepare, load, fault, check, clean up.

It cleans up even after an error. The steps themselves are in other modules, and so is the report.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Protocol

import msgspec

from muster.drills.checking import DrilledLog, committed, groups_there
from muster.drills.faults import Stage
from muster.drills.load.asking import Clock
from muster.drills.load.load import Load
from muster.drills.names import Names
from muster.drills.plan import Plan
from muster.drills.report.making import Recorded
from muster.drills.service.cluster import delete_groups
from muster.drills.service.running import Service

Done = Callable[[Stage], Awaitable[None]]
"""Injects the fault, and waits until the service has recovered."""


class Left(msgspec.Struct):
    """Descriptions of what could not be cleaned up. `is_known`: False if cleaning up was interrupted."""

    lines: list[str] = []
    is_known: bool = True


class Telling(Protocol):
    """Receives the progress of a drill."""

    def step(self, text: str) -> None:
        """Called when a step begins."""

    def progress(self, done: int, total: int) -> None:
        """Called with how much of the step is done."""

    def event(self, text: str) -> None:
        """Called after an action of the drill."""


async def drilled(plan: Plan, names: Names, service: Service, do: Done, *, tell: Telling, left: Left) -> Recorded:
    """Run a drill on a service that is ready. Adds to `left` what could not be cleaned up.

    Raises DrillError, AdminError, LinkError, LogError and EventsError.
    """
    clock, within_s = Clock(), plan.within_ms / 1000
    names.check_new(await groups_there(service.bootstrap, service.client_security))
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(
            DrilledLog(service.log_url, names, service.log_security, is_new=service.has_new_log)
        )
        load = Load(service.bootstrap, plan.load, names, clock, topic=service.topic, security=service.client_security)
        stack.push_async_callback(load.close)

        async def remove() -> None:
            tell.step("deleting the groups")
            await load.close()
            left.lines += await delete_groups(service.bootstrap, names, load.groups, service.client_security)
            left.is_known = True

        if not service.has_new_log:  # else they go with it
            left.is_known = False
            stack.push_async_callback(remove)
        tell.step(f"forming {plan.load.groups} groups of {plan.load.members} members")
        await load.form(tell.progress, within_s=within_s)
        began_ms = clock.now_ms()
        tell.step("measuring before the fault")
        await asyncio.sleep(plan.before_ms / 1000)
        await load.measured_since(began_ms, within_s=within_s)
        stage = Stage(plan, names, load, clock, tell.event)
        tell.step(f"{plan.fault}: until the service is whole again")
        await do(stage)
        over_ms = clock.now_ms()
        tell.step("measuring after the fault")
        await asyncio.sleep(plan.after_ms / 1000)
        await load.measured_since(over_ms, within_s=within_s)
        await load.stop()
        ended_ms = clock.now_ms()
        tell.step("comparing what was acknowledged with the log")
        return Recorded(
            plan=plan,
            run=names.run,
            service=service.description,
            static_groups=sum(group[0].is_static for group in load.groups.values()),
            began_ms=began_ms,
            over_ms=over_ms,
            ended_ms=ended_ms,
            marks=tuple(stage.marks),
            asked=tuple(load.asked),
            acknowledged=load.acknowledged,
            offsets=await committed(service.bootstrap, load.groups, service.client_security),
            log=await log.read(),
            partitions=log.partitions,
            name_of=service.process_of,
        )
