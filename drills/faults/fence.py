"""Another writer claims partitions while their owner serves them: a second coordinator that was started by mistake.

The drill is that writer: it claims, writes the fence record as every new owner does, and is gone at once. The owner is
refused at its next append, and the partitions are shared out anew. Nothing that the deposed owner still answers may be
lost, and nobody may be told what is not so.
"""

import asyncio
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final

from muster import DISTRIBUTION
from muster.drills.checking.log import DrilledLog
from muster.drills.errors import ServiceFailed
from muster.drills.faults.fault import Stage, busiest
from muster.drills.service.local import LocalService
from muster.events.avro.codec import records_of
from muster.events.events import CoordinatorElected, CoordinatorReady
from muster.events.log.base import EventLog
from muster.events.log.url import open_log

INTRUDER: Final = "muster-drill:0"
"""The owner's name in the fence records; no process has it."""

POLL_S: Final = 0.2


async def fence(stage: Stage, service: LocalService) -> None:
    """Depose the process that coordinates most groups. Raises ServiceFailed, and what the log raises."""
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
    """Claim a partition, and write the fence record; returns the claim's epoch."""
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
    """Wait until each partition has an owner with a newer claim than this one, who has read it."""
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
