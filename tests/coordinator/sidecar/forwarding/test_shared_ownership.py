"""Shadows and moves when partitions are assigned and released."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from muster.coordinator.runtime.runtime import Runtime
from muster.coordinator.sidecar.forwarding.shared_ownership import SharedOwnership, release_callback
from muster.coordinator.sidecar.groups.moves import Moves
from muster.coordinator.upstream.shadows import Shadows
from muster.events.ids import GroupId
from muster.events.log.base import EventLog
from muster.events.partitioner import partition_for
from tests.waiting import until

PARTITIONS = 10
GROUPS = [GroupId(f"group-{number}") for number in range(100)]


class Counted:
    """Shadows, or moves: `asked` has the dropped groups of each call."""

    def __init__(self) -> None:
        self.asked: list[set[GroupId]] = []

    def drop_groups(self, is_theirs: Callable[[GroupId], bool]) -> None:
        self.asked.append({each for each in GROUPS if is_theirs(each)})


async def test_partitions_released_together_are_looked_up_once() -> None:
    """Each search covers all groups: with 10,000 groups and 50 partitions it would block the loop."""
    shadows, moves = Counted(), Counted()
    event_log: Any = type("Log", (), {"partitions": PARTITIONS})
    given_up = release_callback(cast("Shadows", shadows), cast("Moves", moves), cast("EventLog", event_log))
    for numbers in ({1, 2, 5}, {7}):
        for number in numbers:
            given_up(number)
        await until(lambda: shadows.asked)
        expected = [{each for each in GROUPS if partition_for(each, PARTITIONS) in numbers}]
        assert shadows.asked == expected
        assert moves.asked == expected
        shadows.asked.clear()
        moves.asked.clear()


class Assigned:
    """The parts of the runtime and the moves that are needed."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.told: list[str] = []

    def claims(self) -> dict[int, int]:
        return dict.fromkeys(self.numbers, 1)

    async def assign(self, numbers: frozenset[int]) -> None:
        self.told.append("assign")
        self.numbers |= numbers

    async def release(self, numbers: frozenset[int]) -> None:
        self.numbers -= numbers

    def expect_shadows(self) -> None:
        self.told.append("expect shadows")

    @contextmanager
    def retakes_held(self) -> Iterator[None]:
        self.told.append("hold")
        yield
        self.told.append("go on")

    def begin(self) -> None:
        self.told.append("begin")


async def test_a_hanging_broker_does_not_keep_a_client_from_a_partition() -> None:
    """Former owners' shadows are searched in the background: the next change of owners does not wait for it."""
    assigned, hangs, looked = Assigned(), asyncio.Event(), 0

    async def remove_strays() -> None:
        nonlocal looked
        looked += 1
        await hangs.wait()

    def fails(error: Exception) -> None:
        raise error

    ownership = SharedOwnership(
        cast("Runtime", assigned), cast("Shadows", assigned), cast("Moves", assigned), remove_strays, fails
    )
    async with asyncio.timeout(20):
        await ownership.assign(frozenset({1, 2}))
        await until(lambda: looked == 1)
        await ownership.release(frozenset({1}))
        await ownership.assign(frozenset({2}))
        await ownership.assign(frozenset({2, 3}))
        await until(lambda: looked == 2)
    assert assigned.told == ["expect shadows", "hold", "assign", "go on", "begin"] * 2
    await ownership.close()
