"""Deeds of administrators, the life of an empty group, and a log with a hole."""

from muster.coordinator.group.commands import (
    AlterGroupConfig,
    ConfigChange,
    ConfigOperation,
    ExpireOffsets,
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
from muster.replay.fleet.simulation.scenarios.changes import _form_anew
from muster.replay.fleet.simulation.scenarios.losses import crash_of, silent_ms
from muster.replay.fleet.simulation.scenarios.replacing import shut_down
from muster.replay.fleet.simulation.stage import MINUTE, QUIET_MS, SECOND, Stage, Wanted
from muster.replay.fleet.simulation.world.truth import Story
from tests.judge.scenario import scenario

NO_API = -1


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


@scenario(Wanted(static=0.0, size_max=12))
def group_expired(stage: Stage) -> None:
    """The empty group expires; later other processes create it again."""
    shut_down(stage)
    emptied_ms = stage.world.wall_ms
    stage.run(QUIET_MS)
    story = stage.world.story("group-expired")
    stage.note("the group has no offsets, and expires")
    rules = stage.world.rules
    stage.world.send(ExpireOffsets(group_id=rules.group_id, offsets={}, wall_ms=rules.wall_ms), story)
    story.acts = [(emptied_ms - 60 * SECOND, stage.world.wall_ms), (stage.world.wall_ms, stage.world.wall_ms)]
    _form_anew(stage)


@scenario()
def planned_registration(stage: Stage) -> None:
    """Instances are registered, and come."""
    story = plan(stage)
    setups = [stage.setup("reg", static=True) for _ in range(stage.random.randint(1, 4))]
    configure(stage, story, REGISTERED, ",".join(each.name for each in setups))
    for each in setups:
        stage.run(stage.random.randint(SECOND, 20 * SECOND))
        stage.start(each, story)
    stage.rest(SECOND)


@scenario(Wanted(static=0.0, size_min=3))
def planned_retirement(stage: Stage) -> None:
    """Members are retired, and then closed."""
    story = plan(stage)
    retired = stage.some(stage.random.randint(1, stage.size - 1))
    configure(stage, story, RETIRED, ",".join(each.member_id for each in retired))
    for each in retired:
        stage.run(stage.random.randint(SECOND, 20 * SECOND))
        stage.stop(each, story)
    stage.rest(SECOND)


@scenario(Wanted(size_min=3))
def planned_size(stage: Stage) -> None:
    """An administrator lowers `target.group.size`."""
    story = plan(stage)
    configure(stage, story, TARGET_GROUP_SIZE, str(stage.size - 1))
    stage.rest(5 * SECOND)


@scenario()
def planned_learners(stage: Stage) -> None:
    """Newcomers learn first, and are promoted together."""
    story = plan(stage)
    configure(stage, story, LEARNER_TIMEOUT, "20000")
    stage.newcomers(story, stage.random.randint(1, 4), lambda: stage.random.randint(0, 5 * SECOND))
    stage.rest(30 * SECOND)


@scenario()
def planned_release(stage: Stage) -> None:
    """The group is released to the cluster upstream, and adopted again."""
    story = plan(stage)
    stage.note("the group is released")
    for each in stage.processes:
        each.story = story
    stage.world.administer(
        story, lambda caller: ReleaseGroup(group_id=stage.world.rules.group_id, caller=caller), api_key=NO_API
    )
    stage.rest(10 * SECOND)


@scenario()
def planned_release_and_adoption(stage: Stage) -> None:
    """The group is released to the cluster upstream, where its members are for a while, and adopted again."""
    story = plan(stage)
    for each in stage.processes:
        each.story = story
        each.go_away()
    configure(stage, story, COORDINATOR, UPSTREAM)
    stage.run(stage.random.randint(10 * SECOND, 5 * MINUTE))
    configure(stage, story, COORDINATOR, MUSTER)
    for each in stage.processes:
        stage.world.at(stage.random.randint(0, 2 * SECOND), each.poll_again)
    stage.rest(10 * SECOND)


@scenario(cuts=1)
def unknown(stage: Stage) -> None:
    """The log does not have what became of a crash."""
    crash_of(stage, stage.one())
    stage.rest(silent_ms(stage))
