"""Incidents that resemble another kind, and times without an incident."""

from muster.replay.fleet.simulation.world.truth import Knowable
from tests.judge.real.diary import What, wall_ms
from tests.judge.real.given import Family
from tests.judge.real.scenario import NEAR_MISS, OWN, QUIET, scenario
from tests.judge.real.scenarios.replacing import leave
from tests.judge.real.stage import HEARTBEAT_MS, SECOND, RealStage, Wanted
from tests.waiting import until_so


@scenario(NEAR_MISS, Wanted(styles=OWN))
def two_restarts_of_one(stage: RealStage) -> None:
    """The same process is restarted twice: no loop yet."""
    process = stage.one()
    for _ in range(2):
        story = stage.restart_story(process, crash=True)
        with stage.doing(story, after_ms=stage.session_ms - HEARTBEAT_MS):
            process = stage.restart(process, story, crash=True, down_ms=None)


@scenario(NEAR_MISS, Wanted(size_min=7, size_max=7, styles=OWN))
def too_few_for_deployment(stage: RealStage) -> None:
    """Two of seven are restarted: two restarts."""
    for process in stage.random.sample(stage.processes, 2):
        story = stage.restart_story(process, crash=False)
        with stage.doing(story):
            stage.restart(process, story, crash=False, down_ms=None)


@scenario(NEAR_MISS, Wanted(static=False, size_min=3))
def not_quite_shutdown(stage: RealStage) -> None:
    """All but one leave."""
    leave(stage, stage.random.sample(stage.processes, stage.size - 1))


@scenario(
    NEAR_MISS,
    Wanted(static=True, styles=OWN, may_mix=False, families=(Family.LIBRDKAFKA, Family.JAVA)),
)
def overlapping_restart(stage: RealStage) -> None:
    """The new process starts before the old one has ended, which is fenced, and ends at that: no duel."""
    old = stage.one()
    story = stage.story("restart", culprits=[old.name])
    with stage.doing(story):
        begun_ms = wall_ms()
        new = stage.start(old.given, story)
        story.acts.clear()
        stage.until_noted(new, What.ASSIGNED, 1)
        until_so(lambda: not old.runs, "it is not fenced")
        old.was_ended = True
        stage.processes.remove(old)
        story.act(begun_ms - HEARTBEAT_MS, wall_ms())


@scenario(QUIET)
def nothing(stage: RealStage) -> None:
    """Nothing is done."""
    stage.wait_ms(stage.random.randint(5, 20) * SECOND)


@scenario(QUIET, Wanted(static=True))
def absorbed_restart(stage: RealStage) -> None:
    """A static process is killed or closed, and back before its session expires."""
    process = stage.one()
    is_crash = stage.random.random() < 0.5
    story = stage.restart_story(process, crash=is_crash, is_optional=True)
    with stage.doing(story):
        stage.restart(process, story, crash=is_crash, down_ms=0)


@scenario(QUIET)
def stopped_shortly(stage: RealStage) -> None:
    """One is paused (SIGSTOP) for less than its session."""
    process = stage.one()
    story = stage.story("unknown", is_optional=True, knowable=Knowable.UNKNOWABLE)
    story.act(wall_ms(), wall_ms())
    with stage.doing(story), stage.frozen(process):
        stage.wait_ms(stage.random.randint(200, stage.session_ms - 2 * SECOND))
