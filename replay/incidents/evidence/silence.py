"""Statements about silent members: when they were last heard from, removed, and perhaps heard from again."""

from collections.abc import Iterator, Sequence
from typing import Final

from muster.replay.incidents.episode.acts import Departure, Phase, Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.evidence.connection_ends import connection_statement
from muster.replay.incidents.evidence.naming import process_name
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.text.times import duration, instant, moment, setting

LATE_MS: Final = 2_000
"""A removal within this time after the session timeout counts as on time: timers and logs add some delay."""


def silences(episode: Episode, gone: Sequence[Went]) -> Iterator[Statement]:
    """Yield the statements about each member."""
    for act in gone:
        yield _last_seen(episode, act)
        yield from connection_statement(episode, act)
        yield from _late(episode, act)
        yield from _early(episode, act)
        yield from _heard_again(episode, act)


def _last_seen(episode: Episode, act: Went) -> Statement:
    """State when the member was last heard from: the recorded time, or a range."""
    silence = episode.silence_of(act)
    name = process_name(act.member)
    if silence.is_known:
        text = f"{name} was last heard from, and removed {duration(act.at_ms - act.last_seen_ms)} later"
        return Statement(text=text, grade=Grade.RECORDED, at=instant(silence.to_ms), seqs=(act.seq,))
    text = (
        f"when {name} was last heard from is not known: between {moment(silence.from_ms)} and {moment(silence.to_ms)},"
        " when the coordinator changed"
    )
    return Statement(text=text, grade=Grade.UNKNOWN, at=instant(silence.from_ms), seqs=(act.seq,))


def _late(episode: Episode, act: Went) -> Iterator[Statement]:
    """State why it was removed long after its session timeout: its session was restarted, or the reason is not
    known.
    """
    session_ms = act.member.session_timeout_ms
    late_ms = act.at_ms - act.last_seen_ms - session_ms
    if act.how is not Departure.EXPIRED or not episode.silence_of(act).is_known or late_ms <= LATE_MS:
        return
    anew_ms = act.at_ms - session_ms
    aways = [each for each in episode.aways if abs(each.until_ms - anew_ms) <= LATE_MS]
    phases = [each for each in episode.of(Phase) if abs(each.at_ms - anew_ms) <= LATE_MS]
    text = f"{process_name(act.member)} was removed {duration(late_ms)} later than its session timeout"
    if aways:
        gone = "had stalled" if aways[-1].paused else "had been unavailable"
        text += f": the coordinator {gone} until {moment(aways[-1].until_ms)}, and all sessions started again then"
        yield Statement(text=text, grade=Grade.RECORDED, at=instant(act.at_ms), seqs=(act.seq,))
    elif phases:
        text += f": it had waited for the others until {moment(phases[-1].at_ms)}, and its session began then"
        seqs = (phases[-1].seq, act.seq)
        yield Statement(text=text, grade=Grade.INFERRED, at=instant(act.at_ms), seqs=seqs)
    else:
        text += "; why is not recorded: the log or the broker behind the coordinator may have been slow"
        yield Statement(text=text, grade=Grade.UNKNOWN, at=instant(act.at_ms), seqs=(act.seq,))


def _early(episode: Episode, act: Went) -> Iterator[Statement]:
    """State why it was removed before its session timeout: in a rebalance only the rebalance timeout counts."""
    silence = episode.silence_of(act)
    session_ms = act.member.session_timeout_ms
    if act.how is Departure.EXPIRED or not silence.is_known or act.at_ms - act.last_seen_ms >= session_ms:
        return
    kept = ""
    if act.how is Departure.NOT_SYNCED and act.member.group_instance_id is not None:
        kept = "; a static member that misses a join phase keeps its place for one rebalance timeout more"
    missed = "did not rejoin" if act.how is Departure.NOT_REJOINED else "did not ask for its assignment"
    yield Statement(
        text=f"{process_name(act.member)} was removed before its session timeout of {setting(session_ms)} had passed:"
        f" it {missed} in time, which the rebalance timeout (max.poll.interval.ms) limits{kept}",
        grade=Grade.RECORDED,
        at=instant(act.at_ms),
        seqs=(act.seq,),
    )


def _heard_again(episode: Episode, act: Went) -> Iterator[Statement]:
    """State that the process had not died: it sent a request with its removed member id (format level 4)."""
    found = episode.heard_again.get(act.member.member_id)
    if found is None:
        return
    heard_ms, seq = found
    yield Statement(
        text=(
            f"{process_name(act.member)} had not died: it was heard from again under its old member id,"
            f" {duration(max(0, heard_ms - act.last_seen_ms))} after its last sign of life"
        ),
        grade=Grade.RECORDED,
        at=instant(heard_ms),
        seqs=(act.seq, seq),
    )
