"""One process that ended and came back."""

from collections.abc import Iterator, Sequence
from typing import Final

from muster.replay.incidents.episode.acts import CameBack, Departure, Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.episode.replacements import Replacement
from muster.replay.incidents.evidence.connection_ends import SLACK_MS
from muster.replay.incidents.evidence.former_process import FormerProcess, former_process, former_statement
from muster.replay.incidents.evidence.naming import process_name
from muster.replay.incidents.evidence.poll_interval import interval_advice, may_have_polled_late, polled_in_time
from muster.replay.incidents.evidence.session_timeout import shorter_sessions
from muster.replay.incidents.evidence.silence import silences
from muster.replay.incidents.grade import Grade, at_best
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.crash_loop import loops
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.replaced import (
    IF_NOT_BACK,
    LOST_AGAIN,
    acts_of,
    advice_on,
    after_last_sign,
    grade_of,
    later,
    lost_again,
    members_of,
)
from muster.replay.rebalances.wording import host, is_close, says_something
from muster.replay.text.times import duration, instant, setting

TWO_OF_ONE: Final = "if it was not a restart: give each process a group.instance.id of its own"
HELD_UP: Final = "look at what held it up: garbage collection, a throttled processor, its network"

REVOKING: Final = (
    "if it was revoking its partitions: some clients send no heartbeats while the application's listener does that;"
    " make it shorter than the session timeout"
)

_HELD: Final = "stalled or was cut off"

_GIVEN_UP: Final = {
    Departure.NOT_REJOINED: "did not rejoin",
    Departure.NOT_SYNCED: "did not ask for its assignment",
}

SLOW_BEAT: Final = (
    "if only its heartbeats are too slow: set its heartbeat.interval.ms to a third of its session.timeout.ms at most"
)

KIND = Kind(
    "restart",
    "One process ended and came back, or another one took its place; or a live one lost its place and came back, once"
    " or again and again. A poll timeout may look the same.",
    "the process",
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    again = list(loops(each for each in view.free_replacements() if _lived(view.episode, each)))
    yield from (_lived_through(view, run) for run in again)
    yield from (_not_back(view, act) for act in view.free(Went) if _lives_elsewhere(view.episode, act))
    told = {id(each) for run in again for each in run}
    for each in view.free_replacements():
        if id(each) in told:
            continue
        last = lost_again(view, each) if _lived(view.episode, each) else None
        lost = [] if last is None else [last]
        yield IncidentClaim(
            kind=KIND,
            acts=(*each.acts, *lost),
            culprits=members_of([each]),
            grade=_grade(each, view.episode),
            headline=f"{_restart_text(each, view.episode)}{LOST_AGAIN if lost else ''}",
            chain=(*_evidence(each, view.episode), *silences(view.episode, lost)),
            advice=(
                *_advice(each, view.episode),
                *shorter_sessions(view.episode, [each.went] if each.went else []),
                *([IF_NOT_BACK] if lost else ()),
            ),
        )


def _lived(episode: Episode, each: Replacement) -> bool:
    """Return whether the process had certainly not ended."""
    return each.on_same_connection or each.former_id in episode.heard_again


def _lived_through(view: EpisodeView, run: Sequence[Replacement]) -> IncidentClaim:
    """Claim the cases in which one process lost its place while it was alive."""
    name, span_ms = process_name(run[0].member), run[-1].end_ms - run[0].begin_ms
    session = setting(run[0].member.session_timeout_ms)
    went = [each.went for each in run if each.went is not None]
    lost = "lost its place" if len(went) == len(run) else "fell silent"
    last = lost_again(view, run[-1])
    return IncidentClaim(
        kind=KIND,
        acts=acts_of(run) if last is None else (*acts_of(run), last),
        culprits=members_of(run),
        grade=at_best(Grade.INFERRED, grade_of(run)),
        headline=(
            f"{name} {lost} {len(run)} times within {duration(span_ms)}, and came back each time: it had not died, but"
            f" {_or_too_slow(_lived_but(run[0], view.episode), session)}{'' if last is None else LOST_AGAIN}"
        ),
        chain=tuple(silences(view.episode, went if last is None else [*went, last])),
        advice=(HELD_UP, SLOW_BEAT, *(() if last is None else (IF_NOT_BACK,))),
    )


def _lives_elsewhere(episode: Episode, went: Went) -> bool:
    """Return whether it was heard from after it had been removed, and is not known to have rejoined."""
    return went.is_silent and went.member.member_id in episode.heard_again and went.seq not in episode.paired_seqs


def _not_back(view: EpisodeView, went: Went) -> IncidentClaim:
    heard_ms, _ = view.episode.heard_again[went.member.member_id]
    return IncidentClaim(
        kind=KIND,
        acts=(went,),
        culprits=(went.member,),
        grade=Grade.INFERRED,
        headline=(
            f"{process_name(went.member)} lost its place, and was heard from again"
            f" {duration(max(0, heard_ms - went.last_seen_ms))} after its last sign of life: it had not died, but"
            f" {_held_up(went, view.episode)}; that it joined again is not known"
        ),
        chain=tuple(silences(view.episode, [went])),
        advice=(HELD_UP,),
    )


def _grade(each: Replacement, episode: Episode) -> Grade:
    """Return the grade: an instance id does not show whether the old process ended; a fenced request or the client's
    reason does.
    """
    if isinstance(each.came, CameBack):
        return Grade.RECORDED if former_process(episode, each.came) is FormerProcess.ALIVE else Grade.INFERRED
    assert each.went is not None
    return each.process.grade if is_close(each.went.why.client_reason) else at_best(Grade.INFERRED, each.process.grade)


def _advice(each: Replacement, episode: Episode) -> tuple[str, ...]:
    """Return advice for each of the possible causes."""
    if isinstance(each.came, CameBack):
        if each.on_same_connection:
            return (HELD_UP,)
        is_alike = former_process(episode, each.came) in (FormerProcess.ALIVE, FormerProcess.UNKNOWN)
        return (TWO_OF_ONE,) if is_alike else ()
    assert each.went is not None
    if _lived(episode, each):
        if _is_silent_in_join_phase(each.went, episode):
            return HELD_UP, REVOKING
        return (HELD_UP, SLOW_BEAT) if _may_be_too_slow(each.went, episode) else (HELD_UP,)
    says = each.went.why.client_reason
    left = each.went.how is Departure.LEFT and not is_close(says) and not says_something(says)
    if left and may_have_polled_late(episode, each):
        return (*advice_on([each]), f"if it was a poll timeout: {interval_advice(each.went.member)}")
    return advice_on([each])


def _evidence(each: Replacement, episode: Episode) -> tuple[Statement, ...]:
    came = Statement(
        text=f"{process_name(each.came.member)} joined under a new member id",
        grade=Grade.RECORDED,
        at=instant(each.came.at_ms),
        seqs=(each.came.seq,),
    )
    is_unheard = each.on_same_connection and each.former_id not in episode.heard_again
    in_time = tuple(polled_in_time(episode, each)) if is_unheard else ()
    if isinstance(each.came, CameBack):
        return (*in_time, came) if each.on_same_connection else (came, former_statement(episode, each.came))
    assert each.went is not None
    return (*silences(episode, [each.went]), *in_time, came) if each.went.is_silent else (came,)


def _held_up(went: Went, episode: Episode) -> str:
    if _is_silent_in_join_phase(went, episode):
        return "stalled, was cut off, or was busy revoking its partitions"
    return _HELD


def _is_silent_in_join_phase(went: Went, episode: Episode) -> bool:
    """Return whether it was removed in a rebalance that it may have known of, from its last heartbeat response."""
    return any(
        each.started_ms <= went.last_seen_ms
        and each.first_seq < went.seq <= each.last_seq
        and went.member.member_id in {member.member_id for member in each.members_before}
        for each in episode.rebalances
    )


def _lived_but(each: Replacement, episode: Episode) -> str:
    """Say what may have happened. Most clients send no LeaveGroup when a static member is unsubscribed."""
    if each.went is not None and _is_silent_in_join_phase(each.went, episode):
        return _held_up(each.went, episode)
    if each.member.group_instance_id is None or each.former_id in episode.heard_again:
        return _HELD
    return "stalled, was unsubscribed for a while or was cut off"


def _may_be_too_slow(went: Went, episode: Episode) -> bool:
    """Return whether it may never have sent a heartbeat in time: it was not heard from after its join."""
    came_ms = episode.came_ms(went.member.member_id)
    if came_ms is None or _is_silent_in_join_phase(went, episode):
        return False
    is_short = went.last_seen_ms - came_ms < went.member.session_timeout_ms
    return is_short and went.last_seen_ms - episode.waited_until_ms(went.member.member_id) <= SLACK_MS


def _or_too_slow(but: str, session: str) -> str:
    return f"{but.replace(' or was', ', was')}, or its heartbeats come too slowly for a session timeout of {session}"


def _late_poll(each: Replacement, episode: Episode) -> str:
    """' a poll timeout,' if it may have been one."""
    return " a poll timeout," if may_have_polled_late(episode, each) else ""


def _taken_text(each: Replacement, came: CameBack, episode: Episode) -> str:
    name, former = process_name(each.member), former_process(episode, came)
    kept = ", and kept its partitions" if came.absorbed else ""
    if each.on_same_connection:
        return (
            f"{name} came back{after_last_sign(each)}{kept}, on the same connection: it had not died, but"
            f" {_lived_but(each, episode)}"
        )
    if former is FormerProcess.ALIVE:
        return f"another process joined as {name}, and took its place while it was alive"
    if former is FormerProcess.UNKNOWN:
        late_poll = _late_poll(each, episode)
        return (
            f"{name} joined under a new member id{kept}: a restart,{late_poll} or a second process with its instance id"
        )
    return f"{name} rejoined under a new member id{kept}"


def _restart_text(each: Replacement, episode: Episode) -> str:
    name = process_name(each.member)
    if isinstance(each.came, CameBack):
        return _taken_text(each, each.came, episode)
    assert each.went is not None
    how = "left" if each.went.how is Departure.LEFT else "was not heard from again"
    if each.is_renamed and each.process.grade is Grade.UNKNOWN:
        other = process_name(each.came.member)
        return f"{name} {how}, and {later(each)} {other} joined: it may have taken its place"
    if each.is_elsewhere:
        elsewhere = host(each.came.member.client_host)
        return (
            f"{name} {how}, and {later(each)} a process with its client id joined from {elsewhere}: it may"
            " be the same process, moved"
        )
    if is_close(each.went.why.client_reason):
        return f"{name} was closed, and came back {later(each)}"
    if each.went.how is Departure.LEFT and says_something(each.went.why.client_reason):
        return f'{name} left and came back {later(each)}; the client says: "{each.went.why.client_reason}"'
    if each.went.how is Departure.LEFT:
        other = "a poll timeout" if may_have_polled_late(episode, each) else "an unsubscribe"
        return f"{name} left, then came back {later(each)}: a restart or {other}"
    late_poll = _late_poll(each, episode) if each.went.member.group_instance_id is not None else ""
    if each.went.how in _GIVEN_UP and each.gap_ms is not None and episode.silence_of(each.went).is_known:
        timeout = setting(each.went.member.rebalance_timeout_ms)
        lives = each.went.member.member_id in episode.heard_again
        was = f"a restart,{late_poll} or it {_HELD}"
        if lives:
            was = f"it had not died, but {_held_up(each.went, episode)}"
        return (
            f"{name} {_GIVEN_UP[each.went.how]} within the rebalance timeout of {timeout}, and came back"
            f"{after_last_sign(each)}: {was}"
        )
    session = setting(each.went.member.session_timeout_ms)
    if each.gap_ms is None or not episode.silence_of(each.went).is_known:
        return f"{name} was not heard from for its session timeout of {session}, and came back"
    if _lived(episode, each):
        where, but = ", on the same connection" if each.on_same_connection else "", _lived_but(each, episode)
        return (
            f"{name} was not heard from for longer than its session timeout of {session}, and came back"
            f"{after_last_sign(each)}{where}: it had not died, but"
            f" {_or_too_slow(but, session) if _may_be_too_slow(each.went, episode) else but}"
        )
    if each.came.at_ms < each.went.at_ms:
        return (
            f"{name} was restarted: it was last seen {duration(each.gap_ms)} before it came back, and its former member"
            f" id was waited for until its session timeout of {session} had passed"
        )
    return (
        f"{name} was not heard from for its session timeout of {session}, and came back"
        f"{after_last_sign(each)}: a restart,{late_poll} or it {_HELD}"
    )
