"""A group over several days: it forms, is deployed and scaled, and loses processes, while its coordinator fails and
returns.

Chooses the next scenario for a group that goes through all of them, and writes the ground truth as a line of JSON.
Scenarios follow one another, each QUIET_MS after the group has come to rest; those that do not fit the group are left
out. Processes that were lost for good are replaced before the next scenario, so that the group roughly keeps its size.
Everything is drawn from the seed and the group's name.
"""

from random import Random
from typing import Any, Final

import msgspec

import muster.replay.fleet.simulation.scenarios  # noqa: F401 -- registers them
from muster.events.ids import GroupId
from muster.replay.fleet.simulation.fleet import LONGEST_MS, Deed, End, Outage, SimulatedDays, deeds, team_of
from muster.replay.fleet.simulation.stage import MINUTE, QUIET_MS, SCENARIOS, SECOND, Stage, Wanted, be_away, conclude
from muster.replay.fleet.simulation.world.client import PlaceAndTime
from muster.replay.fleet.simulation.world.truth import Range, RebalanceId, Story, Truth
from muster.replay.history.items import Told

SIZES: Final = ((2, 4, 40), (5, 12, 40), (13, 30, 18), (31, 60, 2))
"""Sizes of groups: from, to, and the percentage of such groups."""

BEGINS_WITHIN_MS: Final = 30 * MINUTE


class Lived(msgspec.Struct, frozen=True, kw_only=True):
    """A group's simulated days. `told`: its log, with its coordinators' events as far as they concern this group.

    `names`: the process behind each member id. `scenarios`: for each truth, the scenario that caused it.
    """

    group_id: GroupId
    setting: str
    told: list[Told]
    truths: tuple[Truth, ...]
    scenarios: tuple[str, ...]
    names: dict[str, str]
    until_ms: int


def live(seed: int, group_id: GroupId, number: int, span: SimulatedDays, outages: list[Outage]) -> Lived:
    """Simulate a group; the same arguments give the same result. `number`: the group's number in the fleet, which
    determines its hosts.
    """
    random = Random(f"{seed} {group_id}")
    wanted = Wanted(size_min=_size(random), size_max=60)
    place = PlaceAndTime(group_id=group_id, began_ms=span.began_ms, first_host=number * 1_024)
    stage = Stage(random, wanted, place)
    stage.size = wanted.size_min
    week = _Week(stage, span, outages)
    week.play(deeds(random, span))
    world = stage.world
    return Lived(
        group_id=group_id,
        setting=stage.setting,
        told=world.rules.reads,
        truths=tuple(story.truth(world.stories) for story in world.stories),
        scenarios=tuple(week.scenarios),
        names={str(member_id): name for member_id, name in world.names.items()},
        until_ms=span.ends_ms,
    )


def _size(random: Random) -> int:
    smallest, largest, _ = random.choices(SIZES, weights=[share for _, _, share in SIZES])[0]
    return random.randint(smallest, largest)


class _Week:
    def __init__(self, stage: Stage, span: SimulatedDays, outages: list[Outage]) -> None:
        self._stage, self._span = stage, span
        self._outages = list(outages)
        self._home_size = stage.size
        self._done: set[str] = set()
        self._nobodys = Story("nothing")
        self.scenarios: list[str] = []

    def play(self, planned: list[Deed]) -> None:
        stage = self._stage
        stage.run(stage.random.randrange(BEGINS_WITHIN_MS))
        stage.open()
        self._be_over("start")
        for deed in planned:
            self._pass_outages(deed.at_ms)
            if deed.at_ms + LONGEST_MS < min([self._span.ends_ms, *(each.at_ms for each in self._outages)]):
                self._until(deed.at_ms)
                self._do(deed)
        self._pass_outages(self._span.ends_ms)
        self._until(self._span.ends_ms)
        assert not [*self._nobodys.must, *self._nobodys.may], "a rebalance came of no deed"

    def _until(self, at_ms: int) -> None:
        self._stage.run(max(0, at_ms - self._stage.world.wall_ms))

    def _be_over(self, scenario: str) -> None:
        """Attribute all incidents since the last call to this scenario, and later actions of processes to no
        scenario.
        """
        stage = self._stage
        self.scenarios += [scenario] * (len(stage.world.stories) - len(self.scenarios))
        stage.run(QUIET_MS + stage.random.randint(0, MINUTE))
        for each in stage.processes:
            each.story = self._nobodys

    # ---- outages ---------------------------------------------------------------------------------

    def _pass_outages(self, until_ms: int) -> None:
        while self._outages and self._outages[0].at_ms <= until_ms:
            self._pass_outage(self._outages.pop(0))

    def _pass_outage(self, outage: Outage) -> None:
        stage = self._stage
        assert stage.world.wall_ms <= outage.at_ms, "a deed took longer than LONGEST_MS"
        self._until(outage.at_ms)
        had_members = bool(stage.processes)
        story = be_away(
            stage,
            outage.away_ms,
            paused=outage.end is End.PAUSE,
            orderly=outage.end is End.STOP,
            seen_before_ms=outage.seen_before_ms,
        )
        story.is_optional = not had_members
        conclude(stage, story)
        self._be_over("coordinator-outage")

    # ---- deeds -----------------------------------------------------------------------------------

    def _do(self, deed: Deed) -> None:
        """Play the scenario, after whatever the group needs first. Skip it if the previous one ended too recently."""
        stage = self._stage
        if stage.world.wall_ms > deed.at_ms:
            return
        stage.size = len(stage.processes)
        if stage.size == 0:
            self._start_again()
        elif stage.size < max(2, self._home_size * 2 // 3):
            self._play("scale-up")
        elif stage.size > self._home_size * 3 // 2 + 2:
            if len(stage.dynamic) == stage.size:
                self._play("scale-down")
        elif deed.scenario not in self._done and self._fits(SCENARIOS[deed.scenario].wanted):
            self._play(deed.scenario)
            if deed.once:
                self._done.add(deed.scenario)

    def _play(self, name: str) -> None:
        SCENARIOS[name].play(self._stage)
        self._rest(name)

    def _start_again(self) -> None:
        stage = self._stage
        stage.newcomers(stage.world.story("start"), self._home_size, lambda: stage.random.randint(0, SECOND))
        self._rest("start")

    def _rest(self, name: str) -> None:
        self._stage.rest()
        self._be_over(name)

    def _fits(self, wanted: Wanted) -> bool:
        """Return whether the group meets the scenario's needs."""
        stage = self._stage
        static_share = len(stage.static) / stage.size
        return (
            wanted.size_min <= stage.size <= wanted.size_max
            and (wanted.static is None or wanted.static == static_share)
            and set(stage.libraries) <= set(wanted.libraries)
            and stage.assignors in wanted.assignors
            and stage.version >= wanted.version_min
            and stage.rebalance_ms <= wanted.rebalance_max_ms
            and stage.style in wanted.styles
        )


class TruthOfIncident(msgspec.Struct, frozen=True, kw_only=True):
    """An incident that a scenario caused. Fields as in Truth; `kind` is the first of `kinds`; `scenario` is its
    scenario's name.
    """

    kind: str
    kinds: tuple[str, ...]
    scenario: str
    knowable: str
    culprits: tuple[str, ...] | None
    starts: tuple[Range, ...]
    ends: tuple[Range, ...]
    extent: Range
    must: tuple[RebalanceId, ...]
    may: tuple[RebalanceId, ...]
    parent: int | None
    is_optional: bool


class TruthOfGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group. `processes`: the member ids of each process, by its name."""

    group_id: str
    team: str
    partition: int
    setting: str
    until_ms: int
    processes: dict[str, tuple[str, ...]]
    incidents: tuple[TruthOfIncident, ...]


def group_of(lived: Lived, partition: int) -> TruthOfGroup:
    """The part of a group's days that is written to the truth file."""
    processes: dict[str, list[str]] = {}
    for member_id, name in lived.names.items():
        processes.setdefault(name, []).append(member_id)
    return TruthOfGroup(
        group_id=lived.group_id,
        team=team_of(lived.group_id),
        partition=partition,
        setting=lived.setting,
        until_ms=lived.until_ms,
        processes={name: tuple(member_ids) for name, member_ids in processes.items()},
        incidents=tuple(map(_incident, lived.truths, lived.scenarios)),
    )


def _incident(truth: Truth, scenario: str) -> TruthOfIncident:
    fields: dict[str, Any] = msgspec.structs.asdict(truth)
    fields |= {name: tuple(sorted(fields[name])) for name in ("must", "may")}
    fields |= {"culprits": None if truth.culprits is None else tuple(sorted(truth.culprits))}
    fields |= {"knowable": truth.knowable.value, "kind": truth.kind, "scenario": scenario}
    return TruthOfIncident(**fields)
