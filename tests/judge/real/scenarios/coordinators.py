"""Muster is down, or paused."""

from typing import Final

from tests.judge.real.diary import wall_ms
from tests.judge.real.scenario import NEAR_MISS, PLAIN, scenario
from tests.judge.real.stage import SECOND, RealStage
from tests.judge.real.story import Story

SIGN_OF_LIFE_MS: Final = 9 * SECOND
"""An owner leaves one every 5 s, and it may take 4 s."""


def be_away(stage: RealStage, away_ms: int, *, paused: bool, blamed: Story | None = None) -> Story:
    """Stop Muster for this long. Members with new member ids afterwards have lost their places because of it. `blamed`:
    the process to which the resulting rebalance is attributed.
    """
    story = stage.story("coordinator-change")
    former_ids = {each.name: each.member_id for each in stage.processes}
    begun_ms, before = wall_ms(), stage.generation
    with stage.doing(blamed or story):
        with stage.muster_away(paused=paused):
            stage.wait_ms(away_ms)
            back_from_ms = wall_ms()
        story.act(begun_ms - SIGN_OF_LIFE_MS, wall_ms())
        story.act(back_from_ms, wall_ms() + 2 * SECOND)
        stage.wait_ms(stage.session_ms + 2 * SECOND)
    if stage.generation != before:
        moved = (blamed or story).starts
        moved[-1] = back_from_ms, moved[-1][1]
    lost = [each.name for each in stage.processes if each.member_id != former_ids[each.name] and not each.is_static]
    if lost:
        stage.note(f"{', '.join(lost)} came back under other member ids")
        story.kinds = ("coordinator-outage",)
        if blamed is not None:  # Muster took so long to start that they lost their places: either may be reported
            story.may |= blamed.must
            blamed.may, blamed.must = blamed.may | blamed.must, set()
            story.starts, story.ends = list(blamed.starts), list(blamed.ends)
    elif story.must:
        story.kinds = ("coordinator-change", "coordinator-outage")
    return story


@scenario(PLAIN)
def coordinator_away(stage: RealStage) -> None:
    """Muster is killed, and back when the sessions would be over."""
    be_away(stage, stage.session_ms + stage.random.randint(2, 8) * SECOND, paused=False)


@scenario(PLAIN)
def coordinator_stopped(stage: RealStage) -> None:
    """Muster is paused (SIGSTOP) for longer than the sessions."""
    be_away(stage, stage.session_ms + stage.random.randint(2, 6) * SECOND, paused=True)


@scenario(NEAR_MISS)
def coordinator_back_soon(stage: RealStage) -> None:
    """Muster is killed, and back before any session would be over."""
    be_away(stage, stage.random.randint(0, SECOND), paused=False)
