"""A simulated consumer group of Musters, which shares the partitions among those that it hears.

What belongs here: who is a member, and who is assigned what. What it must not know: what a process does with it.

A process that is paused, cut from the broker or killed is dropped after a session, and comes back by itself. It is told
what it is assigned now; what it had before it serves until then, and finds out by its appends.
"""

from collections.abc import Sequence
from typing import Protocol

from tests.simulation.network import Network
from tests.simulation.remote_log import BROKER
from tests.simulation.world import SimulatedLoop, World

SESSION_S = 3.0
LOOK_S = 0.5
TOLD_WITHIN_S = (0.01, 1.0)


class Candidate(Protocol):
    """A process that takes part."""

    name: str
    loop: SimulatedLoop

    @property
    def is_candidate(self) -> bool:
        """Whether it runs, and does not stop."""
        ...

    def assigned(self, generation: int, numbers: frozenset[int]) -> None:
        """Hear, in its own loop, what it is to serve from now on."""
        ...


class Election:
    """See the module. `candidates` grows as processes are started."""

    def __init__(self, world: World, network: Network, partitions: int) -> None:
        self._world = world
        self._network = network
        self._partitions = partitions
        self.candidates: list[Candidate] = []
        self._heard_s: dict[str, float] = {}
        self._shares: dict[str, frozenset[int]] = {}
        self.generation = 0
        world.after(LOOK_S, self._look)

    def share_of(self, name: str) -> frozenset[int]:
        """The partitions that a process is to serve, as the group has it now."""
        return self._shares.get(name, frozenset())

    def leave(self, name: str) -> None:
        """Be told by a process that it stops."""
        self._heard_s.pop(name, None)
        self._elect()

    def _look(self) -> None:
        now_s = self._world.now_s
        for each in self.candidates:
            is_heard = not each.loop.is_paused and not self._network.is_cut(each.name, BROKER)
            if each.is_candidate and is_heard:
                self._heard_s[each.name] = now_s
        self._heard_s = {name: heard_s for name, heard_s in self._heard_s.items() if now_s - heard_s < SESSION_S}
        self._elect()
        self._world.after(LOOK_S, self._look)

    def _elect(self) -> None:
        """Share the partitions anew if the members have changed; who has some keeps what it may."""
        present = sorted(self._heard_s)
        if present == sorted(self._shares):
            return
        self.generation += 1
        self._shares = _shared(self._shares, present, self._partitions)
        for each in self.candidates:
            if each.name in self._shares:
                self._tell(each, self.generation, self._shares[each.name])

    def _tell(self, candidate: Candidate, generation: int, share: frozenset[int]) -> None:
        delay_s = self._world.random.uniform(*TOLD_WITHIN_S)

        def tell() -> None:
            if not candidate.loop.is_dead:
                candidate.loop.call_soon(candidate.assigned, generation, share)

        self._world.after(delay_s, tell)


def _shared(before: dict[str, frozenset[int]], present: Sequence[str], partitions: int) -> dict[str, frozenset[int]]:
    """Share the partitions evenly among those present; each keeps what it had, as far as that is even."""
    if not present:
        return {}
    most = -(-partitions // len(present))
    shares = {name: set(sorted(before.get(name, ()))[:most]) for name in present}
    free = set(range(partitions)).difference(*shares.values())
    for number in sorted(free):
        min(shares.items(), key=lambda each: (len(each[1]), each[0]))[1].add(number)
    return {name: frozenset(share) for name, share in shares.items()}
