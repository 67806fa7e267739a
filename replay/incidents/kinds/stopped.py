"""Static members whose processes ended and were not replaced, with the dynamic members that left at the same time.

If dynamic members ended at the same time without leaving, all of them were killed: that is a crash.

A static member that is closed sends no LeaveGroup, in any client family (docs/clients.md), and neither does one that is
killed: in both cases the connection is closed and the group waits for the session timeout. So a stop and a crash look
the same.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from muster.events.state import Member
from muster.replay.incidents.episode.acts import Departure, Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.evidence.connection_ends import Ending, ended_ms, ended_together, ending
from muster.replay.incidents.evidence.naming import NAMED_MAX, processes
from muster.replay.incidents.evidence.session_timeout import shorter_sessions
from muster.replay.incidents.evidence.silence import silences
from muster.replay.incidents.evidence.standbys import call_for
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.scaling import changes_of_size
from muster.replay.incidents.runs import runs
from muster.replay.incidents.windows import SAME_MOMENT_MS, SCALING_NEXT_MS
from muster.replay.rebalances.wording import is_close, says_something
from muster.replay.text.times import duration, setting

KIND = Kind(
    "stopped",
    "Processes of static members ended, stopped or killed: they closed their connections and sent no LeaveGroup, as"
    " static members do, and no process took their places within ten minutes. Dynamic members that left at the same"
    " time are part of it.",
    "the members whose processes ended, or that left",
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    for static, leavers in stops(view):
        yield _claim(view, static, leavers)


def stops(view: EpisodeView) -> Iterator[tuple[Sequence[Went], Sequence[Went]]]:
    """Yield static members that ended together, each group with the dynamic members that left with it."""
    gone = [act for act in view.free(Went) if act.seq not in view.episode.paired_seqs]
    killed = {act.seq for run in ended_at_once(view) for act in run if not all(map(_is_static, run))}
    ended = [act for act in gone if _is_static(act) and _has_ended(view, act) and act.seq not in killed]
    left = [act for act in gone if _is_closed(act)] if ended else []
    for run in runs(sorted([*ended, *left], key=partial(_gone_ms, view.episode)), partial(_is_next, view.episode)):
        static = [act for act in run if act.is_silent]
        leavers = [act for act in run if not act.is_silent]
        if static and leavers and _emptied(view, run):
            yield static, leavers
            continue
        for part in runs(static, partial(_goes_on, view.episode)):
            yield part, _left_beside(view, part, leavers)


def _claim(view: EpisodeView, static: Sequence[Went], leavers: Sequence[Went]) -> IncidentClaim:
    run = sorted([*static, *leavers], key=partial(_gone_ms, view.episode))
    span = ended_within(view.episode, run) if len(run) > 1 else ""
    left = f" and {_count(leavers, 'dynamic')} left" if leavers else ""
    emptied = ", and the group was empty" if _emptied(view, run) else ""
    return ended_claim(
        view,
        KIND,
        run,
        headline=(
            f"{_count(static, 'static')} ended{left}{span}{emptied}: {processes([act.member for act in run])};"
            f" {_each(static, leavers)} closed its connection and sent no LeaveGroup, as a static member does"
            " that is stopped or killed"
        ),
        advice=(_advice(view, [act.member for act in static]),),
    )


def _left_beside(view: EpisodeView, static: Sequence[Went], leavers: Sequence[Went]) -> list[Went]:
    """Return dynamic members that left when the static ones ended: a host or a service was stopped.

    A change of size that took longer is a separate incident.
    """
    ended = [ended_ms(view.episode, act) for act in static]
    return [
        act
        for run in changes_of_size([act for act in leavers if view.is_free(act)])
        if all(min(abs(each.at_ms - end_ms) for end_ms in ended) <= SAME_MOMENT_MS for each in run)
        for act in run
    ]


def ended_claim(
    view: EpisodeView, kind: Kind, run: Sequence[Went], *, headline: str, advice: tuple[str, ...]
) -> IncidentClaim:
    """Return the claim of an incident of processes that ended, in the order in which they ended."""
    silent = [act for act in run if act.is_silent]
    return IncidentClaim(
        kind=kind,
        acts=tuple(sorted(run, key=lambda act: act.seq)),
        culprits=tuple(act.member for act in run),
        grade=Grade.INFERRED,
        headline=headline,
        chain=(*silences(view.episode, silent), *ended_together(view.episode, silent)),
        advice=(*advice, *shorter_sessions(view.episode, silent)),
    )


def ended_within(episode: Episode, run: Sequence[Went]) -> str:
    return f" within {duration(_gone_ms(episode, run[-1]) - _gone_ms(episode, run[0]))}"


def _gone_ms(episode: Episode, act: Went) -> int:
    """Return when the process ended, or left."""
    return ended_ms(episode, act) if act.is_silent else act.at_ms


def ended_at_once(view: EpisodeView) -> list[list[Went]]:
    """Return groups of two or more processes that ended at the same time without leaving.

    A dynamic member that is closed sends a LeaveGroup, so if one is among them, they did not end in a shutdown.
    """
    gone = (act for act in view.free(Went) if act.seq not in view.episode.paired_seqs)
    ended = sorted((act for act in gone if _has_ended(view, act)), key=partial(ended_ms, view.episode))
    return [run for run in runs(ended, partial(_is_at_once, view.episode)) if len(run) > 1]


def _is_at_once(episode: Episode, run: list[Went], act: Went) -> bool:
    return ended_ms(episode, act) - ended_ms(episode, run[-1]) <= SAME_MOMENT_MS


def _has_ended(view: EpisodeView, act: Went) -> bool:
    """Return whether it ended without leaving, and no standby was called for it."""
    return act.is_silent and ending(view.episode, act) is Ending.ENDED and call_for(view.episode, act) is None


def _is_static(act: Went) -> bool:
    return act.member.group_instance_id is not None


def _is_closed(act: Went) -> bool:
    """Return whether it is a dynamic member that left because it was closed, or gave no reason."""
    reason = act.why.client_reason
    return act.how is Departure.LEFT and not _is_static(act) and (is_close(reason) or not says_something(reason))


def _is_next(episode: Episode, run: list[Went], act: Went) -> bool:
    return _gone_ms(episode, act) - _gone_ms(episode, run[-1]) <= SCALING_NEXT_MS


def _goes_on(episode: Episode, run: list[Went], act: Went) -> bool:
    """Return whether it ended soon after the previous one, and before the group removed that one."""
    return _is_next(episode, run, act) and ended_ms(episode, act) <= run[-1].at_ms


def _count(run: Sequence[Went], sort: str) -> str:
    return f"a {sort} member" if len(run) == 1 else f"{len(run)} {sort} members"


def _each(static: Sequence[Went], leavers: Sequence[Went]) -> str:
    if leavers:
        return "the static member" if len(static) == 1 else "each static member"
    return "it" if len(static) == 1 else "each"


def _emptied(view: EpisodeView, run: Sequence[Went]) -> bool:
    gone = {act.member.member_id for act in run}
    last_ms = max(act.at_ms for act in run)
    return view.episode.members_at(last_ms + 1) <= gone


def _advice(view: EpisodeView, members: Sequence[Member]) -> str:
    """Return advice on how to keep the group from waiting for processes that are stopped for good."""
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
