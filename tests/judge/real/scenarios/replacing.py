"""Processes that come, go or are replaced."""

from typing import Final

from muster.replay.fleet.simulation.world.truth import Knowable
from tests.judge.real import asking
from tests.judge.real.diary import wall_ms
from tests.judge.real.process import RealProcess
from tests.judge.real.scenario import PLAIN, scenario
from tests.judge.real.stage import HEARTBEAT_MS, SECOND, RealStage, Wanted
from tests.judge.real.story import Story

START_OVER_MS: Final = 17 * SECOND
"""A process that joins a group stable for less than this is one of the first processes."""


@scenario(PLAIN)
def leave_and_return(stage: RealStage) -> None:
    """One is closed cleanly, and restarted when it is no longer a member."""
    process = stage.one()
    story = stage.restart_story(process, crash=False)
    with stage.doing(story):
        stage.restart(process, story, crash=False, down_ms=None)


@scenario(PLAIN, Wanted(static=False))
def rolling_restart(stage: RealStage) -> None:
    """All are closed and started again, one after another."""
    roll(stage, list(stage.processes), stage.story("deployment", knowable=stage.identity()))


@scenario(PLAIN, Wanted(static=True, size_max=3))
def slow_static_rolling_restart(stage: RealStage) -> None:
    """The same with instance ids, and each is down for longer than its session."""
    roll(stage, list(stage.processes), stage.story("deployment"), down_ms=None)


def roll(stage: RealStage, due: list[RealProcess], story: Story, *, down_ms: int | None = 500) -> None:
    assert story.culprits is not None
    for each in due:
        story.culprits.add(each.name)
        with stage.doing(story):
            stage.restart(each, story, crash=False, down_ms=down_ms)


@scenario(PLAIN)
def scale_up(stage: RealStage) -> None:
    """More processes join, later than the first ones."""
    stage.wait_ms(START_OVER_MS)
    newcomers(stage, stage.random.randint(1, 2))


def newcomers(stage: RealStage, number: int) -> Story:
    story = stage.story("scale-up")
    with stage.doing(story):
        for _ in range(number):
            stage.add(story)
            stage.wait_ms(stage.random.randint(0, 2 * SECOND))
    return story


@scenario(PLAIN, Wanted(static=False, size_min=3))
def scale_down(stage: RealStage) -> None:
    """One is closed for good."""
    leave(stage, [stage.one()])


@scenario(PLAIN, Wanted(static=True, size_min=3))
def static_scale_down(stage: RealStage) -> None:
    """Two static members are closed at once (SIGTERM), as when a StatefulSet is scaled down."""
    leaving = [stage.one()]
    leaving.append(stage.one(*leaving))
    story = stage.story("stopped", culprits=[each.name for each in leaving], knowable=Knowable.INFERRED)
    with stage.doing(story, after_ms=stage.session_ms - HEARTBEAT_MS):
        for each in leaving:
            stage.stop(each, story)
        for each in leaving:
            stage.until_gone(each.member_id)


def leave(stage: RealStage, leaving: list[RealProcess]) -> Story:
    story = stage.story("scale-down", culprits=[each.name for each in leaving])
    with stage.doing(story):
        for each in leaving:
            stage.stop(each, story)
    return story


def shut_down(stage: RealStage) -> Story:
    """All are closed, one after another."""
    story = stage.story("shutdown", culprits=[each.name for each in stage.processes])
    for each in list(stage.processes):
        with stage.doing(story):
            stage.stop(each, story)
    return story


@scenario(PLAIN, Wanted(static=False, size_max=3))
def shutdown(stage: RealStage) -> None:
    """All are closed."""
    shut_down(stage)


@scenario(PLAIN, Wanted(static=False, size_max=3))
def deleted(stage: RealStage) -> None:
    """All are closed, and an administrator deletes the group."""
    shut_down(stage)
    emptied_ms = wall_ms()
    stage.wait_ms(stage.random.randint(0, 3 * SECOND))
    story = stage.story("group-deleted")
    stage.note("an administrator deletes the group")
    begun_ms = wall_ms()
    asking.delete(stage.muster.bootstrap, stage.group_id)
    story.act(emptied_ms - 60 * SECOND, wall_ms())
    story.act(begun_ms, wall_ms())
