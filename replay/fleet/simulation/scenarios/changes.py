"""Scenarios that change the group: subscriptions, assignors, partitions; requested rebalances, removals and
deletion."""

from functools import partial

from muster.coordinator.group.commands import (
    AlterGroupConfig,
    ConfigChange,
    ConfigOperation,
    DeleteGroup,
    LeaveGroup,
    LeavingMember,
)
from muster.coordinator.group.configs import REBALANCE
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupInstanceId
from muster.replay.fleet.simulation.scenarios.losses import silent_ms
from muster.replay.fleet.simulation.scenarios.replacing import shut_down
from muster.replay.fleet.simulation.stage import QUIET_MS, SECOND, Stage, Wanted, scenario
from muster.replay.fleet.simulation.world.client import Setup
from muster.replay.fleet.simulation.world.process import Process
from muster.replay.fleet.simulation.world.truth import Knowable, Story

LEAVE, DELETE = 13, 42
METADATA_CHANGED = "cached metadata has changed from (version1: {orders=[..]}) at the beginning of the rebalance"
SUBSCRIPTION_CHANGED = "the subscription has changed from [orders] at the beginning of the rebalance"
ENFORCED = "rebalance enforced by user"
REMOVED = "member was removed by an admin"


def some_of_them(stage: Stage) -> list[Process]:
    """One process, a few, or all."""
    return stage.some(stage.random.choice((1, stage.random.randint(1, stage.size), stage.size)))


def change(stage: Stage, process: Process, setup: Setup, story: Story, reason: str | None) -> None:
    """Make a process rejoin with another setup; do nothing if it is already rejoining."""
    if process.is_joining:
        stage.note(f"{process.name} is rejoining already, and stays as it was")
        return
    process.setup, process.story = setup, story
    assert story.culprits is not None
    story.blame(process.name)
    process.rejoin_soon(reason)


@scenario()
def subscription_change(stage: Stage) -> None:
    """Some processes subscribe to other topics."""
    story = stage.world.story("subscription-change")
    stage.world.partitions["payments"] = 6
    topics = stage.random.choice((("orders", "payments"), ("payments",)))
    longest_ms = stage.random.choice((0, SECOND, 10 * SECOND))
    for each in some_of_them(stage):
        stage.note(f"{each.name} subscribes {', '.join(topics)}")
        change(stage, each, each.setup.but(topics=topics), story, SUBSCRIPTION_CHANGED)
        stage.run(stage.random.randint(0, longest_ms))
    stage.rest(5 * SECOND)


@scenario()
def partitions_changed(stage: Stage) -> None:
    """The topic gets more partitions, and the leader notices."""
    story = stage.world.story("partitions-changed", knowable=Knowable.INFERRED)
    stage.world.partitions["orders"] *= 2
    stage.note(f"orders has {stage.world.partitions['orders']} partitions")
    stage.run(stage.random.randint(0, 60 * SECOND))
    leader = stage.world.leader()
    leader.story = story
    stage.note(f"the leader {leader.name} finds out")
    leader.rejoin_soon(METADATA_CHANGED)
    stage.rest(5 * SECOND)


@scenario(Wanted(assignors=(("range",), ("roundrobin", "range")), size_max=12))
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


@scenario(Wanted(libraries=("java",), version_min=9))
def enforced_by_application(stage: Stage) -> None:
    """The leader's application calls enforceRebalance."""
    leader = stage.world.leader()
    leader.story = stage.world.story("enforced", culprits=[leader.name])
    stage.note(f"{leader.name}, the leader, enforces a rebalance")
    leader.rejoin_soon(ENFORCED)
    stage.rest(5 * SECOND)


@scenario()
def enforced_by_administrator(stage: Stage) -> None:
    """An administrator requests a rebalance from Muster."""
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


def remove(stage: Stage, processes: list[Process]) -> Story:
    """An administrator removes them, and they rejoin as new members. Some clients are then indistinguishable."""
    story = stage.world.story("removed-by-admin", culprits=[each.name for each in processes])
    stage.note(f"an administrator removes {', '.join(each.name for each in processes)}")
    leaving = tuple(
        LeavingMember(
            member_id=UNKNOWN_MEMBER_ID if each.is_static else each.member_id,
            group_instance_id=None if each.setup.instance is None else GroupInstanceId(each.setup.instance),
            reason=REMOVED,
        )
        for each in processes
    )
    comes_back = stage.identity(*processes, returned=True) is not Knowable.UNKNOWABLE
    for each in processes:
        each.story = story
    stage.world.administer(
        story,
        lambda caller: LeaveGroup(group_id=stage.world.rules.group_id, caller=caller, members=leaving),
        api_key=LEAVE,
    )
    for each in processes:
        if not comes_back:
            stage.note(f"{each.name} ends at that")
            each.die()
    return story


@scenario()
def removed_by_admin(stage: Stage) -> None:
    """Some or all members are removed, or only the static or dynamic ones."""
    among = stage.static if stage.static and (stage.random.random() < 0.5 or not stage.dynamic) else stage.dynamic
    remove(stage, stage.some(stage.random.randint(1, len(among)), among))
    stage.rest(silent_ms(stage))


@scenario(Wanted(static=0.0, size_max=12))
def group_deleted(stage: Stage) -> None:
    """The empty group is deleted; later other processes recreate it."""
    shut_down(stage)
    emptied_ms = stage.world.wall_ms
    stage.run(QUIET_MS)
    story = stage.world.story("group-deleted")
    stage.note("an administrator deletes the group")
    stage.world.administer(
        story, lambda caller: DeleteGroup(group_id=stage.world.rules.group_id, caller=caller), api_key=DELETE
    )
    story.acts = [(emptied_ms - 60 * SECOND, stage.world.wall_ms), (stage.world.wall_ms, stage.world.wall_ms)]
    _form_anew(stage)


def _form_anew(stage: Stage) -> None:
    stage.run(QUIET_MS)
    if stage.random.random() < 0.5:
        stage.newcomers(stage.world.story("start"), 2, lambda: 500)
        stage.rest(10 * SECOND)
