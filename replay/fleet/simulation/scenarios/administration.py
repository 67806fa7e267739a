"""Deeds of administrators, the life of an empty group, and a log with a hole."""

from muster.coordinator.group.commands import (
    AlterGroupConfig,
    ConfigChange,
    ConfigOperation,
    DeleteGroup,
    LeaveGroup,
    LeavingMember,
    ReleaseGroup,
)
from muster.coordinator.group.configs import (
    COORDINATOR,
    LEARNER_TIMEOUT,
    MUSTER,
    REGISTERED,
    RETIRED,
    TARGET_GROUP_SIZE,
    UPSTREAM,
)
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupInstanceId
from muster.replay.fleet.simulation.scenario import ScenarioSort, scenario
from muster.replay.fleet.simulation.scenarios.losses import crash_of, silent_ms
from muster.replay.fleet.simulation.scenarios.replacing import shut_down
from muster.replay.fleet.simulation.stage import MINUTE, QUIET_MS, SECOND, Stage, Wanted
from muster.replay.fleet.simulation.world.process import Process
from muster.replay.fleet.simulation.world.truth import Knowable, Story

LEAVE, DELETE, NO_API = 13, 42, -1
REMOVED = "member was removed by an admin"


def remove(stage: Stage, processes: list[Process]) -> Story:
    """An administrator removes them; they come back as new members. Some clients cannot be told from others then."""
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


def configure(stage: Stage, story: Story, name: str, value: str) -> None:
    stage.note(f"an administrator sets {name}={value}")
    change = ConfigChange(name=name, operation=ConfigOperation.SET, value=value)
    stage.world.administer(
        story,
        lambda caller: AlterGroupConfig(
            group_id=stage.world.rules.group_id, caller=caller, changes=(change,), validate_only=False
        ),
    )


def plan(stage: Stage) -> Story:
    story = stage.world.story("planned", culprits=None)
    story.act(stage.world.wall_ms)
    stage.world.plan = story
    return story


@scenario(ScenarioSort.PLAIN)
def removed_by_admin(stage: Stage) -> None:
    """Some or all members of one sort are removed."""
    among = stage.static if stage.static and (stage.random.random() < 0.5 or not stage.dynamic) else stage.dynamic
    remove(stage, stage.some(stage.random.randint(1, len(among)), among))
    stage.rest(silent_ms(stage))


@scenario(ScenarioSort.PLAIN, Wanted(static=0.0, size_max=12))
def group_deleted(stage: Stage) -> None:
    """The empty group is deleted; later others form it anew."""
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


@scenario(ScenarioSort.PLAIN, Wanted(static=0.0, size_max=12))
def group_expired(stage: Stage) -> None:
    """The empty group expires; later others form it anew."""
    shut_down(stage)
    emptied_ms = stage.world.wall_ms
    stage.run(QUIET_MS)
    story = stage.world.story("group-expired")
    stage.note("the group has no offsets, and expires")
    stage.world.send(stage.world.rules.expiry(), story)
    story.acts = [(emptied_ms - 60 * SECOND, stage.world.wall_ms), (stage.world.wall_ms, stage.world.wall_ms)]
    _form_anew(stage)


def _form_anew(stage: Stage) -> None:
    stage.run(QUIET_MS)
    if stage.random.random() < 0.5:
        stage.newcomers(stage.world.story("start"), 2, lambda: 500)
        stage.rest(10 * SECOND)


@scenario(ScenarioSort.PLAIN)
def planned_registration(stage: Stage) -> None:
    """Instances are registered, and come."""
    story = plan(stage)
    setups = [stage.setup("reg", static=True) for _ in range(stage.random.randint(1, 4))]
    configure(stage, story, REGISTERED, ",".join(each.name for each in setups))
    for each in setups:
        stage.run(stage.random.randint(SECOND, 20 * SECOND))
        stage.start(each, story)
    stage.rest(SECOND)


@scenario(ScenarioSort.PLAIN, Wanted(static=0.0, size_min=3))
def planned_retirement(stage: Stage) -> None:
    """Members are retired, and then closed."""
    story = plan(stage)
    retired = stage.some(stage.random.randint(1, stage.size - 1))
    configure(stage, story, RETIRED, ",".join(each.member_id for each in retired))
    for each in retired:
        stage.run(stage.random.randint(SECOND, 20 * SECOND))
        stage.stop(each, story)
    stage.rest(SECOND)


@scenario(ScenarioSort.PLAIN, Wanted(size_min=3))
def planned_size(stage: Stage) -> None:
    """An administrator lowers `target.group.size`."""
    story = plan(stage)
    configure(stage, story, TARGET_GROUP_SIZE, str(stage.size - 1))
    stage.rest(5 * SECOND)


@scenario(ScenarioSort.PLAIN)
def planned_learners(stage: Stage) -> None:
    """Newcomers learn first, and are promoted together."""
    story = plan(stage)
    configure(stage, story, LEARNER_TIMEOUT, "20000")
    stage.newcomers(story, stage.random.randint(1, 4), lambda: stage.random.randint(0, 5 * SECOND))
    stage.rest(30 * SECOND)


@scenario(ScenarioSort.PLAIN)
def planned_release(stage: Stage) -> None:
    """The group is released to the cluster upstream, and comes back."""
    story = plan(stage)
    stage.note("the group is released")
    for each in stage.processes:
        each.story = story
    stage.world.administer(
        story, lambda caller: ReleaseGroup(group_id=stage.world.rules.group_id, caller=caller), api_key=NO_API
    )
    stage.rest(10 * SECOND)


@scenario(ScenarioSort.PLAIN)
def planned_release_and_adoption(stage: Stage) -> None:
    """The group is released to the cluster upstream, where its members are for a while, and adopted again."""
    story = plan(stage)
    for each in stage.processes:
        each.story = story
        each.go_upstream()
    configure(stage, story, COORDINATOR, UPSTREAM)
    stage.run(stage.random.randint(10 * SECOND, 5 * MINUTE))
    configure(stage, story, COORDINATOR, MUSTER)
    for each in stage.processes:
        stage.world.at(stage.random.randint(0, 2 * SECOND), each.poll_again)
    stage.rest(10 * SECOND)


@scenario(ScenarioSort.PLAIN, cuts=1)
def unknown(stage: Stage) -> None:
    """The log does not have what became of a crash."""
    crash_of(stage, stage.one())
    stage.rest(silent_ms(stage))
