"""Many processes that come, go or are replaced: deployments, scaling, start and shutdown."""

from muster.replay.fleet.simulation.scenarios.replacing import shut_down
from muster.replay.fleet.simulation.stage import SECOND, Stage, Wanted
from muster.replay.fleet.simulation.world.truth import Knowable
from tests.judge.scenario import scenario


@scenario(Wanted(static=1.0))
def static_scale_down(stage: Stage) -> None:
    """Some static members are closed, or all are: they send no LeaveGroup, and their sessions expire."""
    longest_ms = stage.random.choice((0, SECOND, 50 * SECOND))
    story, before = None, None
    for each in stage.some(stage.random.randint(1, min(8, stage.size))):
        if story is None or before is None or not before.is_member:  # the group had gone on without the one before
            story = stage.world.story("stopped", culprits=[], knowable=Knowable.INFERRED)
        story.blame(each.name)
        stage.stop(each, story)
        before = each
        stage.run(stage.random.randint(0, longest_ms))
    stage.rest(stage.session_ms + stage.rebalance_ms + 4 * SECOND)


@scenario(Wanted(static=0.0))
def shutdown(stage: Stage) -> None:
    """All leave, and the group is empty."""
    shut_down(stage)


@scenario(Wanted(size_max=10), opens=True)
def slow_start(stage: Stage) -> None:
    """The first processes come one after another, each before the group has stood for 15 s."""
    stage.newcomers(stage.opening, stage.size, lambda: stage.random.randint(0, 14 * SECOND), "app")
    stage.rest(10 * SECOND)
