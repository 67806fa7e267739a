"""The stage for scenarios: a group of random size and style, and the operations on its processes.

Configures processes, and performs single operations (end one, start it again), each of which is noted as ground truth.
Scenarios (`scenarios/`) combine them, and are registered here by name. Times are ms.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum, unique
from functools import partial
from random import Random
from typing import Final
from zlib import crc32

import msgspec

from muster.coordinator.group.settings import GroupSettings
from muster.replay.fleet.simulation.world.client import NOWHERE, PlaceAndTime, Setup
from muster.replay.fleet.simulation.world.outages import bring_up, pause, resume, take_down
from muster.replay.fleet.simulation.world.process import Process
from muster.replay.fleet.simulation.world.truth import Knowable, Story
from muster.replay.fleet.simulation.world.world import World

LIBRARIES = ("java", "librdkafka", "kafka-python", "aiokafka")
ASSIGNORS = (("range",), ("roundrobin",), ("sticky",), ("range", "cooperative-sticky"), ("cooperative-sticky",))
SUFFIX_LETTERS = "bcdfghjklmnpqrst"
SECOND, MINUTE = 1_000, 60_000
QUIET_MS = 11 * MINUTE
"""Longer than any time window of a kind of incident, so that what happens before and after it belongs to different
incidents.
"""


@unique
class Style(StrEnum):
    """Naming styles: client ids and hosts of processes."""

    OWN_IDS = "own client ids, own hosts"
    BEHIND_ONE_HOST = "own client ids, one host"
    SHARED_ID = "one client id, own hosts"
    ALIKE = "one client id, one host"
    PODS = "own client ids, another host after each restart"


TELLING = (Style.OWN_IDS, Style.BEHIND_ONE_HOST, Style.SHARED_ID)
"""The styles in which a process can be identified after a restart."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The needs of a scenario. `static`: the share of static members; None: any."""

    size_min: int = 2
    size_max: int = 30
    static: float | None = None
    libraries: Sequence[str] = LIBRARIES
    assignors: Sequence[tuple[str, ...]] = ASSIGNORS
    version_min: int = 3
    rebalance_min_ms: int = 0
    rebalance_max_ms: int = 300_000
    styles: Sequence[Style] = tuple(Style)


class Stage:
    """A group and the operations on it; see the module."""

    def __init__(self, random: Random, wanted: Wanted, place: PlaceAndTime = NOWHERE) -> None:
        self.random = random
        self.place = place
        self.size = min(wanted.size_max, max(wanted.size_min, int(random.triangular(2, 31, 5))))
        self.style = random.choice(wanted.styles)
        self.static_share = random.choice((0.0, 0.0, 0.5, 1.0)) if wanted.static is None else wanted.static
        mixed = random.random() < 0.2
        self.libraries = tuple(wanted.libraries) if mixed else (random.choice(wanted.libraries),)
        self.version = max(wanted.version_min, random.choice((3, 5, 9, 9)))
        self.assignors = random.choice(wanted.assignors)
        self.session_ms = random.choice((6_000, 10_000, 10_000, 30_000, 45_000))
        rebalance_ms = min(wanted.rebalance_max_ms, random.choice((30_000, 60_000, 60_000, 300_000)))
        self.rebalance_ms = max(wanted.rebalance_min_ms, rebalance_ms)
        self.poll_ms = random.choice((50, 400, 1_000))
        self.renames_pods = random.random() < 0.5
        self.heartbeat_ms = random.choice((1_000, 3_000, 3_000))
        self._restarts = 0
        self._hosts = 0
        self._made = 0
        settings = GroupSettings(initial_rebalance_delay_ms=random.choice((0, 3_000, 3_000)))
        self.world = World(random, settings=settings, partitions={"orders": random.choice((6, 12, 24))}, place=place)
        self.opening = self.world.story("start")

    @property
    def setting(self) -> str:
        """A description of the group."""
        libraries = " or ".join(dict.fromkeys(self.libraries))
        return (
            f"{self.size} processes ({self.static_share:.0%} static), {self.style.value}, {libraries}, "
            f"JoinGroup v{self.version}, {','.join(self.assignors)}, session {self.session_ms} ms, "
            f"rebalance {self.rebalance_ms} ms"
        )

    @property
    def processes(self) -> list[Process]:
        return self.world.live

    @property
    def dynamic(self) -> list[Process]:
        return [each for each in self.processes if not each.is_static]

    @property
    def static(self) -> list[Process]:
        return [each for each in self.processes if each.is_static]

    def some(self, number: int, among: Sequence[Process] | None = None) -> list[Process]:
        return self.random.sample(self.processes if among is None else list(among), number)

    def one(self, among: Sequence[Process] | None = None) -> Process:
        return self.some(1, among)[0]

    # ---- configurations --------------------------------------------------------------------------

    def setup(self, prefix: str = "app", *, static: bool | None = None) -> Setup:
        """The configuration of another process."""
        number, self._made = self._made, self._made + 1
        name = f"{prefix}-{number}"
        if static is None:
            static = number < round(self.static_share * self.size) if prefix == "app" else self.static_share == 1.0
        has_own_id = self.style not in (Style.SHARED_ID, Style.ALIKE)
        return Setup(
            name=name,
            client_id=name if has_own_id else f"consumer-{self.place.group_id}-1",
            host=self._host(),
            instance=name if static else None,
            library=self.random.choice(self.libraries),
            version=max(self.version, 5) if static else self.version,
            session_ms=self.session_ms,
            rebalance_ms=self.rebalance_ms,
            assignors=self.assignors,
            heartbeat_ms=self.heartbeat_ms,
            poll_ms=self.poll_ms,
            assign_ms=self.random.randint(5, 200),
        )

    def _host(self) -> str:
        if self.style in (Style.BEHIND_ONE_HOST, Style.ALIKE):
            return self.place.host(0)
        self._hosts += 1
        return self.place.host(self._hosts)

    def restarted(self, setup: Setup) -> Setup:
        """The configuration of the process that replaces one with this setup."""
        if self.style is not Style.PODS:
            return setup
        self._restarts += 1
        client_id = f"{setup.name}-{_suffix(self._restarts)}" if self.renames_pods else setup.client_id
        return setup.but(host=self._host(), client_id=client_id)

    def identity(self, *processes: Process, returned: bool = False) -> Knowable:
        """How well the log shows that these are the same processes as before.

        `returned`: it was not restarted, and returns on the same connection.
        """
        if all(each.is_static for each in processes):
            return Knowable.RECORDED
        if self.style in (Style.ALIKE, Style.PODS) and not returned:
            return Knowable.UNKNOWABLE
        return Knowable.INFERRED

    # ---- operations -----------------------------------------------------------------------------

    def note(self, text: str) -> None:
        self.world.note(text)

    def open(self, *, within_ms: int = 2_000, quiet_ms: int | None = None) -> None:
        """Let the group form, and then leave it at rest for a while."""
        self.note(f"{self.size} processes start")
        for _ in range(self.size):
            setup = self.setup()
            self.opening.blame(setup.name)
            self.at(self.random.randint(0, within_ms), partial(self.world.add, setup, self.opening))
        self.world.settle(within_ms + 1_000)
        self.run(QUIET_MS + self.random.randint(0, MINUTE) if quiet_ms is None else quiet_ms)

    def run(self, duration_ms: int) -> None:
        self.world.run(duration_ms)

    def rest(self, duration_ms: int = 0) -> None:
        """Let time pass until the group is at rest, but at least this long."""
        self.world.settle(duration_ms)

    def at(self, delay_ms: int, do: Callable[[], object]) -> None:
        self.world.at(delay_ms, lambda: (do(), None)[1])

    def start(self, setup: Setup, story: Story) -> Process:
        self.note(f"{setup.name} starts")
        story.act(self.world.wall_ms, self.world.wall_ms + 100)
        return self.world.add(setup, story)

    def kill(self, process: Process, story: Story, *, with_machine: bool = False) -> None:
        """Kill the process with -9, or its machine. After its last heartbeat the log may have nothing of it until its
        removal.
        """
        self.note(f"the machine of {process.name} dies" if with_machine else f"{process.name} is killed")
        process.story = story
        silent_ms = self.world.now_ms - process.last_heard_ms
        story.act(self.world.wall_ms - silent_ms, self.world.wall_ms)
        process.die(with_machine=with_machine)

    def stop(self, process: Process, story: Story) -> None:
        """Shut down cleanly: a dynamic member leaves, a static one falls silent."""
        if process.is_static:
            self.note(f"{process.name} is closed, without leaving since it is static")
            silent_ms = self.world.now_ms - process.last_heard_ms
            story.act(self.world.wall_ms - silent_ms, self.world.wall_ms)
        else:
            self.note(f"{process.name} is closed, and leaves")
            story.act(self.world.wall_ms)
        process.story = story
        process.close()

    def restart(self, process: Process, story: Story, down_ms: int, *, crash: bool) -> None:
        """End the process, and start it again.

        If it only leaves, or falls silent under an instance id, it looks as if it had stopped polling.
        """
        says_nothing = process.is_static or not (crash or process.setup.tells_reasons)
        if story.kinds == ("restart",) and says_nothing:
            story.kinds = ("restart", "poll-timeout")
        (self.kill if crash else self.stop)(process, story)
        story.infer(self.identity(process))
        setup = self.restarted(process.setup)
        self.at(down_ms, lambda: self.start(setup, story))

    def newcomers(self, story: Story, number: int, every_ms: Callable[[], int], prefix: str = "new") -> None:
        """Start more processes, the first one now."""
        delay_ms = 0
        for _ in range(number):
            setup = self.setup(prefix)
            if story.culprits is not None:
                story.blame(setup.name)
            self.at(delay_ms, partial(self.start, setup, story))
            delay_ms += every_ms()
        self.run(delay_ms)


def _suffix(number: int) -> str:
    """The random-looking part of a pod's name, always the same for a number."""
    made_up = crc32(str(number).encode())
    return "".join(SUFFIX_LETTERS[made_up >> 5 * place & 15] for place in range(5))


def be_away(stage: Stage, away_ms: int, *, paused: bool, orderly: bool, seen_before_ms: int | None) -> Story:
    """Make the coordinator unreachable for a time; what processes then do on their own is attributed to the outage.

    `seen_before_ms`: how long before the outage it left its last sign of life; None: it left none.
    """
    world = stage.world
    story = world.story("coordinator-outage")
    seen_ms = None if seen_before_ms is None else world.wall_ms - seen_before_ms
    began_ms = world.rules.last_record_ms if seen_ms is None else seen_ms
    if paused:
        began_ms = world.wall_ms
        pause(world)
    else:
        take_down(world, orderly=orderly)
    stage.note(f"the coordinator {'is paused' if paused else 'ends'}, for {away_ms / SECOND:.1f} s")
    stage.run(away_ms)
    story.act(began_ms, world.wall_ms + SECOND)
    for each in stage.processes:
        each.story = story
    if paused:
        resume(world)
    else:
        bring_up(world, story, seen_ms=seen_ms)
    story.act(world.wall_ms - SECOND, world.wall_ms + 2 * SECOND)
    return story


def conclude(stage: Stage, story: Story) -> None:
    """Let the group come to rest; an outage without a rebalance counts as a change of coordinator."""
    stage.rest(stage.session_ms + 10 * SECOND)
    if not story.must and not story.may:
        story.kinds = ("coordinator-change",)


# ---- scenarios ---------------------------------------------------------------------------------

Play = Callable[[Stage], None]


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """`play` acts on a group that is at rest and meets the needs `wanted`."""

    name: str
    wanted: Wanted
    play: Play


SCENARIOS: Final[dict[str, Scenario]] = {}


def scenario(wanted: Wanted | None = None) -> Callable[[Play], Play]:
    """Register a function as a scenario, under its name."""

    def register(play: Play) -> Play:
        name = play.__name__.replace("_", "-")
        assert name not in SCENARIOS
        SCENARIOS[name] = Scenario(name=name, wanted=wanted or Wanted(), play=play)
        return play

    return register
