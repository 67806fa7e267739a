"""The faults of drills: each injects a fault into processes or brokers, and returns when the service has recovered.

Each function raises ServiceFailed if the service does not recover in time.
"""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Final, Literal

import msgspec

from muster import DISTRIBUTION
from muster.drills.checking import DrilledLog
from muster.drills.load.asking import Clock
from muster.drills.load.load import Load
from muster.drills.names import Names
from muster.drills.plan import Between, Plan, ServiceFailed
from muster.drills.service.local import LocalService
from muster.drills.service.process import MusterProcess
from muster.events.avro.codec import records_of
from muster.events.events import CoordinatorElected, CoordinatorReady
from muster.events.log.base import EventLog
from muster.events.log.url import open_log
from muster.events.partitioner import partition_for

Ending = Literal["killed", "stopped"]


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """An action of the drill. `is_fault`: members may notice it, and takeovers are measured from it.

    `process`: the process that it affected. `ended`: how it ended that process; None if it did not.
    """

    at_ms: int
    text: str
    is_fault: bool = False
    process: str | None = None
    ended: Ending | None = None


class Stage:
    """The surroundings of a fault: the plan, the load, and the list of the drill's actions."""

    def __init__(self, plan: Plan, names: Names, load: Load, clock: Clock, said: Callable[[str], None]) -> None:
        self.plan = plan
        self.names = names
        self.load = load
        self.clock = clock
        self._said = said
        self.marks: list[Mark] = []

    def note(
        self, text: str, *, is_fault: bool = False, process: str | None = None, ended: Ending | None = None
    ) -> None:
        """Add an action that happens now to `marks`, and report it."""
        mark = Mark(at_ms=self.clock.now_ms(), text=text, is_fault=is_fault, process=process, ended=ended)
        self.marks.append(mark)
        self._said(text)

    async def answered(self, what: str) -> None:
        """Wait until every request that is in progress now has been answered. Raises ServiceFailed."""
        await self.load.answered_since(self.clock.now_ms(), within_s=self.plan.within_ms / 1000, what=what)


LocalFault = Callable[[Stage, LocalService], Awaitable[None]]
"""Injects a fault into the drill's own processes. Raises ServiceFailed if the service does not recover."""


def busiest(stage: Stage, service: LocalService) -> MusterProcess:
    """Return the process that coordinates most of the drill's groups."""
    groups_on = Counter(partition_for(group_id, service.partitions) for group_id in stage.load.groups)
    return max(service.processes, key=lambda each: sum(groups_on[number] for number in service.owned_by(each)))


async def take_over(stage: Stage, service: LocalService) -> None:
    """Kill the process that coordinates most groups. Raises ServiceFailed."""
    process = busiest(stage, service)
    pid, partitions = process.pid, len(service.owned_by(process))
    stage.note(
        f"kill -9 of {process.name} (pid {pid}), which owned {partitions} partitions",
        is_fault=True,
        process=process.name,
        ended="killed",
    )
    await process.kill()
    await service.shared(within_s=stage.plan.within_ms / 1000)
    await stage.answered(f"{process.name} was killed")


async def restart(stage: Stage, service: LocalService) -> None:
    """Restart the processes one after another, each once the partitions are shared again. Raises ServiceFailed."""
    within_s = stage.plan.within_ms / 1000
    for process in service.processes:
        stage.note(f"SIGTERM to {process.name} (pid {process.pid})", is_fault=True, process=process.name)
        await process.stop()
        stage.note(f"{process.name} has ended in good order", process=process.name, ended="stopped")
        await service.start_again(process)
        stage.note(f"{process.name} serves again (pid {process.pid})", is_fault=True, process=process.name)
        await service.shared(within_s=within_s)
        await stage.answered(f"{process.name} was restarted")


async def cut(stage: Stage, service: LocalService) -> None:
    """Cut off the process that coordinates most groups for a while. Raises ServiceFailed."""
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


async def slow_down(stage: Stage, service: LocalService) -> None:
    """Delay all responses of the brokers for a while. Raises ServiceFailed."""
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


INTRUDER: Final = "muster-drill:0"
"""The name of the owner in the drill's fence records; no process has this name."""

POLL_S: Final = 0.2


async def fence(stage: Stage, service: LocalService) -> None:
    """Depose the process that coordinates most groups. Raises ServiceFailed, and the errors of the log."""
    process = busiest(stage, service)
    partitions = sorted(service.owned_by(process))
    async with DrilledLog(service.log_url, stage.names, service.log_security) as reading:
        log = open_log(service.log_url, security=service.log_security)
        await log.open()
        try:
            stage.note(
                f"another writer claims the {len(partitions)} partitions of {process.name}, and writes fence records",
                is_fault=True,
                process=process.name,
            )
            claimed = await asyncio.gather(*(_claim(log, each, stage.clock.now_ms()) for each in partitions))
        finally:
            await log.close()
        stage.note("all are claimed, and the other writer is gone", process=process.name)
        await _until_owned(reading, dict(zip(partitions, claimed, strict=True)), within_s=stage.plan.within_ms / 1000)
    await service.shared(within_s=stage.plan.within_ms / 1000)
    await stage.answered("the partitions had an owner again")


async def _claim(log: EventLog, partition: int, now_ms: int) -> int:
    """Claim a partition, and write the fence record; return the epoch of the claim."""
    writer = await log.claim(partition)
    elected = CoordinatorElected(
        partition=partition,
        owner_epoch=writer.epoch,
        owner=INTRUDER,
        elected_ms=now_ms,
        version=version(DISTRIBUTION),
        format_level=log.format_level,
        settings={},
    )
    await writer.append([records_of([elected], log.format_level)])
    return writer.epoch


async def _until_owned(reading: DrilledLog, claimed: Mapping[int, int], *, within_s: float) -> None:
    """Wait until each partition has an owner that claimed it after this epoch and has read it."""
    waiting = dict(claimed)
    try:
        async with asyncio.timeout(within_s):
            while waiting:
                for partition, epoch in list(waiting.items()):
                    ready = [each for each in await reading.owners_of(partition) if isinstance(each, CoordinatorReady)]
                    if any(each.owner_epoch > epoch for each in ready):
                        del waiting[partition]
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        numbers = ", ".join(map(str, waiting))
        raise ServiceFailed(f"nobody owns partitions {numbers} {within_s:g} s after another writer's claim") from None


TAIL_BYTES: Final = 400
ENDED_WITHIN_S: Final = 5.0


async def by_command(stage: Stage, command: str) -> None:
    """Run the command, and wait until the members' requests are answered. Raises ServiceFailed.

    The command runs in its own process group. If it does not end in time, or the drill is interrupted, the whole group
    is killed.
    """
    stage.note(f"$ {command}", is_fault=True)
    process = await _started(command)
    try:
        async with asyncio.timeout(stage.plan.within_ms / 1000):
            output, _ = await process.communicate()
    except TimeoutError:
        raise ServiceFailed(f"the command {command!r} goes on after {stage.plan.within_ms / 1000:g} s") from None
    finally:
        await _end(process)
    if process.returncode:
        said = output[-TAIL_BYTES:].decode(errors="replace").strip()
        raise ServiceFailed(f"the command {command!r} ended with exit code {process.returncode}: {said}")
    stage.note("the command has ended")
    await stage.answered("the command had ended")


async def _started(command: str) -> Process:
    """Start the command. If this is cancelled, kill its process group, since asyncio would kill only the shell."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_shell(command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, start_new_session=True)
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _end(await starting)
        raise


async def _end(process: Process) -> None:
    """Kill the process group if it is running, and wait for its end: the event loop may be closed afterwards."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(TimeoutError):  # a child that has left the process group may hold its output open
            async with asyncio.timeout(ENDED_WITHIN_S):
                await process.communicate()
