"""One process that ended and came back repeatedly."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from muster.replay.incidents.episode.acts import CameBack, Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.episode.replacements import Replacement
from muster.replay.incidents.evidence.former_process import FormerProcess, former_process
from muster.replay.incidents.evidence.naming import process_name
from muster.replay.incidents.evidence.session_timeout import shorter_sessions
from muster.replay.incidents.evidence.silence import silences
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.replaced import (
    acts_of,
    grade_of,
    members_of,
    nobody_took,
    silent_again,
    times_in_a_row,
    would_be_heard,
)
from muster.replay.incidents.windows import (
    CRASH_LOOP_TIMES_MIN,
)
from muster.replay.text.times import duration

MAY_HAVE_LIVED: Final = "; it is not recorded whether it had ended each time, or was only silent"

KIND = Kind(
    "crash-loop",
    "One process ended and came back three times or more, never more than ten minutes apart.",
    "the process",
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    for run in loops(each for each in view.free_replacements() if not had_not_ended(view.episode, each)):
        span_ms = run[-1].end_ms - run[0].begin_ms
        last = _last(view, run[-1])
        again = (
            "" if last is None else f"; then it disappeared again, and {nobody_took(view.episode, last, 'its place')}"
        )
        yield IncidentClaim(
            kind=KIND,
            acts=acts_of(run) if last is None else (*acts_of(run), last),
            culprits=members_of(run),
            grade=grade_of(run) if would_be_heard(run) else Grade.UNKNOWN,
            headline=(
                f"{process_name(run[0].member)} {_what(run)} {len(run)} times within {duration(span_ms)}{again}"
                f"{'' if would_be_heard(run) else MAY_HAVE_LIVED}"
            ),
            chain=() if last is None else tuple(silences(view.episode, [last])),
            advice=("find out from its own log why this process ends", *shorter_sessions(view.episode, _gone(run))),
        )


def _last(view: EpisodeView, last: Replacement) -> Went | None:
    """Return the departure of a process that ended once more and did not come back."""
    went = silent_again(view, last)
    return None if went is None or went.member.member_id in view.episode.heard_again else went


def loops(replaced: Iterable[Replacement]) -> Iterator[list[Replacement]]:
    """Yield the runs in which one process left and came back often enough."""
    return (run for run in times_in_a_row(replaced) if len(run) >= CRASH_LOOP_TIMES_MIN)


def had_not_ended(episode: Episode, each: Replacement) -> bool:
    """Return whether the log shows that the process had not ended.

    It was heard from under its old member id, or was fenced, or came back on the same connection.
    """
    if each.on_same_connection or each.former_id in episode.heard_again:
        return True
    return isinstance(each.came, CameBack) and former_process(episode, each.came) is FormerProcess.ALIVE


def _gone(run: Sequence[Replacement]) -> Iterator[Went]:
    return (each.went for each in run if each.went is not None)


def _what(run: Sequence[Replacement]) -> str:
    """Describe what it did; a static member may never have been removed."""
    return "came back" if all(each.went is None for each in run) else "disappeared and came back"
