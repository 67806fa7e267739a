"""Processes that are killed."""

from muster.replay.fleet.simulation.world.truth import Knowable
from tests.judge.real.process import RealProcess
from tests.judge.real.scenario import OWN, PLAIN, scenario
from tests.judge.real.stage import HEARTBEAT_MS, SECOND, RealStage, Wanted
from tests.judge.real.story import Story


def crash_kinds(process: RealProcess) -> tuple[str, ...]:
    """A static member that is killed looks as if it had been stopped."""
    return ("stopped", "crash") if process.is_static else ("crash",)


def crash_of(stage: RealStage, process: RealProcess, parent: Story | None = None) -> Story:
    """Kill it, for good; its session expires."""
    story = stage.story(*crash_kinds(process), culprits=[process.name], knowable=Knowable.INFERRED, parent=parent)
    with stage.doing(story, after_ms=stage.session_ms - HEARTBEAT_MS):
        stage.kill(process, story)
        stage.until_gone(process.member_id)
    return story


@scenario(PLAIN)
def crash(stage: RealStage) -> None:
    """One process is killed, and not replaced."""
    crash_of(stage, stage.one())


@scenario(PLAIN, Wanted(static=True, every_other_static=True, size_min=3))
def killed_together(stage: RealStage) -> None:
    """A static and a dynamic process are killed at the same time, as on one host."""
    killed = stage.processes[:2]
    story = stage.story("crash", culprits=[each.name for each in killed], knowable=Knowable.INFERRED)
    with stage.doing(story, after_ms=stage.session_ms - HEARTBEAT_MS):
        for each in killed:
            stage.kill(each, story)
        for each in killed:
            stage.until_gone(each.member_id)


@scenario(PLAIN)
def crash_and_replacement(stage: RealStage) -> None:
    """One is killed, and started again when its session has expired."""
    process = stage.one()
    story = stage.restart_story(process, crash=True)
    with stage.doing(story, after_ms=stage.session_ms - HEARTBEAT_MS):
        stage.restart(process, story, crash=True, down_ms=None)


@scenario(PLAIN, Wanted(static=False))
def replacement_at_once(stage: RealStage) -> None:
    """One is killed, and restarted at once: its old member delays the phase."""
    process = stage.one()
    story = stage.restart_story(process, crash=True)
    with stage.doing(story):
        stage.restart(process, story, crash=True, down_ms=stage.random.randint(0, SECOND))


@scenario(PLAIN)
def all_crash(stage: RealStage) -> None:
    """All are killed at the same time, and started again."""
    old = list(stage.processes)
    story = stage.story("deployment", culprits=[each.name for each in old], knowable=stage.identity())
    with stage.doing(story):
        for each in old:
            stage.kill(each, story)
        stage.wait_ms(stage.random.choice((0, stage.session_ms + 2 * SECOND)))
        for each in old:
            stage.start(each.given, story)


@scenario(PLAIN, Wanted(styles=OWN))
def crash_loop(stage: RealStage) -> None:
    """A process is killed three times, and restarts each time."""
    process = stage.one()
    story = stage.story("crash-loop", culprits=[process.name], knowable=stage.identity())
    for _ in range(3):
        with stage.doing(story):
            process = stage.restart(process, story, crash=True, down_ms=None)
        stage.wait_ms(stage.random.randint(0, 3 * SECOND))
