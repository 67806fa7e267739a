"""How the connection of a member ended that is gone: what that says of its process (format level 6).

ENDED    its side closed or reset the connection at once, within a heartbeat of its last sign of life, or while it
         waited for the answer to its join: the process had ended, in whatever way, and its machine and the network
         lived. (docs/clients.md: all client families, for SIGTERM, kill -9 and an exception alike; FIN or RST by
         chance.)
LATER    its side closed the connection, but later: a client that gave it up, or a proxy between that was tired of it
OPEN     it was still open when the member was removed: nobody had closed it, so the process stood still or polled too
         late, its machine had died, or the network was cut
LOST     the operating system gave it up, since nothing was acknowledged
UNKNOWN  not recorded, or we closed it ourselves, or the process of Muster between was lost

The connection is the last hop's: of a proxy between, if there is one.
"""

from collections.abc import Iterator, Sequence
from enum import Enum, auto, unique
from typing import Final

from muster.events.connection import ConnectionEnd, LastConnection
from muster.replay.incidents.episode.acts import CameBack, Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.evidence.naming import process_name
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.rebalances.wording import host
from muster.replay.text.times import duration, instant

SLACK_MS: Final = 1_000
"""An end is noticed, and a client closes its sockets, within this time (up to 0.5 s was measured)."""


ONE_MOMENT_MS: Final = 200
"""Connections of one address that end within this time may have ended with what they have in common there."""


@unique
class Ending(Enum):
    """How a connection ended."""

    ENDED = auto()
    LATER = auto()
    OPEN = auto()
    LOST = auto()
    UNKNOWN = auto()


def ending(episode: Episode, act: Went | CameBack) -> Ending:
    """How the connection ended of the process that is gone."""
    connection = act.last_connection
    if connection is None:
        return Ending.UNKNOWN
    match connection.end:
        case None:
            return Ending.OPEN
        case ConnectionEnd.CLOSED | ConnectionEnd.RESET:
            late_ms = _late_ms(episode, act, connection)
            return Ending.ENDED if late_ms <= heartbeat_ms(act) + SLACK_MS else Ending.LATER
        case ConnectionEnd.TIMED_OUT:
            return Ending.LOST
        case ConnectionEnd.CLOSED_BY_COORDINATOR | ConnectionEnd.UNKNOWN:
            return Ending.UNKNOWN


def ended_ms(episode: Episode, act: Went | CameBack) -> int:
    """When the process ended: when its connection did, or else its last sign of life."""
    connection = act.last_connection
    if connection is None or connection.ended_ms is None or ending(episode, act) is not Ending.ENDED:
        return act.last_seen_ms
    return connection.ended_ms


def all_ended(episode: Episode, acts: Sequence[Went | CameBack]) -> bool:
    """Whether the processes of all of them had ended."""
    return all(ending(episode, act) is Ending.ENDED for act in acts)


def ended_together(episode: Episode, acts: Sequence[Went]) -> Iterator[Statement]:
    """Say that all came from one address and ended in one moment: what ended may be what they have in common there."""
    hosts = {act.member.client_host for act in acts}
    ends = sorted(ended_ms(episode, act) for act in acts)
    if len(acts) < 2 or len(hosts) > 1 or ends[-1] - ends[0] > ONE_MOMENT_MS:
        return
    yield Statement(
        text=(
            f"all {len(acts)} connections came from {host(hosts.pop())} and ended within"
            f" {duration(ends[-1] - ends[0])}: whether the processes ended, or a proxy or a machine that they share, is"
            " not known"
        ),
        grade=Grade.UNKNOWN,
        at=instant(ends[0]),
        seqs=tuple(act.seq for act in acts),
    )


def _late_ms(episode: Episode, act: Went | CameBack, connection: LastConnection) -> int:
    """How long after its last sign of life the connection ended. One that waits for the answer to its join, until the
    join phase is over, sends no heartbeats.
    """
    if connection.ended_ms is None:
        return 0
    member_id = act.member.member_id if isinstance(act, Went) else act.replaced_member_id
    return connection.ended_ms - max(act.last_seen_ms, min(connection.ended_ms, episode.waited_until_ms(member_id)))


def heartbeat_ms(act: Went | CameBack) -> int:
    """The longest that it was silent between two heartbeats, or a third of its session, which none should exceed."""
    member = act.before or act.member if isinstance(act, CameBack) else act.member
    return max(act.longest_silence_ms if isinstance(act, Went) else 0, member.session_timeout_ms // 3)


def connection_statement(episode: Episode, act: Went) -> Iterator[Statement]:
    """Say what is recorded of its connection."""
    connection = act.last_connection
    if connection is None:
        return
    found = ending(episode, act)
    whose = process_name(act.member)
    if connection.edge is not None:
        whose += f" to the Muster process with node id {connection.edge}"
    late = "" if connection.ended_ms is None else duration(max(0, connection.ended_ms - act.last_seen_ms))
    text = {
        Ending.ENDED: f"the connection of {whose} was closed from its side {late} after its last sign of life",
        Ending.LATER: (
            f"the connection of {whose} was closed from its side, but {late} after its last sign of life: by the"
            " client, or by a proxy between"
        ),
        Ending.OPEN: f"the connection of {whose} was still open when it was removed: its side had not closed it",
        Ending.LOST: f"the connection of {whose} was lost: its side acknowledged nothing any more",
        Ending.UNKNOWN: f"what its side did with the connection of {whose} is not known: {_why_unknown(connection)}",
    }[found]
    grade = Grade.UNKNOWN if found is Ending.UNKNOWN else Grade.RECORDED
    yield Statement(text=text, grade=grade, at=instant(connection.ended_ms or act.at_ms), seqs=(act.seq,))


def _why_unknown(connection: LastConnection) -> str:
    by_us = connection.end is ConnectionEnd.CLOSED_BY_COORDINATOR
    return "the coordinator closed it" if by_us else "the Muster process that it led to was lost"
