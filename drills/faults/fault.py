"""The stage on which a fault happens, and the marks that it leaves.

A fault ends when the service is whole again, as far as it can tell.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from muster.drills.load.clock import Clock
from muster.drills.load.load import Load
from muster.drills.names import Names
from muster.drills.plan import Plan
from muster.drills.service.local import LocalService
from muster.drills.service.process import MusterProcess
from muster.events.partitioner import partition_for

Ending = Literal["killed", "stopped"]


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the drill did. `is_fault`: the members may notice it, and takeovers are counted from it.

    `process`: to whom it was done; `ended`: how that process ended by it.
    """

    at_ms: int
    text: str
    is_fault: bool = False
    process: str | None = None
    ended: Ending | None = None


class Stage:
    """Where a fault happens: the load, and what the drill notes of what it does."""

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
        """Note what is done now."""
        mark = Mark(at_ms=self.clock.now_ms(), text=text, is_fault=is_fault, process=process, ended=ended)
        self.marks.append(mark)
        self._said(text)

    async def answered(self, what: str) -> None:
        """Wait until every request that was asked until now has its answer. Raises ServiceFailed."""
        await self.load.answered_since(self.clock.now_ms(), within_s=self.plan.within_ms / 1000, what=what)


LocalFault = Callable[[Stage, LocalService], Awaitable[None]]
"""A fault that is done to processes of the drill's own. Raises ServiceFailed when the service does not recover."""


def busiest(stage: Stage, service: LocalService) -> MusterProcess:
    """The process that coordinates most of the drill's groups."""
    groups_on = Counter(partition_for(group_id, service.partitions) for group_id in stage.load.groups)
    return max(service.processes, key=lambda each: sum(groups_on[number] for number in service.owned_by(each)))
