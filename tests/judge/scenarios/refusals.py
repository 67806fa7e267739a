"""Consumers that are refused: they never become members."""

from muster.replay.fleet.simulation.scenarios.losses import crash_of, silent_ms
from muster.replay.fleet.simulation.stage import SECOND, Stage, Wanted
from muster.replay.fleet.simulation.world.truth import Story
from tests.judge.scenario import scenario

ASSIGNORS_MIXED = ("roundrobin", "range", "sticky")


def refuse(stage: Stage, processes: int) -> Story:
    """Processes with an assignor that the group does not have, which their supervisor starts again and again."""
    story = stage.world.story("refused", culprits=None)
    other = next(each for each in ASSIGNORS_MIXED if each not in stage.assignors)
    setups = [stage.setup("mixed").but(assignors=(other,)) for _ in range(processes)]
    stage.note(f"{', '.join(each.name for each in setups)} have {other} alone, and are refused")
    for _ in range(stage.random.randint(1, 3)):  # ten in a minute are written
        for each in setups:
            stage.start(each, story)
        stage.run(stage.random.randint(SECOND, 20 * SECOND))
    return story


@scenario()
def refused(stage: Stage) -> None:
    """Nothing else happens."""
    refuse(stage, stage.random.randint(1, 3))


@scenario(Wanted(size_min=3))
def refused_beside_crash(stage: Stage) -> None:
    """A member crashes meanwhile: the refused clients did not cause its rebalance."""
    crash_of(stage, stage.one())
    refuse(stage, stage.random.randint(1, 3))
    stage.rest(silent_ms(stage))
