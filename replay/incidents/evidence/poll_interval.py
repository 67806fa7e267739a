"""Determines whether a lost member may have polled too late, and gives advice if so.

Clients with a max.poll.interval.ms stop their heartbeats, or leave, when that time has passed since the last poll. A
member joins by polling, so one that was in the group for less than the interval cannot have polled too late. It may
have ended some time after its last heartbeat, since heartbeats are some seconds apart.

In Java, librdkafka and kafka-python the rebalance timeout is the max.poll.interval.ms. In aiokafka it defaults to the
session timeout, and the longer interval is then not recorded.
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
    "to tell a poll timeout from a process that stalled: Java, librdkafka and kafka-python log a poll timeout (poll"
    " timeout has expired, maximum poll interval exceeded); a process that stalled (SIGSTOP, a paused virtual"
    " machine, swapping, a throttled processor, a long garbage collection) has a gap in its own log"
)


def may_have_polled_late(episode: Episode, each: Replacement) -> bool:
    """Return whether the old process was in the group for long enough to poll too late."""
    stay = _stay(episode, each)
    return stay is None or _covers_interval(each, *stay)


def may_have_left_late(episode: Episode, went: Went) -> bool:
    """Return whether a member that left may have exceeded `max.poll.interval.ms`: it was in the group for that long."""
    came_ms = episode.came_ms(went.member.member_id)
    after_ms = went.at_ms - (went.member.joined_ms if came_ms is None else came_ms)
    return after_ms < 0 or after_ms + SLACK_MS >= went.member.rebalance_timeout_ms


def polled_in_time(episode: Episode, each: Replacement) -> Iterator[Statement]:
    """Yield the evidence that the old process had not polled too late, if there is any."""
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
    """Return advice against poll timeouts, with the member's interval if it is recorded."""
    if member.rebalance_timeout_ms == member.session_timeout_ms:
        return LONGER_POLLS
    interval = setting(member.rebalance_timeout_ms)
    return f"its max.poll.interval.ms is {interval} (its rebalance timeout): {LONGER_POLLS}"


def _stay(episode: Episode, each: Replacement) -> tuple[Member, int] | None:
    """Return the old member, and how long it was in the group; None if not known, or if the clock went back."""
    former = each.came.before if isinstance(each.came, CameBack) else None
    if each.went is not None:
        former = each.went.member
    if former is None:
        return None
    came_ms = episode.came_ms(each.former_id)
    after_ms = each.gone_ms - (former.joined_ms if came_ms is None else came_ms)
    return (former, after_ms) if after_ms >= 0 else None


def _covers_interval(each: Replacement, former: Member, after_ms: int) -> bool:
    """Return whether its max.poll.interval.ms may have passed by the time it ended, after its last heartbeat."""
    act = each.came if each.went is None else each.went
    assert isinstance(act, CameBack | Went)
    beat_ms = 0 if _has_left(each) else heartbeat_ms(act)
    return after_ms + beat_ms + SLACK_MS >= former.rebalance_timeout_ms


def _has_left(each: Replacement) -> bool:
    return each.went is not None and each.went.how is Departure.LEFT
