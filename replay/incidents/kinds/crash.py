"""A member that fell silent and did not come back."""

from collections.abc import Iterator, Sequence
from typing import Final

from muster.events.ownership import OwnershipEndCause
from muster.replay.incidents.episode.acts import Came, Departure, Went
from muster.replay.incidents.evidence.connection_ends import Ending, ending
from muster.replay.incidents.evidence.naming import process_name, processes
from muster.replay.incidents.evidence.session_timeout import shorter_sessions
from muster.replay.incidents.evidence.silence import silences
from muster.replay.incidents.evidence.standbys import call_for, call_text
from muster.replay.incidents.evidence.waiting import died_assigning, given_up, sync_held_ms
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.replaced import nobody_took
from muster.replay.incidents.kinds.stopped import ended_at_once, ended_claim, ended_within
from muster.replay.text.times import duration, setting

ADVICE: Final = "find out what happened to it, from its own log and its machine's"
STATIC_ADVICE: Final = (
    "a static member that is closed falls silent, too: retire one that is removed for good (muster members retire),"
    f" and the group does not wait for its session; if this one was not, {ADVICE}"
)

_DO_NOT_LEAVE: Final = "Kafka Streams, and a consumer that is closed with REMAIN_IN_GROUP, do not leave"
UNLESS_STOPPED: Final = f"if it was stopped on purpose: {_DO_NOT_LEAVE}"
MACHINE_ADVICE: Final = (
    "look at its machine, and at the network to it: its connection was never closed, as it is when a process ends; or"
    " the process stalls, or polled too late and has not come back"
)
_HOW: Final = {
    Ending.ENDED: "ended without leaving, which closed its connection",
    Ending.LATER: "fell silent without leaving",
    Ending.OPEN: "fell silent without leaving, its connection still open",
    Ending.LOST: "fell silent without leaving, and its connection was lost",
    Ending.UNKNOWN: "fell silent without leaving",
}

KIND = Kind(
    "crash",
    "A process was not heard from again, and no process but a standby took its place within ten minutes.",
    "the process",
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    at_once = ended_at_once(view)
    yield from (_of_several(view, run) for run in at_once)
    told = {act.seq for run in at_once for act in run}
    yield from (_of_one(view, act) for act in view.free(Went) if act.is_silent and act.seq not in told)


def _of_several(view: EpisodeView, run: Sequence[Went]) -> IncidentClaim:
    has_static = any(act.member.group_instance_id is not None for act in run)
    do_not_leave = f"static members, {_DO_NOT_LEAVE}" if has_static else _DO_NOT_LEAVE
    return ended_claim(
        view,
        KIND,
        run,
        headline=(
            f"{len(run)} processes ended without leaving{ended_within(view.episode, run)}:"
            f" {processes([act.member for act in run])}; each closed its connection, and"
            f" {nobody_took(view.episode, run[-1], 'their places')}"
        ),
        advice=(
            "find out what happened to them, from their own logs and their machines', and what these have in common",
            f"if they were stopped on purpose: {do_not_leave}",
        ),
    )


def _of_one(view: EpisodeView, act: Went) -> IncidentClaim:
    is_known = view.episode.silence_of(act).is_known
    found = ending(view.episode, act)
    how = _HOW[found] if is_known else "was not heard from again"
    return IncidentClaim(
        kind=KIND,
        acts=(act,),
        culprits=(act.member,),
        grade=Grade.RECORDED if is_known and act.last_connection is None else Grade.INFERRED,
        headline=(
            f"{process_name(act.member)} {how}, was removed {_why_removed(act, is_known=is_known)}, and"
            f" {_its_place(view, act)}{_held(view, act)}"
        ),
        chain=tuple(silences(view.episode, [act])),
        advice=(
            *(_new_owner(view, act) if not is_known else ()),
            *_advice(act, found),
            *shorter_sessions(view.episode, [act]),
        ),
    )


def _new_owner(view: EpisodeView, act: Went) -> tuple[str, ...]:
    """Return the advice if another process has taken over since the member was last heard from: it may not be able to
    reach that process.
    """
    away = next((each for each in reversed(view.episode.aways) if not each.paused and each.until_ms <= act.at_ms), None)
    end = None if away is None else away.owner_before_end
    if away is None or end is None or end.cause is OwnershipEndCause.TAKEN_BACK:
        return ()
    took_over = f"{away.owner}, which took over from {away.owner_before}"
    check = "check muster status of all processes, and that its bootstrap.servers names more than one"
    return (f"if its process still runs, it did not reach {took_over}: {check}",)


def _advice(act: Went, found: Ending) -> tuple[str, ...]:
    if found in (Ending.OPEN, Ending.LOST):
        return (MACHINE_ADVICE,)
    if act.member.group_instance_id is not None:
        return (STATIC_ADVICE,)
    return (ADVICE, UNLESS_STOPPED) if found is Ending.ENDED else (ADVICE,)


def _its_place(view: EpisodeView, act: Went) -> str:
    """Name the standby that was called for its place, or say that up to the end of the history no process took it."""
    call = call_for(view.episode, act)
    if call is not None:
        return call_text(view.episode, call)
    return nobody_took(view.episode, act, "its place")


def _held(view: EpisodeView, act: Went) -> str:
    """Describe how long the group waited for the crashed member: for its assignment if it was the leader, else for its
    join. Empty if no phase waited.
    """
    around = view.episode.rebalances_between(act.last_seen_ms, act.at_ms)
    led = (each for each in around if len(each.members_after) > 1 and died_assigning(view.episode, each) is act)
    waited = next((ms for each in led if (ms := sync_held_ms(each)) is not None), None)
    if waited is not None:
        return f"; it was the leader, and the others waited {duration(waited)} for its assignment"
    rebalance = view.episode.rebalance_of(act)
    if rebalance is None or act not in given_up(rebalance, view.episode) or rebalance.trigger.seq == act.seq:
        return ""
    waited_ms = act.at_ms - rebalance.started_ms
    came = [each.member for each in view.free(Came) if rebalance.first_seq <= each.seq <= rebalance.last_seq]
    meanwhile = f"; {processes(came)} had joined in the meantime" if came else ""
    return f"; a join phase waited {duration(waited_ms)} for it{meanwhile}"


def _why_removed(act: Went, *, is_known: bool) -> str:
    if act.how is Departure.EXPIRED:
        timeout = f"session timeout {setting(act.member.session_timeout_ms)}"
        if not is_known:
            return f"{duration(act.at_ms - act.last_seen_ms)} after the coordinator had changed ({timeout})"
        return f"after {duration(act.at_ms - act.last_seen_ms)} ({timeout})"
    if act.how is Departure.NOT_REJOINED:
        return f"when the rebalance timeout of {setting(act.member.rebalance_timeout_ms)} had passed without its join"
    return f"when it had not asked for its assignment within {setting(act.member.rebalance_timeout_ms)}"
