"""Schedules on two servers, and their differences.

It repeats runs in which the machine was too slow, compares, shrinks, and runs many schedules at a time.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
import uvloop

from tests.conformance.fuzz.example import Astray, Seen
from tests.conformance.fuzz.fuse import Slipped
from tests.conformance.fuzz.player import Player
from tests.conformance.fuzz.schedule import Schedule
from tests.conformance.fuzz.shrink import shrunk
from tests.conformance.fuzz.steps import Play
from tests.conformance.fuzz.turns import Turns
from tests.conformance.servers import Pair, Server
from tests.conformance.transcript import Transcript, difference

SCHEDULES_AT_A_TIME: Final = 80
"""Most of them spend most of the time waiting."""

TRIES: Final = 30

T = TypeVar("T")

Tally = Counter[tuple[str, int]]

TIMES_ASTRAY: Final = 3
"""A run that follows another is repeated this often before it counts as different."""

STUCK: Final = "It went no further"

_STEP: Final = re.compile(r"(\d+)\. ")


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule on two servers: `text` describes the difference, "" if there is none; `tally` counts Kafka's
    responses.
    """

    schedule: Schedule
    text: str
    step: int
    tally: Tally


class Runs:
    """Plays schedules on a pair. `in_front`: Muster is a sidecar, whose runs follow those of Kafka."""

    def __init__(self, pair: Pair, *, in_front: bool = False) -> None:
        self._pair = pair
        self._in_front = in_front
        self._turns = Turns()
        self._places = asyncio.Semaphore(SCHEDULES_AT_A_TIME)
        self.repeated = 0
        """Runs that proved nothing, since the machine was too slow."""
        self.unsteady: list[Compared] = []
        """Differences that were not reproducible: the machine stalled unnoticed."""

    async def compare(self, schedule: Schedule) -> Compared:
        """Play it on both, each at its own pace; a difference counts if it occurs twice.

        Raises `Slipped` if the machine is too slow repeatedly.
        """
        compared = await self._compare_once(schedule)
        if not compared.text:
            return compared
        again = await self._compare_once(schedule)
        if not again.text:
            self.unsteady.append(compared)
        return again

    async def _compare_once(self, schedule: Schedule) -> Compared:
        async with self._places:
            of_kafka, of_muster = await self._play_both(schedule)
        kafka, tally, muster = of_kafka.account.transcript, of_kafka.account.tally, of_muster.account.transcript
        text = difference(kafka, muster)
        stuck = [line for transcript in (kafka, muster) for line in transcript.lines if STUCK in line]
        text = "\n".join([*stuck, text]) if stuck else text
        return Compared(schedule=schedule, text=text, step=_differing_step(kafka, muster), tally=tally)

    async def _play_both(self, schedule: Schedule) -> tuple[Player, Player]:
        kafka, muster = self._pair
        if not self._in_front:
            both = await asyncio.gather(self._play(schedule, kafka), self._play(schedule, muster))
            return both[0], both[1]
        of_kafka = await self._play(schedule, kafka)
        return of_kafka, await self._play(schedule, muster, of_kafka.run)

    async def shrink(self, compared: Compared) -> Compared:
        """The shortest schedule that also differs."""

        async def differs(schedule: Schedule) -> bool:
            return (await self.compare(schedule)).text != ""

        schedule = await shrunk(compared.schedule, differs, last_step=compared.step)
        again = await self.compare(schedule)
        return again if again.text else compared

    async def _play(self, schedule: Schedule, server: Server, example: Sequence[Seen] = ()) -> Player:
        times_astray = 0
        for _ in range(TRIES):
            player = Player(schedule, server, self._turns, example)
            await player.open()
            try:
                await Play(player).all_steps()
            except Slipped:
                self.repeated += 1
                continue
            except Astray as error:
                times_astray += 1
                if times_astray < TIMES_ASTRAY:
                    continue
                player.account.remark(f"{STUCK} on Muster: {error}")
            except (AssertionError, OSError) as error:
                player.account.remark(f"{STUCK} on {'Kafka' if server.is_kafka else 'Muster'}: {error!r}")
            finally:
                player.close()
            return player
        raise Slipped(f"{TRIES} times in a row: this machine is too busy to tell anything")


def run(pair: Pair, play: Callable[[Runs], Awaitable[T]], *, in_front: bool = False) -> T:
    """Play on the pair, on a separate loop."""

    async def playing() -> T:
        return await play(Runs(pair, in_front=in_front))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(playing())


def compare_all(pair: Pair, schedules: Mapping[str, Schedule], *, in_front: bool = False) -> Mapping[str, Compared]:
    """Compare all of them, many at a time, by their names."""

    async def all_of_them(runs: Runs) -> list[Compared]:
        return await asyncio.gather(*(runs.compare(schedule) for schedule in schedules.values()))

    return dict(zip(schedules, run(pair, all_of_them, in_front=in_front), strict=True))


def differences(results: Mapping[str, Compared]) -> list[str]:
    """The differences of the servers, as text."""
    return [f"{name}, step {each.step}\n{each.text}" for name, each in results.items() if each.text]


def _differing_step(kafka: Transcript, muster: Transcript) -> int:
    """The step at which the two differ first."""
    step = 0
    for one, other in zip(kafka.lines, muster.lines, strict=False):
        if one != other:
            break
        begins = _STEP.match(one)
        step = int(begins[1]) if begins else step
    return step
