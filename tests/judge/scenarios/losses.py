"""Processes that are lost: crashes, restarts, loops of them, poll timeouts, network cuts, duels."""

from muster.replay.fleet.simulation.scenarios.losses import crash_loop, cut_for, poll_timeout, silent_ms, stand_still
from muster.replay.fleet.simulation.scenarios.slowness import newcomer
from muster.replay.fleet.simulation.stage import MINUTE, QUIET_MS, SECOND, TELLING, Stage, Style, Wanted
from muster.replay.fleet.simulation.world.process import Process
from muster.replay.fleet.simulation.world.truth import Knowable
from tests.judge.scenario import scenario


@scenario(Wanted(libraries=("java",), version_min=9, static=0.0))
def poll_timeout_with_reason(stage: Stage) -> None:
    """A late poll of a client that gives the reason when it leaves."""
    poll_timeout(stage)


def _unsubscribe(stage: Stage, knowable: Knowable, process: Process) -> None:
    story = stage.world.story("unsubscribe", culprits=[process.name], knowable=knowable)
    story.infer(stage.identity(process, returned=True))
    away_ms = stage.random.choice((stage.random.randint(500, 5 * SECOND), stage.random.randint(SECOND, 5 * MINUTE)))
    stage.note(f"{process.name} unsubscribes, and subscribes again {away_ms / SECOND:.1f} s later")
    process.story = story
    story.act(stage.world.wall_ms)
    process.unsubscribe()
    stage.world.at(away_ms, process.poll_again)
    stage.rest(away_ms + SECOND)


@scenario(Wanted(static=1.0, libraries=("librdkafka",)))
def unsubscribe_of_static(stage: Stage) -> None:
    """A static member's application unsubscribes and subscribes again: its client sends LeaveGroup without a reason."""
    _unsubscribe(stage, Knowable.INFERRED, stage.one())


@scenario(Wanted(static=0.0, libraries=("java",), version_min=9))
def unsubscribe_with_reason(stage: Stage) -> None:
    """A dynamic member's application unsubscribes and subscribes again, and its client gives the reason."""
    _unsubscribe(stage, Knowable.RECORDED, stage.one())


@scenario(Wanted(static=0.0, libraries=("librdkafka", "kafka-python"), rebalance_min_ms=300_000))
def unsubscribe_soon(stage: Stage) -> None:
    """A dynamic member gives no reason when it unsubscribes, before it could have exceeded its max.poll.interval.ms."""
    stage.run(QUIET_MS)
    newcomer(stage)
    stage.rest(stage.random.randint(10 * SECOND, MINUTE))
    _unsubscribe(stage, Knowable.INFERRED, stage.processes[-1])


@scenario(Wanted(static=1.0, libraries=("librdkafka",), rebalance_min_ms=300_000))
def frozen_soon(stage: Stage) -> None:
    """A static member is paused, and returns on its connection as a new member, too soon for a late poll."""
    stage.run(QUIET_MS)
    newcomer(stage)
    stage.rest(stage.random.randint(10 * SECOND, MINUTE))
    stand_still(stage, stage.processes[-1], "restart")


@scenario(Wanted(static=0.5))
def killed_together(stage: Stage) -> None:
    """Static and dynamic processes are killed at the same time, as on one host."""
    static, dynamic = stage.some(len(stage.static), stage.static), stage.some(len(stage.dynamic), stage.dynamic)
    others = stage.some(stage.random.randint(0, min(4, stage.size - 2)), [*static[1:], *dynamic[1:]])
    killed = [static[0], dynamic[0], *others]
    story = stage.world.story("crash", culprits=[each.name for each in killed], knowable=Knowable.INFERRED)
    for each in stage.some(len(killed), killed):
        stage.kill(each, story)
        stage.run(stage.random.randint(0, 3 * SECOND))
    stage.rest(stage.session_ms + stage.rebalance_ms + 4 * SECOND)


@scenario(Wanted(size_max=8))
def slow_beat(stage: Stage) -> None:
    """A live process sends heartbeats more slowly than its session allows: it loses its place again and again."""
    process = stage.one()
    usual = process.setup
    story = stage.world.story("restart", culprits=[process.name], knowable=Knowable.INFERRED)
    story.infer(stage.identity(process, returned=True))
    process.setup = usual.but(heartbeat_ms=stage.session_ms + stage.random.randint(500, 4 * SECOND))
    process.story = story
    stage.note(f"{process.name} sends a heartbeat each {process.setup.heartbeat_ms / SECOND:.1f} s from now on")
    stage.run(stage.random.randint(4, 8) * process.setup.heartbeat_ms)
    stage.note(f"{process.name} beats as it did before")
    process.setup = usual
    stage.rest(silent_ms(stage) + process.setup.session_ms)


@scenario(Wanted(styles=TELLING))
def crash_loop_for_good(stage: Stage) -> None:
    """One process dies again and again, and the last time it is not started again."""
    crash_loop(stage)
    story = stage.world.stories[-1]
    stage.kill(next(each for each in stage.processes if each.name in (story.culprits or ())), story)
    stage.rest(silent_ms(stage))


@scenario(Wanted(styles=(Style.OWN_IDS, Style.BEHIND_ONE_HOST, Style.SHARED_ID, Style.PODS)))
def network_cut_of_all(stage: Stage) -> None:
    """All are cut off from the coordinator for longer than their sessions: the group is empty until they are back. If
    every client has forgotten its member id, the log cannot distinguish that from a restart of all.
    """
    processes = stage.processes
    forget = all(each.setup.library == "librdkafka" for each in processes)
    story = stage.world.story(
        "network-cut",
        *(["deployment"] if forget else []),
        culprits=[each.name for each in processes],
        knowable=Knowable.INFERRED,
    )
    cut_ms = stage.random.randint(silent_ms(stage), 5 * MINUTE)
    stage.note(f"all {len(processes)} processes are cut off for {cut_ms / SECOND:.1f} s")
    cut_for(stage, cut_ms, processes, story)
