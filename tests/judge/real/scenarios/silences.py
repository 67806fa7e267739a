"""Live processes that are paused, poll too late or unsubscribe: they return on their own connection."""

from typing import Final

from muster.replay.fleet.simulation.world.truth import Knowable
from tests.judge.real.diary import What, wall_ms
from tests.judge.real.given import Family, Order
from tests.judge.real.process import RealProcess
from tests.judge.real.scenario import PLAIN, scenario
from tests.judge.real.stage import HEARTBEAT_MS, SECOND, RealStage, Wanted
from tests.waiting import until_so

SHORT_POLL_MS: Final = 6 * SECOND
LOST_LEAVE: Final = "restart"
"""A LeaveGroup may be lost, as where the machine is busy; then the member is a silent one."""


@scenario(PLAIN)
def stopped(stage: RealStage) -> None:
    """One is paused (SIGSTOP) for longer than its session: the page has no kind for it but `restart`."""
    stand_still(stage, stage.one())


@scenario(PLAIN, Wanted(static=True))
def stopped_static(stage: RealStage) -> None:
    """The same of a static member: it has not been there for long enough to have polled too late."""
    stand_still(stage, stage.one())


def stand_still(stage: RealStage, process: RealProcess) -> None:
    story = stage.story("restart", culprits=[process.name], knowable=_at_best(Knowable.INFERRED, stage.identity()))
    joined_ms = process.noted(What.ASSIGNED)[0].at_ms
    if wall_ms() - joined_ms >= process.given.poll_interval_ms:
        story.kinds = ("restart", "poll-timeout")
    with stage.doing(story, after_ms=stage.session_ms - HEARTBEAT_MS):
        story.act(wall_ms() - HEARTBEAT_MS, wall_ms())
        with stage.frozen(process):
            stage.until_gone(process.member_id)
            stage.wait_ms(stage.random.randint(0, 4 * SECOND))


@scenario(PLAIN, Wanted(poll_interval_ms=SHORT_POLL_MS, may_mix=False))
def poll_timeout(stage: RealStage) -> None:
    """One does not poll within max.poll.interval.ms, and polls again later. Only Java gives the reason."""
    late_poll(stage, stage.one())


def late_poll(stage: RealStage, process: RealProcess) -> None:
    """It continues with another member id, on the same connection."""
    says_so = process.given.family is Family.JAVA and not process.is_static
    story = stage.story("poll-timeout", culprits=[process.name])
    if not says_so or stage.identity() is Knowable.UNKNOWABLE:
        story.infer(_at_best(Knowable.INFERRED, stage.identity()))
    former_id, times = process.member_id, len(process.noted(What.STALLED))
    with stage.doing(story):
        stage.note(f"{process.name} does not poll for a while")
        begun_ms = wall_ms()
        process.told(Order(stall_s=(SHORT_POLL_MS + 8 * SECOND) / SECOND))
        if not process.is_static:
            stage.until_gone(former_id)
            if wall_ms() >= begun_ms + SHORT_POLL_MS + process.given.session_ms:
                story.kinds += (LOST_LEAVE,)
                story.infer()
        stage.until_noted(process, What.STALLED, times + 1)
        story.act(begun_ms, wall_ms())
        until_so(lambda: process.member_id != former_id, "it kept its member id")


@scenario(PLAIN, Wanted(may_mix=False))
def unsubscribed(stage: RealStage) -> None:
    """One unsubscribes, and subscribes again before or after its session would be over, and had not ended."""
    unsubscribe(stage, stage.one())


@scenario(PLAIN, Wanted(may_mix=False, static=True, families=(Family.LIBRDKAFKA,)))
def static_unsubscribed(stage: RealStage) -> None:
    """The same of a static member of librdkafka, the one client that sends LeaveGroup for it."""
    unsubscribe(stage, stage.one())


def unsubscribe(stage: RealStage, process: RealProcess) -> None:
    leaves = not process.is_static or process.given.family is Family.LIBRDKAFKA
    # A static member of the other clients falls silent like a paused one, possibly unnoticed. aiokafka does not send
    # its max.poll.interval.ms: its rebalance timeout is its session timeout.
    kinds: tuple[str, ...] = ("unsubscribe",) if leaves else ("restart", "poll-timeout")
    if process.given.family is Family.AIOKAFKA:
        kinds += ("poll-timeout",)
    story = stage.story(*kinds, culprits=[process.name], knowable=Knowable.INFERRED, is_optional=not leaves)
    story.infer(Knowable.RECORDED if leaves else _at_best(Knowable.INFERRED, stage.identity()))
    former_id, away_ms = process.member_id, stage.random.choice((2, 8)) * SECOND
    with stage.doing(story):
        stage.note(f"{process.name} unsubscribes, and subscribes again {away_ms // SECOND} s later")
        begun_ms = wall_ms()
        process.told(Order(unsubscribe_s=away_ms / SECOND))
        stage.until_noted(process, What.RESUBSCRIBED, 1)
        until_so(lambda: process.member_id != former_id, "it kept its member id")
        story.act(begun_ms - HEARTBEAT_MS, wall_ms())


def _at_best(one: Knowable, other: Knowable) -> Knowable:
    """The worse of the two."""
    return max(one, other, key=list(Knowable).index)
