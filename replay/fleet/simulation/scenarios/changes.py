"""Processes that change: subscriptions, assignors, partitions of their topics, rebalances that they ask for."""

from functools import partial

from muster.coordinator.group.commands import AlterGroupConfig, ConfigChange, ConfigOperation
from muster.coordinator.group.configs import REBALANCE
from muster.replay.fleet.simulation.scenario import ScenarioSort, scenario
from muster.replay.fleet.simulation.scenarios.losses import silent_ms
from muster.replay.fleet.simulation.scenarios.slowness import newcomer
from muster.replay.fleet.simulation.stage import SECOND, Stage, Wanted
from muster.replay.fleet.simulation.world.process import Process
from muster.replay.fleet.simulation.world.setup import Setup
from muster.replay.fleet.simulation.world.truth import Knowable, Story

METADATA_CHANGED = "cached metadata has changed from (version1: {orders=[..]}) at the beginning of the rebalance"
SUBSCRIPTION_CHANGED = "the subscription has changed from [orders] at the beginning of the rebalance"
ENFORCED = "rebalance enforced by user"


def some_of_them(stage: Stage) -> list[Process]:
    """One, a few, or all."""
    return stage.some(stage.random.choice((1, stage.random.randint(1, stage.size), stage.size)))


def change(stage: Stage, process: Process, setup: Setup, story: Story, reason: str | None) -> None:
    """Have it rejoin with another setup. Its join may be under way: then the coordinator never hears of it here."""
    if process.is_joining:
        stage.note(f"{process.name} is rejoining already, and stays as it was")
        return
    process.setup, process.story = setup, story
    assert story.culprits is not None
    story.blame(process.name)
    process.rejoin_soon(reason)


@scenario(ScenarioSort.PLAIN)
def subscription_change(stage: Stage) -> None:
    """Some subscribe other topics."""
    story = stage.world.story("subscription-change")
    stage.world.partitions["payments"] = 6
    topics = stage.random.choice((("orders", "payments"), ("payments",)))
    longest_ms = stage.random.choice((0, SECOND, 10 * SECOND))
    for each in some_of_them(stage):
        stage.note(f"{each.name} subscribes {', '.join(topics)}")
        change(stage, each, each.setup.but(topics=topics), story, SUBSCRIPTION_CHANGED)
        stage.run(stage.random.randint(0, longest_ms))
    stage.rest(5 * SECOND)


@scenario(ScenarioSort.PLAIN, Wanted(assignors=(("cooperative-sticky",),), size_max=5), cuts=1, keeps_second_round=True)
def cooperative_round(stage: Stage) -> None:
    """A new process comes, which makes two rounds; the first is not in the log."""
    newcomer(stage)
    stage.rest(5 * SECOND)


@scenario(ScenarioSort.PLAIN)
def partitions_changed(stage: Stage) -> None:
    """The topic gets more partitions, and the leader finds out."""
    story = stage.world.story("partitions-changed", knowable=Knowable.INFERRED)
    stage.world.partitions["orders"] *= 2
    stage.note(f"orders has {stage.world.partitions['orders']} partitions")
    stage.run(stage.random.randint(0, 60 * SECOND))
    leader = stage.world.leader()
    leader.story = story
    stage.note(f"the leader {leader.name} finds out")
    leader.rejoin_soon(METADATA_CHANGED)
    stage.rest(5 * SECOND)


@scenario(ScenarioSort.PLAIN, Wanted(assignors=(("range",), ("roundrobin", "range"))))
def assignor_change(stage: Stage) -> None:
    """Processes list other assignors, without being restarted."""
    story = stage.world.story("assignor-change")
    longest_ms = stage.random.choice((0, SECOND, 10 * SECOND))
    assignors = stage.random.choice((("sticky", "range"), ("cooperative-sticky", "range")))
    for each in some_of_them(stage):
        stage.note(f"{each.name} lists {', '.join(assignors)}")
        change(stage, each, each.setup.but(assignors=assignors), story, None)
        stage.run(stage.random.randint(0, longest_ms))
    stage.rest(5 * SECOND)


@scenario(ScenarioSort.PLAIN, Wanted(assignors=(("range",), ("roundrobin", "range")), size_max=12))
def assignor_deployment(stage: Stage) -> None:
    """All processes are restarted, one after another, with other assignors."""
    story = stage.world.story("assignor-change", culprits=[each.name for each in stage.processes])
    assignors = stage.random.choice((("sticky", "range"), ("cooperative-sticky", "range")))
    for each in stage.processes:
        stage.stop(each, story)
        story.infer(stage.identity(each))
        setup = stage.restarted(each.setup.but(assignors=assignors))
        stage.note(f"{each.name} will list {', '.join(assignors)}")
        down_ms = stage.random.randint(2 * SECOND, 5 * SECOND)
        stage.at(down_ms, partial(stage.start, setup, story))
        stage.run(down_ms + stage.random.randint(2 * SECOND, 30 * SECOND))
    stage.rest(silent_ms(stage))


@scenario(ScenarioSort.PLAIN, Wanted(libraries=("java",), version_min=9))
def enforced_by_application(stage: Stage) -> None:
    """The leader's application calls enforceRebalance."""
    leader = stage.world.leader()
    leader.story = stage.world.story("enforced", culprits=[leader.name])
    stage.note(f"{leader.name}, the leader, enforces a rebalance")
    leader.rejoin_soon(ENFORCED)
    stage.rest(5 * SECOND)


@scenario(ScenarioSort.PLAIN, Wanted(libraries=("java",), version_min=9))
def enforced_again_and_again(stage: Stage) -> None:
    """The leader's application asks three times in words of its own, the first time soon after a newcomer."""
    newcomer(stage)
    stage.rest(stage.random.randint(3 * SECOND, 8 * SECOND))
    leader = stage.world.leader()
    story = stage.world.story("enforced", culprits=[leader.name])
    for number in range(3):
        leader.story = story
        stage.note(f"{leader.name}, the leader, asks for a rebalance in words of its own")
        leader.rejoin_soon(f"triggered followup rebalance scheduled for {number}")
        stage.rest(stage.random.randint(4 * SECOND, 20 * SECOND))


@scenario(ScenarioSort.PLAIN)
def enforced_by_administrator(stage: Stage) -> None:
    """An administrator asks Muster for a rebalance."""
    story = stage.world.story("enforced", culprits=None)
    stage.note("an administrator forces a rebalance")
    forced = ConfigChange(name=REBALANCE, operation=ConfigOperation.SET, value="force")
    stage.world.administer(
        story,
        lambda caller: AlterGroupConfig(
            group_id=stage.world.rules.group_id, caller=caller, changes=(forced,), validate_only=False
        ),
    )
    stage.rest(5 * SECOND)
