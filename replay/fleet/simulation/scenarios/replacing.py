"""Scenarios in which many processes start, stop or are replaced: deployments, scaling, start and shutdown."""

from muster.replay.fleet.simulation.scenarios.losses import silent_ms
from muster.replay.fleet.simulation.stage import MINUTE, QUIET_MS, SECOND, TELLING, Stage, Wanted, scenario
from muster.replay.fleet.simulation.world.truth import Knowable, Story


def third(size: int) -> int:
    """The minimum number of replaced processes that counts as a deployment."""
    return max(2, -(-size // 3))


def roll(stage: Stage, story: Story, number: int, *, gap_ms: tuple[int, int], crash: bool) -> None:
    """Replace this many processes one after another. Returns once the last one was stopped."""
    chosen = stage.some(number)
    # The gaps limit how many processes are down at a time, so that the group always has members.
    down_max_ms = max(2_500, min(60 * SECOND, gap_ms[0] * (stage.size - 1) * 3 // 4))
    for place, process in enumerate(chosen):
        assert story.culprits is not None
        story.blame(process.name)
        stage.restart(process, story, stage.random.randint(2_000, down_max_ms), crash=crash)
        if place < number - 1:
            stage.run(stage.random.randint(*gap_ms))
    stage.run(down_max_ms + SECOND)


@scenario()
def rolling_deployment(stage: Stage) -> None:
    """All are replaced, as by orchestrators: each only after the previous one is back and the group is at rest."""
    story = stage.world.story("deployment", culprits=[each.name for each in stage.processes])
    longest_ms = stage.random.choice((5 * SECOND, 20 * SECOND, 60 * SECOND))
    for each in stage.processes:
        down_ms = stage.random.randint(2 * SECOND, longest_ms)
        stage.restart(each, story, down_ms, crash=False)
        stage.rest(down_ms + stage.random.randint(SECOND, 10 * SECOND))
    stage.rest(silent_ms(stage))


@scenario()
def deployment(stage: Stage) -> None:
    """A rolling deployment that stops and starts one process after another, whatever the state of the group."""
    story = stage.world.story("deployment")
    shortest_ms = stage.random.choice((4 * SECOND, 20 * SECOND, 90 * SECOND))
    longest_ms = stage.random.choice((shortest_ms, 2 * shortest_ms, 270 * SECOND))
    number = stage.random.choice((stage.size, stage.random.randint(third(stage.size), stage.size)))
    roll(stage, story, number, gap_ms=(shortest_ms, max(shortest_ms, longest_ms)), crash=False)
    stage.rest(silent_ms(stage))


@scenario()
def deployment_by_crashes(stage: Stage) -> None:
    """A rolling deployment of processes that crash instead of shutting down."""
    story = stage.world.story("deployment")
    number = stage.random.randint(third(stage.size), stage.size)
    shortest_ms = stage.random.randint(8 * SECOND, 60 * SECOND)
    roll(stage, story, number, gap_ms=(shortest_ms, 2 * shortest_ms), crash=True)
    stage.rest(silent_ms(stage))


@scenario(Wanted(static=0.0, size_min=4))
def deployment_at_once(stage: Stage) -> None:
    """Some, but not all, are stopped at the same time and started again."""
    number = stage.random.randint(third(stage.size), stage.size - 1)
    story = stage.world.story("deployment")
    for each in stage.some(number):
        assert story.culprits is not None
        story.blame(each.name)
        stage.restart(each, story, stage.random.randint(2 * SECOND, 30 * SECOND), crash=False)
    stage.rest(40 * SECOND)


@scenario(Wanted(static=1.0))
def absorbed_deployment(stage: Stage) -> None:
    """All static processes are replaced one after another, each before its session expires."""
    story = stage.world.story("deployment", culprits=[each.name for each in stage.processes], is_optional=True)
    for each in stage.processes:
        down_ms = stage.random.randint(300, stage.session_ms - 3_500)
        stage.restart(each, story, down_ms, crash=False)
        stage.run(down_ms + stage.random.randint(SECOND, 20 * SECOND))
    stage.rest(2 * SECOND)


@scenario(Wanted(size_min=5, size_max=16, styles=TELLING))
def crash_in_deployment(stage: Stage) -> None:
    """During a deployment, a process dies that has not been replaced yet."""
    due = stage.some(stage.random.randint(third(stage.size), stage.size - 2))
    other = stage.one([each for each in stage.processes if each not in due])
    dies_with = stage.random.randrange(len(due) - 1)
    deployed = stage.world.story("deployment", culprits=[each.name for each in due])
    for place, process in enumerate(due):
        stage.restart(process, deployed, stage.random.randint(2 * SECOND, 5 * SECOND), crash=False)
        stage.run(stage.random.randint(8 * SECOND, 60 * SECOND))
        if place == dies_with:
            kinds = ("stopped", "crash") if other.is_static else ("crash",)
            crashed = stage.world.story(*kinds, culprits=[other.name], knowable=Knowable.INFERRED, parent=deployed)
            stage.kill(other, crashed)
            stage.run(stage.random.randint(0, 20 * SECOND))
    stage.rest(silent_ms(stage))


@scenario(Wanted(size_min=3, styles=TELLING))
def deployment_then_scale_up(stage: Stage) -> None:
    """All are replaced, and then more are added."""
    deployed = stage.world.story("deployment", culprits=[each.name for each in stage.processes])
    for each in stage.processes:
        stage.restart(each, deployed, stage.random.randint(2 * SECOND, 5 * SECOND), crash=False)
        stage.run(stage.random.randint(8 * SECOND, 30 * SECOND))
    stage.rest(silent_ms(stage))
    stage.run(stage.random.randint(0, 3 * MINUTE))
    scaled = stage.world.story("scale-up")
    stage.newcomers(scaled, stage.random.randint(1, 4), lambda: stage.random.randint(0, 5 * SECOND))
    stage.rest(SECOND)


@scenario()
def all_crash_and_restart(stage: Stage) -> None:
    """All die at the same time, and are started again."""
    story = stage.world.story("deployment", culprits=[each.name for each in stage.processes])
    for each in stage.processes:
        stage.restart(each, story, stage.random.randint(SECOND, 60 * SECOND), crash=True)
    stage.rest(60 * SECOND + silent_ms(stage))


@scenario(Wanted(static=0.0, size_max=15))
def blue_green(stage: Stage) -> None:
    """As many new processes start as are running, then the old ones stop."""
    old = stage.processes
    story = stage.world.story("blue-green", culprits=[each.name for each in old], knowable=Knowable.INFERRED)
    stage.newcomers(story, len(old), lambda: stage.random.randint(50, 2_000), "green")
    stage.run(stage.random.randint(20 * SECOND, 8 * MINUTE))
    for each in old:
        stage.stop(each, story)
        stage.run(stage.random.randint(50, 2_000))
    stage.rest(SECOND)


@scenario()
def scale_up(stage: Stage) -> None:
    """New processes start."""
    story = stage.world.story("scale-up")
    longest_ms = stage.random.choice((SECOND, 20 * SECOND, 110 * SECOND))
    stage.newcomers(story, stage.random.randint(1, 6), lambda: stage.random.randint(0, longest_ms))
    stage.rest(SECOND)


@scenario(Wanted(static=0.0))
def scale_down(stage: Stage) -> None:
    """Some processes leave, and some stay."""
    story = stage.world.story("scale-down")
    longest_ms = stage.random.choice((0, SECOND, 50 * SECOND))
    for each in stage.some(stage.random.randint(1, min(8, stage.size - 1))):
        assert story.culprits is not None
        story.blame(each.name)
        stage.stop(each, story)
        stage.run(stage.random.randint(0, longest_ms))
    stage.rest(SECOND)


def shut_down(stage: Stage) -> None:
    """All processes leave."""
    story = stage.world.story("shutdown", culprits=[each.name for each in stage.processes])
    for each in stage.processes:
        stage.stop(each, story)
        stage.run(stage.random.randint(0, 3_000))
    stage.rest(stage.rebalance_ms + SECOND)


@scenario(Wanted(static=0.0))
def shutdown_and_start(stage: Stage) -> None:
    """All processes leave; much later others join the empty group."""
    shut_down(stage)
    stage.run(QUIET_MS)
    story = stage.world.story("start")
    longest_ms = stage.random.choice((500, 14 * SECOND))
    stage.newcomers(story, stage.random.randint(1, 8), lambda: stage.random.randint(0, longest_ms))
    stage.rest(10 * SECOND)
