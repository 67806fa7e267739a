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


@scenario(Wanted(static=0.5))
def shutdown_of_both(stage: Stage) -> None:
    """Static and dynamic members are closed together: all of them, or some within a second, as on one host."""
    static, dynamic = stage.some(len(stage.static), stage.static), stage.some(len(stage.dynamic), stage.dynamic)
    closed, longest_ms = [*static, *dynamic], stage.random.choice((0, SECOND, 3 * SECOND))
    if stage.size > 2 and stage.random.random() < 0.5:
        others = stage.some(stage.random.randint(0, min(4, stage.size - 3)), [*static[1:], *dynamic[1:]])
        closed, longest_ms = [static[0], dynamic[0], *others], 500
    story = stage.world.story("stopped", culprits=[each.name for each in closed], knowable=Knowable.INFERRED)
    for each in stage.some(len(closed), closed):
        stage.stop(each, story)
        stage.run(stage.random.randint(0, longest_ms))
    stage.rest(stage.session_ms + stage.rebalance_ms + 4 * SECOND)


@scenario(Wanted(static=0.0))
def shutdown(stage: Stage) -> None:
    """All leave, and the group is empty."""
    shut_down(stage)


@scenario(Wanted(size_max=10), opens=True)
def slow_start(stage: Stage) -> None:
    """The first processes join one after another, each before the group has been stable for 15 s."""
    stage.newcomers(stage.opening, stage.size, lambda: stage.random.randint(0, 14 * SECOND), "app")
    stage.rest(10 * SECOND)
