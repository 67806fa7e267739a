"""Event logs in memory whose reading goes wrong, and processes on them.

Only for reading; the memory log simulates failing appends.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

import msgspec

from muster.coordinator.runtime.runtime import Runtime
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.records import StoredRecord
from tests.simulation.process import SimulatedProcess


class CutShort(MemoryEventLog):
    """Its next reading lacks this many records at its end, as if they were unknown."""

    missing = 0

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        missing, self.missing = self.missing, 0
        async for chunk in super().read(partition, start=start, end=end):
            yield chunk[: len(chunk) - missing]


class Interrupted(MemoryEventLog):
    """Its readings pause in the middle: `halfway` is set then, and they wait for `go_on`."""

    def __init__(self, *arguments: object, **settings: object) -> None:
        super().__init__(*arguments, **settings)  # type: ignore[arg-type]
        self.halfway, self.go_on = asyncio.Event(), asyncio.Event()

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        async for chunk in super().read(partition, start=start, end=end):
            yield chunk[: len(chunk) // 2]
            self.halfway.set()
            await self.go_on.wait()
            yield chunk[len(chunk) // 2 :]


L = TypeVar("L", bound=MemoryEventLog)


def process_on(storage: MemoryStorage, kind: type[L]) -> tuple[SimulatedProcess, L]:
    """A process, not yet started, with a log of this kind."""
    process = SimulatedProcess(storage)
    log = kind(storage, wall_ms=process.clock.wall_ms)
    process.log = log
    owner = msgspec.structs.replace(process.runtime._owner, event_log=log)
    process.runtime = Runtime(owner, give_up=process.lost.append)
    return process, log
