"""Incidents that are nearly another kind: on the other side of a window or a limit."""

from muster.replay.fleet.simulation.scenarios.losses import crash_of, silent_ms
from muster.replay.fleet.simulation.scenarios.slowness import newcomer
from muster.replay.fleet.simulation.stage import MINUTE, SECOND, TELLING, Stage, Wanted
from tests.judge.scenario import scenario


def one_restart(stage: Stage, down_ms: int, name: str | None = None) -> None:
    """A separate incident."""
    process = next((each for each in stage.processes if each.name == name), None) or stage.one()
    story = stage.world.story("restart", culprits=[process.name])
    stage.restart(process, story, down_ms, crash=False)
    stage.rest(down_ms + SECOND)


@scenario(Wanted(size_min=7, styles=TELLING))
def too_few_for_deployment(stage: Stage) -> None:
    """Two processes of many are replaced: two restarts."""
    for process in stage.some(2):
        one_restart(stage, silent_ms(stage), process.name)
        stage.run(stage.random.randint(10 * SECOND, MINUTE))


@scenario(Wanted(size_min=2, size_max=4, styles=TELLING))
def too_slow_for_deployment(stage: Stage) -> None:
    """Two processes of few are replaced, the second more than five minutes after the first: two restarts."""
    first, second = stage.some(2)
    down_ms = silent_ms(stage)
    one_restart(stage, down_ms, first.name)
    began_ms = stage.world.now_ms - down_ms - SECOND
    stage.run(max(0, began_ms + 5 * MINUTE + stage.random.randint(10 * SECOND, 30 * SECOND) - stage.world.now_ms))
    one_restart(stage, down_ms, second.name)


@scenario()
def newcomers_too_far_apart(stage: Stage) -> None:
    """The second comes two minutes and a second after the first: two incidents."""
    newcomer(stage)
    stage.run(2 * MINUTE + stage.random.randint(SECOND, 20 * SECOND))
    newcomer(stage)
    stage.rest(SECOND)


@scenario(Wanted(size_max=10), opens=True)
def too_late_for_start(stage: Stage) -> None:
    """The first processes join, and when the group has been stable for at least 16 s, one more joins."""
    stage.newcomers(stage.opening, stage.size, lambda: stage.random.randint(0, 500), "app")
    stage.rest(10 * SECOND)
    stage.run(15 * SECOND + stage.random.randint(SECOND, 30 * SECOND))
    newcomer(stage)
    stage.rest(SECOND)


@scenario()
def newcomers_near_enough(stage: Stage) -> None:
    """The second comes a second before two minutes are over: one incident."""
    story = stage.world.story("scale-up")
    stage.newcomers(story, 2, lambda: 2 * MINUTE - stage.random.randint(SECOND, 20 * SECOND))
    stage.rest(SECOND)


@scenario()
def not_so_slow_member(stage: Stage) -> None:
    """A member takes just under five seconds to rejoin."""
    slow = stage.one()
    slow.slow_ms = stage.random.randint(3_500, 4_900) - 3_000  # it learns of the rebalance within 3 s
    stage.note(f"{slow.name} will be busy for {slow.slow_ms} ms when it hears of a rebalance")
    newcomer(stage)
    stage.rest(10 * SECOND)


@scenario()
def not_so_slow_leader(stage: Stage) -> None:
    """The leader takes just under five seconds to assign."""
    leader = stage.world.leader()
    leader.assign_slow_ms = stage.random.randint(3_500, 4_900)
    stage.note(f"the leader {leader.name} will need {leader.assign_slow_ms} ms to assign")
    newcomer(stage)
    stage.rest(10 * SECOND)


@scenario(Wanted(styles=TELLING))
def two_restarts_of_one(stage: Stage) -> None:
    """The same process is restarted twice: no loop yet."""
    name = stage.one().name
    for _ in range(2):
        one_restart(stage, silent_ms(stage), name)
        stage.run(stage.random.randint(MINUTE, 4 * MINUTE))


@scenario(Wanted(styles=TELLING))
def too_slow_for_loop(stage: Stage) -> None:
    """The same process is restarted thrice, more than ten minutes apart."""
    name = stage.one().name
    for _ in range(3):
        one_restart(stage, silent_ms(stage), name)
        stage.run(10 * MINUTE + stage.random.randint(10 * SECOND, MINUTE))


@scenario(Wanted(static=0.0, styles=TELLING))
def too_late_for_restart(stage: Stage) -> None:
    """A process dies, and is restarted more than ten minutes later: a crash, and a new member."""
    process = stage.one()
    crash_of(stage, process)
    stage.run(10 * MINUTE + silent_ms(stage) + stage.random.randint(10 * SECOND, 30 * SECOND))
    stage.start(process.setup, stage.world.story("scale-up", culprits=[process.name]))
    stage.rest(SECOND)


@scenario(Wanted(size_min=4))
def two_crashes_no_cut(stage: Stage) -> None:
    """Two processes die ten seconds apart, as no network cut has it."""
    first, second = stage.some(2)
    story = crash_of(stage, first)
    stage.run(stage.random.randint(8 * SECOND, 14 * SECOND))
    crash_of(stage, second, story if first.is_member else None)
    stage.rest(silent_ms(stage))


@scenario(Wanted(static=0.0, size_max=10))
def too_late_for_blue_green(stage: Stage) -> None:
    """As many new processes join as there are; the old ones leave more than ten minutes later."""
    old = stage.processes
    stage.newcomers(stage.world.story("scale-up"), len(old), lambda: stage.random.randint(50, 2_000), "green")
    stage.run(10 * MINUTE + stage.random.randint(30 * SECOND, 2 * MINUTE))
    story = stage.world.story("scale-down", culprits=[each.name for each in old])
    for each in old:
        stage.stop(each, story)
        stage.run(stage.random.randint(50, 2_000))
    stage.rest(SECOND)


@scenario(Wanted(static=0.0, size_min=3))
def not_quite_shutdown(stage: Stage) -> None:
    """All but one leave."""
    leaving = stage.some(stage.size - 1)
    story = stage.world.story("scale-down", culprits=[each.name for each in leaving])
    for each in leaving:
        stage.stop(each, story)
        stage.run(stage.random.randint(0, 3_000))
    stage.rest(SECOND)
