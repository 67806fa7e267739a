"""Static members whose processes ended, and whose places nobody took.

A static member that is closed sends no LeaveGroup, in any client family (docs/clients.md), and neither does one that is
killed: either way its connection is closed, and the group waits for its session. So a stop and a crash look the same.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from muster.events.state import Member
from muster.replay.incidents.episode.acts import Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.evidence.connection_ends import Ending, ended_ms, ended_together, ending
from muster.replay.incidents.evidence.naming import NAMED_MAX, processes
from muster.replay.incidents.evidence.session_timeout import shorter_sessions
from muster.replay.incidents.evidence.silence import silences
from muster.replay.incidents.evidence.standbys import call_for
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.runs import runs
from muster.replay.incidents.windows import SCALING_NEXT_MS
from muster.replay.text.times import duration, setting

KIND = Kind(
    "stopped",
    "Processes of static members ended, stopped or killed: they closed their connections and sent no LeaveGroup, as"
    " static members do, and nobody took their places within ten minutes.",
    "the members whose processes ended",
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    ended = [act for act in view.free(Went) if _is_stopped(view, act)]
    for run in runs(sorted(ended, key=partial(ended_ms, view.episode)), partial(_goes_on, view.episode)):
        members = [act.member for act in run]
        span = ended_within(view.episode, run) if len(run) > 1 else ""
        yield ended_claim(
            view,
            KIND,
            run,
            headline=(
                f"{_count(run)} ended{span}{_emptied(view, run)}: {processes(members)};"
                f" {'it' if len(run) == 1 else 'each'} closed its connection and sent no LeaveGroup, as a static member"
                " does that is stopped or killed"
            ),
            advice=(_advice(view, members),),
        )


def ended_claim(
    view: EpisodeView, kind: Kind, run: Sequence[Went], *, headline: str, advice: tuple[str, ...]
) -> IncidentClaim:
    """An incident of processes that ended, in order of when they did."""
    return IncidentClaim(
        kind=kind,
        acts=tuple(sorted(run, key=lambda act: act.seq)),
        culprits=tuple(act.member for act in run),
        grade=Grade.INFERRED,
        headline=headline,
        chain=(*silences(view.episode, run), *ended_together(view.episode, run)),
        advice=(*advice, *shorter_sessions(view.episode, run)),
    )


def ended_within(episode: Episode, run: Sequence[Went]) -> str:
    return f" within {duration(ended_ms(episode, run[-1]) - ended_ms(episode, run[0]))}"


def _is_stopped(view: EpisodeView, act: Went) -> bool:
    """Whether it is a static member whose process ended, and for which no standby was called."""
    is_static = act.member.group_instance_id is not None
    return (
        is_static
        and act.is_silent
        and ending(view.episode, act) is Ending.ENDED
        and call_for(view.episode, act) is None
    )


def _goes_on(episode: Episode, run: list[Went], act: Went) -> bool:
    """Whether it ended soon after the one before, and before the group went on without that one."""
    at_ms = ended_ms(episode, act)
    return at_ms - ended_ms(episode, run[-1]) <= SCALING_NEXT_MS and at_ms <= run[-1].at_ms


def _count(run: Sequence[Went]) -> str:
    return "a static member" if len(run) == 1 else f"{len(run)} static members"


def _emptied(view: EpisodeView, run: Sequence[Went]) -> str:
    gone = {act.member.member_id for act in run}
    last_ms = max(act.at_ms for act in run)
    return ", and the group was empty" if view.episode.members_at(last_ms + 1) <= gone else ""


def _advice(view: EpisodeView, members: Sequence[Member]) -> str:
    """Say how the group need not wait for processes that are stopped for good."""
    group_id = "GROUP" if view.episode.after is None else view.episode.after.group_id
    names = [str(member.group_instance_id) for member in members[:NAMED_MAX]]
    more = "" if len(members) <= NAMED_MAX else " ..."
    session_ms = max(member.session_timeout_ms for member in members)
    they_were, its = ("it was", "its") if len(members) == 1 else ("they were", "their")
    command = f"{group_id} {' '.join(names)}{more}"
    return (
        f"if {they_were} stopped for good: the next time, run muster members retire {command} before, or muster members"
        f" remove {command} right after, and the group does not wait for the session timeout of {setting(session_ms)};"
        f" if {they_were} not, look at {its} logs and machines"
    )
