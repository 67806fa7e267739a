"""Processes that change: subscriptions, assignors, partitions of their topics, rebalances that they ask for."""

from muster.replay.fleet.simulation.scenarios.changes import change, some_of_them
from muster.replay.fleet.simulation.scenarios.slowness import newcomer
from muster.replay.fleet.simulation.stage import SECOND, Stage, Wanted
from tests.judge.scenario import scenario


@scenario(Wanted(assignors=(("cooperative-sticky",),), size_max=5), cuts=1, keeps_second_round=True)
def cooperative_round(stage: Stage) -> None:
    """A new process joins, which causes two rounds; the first is not in the log."""
    newcomer(stage)
    stage.rest(5 * SECOND)


@scenario(Wanted(assignors=(("range",), ("roundrobin", "range"))))
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


@scenario(Wanted(libraries=("java",), version_min=9))
def enforced_again_and_again(stage: Stage) -> None:
    """The leader's application requests a rebalance three times with its own reasons, the first time soon after a
    newcomer.
    """
    newcomer(stage)
    stage.rest(stage.random.randint(3 * SECOND, 8 * SECOND))
    leader = stage.world.leader()
    story = stage.world.story("enforced", culprits=[leader.name])
    for number in range(3):
        leader.story = story
        stage.note(f"{leader.name}, the leader, asks for a rebalance in words of its own")
        leader.rejoin_soon(f"triggered followup rebalance scheduled for {number}")
        stage.rest(stage.random.randint(4 * SECOND, 20 * SECOND))
