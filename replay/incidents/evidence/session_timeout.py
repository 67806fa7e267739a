"""Advice to lower a session timeout that made all members wait, with the drawback of lowering it.

A join phase waits for a dead member until its session ends, so a crash costs the other members up to a session timeout.
The timeout cannot be shorter than the coordinator allows, and should be a few of the member's heartbeat intervals,
which its longest silence while alive shows.
"""

from collections.abc import Iterable
from typing import Final

from muster.events.state import Member
from muster.replay.incidents.episode.acts import Departure, Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.evidence.waiting import given_up
from muster.replay.incidents.windows import HELD_MS
from muster.replay.text.times import duration, setting

HEARTBEATS: Final = 3
"""Kafka advises a session timeout of at least this many heartbeat intervals."""

MIN_SESSION_MS: Final = 6_000
"""The default of group.min.session.timeout.ms, in Kafka and in Muster."""

WORTH: Final = 2
"""Lowering a session timeout is advised if it can be divided by at least this."""


def shorter_sessions(episode: Episode, gone: Iterable[Went]) -> tuple[str, ...]:
    """Return advice on the session timeout that prolonged a join phase most, if the delay was long."""
    waits = [(waited_ms, act) for act in gone if (waited_ms := _waited_ms(episode, act)) > HELD_MS]
    if not waits:
        return ()
    waited_ms, act = max(waits, key=lambda each: each[0])
    least_ms = _least_ms(episode, act)
    session_ms = act.member.session_timeout_ms
    if least_ms * WORTH > session_ms:
        return ()
    waited = f"all waited {duration(waited_ms)} for it because its session timeout is {setting(session_ms)}"
    least = (
        f"with {setting(least_ms)} ({_why_least(episode, least_ms)}) it would have been {duration(least_ms)} at most"
    )
    return (f"{waited}: {least}; {_trade_off(act.member, least_ms)}",)


def _waited_ms(episode: Episode, act: Went) -> int:
    """Return how long a join phase lasted until the end of the member's session; 0 if no phase waited for it."""
    rebalance = episode.rebalance_of(act) if act.how is Departure.EXPIRED else None
    if rebalance is None or rebalance.trigger.seq == act.seq or act not in given_up(rebalance, episode):
        return 0
    return act.at_ms - rebalance.started_ms


def _least_ms(episode: Episode, act: Went) -> int:
    """Return the shortest session timeout that the member could have had, in ms, rounded up to seconds."""
    heartbeats_ms = -(-HEARTBEATS * act.longest_silence_ms // 1_000) * 1_000
    return max(heartbeats_ms, MIN_SESSION_MS if episode.min_session_ms is None else episode.min_session_ms)


def _why_least(episode: Episode, least_ms: int) -> str:
    known_ms = episode.min_session_ms
    allowed = f"group.min.session.timeout.ms is {setting(MIN_SESSION_MS if known_ms is None else known_ms)}"
    if known_ms is None:
        allowed += " unless it is set"
    is_allowed = least_ms == (MIN_SESSION_MS if known_ms is None else known_ms)
    return allowed if is_allowed else f"{HEARTBEATS} of its heartbeat intervals; {allowed}"


def _trade_off(member: Member, least_ms: int) -> str:
    if member.group_instance_id is not None:
        return f"a restart that takes longer than {setting(least_ms)} makes the group rebalance then"
    return f"a member that stalls for longer than {setting(least_ms)} loses its place then"
