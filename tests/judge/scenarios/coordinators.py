"""Coordinator outages: stopped, crashed, paused; and the state that it finds when it is back."""

import msgspec

from muster.replay.fleet.simulation.stage import SECOND, Stage, Wanted, be_away, conclude
from muster.replay.fleet.simulation.world.outages import bring_up, take_down
from muster.replay.fleet.simulation.world.truth import Story
from tests.judge.scenario import scenario

SIGN_OF_LIFE_MS = 5_000


def away(stage: Stage, away_ms: int, *, paused: bool = False) -> Story:
    """The coordinator is down for this long; how it ends is random."""
    seen_before_ms = stage.random.randint(0, SIGN_OF_LIFE_MS) if stage.random.random() < 0.8 else None
    orderly = not paused and stage.random.random() < 0.5
    return be_away(stage, away_ms, paused=paused, orderly=orderly, seen_before_ms=seen_before_ms)


@scenario(Wanted(libraries=("librdkafka", "librdkafka", "java")))
def coordinator_outage(stage: Stage) -> None:
    """It is longer than the sessions, and librdkafka's clients return as new members."""
    conclude(stage, away(stage, stage.session_ms + stage.random.randint(4 * SECOND, 40 * SECOND)))


@scenario(Wanted(libraries=("librdkafka", "librdkafka", "java")))
def coordinator_paused(stage: Stage) -> None:
    """The coordinator is paused for longer than the sessions."""
    away_ms = stage.session_ms + stage.random.randint(4 * SECOND, 15 * SECOND)
    conclude(stage, away(stage, away_ms, paused=True))


@scenario()
def coordinator_away(stage: Stage) -> None:
    """Any clients, for any time."""
    paused = stage.random.random() < 0.3
    conclude(stage, away(stage, stage.random.randint(SECOND, 60 * SECOND), paused=paused))


@scenario(Wanted(libraries=("java", "kafka-python", "aiokafka")))
def coordinator_change(stage: Stage) -> None:
    """The coordinator changes, and every member stays."""
    conclude(stage, away(stage, stage.random.randint(500, 30 * SECOND)))


@scenario(Wanted(size_max=12))
def capacity(stage: Stage) -> None:
    """The group is full, and a member is refused."""
    world = stage.world
    world.rules.settings = msgspec.structs.replace(world.rules.settings, max_size=stage.size)
    story = world.story("capacity", culprits=None)
    stage.newcomers(story, stage.random.randint(1, 3), lambda: stage.random.randint(0, 5 * SECOND))
    stage.rest(SECOND)


@scenario(Wanted(size_min=3, size_max=12, static=0.0))
def capacity_after_change(stage: Stage) -> None:
    """The next coordinator has a smaller group.max.size, and the surplus is refused."""
    world = stage.world
    story = world.story("capacity", culprits=None)
    fewer = msgspec.structs.replace(world.rules.settings, max_size=stage.size - 1)
    stage.note(f"the coordinator is restarted with group.max.size={fewer.max_size}")
    change = world.story("coordinator-change", "coordinator-outage", is_optional=True)
    change.act(world.rules.last_record_ms, world.wall_ms + 2 * SECOND)
    for each in stage.processes:
        each.story = story
    take_down(world, orderly=True)
    stage.run(SECOND)
    world.rules.settings = fewer
    bring_up(world, story)
    change.act(world.wall_ms - SECOND, world.wall_ms + 2 * SECOND)
    stage.rest(stage.rebalance_ms + stage.session_ms)
