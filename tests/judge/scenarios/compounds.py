"""Two incidents at a time, each of them separate."""

from muster.events.state import GroupState
from muster.replay.fleet.simulation.scenarios.changes import SUBSCRIPTION_CHANGED, change, remove
from muster.replay.fleet.simulation.scenarios.losses import crash_of, late_poll, silent_ms
from muster.replay.fleet.simulation.scenarios.replacing import shut_down, third
from muster.replay.fleet.simulation.scenarios.slowness import newcomer
from muster.replay.fleet.simulation.stage import MINUTE, SECOND, TELLING, Stage, Style, Wanted, conclude
from muster.replay.fleet.simulation.world.outages import cut, heal
from muster.replay.fleet.simulation.world.truth import Knowable
from tests.judge.scenario import scenario
from tests.judge.scenarios.coordinators import away

HOUR_MS = 60 * MINUTE


@scenario(Wanted(size_min=3, size_max=16, styles=TELLING))
def crash_after_deployment(stage: Stage) -> None:
    """All are replaced, and seconds later one of the new processes dies: the deployment was over."""
    deployed = stage.world.story("deployment", culprits=[each.name for each in stage.processes])
    for each in stage.processes:
        stage.restart(each, deployed, stage.random.randint(2 * SECOND, 5 * SECOND), crash=False)
        stage.run(stage.random.randint(8 * SECOND, 60 * SECOND))
    stage.run(stage.random.randint(0, 2 * MINUTE))
    crash_of(stage, stage.one())
    stage.rest(silent_ms(stage))


@scenario(Wanted(styles=TELLING))
def scaling_beside_restart(stage: Stage) -> None:
    """New processes come while one is being restarted."""
    process = stage.one()
    restarted = stage.world.story("restart", culprits=[process.name])
    down_ms = silent_ms(stage) + stage.random.randint(SECOND, MINUTE)
    stage.restart(process, restarted, down_ms, crash=stage.random.random() < 0.5)
    stage.run(stage.random.randint(SECOND, down_ms))
    scaled = stage.world.story("scale-up")
    stage.newcomers(scaled, stage.random.randint(1, 4), lambda: stage.random.randint(0, 20 * SECOND))
    stage.rest(down_ms)


@scenario(Wanted(styles=TELLING))
def crash_before_outage(stage: Stage) -> None:
    """A process dies shortly before the coordinator does, which restarts and gives it a full session."""
    crash_of(stage, stage.one())
    crashed = stage.world.stories[-1]
    stage.run(stage.random.randint(200, min(5 * SECOND, stage.session_ms - 3_500)))
    outage = away(stage, stage.random.randint(2 * SECOND, 40 * SECOND))
    from_ms, _ = crashed.acts[0]
    crashed.acts[0] = from_ms, stage.world.wall_ms + SECOND  # when it died may be unknown, between .. and ..
    conclude(stage, outage)


@scenario()
def crash_and_newcomer(stage: Stage) -> None:
    """A process dies, and a process that does not replace it joins first: its join phase waits for the dead one."""
    process = stage.one()
    crash_of(stage, process)
    crashed = stage.world.stories[-1]
    stage.run(stage.random.randint(300, stage.session_ms - 3_500))
    scaled = newcomer(stage)
    if stage.style is Style.ALIKE and not process.is_static and not stage.processes[-1].is_static:
        for each in (crashed, scaled):
            each.infer(Knowable.UNKNOWABLE)
    stage.rest(silent_ms(stage))


@scenario(Wanted(size_min=5, styles=(*TELLING, Style.PODS)))
def cut_and_crash(stage: Stage) -> None:
    """Some are cut off; when all is well again, another one dies."""
    processes = stage.some(stage.random.randint(2, stage.size - 2))
    cut_off = stage.world.story("network-cut", culprits=[each.name for each in processes], knowable=Knowable.INFERRED)
    stage.note(f"{', '.join(each.name for each in processes)} are cut off")
    for each in processes:
        each.story = cut_off
    cut(stage.world, processes)
    stage.run(silent_ms(stage) + stage.random.randint(0, MINUTE))
    stage.note("the network is back")
    heal(stage.world, processes)
    stage.rest(stage.random.randint(40 * SECOND, 2 * MINUTE))
    crash_of(stage, stage.one([each for each in stage.processes if each not in processes]))
    stage.rest(silent_ms(stage))


@scenario(Wanted(size_min=3, size_max=12, styles=TELLING, rebalance_max_ms=60_000))
def late_poll_after_deployment(stage: Stage) -> None:
    """All are replaced, another process joins, and soon polls too late: it is not one of those that were replaced."""
    deployed = stage.world.story("deployment", culprits=[each.name for each in stage.processes])
    for each in stage.processes:
        stage.restart(each, deployed, stage.random.randint(2 * SECOND, 5 * SECOND), crash=False)
        stage.run(stage.random.randint(8 * SECOND, 20 * SECOND))
    stage.rest(silent_ms(stage))
    newcomer(stage)
    stage.rest(stage.random.randint(5 * SECOND, MINUTE))
    late_poll(stage, stage.processes[-1], MINUTE)


@scenario(Wanted(static=0.0, size_max=8, styles=TELLING), opens=True)
def short_life(stage: Stage) -> None:
    """The first processes join, all are replaced, and all are closed, within minutes: each joins and leaves twice."""
    stage.open(quiet_ms=stage.random.randint(15 * SECOND, MINUTE))
    deployed = stage.world.story("deployment", culprits=[each.name for each in stage.processes])
    for each in stage.processes:
        down_ms = stage.random.randint(SECOND, 5 * SECOND)
        stage.restart(each, deployed, down_ms, crash=False)
        stage.rest(down_ms + stage.random.randint(2 * SECOND, 10 * SECOND))
    stage.rest(stage.random.randint(10 * SECOND, MINUTE))
    shut_down(stage)


@scenario(Wanted(static=0.0, size_min=4, styles=TELLING))
def deployment_and_scale_down(stage: Stage) -> None:
    """Some are replaced, and one is closed for good half-way."""
    *due, leaver = stage.some(stage.random.randint(third(stage.size), stage.size - 1) + 1)
    deployed = stage.world.story("deployment", culprits=[each.name for each in due])
    for place, each in enumerate(due):
        stage.restart(each, deployed, stage.random.randint(2 * SECOND, 5 * SECOND), crash=False)
        stage.run(stage.random.randint(10 * SECOND, 30 * SECOND))
        if place == len(due) // 2:
            stage.stop(leaver, stage.world.story("scale-down", culprits=[leaver.name]))
            stage.run(10 * SECOND)
    stage.rest(SECOND)


@scenario(Wanted(size_min=3, styles=TELLING, libraries=("java", "kafka-python", "aiokafka")))
def outage_then_restart(stage: Stage) -> None:
    """The coordinator is replaced, and minutes later a process."""
    conclude(stage, away(stage, stage.random.randint(SECOND, 10 * SECOND)))
    stage.run(stage.random.randint(MINUTE, 3 * MINUTE))
    process = stage.one()
    story = stage.world.story("restart", culprits=[process.name])
    stage.restart(process, story, silent_ms(stage), crash=False)
    stage.rest(silent_ms(stage) + SECOND)


@scenario(Wanted(size_min=4))
def crash_beside_removal(stage: Stage) -> None:
    """An administrator removes a member; seconds later another one dies."""
    removed, other = stage.some(2)
    remove(stage, [removed])
    stage.run(stage.random.randint(5 * SECOND, 20 * SECOND))
    crash_of(stage, other)
    stage.rest(silent_ms(stage))


@scenario(Wanted(static=0.0, size_min=2, size_max=8, styles=TELLING))
def removal_right_after_leave(stage: Stage) -> None:
    """One leaves for good, and while the others have not rejoined yet an administrator removes them all."""
    leaver, *others = stage.processes
    stage.stop(leaver, stage.world.story("scale-down", culprits=[leaver.name]))
    stage.run(stage.random.randint(1, 20))
    remove(stage, others)
    stage.rest(silent_ms(stage))


@scenario(Wanted(size_min=3))
def crash_after_subscription_change(stage: Stage) -> None:
    """A process subscribes other topics, and half a minute later another one dies."""
    changing, other = stage.some(2)
    story = stage.world.story("subscription-change")
    stage.world.partitions["payments"] = 6
    stage.note(f"{changing.name} subscribes orders, payments")
    change(stage, changing, changing.setup.but(topics=("orders", "payments")), story, SUBSCRIPTION_CHANGED)
    stage.run(stage.random.randint(10 * SECOND, 40 * SECOND))
    crash_of(stage, other)
    stage.rest(silent_ms(stage))


@scenario(cuts=0)
def lost_beginning(stage: Stage) -> None:
    """The log has lost how the group formed; later events are there."""
    crash_of(stage, stage.one())
    stage.rest(silent_ms(stage))


@scenario()
def clock_jump(stage: Stage) -> None:
    """The wall clock jumps by an hour while a new member causes a rebalance."""
    newcomer(stage)
    for _ in range(100):
        if stage.world.state is GroupState.PREPARING_REBALANCE:
            break
        stage.run(1)
    stage.run(stage.random.randint(0, 200))
    jump_ms = stage.random.choice((-HOUR_MS, HOUR_MS))
    stage.note(f"the wall clock jumps by {jump_ms} ms")
    stage.world.rules.wall_offset_ms += jump_ms
    stage.rest(5 * SECOND)
