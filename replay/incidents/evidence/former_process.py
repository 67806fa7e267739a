"""Determines whether the former process of an instance id had ended when another one joined with that id.

ALIVE    it was fenced afterwards
CLOSED   it had closed its connection within a heartbeat of its last request (format level 6)
SILENT   it had been silent for longer than a live process would be, which sends a heartbeat every third of the session
ENDED    it was never heard from again, although a live process would have been fenced at its next heartbeat
UNKNOWN  it was alive shortly before, and the history does not show what happened to it: a restart, a poll timeout and
         a second process look the same
"""

from enum import Enum, auto, unique

from muster.replay.incidents.episode.acts import CameBack
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.evidence.connection_ends import Ending, ended_ms, ending
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.rebalances.wording import host
from muster.replay.text.grammar import plural
from muster.replay.text.times import duration, instant


@unique
class FormerProcess(Enum):
    """How the process ended, as far as the history shows it. See the module."""

    ALIVE = auto()
    CLOSED = auto()
    SILENT = auto()
    ENDED = auto()
    UNKNOWN = auto()


def former_process(episode: Episode, came: CameBack) -> FormerProcess:
    """Return whether, and how, the former process of the instance id had ended."""
    if episode.fenced_after(came):
        return FormerProcess.ALIVE
    if ending(episode, came) is Ending.ENDED:
        return FormerProcess.CLOSED
    if _was_silent(episode, came):
        return FormerProcess.SILENT
    return FormerProcess.ENDED if _would_have_been_fenced(episode, came) else FormerProcess.UNKNOWN


def _was_silent(episode: Episode, came: CameBack) -> bool:
    """Return whether its last silence was its longest, and longer than a third of the session timeout."""
    from_ms = _silent_from_ms(episode, came)
    is_longest = not came.heard or came.at_ms - came.last_seen_ms >= came.longest_silence_ms
    return from_ms is not None and is_longest and episode.served_ms(from_ms, came.at_ms) * 3 > _session_ms(came)


def _silent_from_ms(episode: Episode, came: CameBack) -> int | None:
    """Return since when, by the log, it was not heard from: its last request, or a takeover; None if not recorded."""
    if came.heard is not False:
        return came.last_seen_ms if came.heard else None
    takeovers = (each.until_ms for each in episode.aways if not each.paused and each.until_ms <= came.at_ms)
    return max(takeovers, default=None)


def _would_have_been_fenced(episode: Episode, came: CameBack) -> bool:
    """Return whether a live process would have been fenced since then; in a rebalance its last request may still be
    parked.
    """
    until_ms = came.at_ms + _session_ms(came)
    return came.absorbed and until_ms <= episode.taken_again_ms(came) and not episode.was_away(came.at_ms, until_ms)


def _session_ms(came: CameBack) -> int:
    return (came.before or came.member).session_timeout_ms


def former_statement(episode: Episode, came: CameBack) -> Statement:
    """Return the statement about the former process."""
    found = former_process(episode, came)
    if found is FormerProcess.ALIVE:
        return _fenced(episode, came)
    from_ms = _silent_from_ms(episode, came)
    silent = "" if from_ms is None else f" for {duration(max(0, came.at_ms - from_ms))}"
    before = f"it had not been heard from{silent}" if silent else "when it was last heard from is not recorded"
    closed_ms = max(0, came.at_ms - ended_ms(episode, came))
    text, grade = {
        FormerProcess.CLOSED: (
            f"the process before it had closed its connection {duration(closed_ms)} before",
            Grade.RECORDED,
        ),
        FormerProcess.SILENT: (f"the process before it had not been heard from{silent}", Grade.RECORDED),
        FormerProcess.ENDED: (
            f"the process before it did not keep running beside it: {before}, and none of its requests was fenced then",
            Grade.INFERRED,
        ),
        FormerProcess.UNKNOWN: (f"whether the process before it had ended is not known: {before}", Grade.UNKNOWN),
    }[found]
    return Statement(text=text, grade=grade, at=instant(came.at_ms), seqs=(came.seq,))


def _fenced(episode: Episode, came: CameBack) -> Statement:
    fenced = episode.fenced_after(came)
    times = sum(act.times for act in fenced)
    return Statement(
        text=(
            f"another process with the instance id '{came.member.group_instance_id}' was alive, at"
            f" {host(fenced[0].why.client_host or '')}: {plural(times, 'request')} of it"
            f" {'was' if times == 1 else 'were'} fenced"
        ),
        grade=Grade.RECORDED,
        at=instant(fenced[0].at_ms),
        seqs=tuple(act.seq for act in fenced),
    )
