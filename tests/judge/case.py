"""A case from a seed: a scenario played on a stage, the history in its log, and the ground truth.

Seeds 0 to 999 are for development. Seeds from `HELD_OUT_FROM` on are not used before the thresholds are frozen.
"""

from collections.abc import Iterable, Iterator
from random import Random
from typing import Final

import msgspec

from muster.events.ids import MemberId
from muster.replay.fleet.simulation.stage import QUIET_MS, Stage
from muster.replay.fleet.simulation.world.rules import GROUP_ID
from muster.replay.fleet.simulation.world.truth import Knowable, Story, Truth
from muster.replay.history.items import Broken, Happened, Told, Unreadable, with_gaps
from tests.judge.scenario import JudgedScenario, ScenarioSort
from tests.judge.scenarios import SCENARIOS
from tests.replay.whole import History

WORK_SEEDS: Final = range(1_000)
HELD_OUT_FROM: Final = 1_000_000
WEIGHTS: Final = {ScenarioSort.PLAIN: 20, ScenarioSort.COMPOUND: 4, ScenarioSort.NEAR_MISS: 4, ScenarioSort.QUIET: 2}
"""A third is not plain."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A case with its ground truth. `names`: the process behind each member id; a restart changes no name. `notes`: the
    actions, by wall clock ms. `until_ms`: when the case ends, which the history does not show.
    """

    seed: int
    scenario: str
    sort: ScenarioSort
    setting: str
    history: History
    until_ms: int
    truths: tuple[Truth, ...]
    names: dict[MemberId, str]
    notes: tuple[tuple[int, str], ...]


def make_case(seed: int) -> Case:
    """The case of this seed, always the same."""
    random = Random(seed)
    sort = random.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))[0]
    scenario = random.choice([each for each in SCENARIOS.values() if each.sort is sort])
    return play(scenario, seed)


def play(scenario: JudgedScenario, seed: int) -> Case:
    """Play a scenario with everything else drawn from the seed."""
    stage = Stage(Random(f"{scenario.name} {seed}"), scenario.wanted)
    if not scenario.opens:
        stage.open()
    scenario.play(stage)
    stage.rest()
    stage.run(QUIET_MS)
    stories, world = stage.world.stories, stage.world
    reads: Iterable[Told] = world.rules.reads
    if scenario.keeps_second_round and len(stories[-1].must) > 1:
        stories.append(_second_round(stories[-1]))
    if scenario.cuts is not None:
        reads = list(_cut(reads, stories[scenario.cuts], unreadable=seed % 2 == 1))
    return Case(
        seed=seed,
        scenario=scenario.name,
        sort=scenario.sort,
        setting=stage.setting,
        history=History(group_id=GROUP_ID, log=f"judge:{seed}", items=tuple(with_gaps(reads))),
        until_ms=world.wall_ms,
        truths=tuple(story.truth(stories) for story in stories),
        names=world.names,
        notes=tuple(world.notes),
    )


def _second_round(story: Story) -> Story:
    """Return the rebalances after a story's first as a separate incident: the first will not be in the log."""
    second = Story("cooperative-round", culprits=None, knowable=Knowable.INFERRED)
    story.must, second.must = story.must[:1], story.must[1:]
    return second


def _cut(reads: Iterable[Told], story: Story, *, unreadable: bool) -> Iterator[Told]:
    """Remove everything that the log has of the story except its end, or make it unreadable, so that it cannot be
    known.
    """
    from_ms, until_ms = story.must[0].began[1], story.must[-1].ends_after(story.must[0])[0]
    story.kinds, story.culprits, story.knowable = ("unknown",), None, Knowable.UNKNOWABLE
    for each in reads:
        if not isinstance(each, Happened) or not from_ms <= each.position.timestamp_ms < until_ms:
            yield each
        elif unreadable:
            yield Broken(position=each.position, kind=Unreadable.BROKEN, reason="the judge has broken it")
