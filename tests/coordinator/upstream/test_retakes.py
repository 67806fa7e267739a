"""The order in which a former process's shadows rejoin: how many at once, which first, and when none."""

import asyncio

from muster.coordinator.upstream.retakes import HELD_S, RETAKES_MAX, Retakes
from tests.simulation.virtual_time import simulate


class Joins:
    """Shadows that wait for a turn, which ends when the test releases it; `joined`: those that had one, in order."""

    def __init__(self) -> None:
        self.retakes = Retakes()
        self.joined: list[int] = []
        self._joins: dict[int, asyncio.Task[None]] = {}
        self._ends: dict[int, asyncio.Event] = {}

    async def want(self, *shadows: int, is_urgent: bool = False) -> None:
        for shadow in shadows:
            self._ends[shadow] = asyncio.Event()
            self._joins[shadow] = asyncio.create_task(self._join(shadow, is_urgent=is_urgent))
        await asyncio.sleep(0.1)

    async def _join(self, shadow: int, *, is_urgent: bool) -> None:
        async with self.retakes.turn(shadow, is_urgent=is_urgent):
            self.joined.append(shadow)
            await self._ends[shadow].wait()

    async def end(self, *shadows: int) -> None:
        for shadow in shadows:
            self._ends[shadow].set()
        await asyncio.sleep(0.1)

    async def cancel(self, *shadows: int) -> None:
        for shadow in shadows:
            self._joins[shadow].cancel()
        await asyncio.sleep(0.1)


def test_groups_with_waiting_commits_come_first() -> None:
    """The commit may have waited before they were queued, or since; the others keep their order."""

    async def story() -> None:
        joins = Joins()
        await joins.want(*range(RETAKES_MAX + 4))
        await joins.want(200, is_urgent=True)
        joins.retakes.hurry(RETAKES_MAX + 2)
        joins.retakes.hurry(0)  # which has had its turn
        assert joins.joined == list(range(RETAKES_MAX))
        await joins.end(*range(5))
        rest = [200, RETAKES_MAX + 2, RETAKES_MAX, RETAKES_MAX + 1, RETAKES_MAX + 3]
        assert joins.joined[RETAKES_MAX:] == rest

    simulate(story())


def test_a_group_that_is_not_wanted_gives_its_turn_back() -> None:
    """It may have had its turn, or waited for it: the number in flight stays at the limit."""

    async def story() -> None:
        joins = Joins()
        await joins.want(*range(2 * RETAKES_MAX))
        await joins.cancel(1, RETAKES_MAX, RETAKES_MAX + 1)
        assert joins.joined == [*range(RETAKES_MAX), RETAKES_MAX + 2]
        await joins.cancel(*range(2, 2 * RETAKES_MAX))
        await joins.want(*range(1_000, 1_000 + 2 * RETAKES_MAX))
        assert len([each for each in joins.joined if each >= 1_000]) == RETAKES_MAX - 1  # 0 is still in flight

    simulate(story())


def test_a_group_called_and_cancelled_at_once_gives_its_turn_back() -> None:
    """Otherwise there would be one fewer for good."""

    async def story() -> None:
        joins = Joins()
        await joins.want(*range(RETAKES_MAX + 2))
        joins._joins[RETAKES_MAX].cancel()  # it has not noticed yet when the next one is called
        await joins.end(0)
        await joins.end(1)
        assert joins.joined == [*range(RETAKES_MAX), RETAKES_MAX + 1]
        await joins.want(1_000, 1_001)
        assert joins.joined[-1] == 1_000

    simulate(story())


def test_no_turns_are_given_while_partitions_are_taken_over_or_for_a_second() -> None:
    """One of the partitions may be waiting for a broker."""

    async def story() -> None:
        joins = Joins()
        with joins.retakes.held():
            await joins.want(1)
            await joins.want(2, is_urgent=True)
            assert joins.joined == []
        await asyncio.sleep(0)
        assert joins.joined == [2, 1]
        with joins.retakes.held():
            await joins.want(3)
            await asyncio.sleep(HELD_S)
            assert joins.joined == [2, 1, 3]
            await joins.want(4)
            assert joins.joined == [2, 1, 3, 4]

    simulate(story())
