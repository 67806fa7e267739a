"""Two processes that share a log, in random orders of assignments, releases, outages, stalled appends and ends.

No process serves a partition twice, or with an outbox that has ended. Each request is answered exactly once. Nothing
raises, and after recovery partitions are served and no task is left.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.group.outcomes import Outcome
from muster.coordinator.offsets.topic import TopicOffsetStore
from muster.coordinator.runtime.ownership.owned_partition import OwnedPartition
from muster.coordinator.runtime.ownership.partition_state import Failed, Serving
from muster.coordinator.runtime.ownership.takeover import resume_groups
from muster.coordinator.runtime.partition.outbox import OutboxEnded
from muster.coordinator.runtime.runtime import Runtime
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused, Deposed, LogUnavailable
from muster.events.log.memory import MemoryEventLog, MemoryLogWriter, MemoryStorage
from muster.events.partitioner import partition_for
from muster.events.records import StoredRecord, Transition
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate

PARTITIONS = 2
GROUPS = tuple(
    next(group for index in range(100) if partition_for(group := GroupId(f"group-{index}"), PARTITIONS) == number)
    for number in range(PARTITIONS)
)
LEASE_MS = 2_000


class FaultyLog(MemoryEventLog):
    """A log that is unavailable, or does not answer while it is stalled."""

    is_away = False
    stalled: asyncio.Event | None = None

    async def _pass(self) -> None:
        if self.stalled is not None:
            await self.stalled.wait()
        if self.is_away:
            raise LogUnavailable("it is away")

    def go_on(self) -> None:
        if self.stalled is not None:
            self.stalled.set()
        self.stalled = None

    async def claim(self, partition: int) -> MemoryLogWriter:
        await asyncio.sleep(0)
        await self._pass()
        return await super().claim(partition)

    async def append(
        self, partition: int, epoch: int, transitions: Sequence[Transition]
    ) -> Sequence[AppendRefused | None]:
        await self._pass()
        return await super().append(partition, epoch, transitions)

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        async for chunk in super().read(partition, start=start, end=end):
            await self._pass()
            yield chunk

    def heal(self) -> None:
        self.is_away = False
        self.go_on()
        if self._released is not None:
            self._released.set()


class Process(SimulatedProcess):
    """A process that shares its log, with its offsets in a topic. `served`: every partition that it has ever served."""

    def __init__(self, events: MemoryStorage, offsets: MemoryStorage, *, has_lease: bool, stands_by: bool) -> None:
        super().__init__(events)
        self.log = FaultyLog(events, wall_ms=self.clock.wall_ms)
        self.offsets_log = FaultyLog(offsets, wall_ms=self.clock.wall_ms)
        self.store = TopicOffsetStore(lambda: self.offsets_log)
        owner = msgspec.structs.replace(
            self.runtime._owner,
            event_log=self.log,
            offsets=self.store,
            answer_lease_ms=LEASE_MS if has_lease else None,
            boot_ms=self.clock.monotonic_ms,
        )
        self.runtime = Runtime(owner, give_up=self.lost.append, deposed=lambda _: None, stands_by=stands_by)
        self.served: list[OwnedPartition] = []
        self.assignments: list[asyncio.Task[None]] = []
        self.stopping: asyncio.Task[None] | None = None

    @property
    def logs(self) -> tuple[FaultyLog, FaultyLog]:
        assert isinstance(self.log, FaultyLog)
        return self.log, self.offsets_log

    def check(self) -> None:
        owned = self.runtime._partitions.owned
        still_open = [each for each in self.served if each.partition._closed_with is None]
        assert sorted(map(id, still_open)) == sorted(map(id, owned.values()))
        assert not any(each._outbox._task.done() for each in still_open)
        assert not self.lost


class World:
    """The processes, running tasks, and pending responses."""

    def __init__(self, *, has_lease: bool, stands_by: bool) -> None:
        events, offsets = MemoryStorage(PARTITIONS), MemoryStorage(PARTITIONS)
        self.processes = [Process(events, offsets, has_lease=has_lease, stands_by=stands_by) for _ in range(2)]
        self.answers: list[asyncio.Future[Outcome]] = []
        self.running: list[asyncio.Task[Any]] = []

    def note_served(self, owner: Any, *args: Any, **named: Any) -> OwnedPartition:
        ownership = OwnedPartition(owner, *args, **named)
        next(each for each in self.processes if each.log is owner.event_log).served.append(ownership)
        return ownership

    def check(self) -> None:
        for each in self.processes:
            each.check()

    async def run(self, steps: Sequence["Step"]) -> None:
        for number, each in enumerate(self.processes):
            await each.log.open()
            await each.store.open()
            await each.runtime.start(() if number else range(PARTITIONS))
        for step in steps:
            await step.take(self)
            self.check()
        for log in (log for each in self.processes for log in each.logs):
            log.heal()
        for _ in range(12):
            await asyncio.sleep(10)
            self.check()
        for each in self.processes:
            await self._end(each)
        assert all(answer.done() for answer in self.answers)
        for task in self.running:
            assert task.done(), task
            assert task.cancelled() or isinstance(task.exception(), OutboxEnded | None), task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def _end(self, process: Process) -> None:
        if process.stopping is None:
            assert process.runtime._partitions.outage.reason is None
            states = process.runtime._partitions.states
            assert all(isinstance(state, Serving | Failed) for state in states.values())  # Failed: a cancelled one
            stop(process)
        assert process.stopping is not None
        await process.stopping
        assert not process.runtime._partitions.states
        process.check()
        await process.store.close()


def stop(process: Process) -> None:
    process.stopping = process.stopping or asyncio.create_task(process.runtime.stop())


def fault(log: FaultyLog, name: str) -> None:
    match name:
        case "away":
            log.is_away = True
        case "back":
            log.is_away = False
        case "stall":
            log.stalled = log.stalled or asyncio.Event()
        case "go_on":
            log.go_on()
        case "hold":
            if log._released is None or log._released.is_set():
                log.hold_acknowledgements()
        case "free":
            if log._released is not None:
                log._released.set()
        case _:
            getattr(log, name)()


FAULTS = ("away", "back", "stall", "go_on", "hold", "free", "fail_next_append", "lose_next_acknowledgement")
STEPS = ("assign", "assign", "release", "join", "join", "commit", "fault", "fault", "wait", "wait", "turns", "renew")
ENDS = ("cut", "deposed", "lost", "cancel", "stop")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step of one process, which uses the fields that it needs."""

    does: str
    process: int
    numbers: frozenset[int]
    member: str
    fault: str
    of_offsets: bool
    seconds: float
    turns: int

    @property
    def number(self) -> int:
        return min(self.numbers)

    async def take(self, world: World) -> None:
        process = world.processes[self.process]
        match self.does:
            case "assign" | "release" if process.stopping is None:
                world.running.append(asyncio.create_task(getattr(process.runtime, self.does)(self.numbers)))
                process.assignments += world.running[-1:] if self.does == "assign" else []
            case "join":
                world.answers.append(process.join(self.member, group_id=GROUPS[self.number]))  # type: ignore[arg-type]
            case "commit":
                world.answers.append(process.commit(7, group_id=GROUPS[self.number]))  # type: ignore[arg-type]
            case "fault":
                fault(process.logs[self.of_offsets], self.fault)
            case "wait":
                await asyncio.sleep(self.seconds)
            case "turns":
                for _ in range(self.turns):
                    await asyncio.sleep(0)
                    world.check()
            case _:
                self._end(world, process)

    def _end(self, world: World, process: Process) -> None:
        match self.does:
            case "renew":
                for ownership in process.runtime._owned.values():
                    ownership.renew()
            case "cut":
                owned = process.runtime._owned.values()
                world.running += [asyncio.create_task(each.durable_state()) for each in owned]
            case "deposed":
                process.runtime._partitions.lost(self.number, Deposed(self.number, 1))
            case "lost":
                process.runtime._partitions.lost(self.number, LogUnavailable("no broker"))
            case "cancel":
                for each in process.assignments[-1:]:
                    each.cancel()
            case "stop":
                stop(process)


STEP = st.builds(
    Step,
    does=st.one_of(st.sampled_from(STEPS), st.sampled_from(STEPS), st.sampled_from(ENDS)),
    process=st.sampled_from((0, 0, 0, 1)),
    numbers=st.frozensets(st.integers(0, PARTITIONS - 1), min_size=1),
    member=st.sampled_from("ab"),
    fault=st.sampled_from(FAULTS),
    of_offsets=st.booleans(),
    seconds=st.sampled_from((0.05, 0.2, 1.0, 9.99, 10.0, 30.0)),
    turns=st.integers(1, 6),
)


@given(story=st.lists(STEP, min_size=6, max_size=40), has_lease=st.booleans(), stands_by=st.booleans())
def test_each_partition_is_served_once_and_each_request_answered(
    story: list[Step], has_lease: bool, stands_by: bool
) -> None:
    async def run() -> None:
        world = World(has_lease=has_lease, stands_by=stands_by)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(resume_groups, "OwnedPartition", world.note_served)
            await world.run(story)

    simulate(run())
