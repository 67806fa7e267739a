"""Nothing happens, or nothing that causes a rebalance. Absorbed events may be reported, without a rebalance."""

from muster.replay.fleet.simulation.stage import MINUTE, SECOND, Stage, Wanted
from tests.judge.scenario import scenario


@scenario()
def nothing(stage: Stage) -> None:
    """A long time."""
    stage.run(stage.random.randint(MINUTE, 60 * MINUTE))


@scenario(Wanted(static=1.0))
def absorbed_crash_loop(stage: Stage) -> None:
    """One static process dies three times, and is back at once each time."""
    name = stage.one().name
    story = stage.world.story("crash-loop", culprits=[name], is_optional=True)
    for _ in range(3):
        process = next(each for each in stage.processes if each.name == name)
        down_ms = stage.random.randint(300, stage.session_ms - 3_500)
        stage.restart(process, story, down_ms, crash=True)
        stage.run(down_ms + stage.random.randint(20 * SECOND, 4 * MINUTE))


@scenario()
def clock_jump_at_rest(stage: Stage) -> None:
    """The wall clock jumps while nothing happens."""
    jump_ms = stage.random.choice((-60 * MINUTE, 60 * MINUTE))
    stage.note(f"the wall clock jumps by {jump_ms} ms")
    stage.world.rules.wall_offset_ms += jump_ms
    stage.run(MINUTE)
