"""The session timeout for which all waited, as advice: what to lower it to, and what that costs.

A dead member is waited for until its session ends, so the length of that is what others pay for a crash. It cannot be
shorter than the coordinator allows, nor than a few of the member's own heartbeats: the longest silence while it lived
tells how far these are apart.
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
"""So many heartbeat intervals make a session timeout, by Kafka's own advice."""

MIN_SESSION_MS: Final = 6_000
"""The default of group.min.session.timeout.ms, in Kafka and here."""

WORTH: Final = 2
"""A session timeout is worth lowering to this part of it, or less."""


def shorter_sessions(episode: Episode, gone: Iterable[Went]) -> tuple[str, ...]:
    """Advise on the one for which a join phase waited longest, if that was for long."""
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
    """How long a join phase went on until the end of its session; 0 if none did."""
    rebalance = episode.rebalance_of(act) if act.how is Departure.EXPIRED else None
    if rebalance is None or rebalance.trigger.seq == act.seq or act not in given_up(rebalance, episode):
        return 0
    return act.at_ms - rebalance.started_ms


def _least_ms(episode: Episode, act: Went) -> int:
    """The shortest session timeout that it could have had, in whole seconds."""
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
    return f"a member that stands still for longer than {setting(least_ms)} loses its place then"
