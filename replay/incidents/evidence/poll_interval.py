"""Whether a member that is gone may have polled too late, and what to do if it did.

Clients that have a max.poll.interval.ms stop their heartbeats, or leave, when it is over since the last poll, and a
member joins by a poll: one that goes sooner after it had come has not polled too late. Its heartbeats are some time
apart, so it may go a while after the last one.

The rebalance timeout is the max.poll.interval.ms in Java, librdkafka and kafka-python. aiokafka's is its session
timeout, unless it is set: then the interval is not recorded, and is longer.
"""

from collections.abc import Iterator
from typing import Final

from muster.events.state import Member
from muster.replay.incidents.episode.acts import CameBack, Departure, Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.episode.replacements import Replacement
from muster.replay.incidents.evidence.connection_ends import SLACK_MS, heartbeat_ms
from muster.replay.incidents.evidence.naming import process_name
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.text.times import duration, instant, setting

LONGER_POLLS: Final = "raise max.poll.interval.ms, or lower max.poll.records, so that a batch is done within it"

WHICH: Final = (
    "to tell a poll timeout from a process that stood still: Java, librdkafka and kafka-python log a poll timeout (poll"
    " timeout has expired, maximum poll interval exceeded); a process that stood still (SIGSTOP, a paused virtual"
    " machine, swapping, a throttled processor, a long garbage collection) has a gap in its own log"
)


def may_have_polled_late(episode: Episode, each: Replacement) -> bool:
    """Whether it was in the group for long enough."""
    stay = _stay(episode, each)
    return stay is None or _covers_interval(each, *stay)


def may_have_left_late(episode: Episode, went: Went) -> bool:
    """Whether a member that left had been in the group for long enough."""
    came_ms = episode.came_ms(went.member.member_id)
    after_ms = went.at_ms - (went.member.joined_ms if came_ms is None else came_ms)
    return after_ms < 0 or after_ms + SLACK_MS >= went.member.rebalance_timeout_ms


def polled_in_time(episode: Episode, each: Replacement) -> Iterator[Statement]:
    """Say why it had not polled too late, if it had not."""
    stay = _stay(episode, each)
    if stay is None or _covers_interval(each, *stay):
        return
    former, after_ms = stay
    went = "left" if _has_left(each) else "was last heard from"
    yield Statement(
        text=f"{process_name(former)} {went} {duration(after_ms)} after it had come, before its max.poll.interval.ms of"
        f" {setting(former.rebalance_timeout_ms)} could be over: it had not polled too late",
        grade=Grade.INFERRED,
        at=instant(each.gone_ms),
        seqs=tuple(act.seq for act in each.acts[:1]),
    )


def interval_advice(member: Member) -> str:
    """Advise against poll timeouts, with the interval that the member had, if it is recorded."""
    if member.rebalance_timeout_ms == member.session_timeout_ms:
        return LONGER_POLLS
    interval = setting(member.rebalance_timeout_ms)
    return f"its max.poll.interval.ms is {interval}, as its rebalance timeout says: {LONGER_POLLS}"


def _stay(episode: Episode, each: Replacement) -> tuple[Member, int] | None:
    """The member, and how long after it had come it went; None if that is not known, as where a clock went back."""
    former = each.came.before if isinstance(each.came, CameBack) else None
    if each.went is not None:
        former = each.went.member
    if former is None:
        return None
    came_ms = episode.came_ms(each.former_id)
    after_ms = each.gone_ms - (former.joined_ms if came_ms is None else came_ms)
    return (former, after_ms) if after_ms >= 0 else None


def _covers_interval(each: Replacement, former: Member, after_ms: int) -> bool:
    """Whether its max.poll.interval.ms may have been over when it went; it may go a while after its last heartbeat."""
    act = each.came if each.went is None else each.went
    assert isinstance(act, CameBack | Went)
    beat_ms = 0 if _has_left(each) else heartbeat_ms(act)
    return after_ms + beat_ms + SLACK_MS >= former.rebalance_timeout_ms


def _has_left(each: Replacement) -> bool:
    return each.went is not None and each.went.how is Departure.LEFT
