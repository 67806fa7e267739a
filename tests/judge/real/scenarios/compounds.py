"""Two things at a time, or one soon after the other."""

from muster.replay.fleet.simulation.world.truth import Knowable
from tests.judge.real.diary import wall_ms
from tests.judge.real.scenario import COMPOUND, OWN, scenario
from tests.judge.real.scenarios.administration import change_subscription, remove
from tests.judge.real.scenarios.coordinators import be_away
from tests.judge.real.scenarios.losses import crash_kinds, crash_of
from tests.judge.real.scenarios.replacing import START_OVER_MS, leave_and_return, newcomers, roll
from tests.judge.real.scenarios.silences import SHORT_POLL_MS, late_poll
from tests.judge.real.stage import HEARTBEAT_MS, SECOND, RealStage, Wanted


@scenario(COMPOUND, Wanted(size_min=3))
def two_crashes(stage: RealStage) -> None:
    """Two are killed, one after the other: no network cut."""
    crash_of(stage, stage.one())
    stage.wait_ms(stage.random.choice((0, 20 * SECOND)))
    crash_of(stage, stage.one())


@scenario(COMPOUND, Wanted(static=False, size_min=4, size_max=5, styles=OWN))
def crash_in_deployment(stage: RealStage) -> None:
    """A process that was not due is killed while others are still to be replaced."""
    other, *due = stage.random.sample(stage.processes, len(stage.processes))
    deployed = stage.story("deployment", knowable=stage.identity())
    half = len(due) // 2
    roll(stage, due[:half], deployed)
    crash_of(stage, other, parent=deployed)
    roll(stage, due[half:], deployed)


@scenario(COMPOUND, Wanted(static=False, size_min=3, size_max=3, styles=OWN))
def crash_after_deployment(stage: RealStage) -> None:
    """All are replaced, and later one of the new ones is killed: the deployment was over."""
    roll(stage, list(stage.processes), stage.story("deployment", knowable=stage.identity()))
    stage.wait_ms(8 * SECOND)
    crash_of(stage, stage.one())


@scenario(COMPOUND, Wanted(styles=OWN))
def scaling_beside_restart(stage: RealStage) -> None:
    """Others join while a killed process is down."""
    process = stage.one()
    restarted = stage.restart_story(process, crash=True)
    with stage.doing(restarted, after_ms=stage.session_ms - HEARTBEAT_MS):
        stage.kill(process, restarted)
        stage.until_gone(process.member_id)
    newcomers(stage, stage.random.randint(1, 2))
    with stage.doing(restarted):
        stage.start(process.given, restarted)


@scenario(COMPOUND, Wanted(static=False, styles=OWN))
def crash_and_newcomer(stage: RealStage) -> None:
    """A process is killed, and another process that does not replace it joins at once: its join phase waits for the
    dead one.
    """
    stage.wait_ms(START_OVER_MS)
    process = stage.one()
    crashed = stage.story(*crash_kinds(process), culprits=[process.name], knowable=Knowable.INFERRED)
    scaled = stage.story("scale-up")
    with stage.doing(crashed, scaled):
        stage.kill(process, crashed)
        stage.add(scaled)
        stage.until_gone(process.member_id)


@scenario(COMPOUND, Wanted(size_min=3))
def crash_before_outage(stage: RealStage) -> None:
    """A process is killed shortly before Muster is; Muster restarts and gives it a full session."""
    process = stage.one()
    crashed = stage.story(*crash_kinds(process), culprits=[process.name], knowable=Knowable.INFERRED)
    stage.kill(process, crashed)
    stage.wait_ms(stage.random.randint(200, SECOND))
    be_away(stage, stage.random.randint(0, SECOND), paused=False, blamed=crashed)
    from_ms, _ = crashed.acts[0]
    crashed.acts[0] = from_ms, wall_ms()


@scenario(COMPOUND, Wanted(size_min=3, styles=OWN))
def crash_beside_removal(stage: RealStage) -> None:
    """An administrator removes one; seconds later another one is killed."""
    removed = stage.one()
    remove(stage, [removed])
    stage.wait_ms(stage.random.randint(2, 8) * SECOND)
    crash_of(stage, stage.one(removed))


@scenario(COMPOUND, Wanted(styles=OWN))
def outage_then_restart(stage: RealStage) -> None:
    """Muster is down shortly, and later one process is restarted."""
    be_away(stage, stage.random.randint(0, SECOND), paused=False)
    stage.wait_ms(stage.random.randint(2, 8) * SECOND)
    leave_and_return(stage)


@scenario(COMPOUND, Wanted(size_min=3, styles=OWN, may_cooperate=False))
def crash_after_subscription_change(stage: RealStage) -> None:
    """One subscribes other topics, and another one is killed soon after."""
    changing = stage.one()
    change_subscription(stage, changing)
    stage.wait_ms(stage.random.randint(0, 8) * SECOND)
    crash_of(stage, stage.one(changing))


@scenario(COMPOUND, Wanted(size_min=3, styles=OWN, may_mix=False, poll_interval_ms=SHORT_POLL_MS))
def late_poll_after_deployment(stage: RealStage) -> None:
    """All are replaced, and soon after one of the new ones polls too late: it is no part of the deployment."""
    down_ms = None if stage.is_static else 500
    roll(stage, list(stage.processes), stage.story("deployment", knowable=stage.identity()), down_ms=down_ms)
    stage.wait_ms(stage.random.randint(0, 8) * SECOND)
    late_poll(stage, stage.one())


@scenario(COMPOUND, Wanted(size_min=4, styles=OWN, may_mix=False, poll_interval_ms=SHORT_POLL_MS))
def late_poll_in_deployment(stage: RealStage) -> None:
    """One polls too late while others are still to be replaced."""
    other, *due = stage.random.sample(stage.processes, len(stage.processes))
    down_ms = None if stage.is_static else 500
    deployed = stage.story("deployment", knowable=stage.identity())
    half = len(due) // 2
    roll(stage, due[:half], deployed, down_ms=down_ms)
    late_poll(stage, other)
    roll(stage, due[half:], deployed, down_ms=down_ms)
