"""How a lost member's connection ended, and what that shows about its process (format level 6).

ENDED    the client's side closed or reset the connection within a heartbeat of the last request, or while it waited for
         the response to its join: the process had ended somehow, but its machine and the network were up.
         (docs/clients.md: this holds for all client families, after SIGTERM, kill -9 or an exception; some send FIN,
         some RST.)
LATER    the client's side closed the connection, but later: the client dropped it, or a proxy in between did
OPEN     it was still open when the member was removed: the process was paused or polled too late, its machine had
         died, or the network was cut
LOST     the operating system dropped it because nothing was acknowledged
UNKNOWN  not recorded, or Muster closed it itself, or the Muster process in between was lost

The connection is that of the last hop: of a proxy, if there is one in between.
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
"""How long after its end a client's sockets are closed and Muster notices (up to 0.5 s was measured)."""


ONE_MOMENT_MS: Final = 200
"""Connections from one address that end within this time of each other may have a common cause, such as a stopped
proxy.
"""


@unique
class Ending(Enum):
    """How a connection ended; see the module."""

    ENDED = auto()
    LATER = auto()
    OPEN = auto()
    LOST = auto()
    UNKNOWN = auto()


def ending(episode: Episode, act: Went | CameBack) -> Ending:
    """Return how the lost process's connection ended."""
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
    """Return when the process ended: with its connection, else when it was last heard from."""
    connection = act.last_connection
    if connection is None or connection.ended_ms is None or ending(episode, act) is not Ending.ENDED:
        return act.last_seen_ms
    return connection.ended_ms


def all_ended(episode: Episode, acts: Sequence[Went | CameBack]) -> bool:
    """Return whether all of these processes had ended."""
    return all(ending(episode, act) is Ending.ENDED for act in acts)


def ended_together(episode: Episode, acts: Sequence[Went]) -> Iterator[Statement]:
    """State that all connections came from one address and ended at the same time: a shared proxy may have ended."""
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
    """Return how long after the last request the connection ended.

    A member that waits for the response to its join, until the join phase is over, sends no heartbeats.
    """
    if connection.ended_ms is None:
        return 0
    member_id = act.member.member_id if isinstance(act, Went) else act.replaced_member_id
    return connection.ended_ms - max(act.last_seen_ms, min(connection.ended_ms, episode.waited_until_ms(member_id)))


def heartbeat_ms(act: Went | CameBack) -> int:
    """Return the longest silence between heartbeats, at least a third of the session timeout (Kafka's advice)."""
    member = act.before or act.member if isinstance(act, CameBack) else act.member
    return max(act.longest_silence_ms if isinstance(act, Went) else 0, member.session_timeout_ms // 3)


def connection_statement(episode: Episode, act: Went) -> Iterator[Statement]:
    """State what is recorded about the member's connection."""
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
        Ending.LOST: f"the connection of {whose} was lost: its side no longer acknowledged anything",
        Ending.UNKNOWN: f"what its side did with the connection of {whose} is not known: {_why_unknown(connection)}",
    }[found]
    grade = Grade.UNKNOWN if found is Ending.UNKNOWN else Grade.RECORDED
    yield Statement(text=text, grade=grade, at=instant(connection.ended_ms or act.at_ms), seqs=(act.seq,))


def _why_unknown(connection: LastConnection) -> str:
    by_us = connection.end is ConnectionEnd.CLOSED_BY_COORDINATOR
    return "the coordinator closed it" if by_us else "the Muster process that it led to was lost"
