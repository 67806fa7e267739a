"""Topics that members subscribe to and that no member is assigned."""

from muster.coordinator.group.commands import (
    AlterGroupConfig,
    ConfigChange,
    ConfigOperation,
)
from muster.coordinator.group.configs import REBALANCE
from muster.replay.fleet.simulation.stage import SECOND, Stage, Wanted
from muster.replay.fleet.simulation.world.truth import Knowable, Story
from tests.judge.scenario import scenario

UNREAD_FROM_MS = 15 * SECOND
"""Longer than a client may take to learn of its topics."""


def restart_with_topics(stage: Stage, topics: tuple[str, ...]) -> Story:
    """Some static members are restarted with another subscription, one after another, each within its session."""
    restarted = stage.some(stage.random.randint(1, stage.size))
    unassigned = stage.world.story("unassigned-topic", culprits=[each.name for each in restarted])
    restarts = stage.world.story("restart", "deployment", culprits=None, is_optional=True)
    for each in restarted:
        stage.stop(each, restarts)
        setup = stage.restarted(each.setup.but(topics=topics))
        stage.note(f"{each.name} will subscribe {', '.join(topics)}")
        stage.run(stage.random.randint(100, 2 * SECOND))
        unassigned.act(stage.world.wall_ms)
        stage.start(setup, restarts)
        stage.run(stage.random.randint(SECOND, 5 * SECOND))
    return unassigned


def rebalance(stage: Stage) -> Story:
    """An administrator asks for a rebalance."""
    story = stage.world.story("enforced", culprits=None)
    forced = ConfigChange(name=REBALANCE, operation=ConfigOperation.SET, value="force")
    stage.world.administer(
        story,
        lambda caller: AlterGroupConfig(
            group_id=stage.world.rules.group_id, caller=caller, changes=(forced,), validate_only=False
        ),
    )
    stage.rest(5 * SECOND)
    return story


@scenario(Wanted(static=1.0))
def static_restart_with_topics(stage: Stage) -> None:
    """Static members return with one more topic, and the group does not rebalance; this ends with a requested
    rebalance, or not at all.
    """
    stage.world.partitions["payments"] = 6
    unassigned = restart_with_topics(stage, ("orders", "payments"))
    stage.run(UNREAD_FROM_MS)
    if stage.random.random() < 0.7:
        rebalance(stage)
        unassigned.act(stage.world.view.rebalances[-1].ends_after(stage.world.view.rebalances[-1])[0])


@scenario(Wanted(static=1.0, size_max=12))
def static_restart_with_topics_healed(stage: Stage) -> None:
    """A static member returns with one topic more, and right after that a newcomer causes a rebalance."""
    stage.world.partitions["payments"] = 6
    restart = stage.world.story("restart", culprits=None, is_optional=True)
    process = stage.one()
    stage.stop(process, restart)
    stage.run(stage.random.randint(100, 2 * SECOND))
    stage.start(stage.restarted(process.setup.but(topics=("orders", "payments"))), restart)
    stage.run(stage.random.randint(SECOND, 2 * SECOND))
    stage.newcomers(stage.world.story("scale-up"), 1, lambda: SECOND)
    stage.rest(SECOND)


@scenario(Wanted(size_max=12))
def unknown_topic(stage: Stage) -> None:
    """Newcomers subscribe a topic that does not exist, in addition to the group's own."""
    scale_up = stage.world.story("scale-up")
    unassigned = stage.world.story("unassigned-topic", knowable=Knowable.INFERRED)
    setup = stage.setup("new").but(topics=("orders", "odrers"))
    scale_up.blame(setup.name)
    stage.start(setup, scale_up)
    stage.rest(SECOND)
    ends_ms = [each.ends_after(each)[0] for each in scale_up.must]  # two rounds of a cooperative assignor
    unassigned.act(ends_ms[0], ends_ms[-1])
    stage.run(UNREAD_FROM_MS)
