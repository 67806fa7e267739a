"""Nothing happens, or nothing that makes a rebalance. What was absorbed may be told, without a rebalance."""

from muster.replay.fleet.simulation.scenario import ScenarioSort, scenario
from muster.replay.fleet.simulation.stage import MINUTE, SECOND, Stage, Wanted
from muster.replay.fleet.simulation.world.outages import cut, heal


@scenario(ScenarioSort.QUIET)
def nothing(stage: Stage) -> None:
    """A long time."""
    stage.run(stage.random.randint(MINUTE, 60 * MINUTE))


@scenario(ScenarioSort.QUIET, Wanted(static=1.0))
def absorbed_restart(stage: Stage) -> None:
    """A static process is back before its session expires."""
    process = stage.one()
    story = stage.world.story("restart", culprits=[process.name], is_optional=True)
    down_ms = stage.random.randint(300, stage.session_ms - 3_500)
    stage.restart(process, story, down_ms, crash=stage.random.random() < 0.5)
    stage.rest(down_ms + 2 * SECOND)


@scenario(ScenarioSort.QUIET, Wanted(static=1.0))
def absorbed_deployment(stage: Stage) -> None:
    """All static processes are replaced one after another, and none is missed."""
    story = stage.world.story("deployment", culprits=[each.name for each in stage.processes], is_optional=True)
    for each in stage.processes:
        down_ms = stage.random.randint(300, stage.session_ms - 3_500)
        stage.restart(each, story, down_ms, crash=False)
        stage.run(down_ms + stage.random.randint(SECOND, 20 * SECOND))
    stage.rest(2 * SECOND)


@scenario(ScenarioSort.QUIET, Wanted(static=1.0))
def absorbed_crash_loop(stage: Stage) -> None:
    """One static process dies thrice, and is back at once each time."""
    name = stage.one().name
    story = stage.world.story("crash-loop", culprits=[name], is_optional=True)
    for _ in range(3):
        process = next(each for each in stage.processes if each.name == name)
        down_ms = stage.random.randint(300, stage.session_ms - 3_500)
        stage.restart(process, story, down_ms, crash=True)
        stage.run(down_ms + stage.random.randint(20 * SECOND, 4 * MINUTE))


@scenario(ScenarioSort.QUIET)
def short_cut(stage: Stage) -> None:
    """Some are cut off for less than their sessions, as far as they can be."""
    processes = stage.some(stage.random.randint(1, stage.size))
    cut_ms = stage.random.randint(200, stage.session_ms - 5_000)
    stage.note(f"{len(processes)} are cut off for {cut_ms} ms")
    cut(stage.world, processes)
    stage.world.at(cut_ms, lambda: heal(stage.world, processes))
    stage.rest(cut_ms + 5 * SECOND)


@scenario(ScenarioSort.QUIET)
def short_freeze(stage: Stage) -> None:
    """A process stands still (SIGSTOP) for less than its session."""
    process = stage.one()
    freeze_ms = stage.random.randint(200, stage.session_ms - 4_000)
    stage.note(f"{process.name} stands still for {freeze_ms} ms")
    process.freeze()
    stage.world.at(freeze_ms, process.thaw)
    stage.rest(freeze_ms + 5 * SECOND)


@scenario(ScenarioSort.QUIET)
def clock_jump_at_rest(stage: Stage) -> None:
    """The wall clock jumps while nothing happens."""
    jump_ms = stage.random.choice((-60 * MINUTE, 60 * MINUTE))
    stage.note(f"the wall clock jumps by {jump_ms} ms")
    stage.world.rules.wall_offset_ms += jump_ms
    stage.run(MINUTE)
