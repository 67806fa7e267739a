"""The scenarios: what is done to real processes, and what it is called. The kinds are those of `docs/incidents.md`.

What is told of a stretch in which nobody could say what came of which deed is left open (`may`).
"""

from collections.abc import Callable
from typing import Final

import msgspec

from muster.replay.fleet.simulation.scenario import ScenarioSort
from muster.replay.fleet.simulation.world.truth import Knowable
from tests.judge.real import asking
from tests.judge.real.diary import What, wall_ms
from tests.judge.real.given import Family, Order
from tests.judge.real.process import RealProcess
from tests.judge.real.service import PARTITIONS
from tests.judge.real.stage import HEARTBEAT_MS, SECOND, RealStage, Style, Wanted
from tests.judge.real.story import Story
from tests.waiting import until_so

Play = Callable[[RealStage], None]

OWN: Final = (Style.OWN_IDS,)
SIGN_OF_LIFE_MS: Final = 9 * SECOND
"""An owner leaves one every 5 s, and it may take 4 s."""

START_OVER_MS: Final = 17 * SECOND
"""A process that comes to a group that has stood for less is one of those that came first."""

FENCED: Final = (Family.LIBRDKAFKA, Family.JAVA, Family.AIOKAFKA)
"""kafka-python 3.0.12 stops its heartbeats when it is fenced, and tells its application nothing before it rejoins."""

REFUSED: Final = "join refused: it offers no protocol that all members of the group have"

SHORT_POLL_MS: Final = 6 * SECOND


class RealScenario(msgspec.Struct, frozen=True, kw_only=True):
    """`play` does it to a group that has formed."""

    name: str
    sort: ScenarioSort
    wanted: Wanted
    play: Play


SCENARIOS: Final[dict[str, RealScenario]] = {}


def scenario(sort: ScenarioSort, wanted: Wanted | None = None) -> Callable[[Play], Play]:
    """Register a function as a scenario, under its name."""

    def register(play: Play) -> Play:
        name = play.__name__.replace("_", "-")
        SCENARIOS[name] = RealScenario(name=name, sort=sort, wanted=wanted or Wanted(), play=play)
        return play

    return register


PLAIN, COMPOUND, NEAR_MISS, QUIET = (
    ScenarioSort.PLAIN,
    ScenarioSort.COMPOUND,
    ScenarioSort.NEAR_MISS,
    ScenarioSort.QUIET,
)


# ---- losses ---------------------------------------------------------------------------------------------------------


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
    """One process is killed, and nobody comes."""
    crash_of(stage, stage.one())


@scenario(PLAIN)
def crash_and_replacement(stage: RealStage) -> None:
    """One is killed, and started again when its session has expired."""
    process = stage.one()
    story = stage.restart_story(process, crash=True)
    with stage.doing(story, after_ms=stage.session_ms - HEARTBEAT_MS):
        stage.restart(process, story, crash=True, down_ms=None)


@scenario(PLAIN, Wanted(static=False))
def replacement_at_once(stage: RealStage) -> None:
    """One is killed, and started again at once: its former self holds the phase."""
    process = stage.one()
    story = stage.restart_story(process, crash=True)
    with stage.doing(story):
        stage.restart(process, story, crash=True, down_ms=stage.random.randint(0, SECOND))


@scenario(PLAIN)
def all_crash(stage: RealStage) -> None:
    """All are killed at one moment, and started again."""
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
    """One is killed three times, and comes back each time."""
    process = stage.one()
    story = stage.story("crash-loop", culprits=[process.name], knowable=stage.identity())
    for _ in range(3):
        with stage.doing(story):
            process = stage.restart(process, story, crash=True, down_ms=None)
        stage.wait_ms(stage.random.randint(0, 3 * SECOND))


@scenario(PLAIN)
def stopped(stage: RealStage) -> None:
    """One stands still (SIGSTOP) for longer than its session: the page has no other word for it than `restart`."""
    process = stage.one()
    knowable = max(stage.identity(), Knowable.INFERRED, key=list(Knowable).index)
    story = stage.story("restart", "poll-timeout", culprits=[process.name], knowable=knowable)
    with stage.doing(story, after_ms=stage.session_ms - HEARTBEAT_MS):
        story.act(wall_ms() - HEARTBEAT_MS, wall_ms())
        with stage.frozen(process):
            stage.until_gone(process.member_id)
            stage.wait_ms(stage.random.randint(0, 4 * SECOND))


@scenario(PLAIN, Wanted(poll_interval_ms=SHORT_POLL_MS, may_mix=False))
def poll_timeout(stage: RealStage) -> None:
    """One does not poll within max.poll.interval.ms, and polls again later. Java alone says so."""
    process = stage.one()
    says_so = process.given.family is Family.JAVA and not process.is_static
    kinds = ("poll-timeout",) if says_so else ("poll-timeout", "restart")
    story = stage.story(*kinds, culprits=[process.name])
    if not says_so or stage.identity() is Knowable.UNKNOWABLE:
        story.infer(max(stage.identity(), Knowable.INFERRED, key=list(Knowable).index))
    former_id = process.member_id
    with stage.doing(story):
        stage.note(f"{process.name} does not poll for a while")
        begun_ms = wall_ms()
        process.told(Order(stall_s=(SHORT_POLL_MS + 8 * SECOND) / SECOND))
        if says_so:
            stage.until_gone(former_id)
            if wall_ms() >= begun_ms + SHORT_POLL_MS + process.given.session_ms:
                # Its LeaveGroup may have been lost, as where the machine is busy; then it is a silent one.
                story.kinds += ("restart",)
                story.infer()
        stage.until_noted(process, What.STALLED, 1)
        story.act(begun_ms, wall_ms())
        until_so(lambda: process.member_id != former_id, "it kept its member id")


# ---- replacing ------------------------------------------------------------------------------------------------------


@scenario(PLAIN)
def leave_and_return(stage: RealStage) -> None:
    """One is closed in good order, and started again when it is no member any more."""
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
    """The same with instance ids, and each is away for longer than its session."""
    roll(stage, list(stage.processes), stage.story("deployment"), down_ms=None)


def roll(stage: RealStage, due: list[RealProcess], story: Story, *, down_ms: int | None = 500) -> None:
    assert story.culprits is not None
    for each in due:
        story.culprits.add(each.name)
        with stage.doing(story):
            stage.restart(each, story, crash=False, down_ms=down_ms)


@scenario(PLAIN)
def scale_up(stage: RealStage) -> None:
    """Others come, later than those who came first."""
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


# ---- administrators and changes -------------------------------------------------------------------------------------


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
    """An administrator removes one or two, who come back by themselves."""
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
    story = stage.story("refused", culprits=None)
    begun_ms = wall_ms()
    visitor = stage.visitor(msgspec.structs.replace(stage.given(), assignor="roundrobin"))
    until_so(
        lambda: any(each["group_id"] == stage.group_id for each in stage.muster.events(REFUSED)), "nobody was refused"
    )
    story.act(begun_ms, wall_ms())
    stage.wait_ms(stage.random.randint(0, 5 * SECOND))
    visitor.kill()
    story.act(begun_ms, wall_ms())


@scenario(PLAIN, Wanted(static=True, may_cooperate=False, session_ms=30 * SECOND))
def static_restart_with_topics(stage: RealStage) -> None:
    """A static process comes back at once with one topic more, and nobody rebalances, unless its session was over."""
    process = stage.one()
    restart = stage.restart_story(process, crash=False, is_optional=True)
    before = stage.generation
    with stage.doing(restart):
        stage.stop(process, restart)
        begun_ms = wall_ms()
        given = msgspec.structs.replace(process.given, more_topics=(stage.service.payments,))
        stage.until_noted(stage.start(given, restart), What.ASSIGNED, 1)
    if stage.generation == before:
        unread = stage.story("unread-topic", culprits=[process.name])
        unread.act(begun_ms, wall_ms())


@scenario(PLAIN)
def partitions_added(stage: RealStage) -> None:
    """The topic gets more partitions, and the clients find out; a Muster that is alone is restarted for that.

    If that takes longer than the sessions they may come back as new members, and nobody says what moved them.
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
        if rival.given.family is not Family.AIOKAFKA:  # which does not understand that it is fenced, and begins anew
            stage.until_noted(rival, What.FENCED, 2)
        fought_ms = max(process.noted(What.OPENED)[-1].at_ms for process in (first, rival))
        stage.note("the other one is killed, when it does not have the id")
        rival.kill()
        stage.processes.remove(rival)
    story.act(fought_ms, wall_ms())


# ---- the coordinator ------------------------------------------------------------------------------------------------


def be_away(stage: RealStage, away_ms: int, *, paused: bool, blamed: Story | None = None) -> Story:
    """Muster is away for so long. Members that have other member ids afterwards have lost their places by it.

    `blamed`: what moves then is this one's.
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
    elif story.must:
        story.kinds = ("coordinator-change", "coordinator-outage")
    return story


@scenario(PLAIN)
def coordinator_away(stage: RealStage) -> None:
    """Muster is killed, and back when the sessions would be over."""
    be_away(stage, stage.session_ms + stage.random.randint(2, 8) * SECOND, paused=False)


@scenario(PLAIN)
def coordinator_stopped(stage: RealStage) -> None:
    """Muster stands still (SIGSTOP) for longer than the sessions."""
    be_away(stage, stage.session_ms + stage.random.randint(2, 6) * SECOND, paused=True)


@scenario(NEAR_MISS)
def coordinator_back_soon(stage: RealStage) -> None:
    """Muster is killed, and back before any session would be over."""
    be_away(stage, stage.random.randint(0, SECOND), paused=False)


# ---- two at a time --------------------------------------------------------------------------------------------------


@scenario(COMPOUND, Wanted(size_min=3))
def two_crashes(stage: RealStage) -> None:
    """Two are killed, one after the other: no network cut."""
    crash_of(stage, stage.one())
    stage.wait_ms(stage.random.choice((0, 20 * SECOND)))
    crash_of(stage, stage.one())


@scenario(COMPOUND, Wanted(static=False, size_min=4, size_max=5, styles=OWN))
def crash_in_deployment(stage: RealStage) -> None:
    """One that was not due is killed while others are still to be replaced."""
    other, *due = stage.random.sample(stage.processes, len(stage.processes))
    deployed = stage.story("deployment", knowable=stage.identity())
    half = len(due) // 2
    roll(stage, due[:half], deployed)
    crash_of(stage, other, parent=deployed)
    roll(stage, due[half:], deployed)


@scenario(COMPOUND, Wanted(static=False, size_min=3, size_max=3, styles=OWN))
def crash_after_deployment(stage: RealStage) -> None:
    """All are replaced, and later one of the new ones is killed: the deployment was over."""
    roll(stage, list(stage.processes), stage.story("deployment", knowable=stage.identity()))
    stage.wait_ms(8 * SECOND)
    crash_of(stage, stage.one())


@scenario(COMPOUND, Wanted(styles=OWN))
def scaling_beside_restart(stage: RealStage) -> None:
    """Others come while one that was killed is away."""
    process = stage.one()
    restarted = stage.restart_story(process, crash=True)
    with stage.doing(restarted, after_ms=stage.session_ms - HEARTBEAT_MS):
        stage.kill(process, restarted)
        stage.until_gone(process.member_id)
    newcomers(stage, stage.random.randint(1, 2))
    with stage.doing(restarted):
        stage.start(process.given, restarted)


@scenario(COMPOUND, Wanted(static=False, styles=OWN))
def crash_and_newcomer(stage: RealStage) -> None:
    """One is killed, and one that is no replacement comes at once: its phase waits for the dead one."""
    stage.wait_ms(START_OVER_MS)
    process = stage.one()
    crashed = stage.story(*crash_kinds(process), culprits=[process.name], knowable=Knowable.INFERRED)
    scaled = stage.story("scale-up")
    with stage.doing(crashed, scaled):
        stage.kill(process, crashed)
        stage.add(scaled)
        stage.until_gone(process.member_id)


@scenario(COMPOUND, Wanted(size_min=3))
def crash_before_outage(stage: RealStage) -> None:
    """One is killed shortly before Muster is, which comes back and gives it its full session."""
    process = stage.one()
    crashed = stage.story(*crash_kinds(process), culprits=[process.name], knowable=Knowable.INFERRED)
    stage.kill(process, crashed)
    stage.wait_ms(stage.random.randint(200, SECOND))
    be_away(stage, stage.random.randint(0, SECOND), paused=False, blamed=crashed)
    from_ms, _ = crashed.acts[0]
    crashed.acts[0] = from_ms, wall_ms()


@scenario(COMPOUND, Wanted(size_min=3, styles=OWN))
def crash_beside_removal(stage: RealStage) -> None:
    """An administrator removes one; seconds later another one is killed."""
    removed = stage.one()
    remove(stage, [removed])
    stage.wait_ms(stage.random.randint(2, 8) * SECOND)
    crash_of(stage, stage.one(removed))


@scenario(COMPOUND, Wanted(styles=OWN))
def outage_then_restart(stage: RealStage) -> None:
    """Muster is away shortly, and later one process is restarted."""
    be_away(stage, stage.random.randint(0, SECOND), paused=False)
    stage.wait_ms(stage.random.randint(2, 8) * SECOND)
    leave_and_return(stage)


@scenario(COMPOUND, Wanted(size_min=3, styles=OWN, may_cooperate=False))
def crash_after_subscription_change(stage: RealStage) -> None:
    """One subscribes other topics, and another one is killed soon after."""
    changing = stage.one()
    change_subscription(stage, changing)
    stage.wait_ms(stage.random.randint(0, 8) * SECOND)
    crash_of(stage, stage.one(changing))


# ---- near misses and quiet ------------------------------------------------------------------------------------------


@scenario(NEAR_MISS, Wanted(styles=OWN))
def two_restarts_of_one(stage: RealStage) -> None:
    """The same process is restarted twice: no loop yet."""
    process = stage.one()
    for _ in range(2):
        story = stage.restart_story(process, crash=True)
        with stage.doing(story, after_ms=stage.session_ms - HEARTBEAT_MS):
            process = stage.restart(process, story, crash=True, down_ms=None)


@scenario(NEAR_MISS, Wanted(size_min=7, size_max=7, styles=OWN))
def too_few_for_deployment(stage: RealStage) -> None:
    """Two of seven are restarted: two restarts."""
    for process in stage.random.sample(stage.processes, 2):
        story = stage.restart_story(process, crash=False)
        with stage.doing(story):
            stage.restart(process, story, crash=False, down_ms=None)


@scenario(NEAR_MISS, Wanted(static=False, size_min=3))
def not_quite_shutdown(stage: RealStage) -> None:
    """All but one leave."""
    leave(stage, stage.random.sample(stage.processes, stage.size - 1))


@scenario(
    NEAR_MISS,
    Wanted(static=True, styles=OWN, may_mix=False, families=(Family.LIBRDKAFKA, Family.JAVA)),
)
def overlapping_restart(stage: RealStage) -> None:
    """The new process starts before the old one has ended, which is fenced, and ends at that: no duel."""
    old = stage.one()
    story = stage.story("restart", culprits=[old.name])
    with stage.doing(story):
        begun_ms = wall_ms()
        new = stage.start(old.given, story)
        story.acts.clear()
        stage.until_noted(new, What.ASSIGNED, 1)
        until_so(lambda: not old.runs, "it is not fenced")
        old.was_ended = True
        stage.processes.remove(old)
        story.act(begun_ms - HEARTBEAT_MS, wall_ms())


@scenario(QUIET)
def nothing(stage: RealStage) -> None:
    """Nothing is done."""
    stage.wait_ms(stage.random.randint(5, 20) * SECOND)


@scenario(QUIET, Wanted(static=True))
def absorbed_restart(stage: RealStage) -> None:
    """A static process is killed or closed, and back before its session expires."""
    process = stage.one()
    is_crash = stage.random.random() < 0.5
    story = stage.restart_story(process, crash=is_crash, is_optional=True)
    with stage.doing(story):
        stage.restart(process, story, crash=is_crash, down_ms=0)


@scenario(QUIET)
def stopped_shortly(stage: RealStage) -> None:
    """One stands still (SIGSTOP) for less than its session."""
    process = stage.one()
    story = stage.story("unknown", is_optional=True, knowable=Knowable.UNKNOWABLE)
    story.act(wall_ms(), wall_ms())
    with stage.doing(story), stage.frozen(process):
        stage.wait_ms(stage.random.randint(200, stage.session_ms - 2 * SECOND))
