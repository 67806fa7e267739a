"""Deeds of administrators, refused consumers, changes of topics, two processes with one instance id."""

from typing import Final

import msgspec

from muster.replay.fleet.simulation.world.truth import Knowable
from tests.judge.real import asking
from tests.judge.real.diary import What, wall_ms
from tests.judge.real.given import Family, Given, Order
from tests.judge.real.process import RealProcess
from tests.judge.real.scenario import OWN, PLAIN, scenario
from tests.judge.real.scenarios.coordinators import SIGN_OF_LIFE_MS
from tests.judge.real.service import PARTITIONS
from tests.judge.real.stage import SECOND, RealStage, Wanted
from tests.judge.real.story import Story
from tests.waiting import until_so

FENCED: Final = (Family.LIBRDKAFKA, Family.JAVA, Family.AIOKAFKA)
"""kafka-python 3.0.12 stops its heartbeats when it is fenced, and reports nothing to its application before it
rejoins.
"""

REFUSED: Final = "join refused: it offers no protocol that all members of the group support"

REFUSED_SESSION: Final = (
    "join refused: the session timeout is outside group.min.session.timeout.ms and group.max.session.timeout.ms"
)
TOO_LONG_MS: Final = 2_000 * SECOND


def remove(stage: RealStage, processes: list[RealProcess]) -> Story:
    story = stage.story("removed-by-admin", culprits=[each.name for each in processes])
    former_ids = {each.name: each.member_id for each in processes}
    with stage.doing(story):
        stage.note(f"an administrator removes {', '.join(each.name for each in processes)}")
        begun_ms = wall_ms()
        asking.remove(stage.muster.bootstrap, stage.group_id, processes)
        story.act(begun_ms, wall_ms())
        until_so(lambda: all(each.member_id != former_ids[each.name] for each in processes), "they do not come back")
    return story


@scenario(PLAIN, Wanted(styles=OWN))
def removed_by_administrator(stage: RealStage) -> None:
    """An administrator removes one or two members, which rejoin on their own."""
    remove(stage, stage.random.sample(stage.processes, stage.random.randint(1, 2)))


@scenario(PLAIN, Wanted(may_cooperate=False))
def subscription_change(stage: RealStage) -> None:
    """One subscribes other topics."""
    change_subscription(stage, stage.one())


def change_subscription(stage: RealStage, process: RealProcess) -> Story:
    orders, payments = stage.service.orders, stage.service.payments
    topics = stage.random.choice(((orders, payments), (payments,)))
    story = stage.story("subscription-change", culprits=[process.name])
    times = len(process.noted(What.ASSIGNED))
    with stage.doing(story):
        stage.note(f"{process.name} subscribes {', '.join(topics)}")
        begun_ms = wall_ms()
        process.told(Order(subscribe=topics))
        story.act(begun_ms, stage.until_noted(process, What.ASSIGNED, times + 1).at_ms)
    return story


@scenario(PLAIN, Wanted(may_cooperate=False))
def refused(stage: RealStage) -> None:
    """A consumer comes with an assignor that the group does not have; some clients try again, others end."""
    refuse(stage, msgspec.structs.replace(stage.given(), assignor="roundrobin"), REFUSED)


@scenario(PLAIN)
def refused_session(stage: RealStage) -> None:
    """A consumer comes with a session timeout that the coordinator does not allow."""
    refuse(
        stage,
        msgspec.structs.replace(stage.given(), session_ms=TOO_LONG_MS, poll_interval_ms=TOO_LONG_MS),
        REFUSED_SESSION,
    )


def refuse(stage: RealStage, given: Given, refusal: str) -> None:
    """Start a consumer that is refused, and end it."""
    story = stage.story("refused", culprits=None)
    begun_ms = wall_ms()
    visitor = stage.visitor(given)
    until_so(
        lambda: any(each["group_id"] == stage.group_id for each in stage.muster.events(refusal)), "nobody was refused"
    )
    story.act(begun_ms, wall_ms())
    stage.wait_ms(stage.random.randint(0, 5 * SECOND))
    visitor.kill()
    story.act(begun_ms, wall_ms())


@scenario(PLAIN, Wanted(static=True, may_cooperate=False, session_ms=30 * SECOND))
def static_restart_with_topics(stage: RealStage) -> None:
    """A static process returns at once with one more topic; the group does not rebalance unless its session had
    expired.
    """
    process = stage.one()
    restart = stage.restart_story(process, crash=False, is_optional=True)
    before = stage.generation
    with stage.doing(restart):
        stage.stop(process, restart)
        begun_ms = wall_ms()
        given = msgspec.structs.replace(process.given, more_topics=(stage.service.payments,))
        stage.until_noted(stage.start(given, restart), What.ASSIGNED, 1)
    if stage.generation == before:
        unread = stage.story("unassigned-topic", culprits=[process.name])
        unread.act(begun_ms, wall_ms())


@scenario(PLAIN)
def partitions_added(stage: RealStage) -> None:
    """The topic gets more partitions, and the clients find out; a standalone Muster is restarted for that. If that
    takes longer than the sessions they may return as new members, and nothing shows what moved them.
    """
    restart = None
    if not stage.service.is_sidecar:
        restart = stage.story("coordinator-change", "coordinator-outage", is_optional=True)
    story = stage.story("partitions-changed", knowable=Knowable.INFERRED)
    former_ids = {each.name: each.member_id for each in stage.processes}
    begun_ms = wall_ms()
    with stage.doing(story):
        stage.note(f"{stage.service.orders} has {2 * PARTITIONS} partitions")
        stage.service.add_partitions()
        if restart is not None:
            stage.absences.append((begun_ms, wall_ms()))
            restart.act(begun_ms - SIGN_OF_LIFE_MS, wall_ms())
            restart.act(begun_ms, wall_ms() + 2 * SECOND)
        until_so(
            lambda: any(each.partitions[-1:] >= (PARTITIONS,) for process in stage.processes for each in process.diary),
            "nobody has a new partition",
        )
        story.act(begun_ms, wall_ms())
    if restart is not None:
        if any(each.member_id != former_ids[each.name] and not each.is_static for each in stage.processes):
            restart.kinds = ("coordinator-outage",)
            story.may, story.must, story.is_optional = set(story.must), set(), True
        restart.may |= story.must | story.may
        restart.starts, restart.ends = list(story.starts), list(story.ends)


@scenario(PLAIN, Wanted(families=(Family.JAVA,), may_mix=False))
def enforced(stage: RealStage) -> None:
    """The leader's application, or each until it is the leader's, asks for a rebalance."""
    story = stage.story("enforced", culprits=[])
    assert story.culprits is not None
    with stage.doing(story):
        begun_ms = wall_ms()
        process = stage.processes[0]
        story.culprits.add(process.name)
        times = len(process.noted(What.ASSIGNED))
        stage.note(f"{process.name} enforces a rebalance")
        process.told(Order(enforce=True))
        story.act(begun_ms, stage.until_noted(process, What.ASSIGNED, times + 1).at_ms)


@scenario(
    PLAIN,
    Wanted(static=True, size_max=3, styles=OWN, may_mix=False, again_s=1.5, families=FENCED),
)
def duel(stage: RealStage) -> None:
    """Two supervised processes have one instance id, and take it from each other."""
    first = stage.one()
    times = len(first.noted(What.ASSIGNED))
    story = stage.story("duel", culprits=[first.name])
    with stage.doing(story):
        begun_ms = wall_ms()
        rival = stage.start(first.given, story)
        story.acts.clear()
        story.act(begun_ms, stage.until_noted(rival, What.ASSIGNED, 1).at_ms)
        stage.until_noted(rival, What.ASSIGNED, 2)
        stage.until_noted(first, What.ASSIGNED, times + 2)
        if rival.given.family is not Family.AIOKAFKA:  # which does not understand that it is fenced, and starts over
            stage.until_noted(rival, What.FENCED, 2)
        fought_ms = max(process.noted(What.OPENED)[-1].at_ms for process in (first, rival))
        stage.note("the other one is killed, when it does not have the id")
        rival.kill()
        stage.processes.remove(rival)
    story.act(fought_ms, wall_ms())
