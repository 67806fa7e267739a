"""A member that fell silent and did not come back."""

from collections.abc import Iterator
from typing import Final

from muster.replay.incidents.episode.acts import Came, Departure, Went
from muster.replay.incidents.evidence.naming import process_name, processes
from muster.replay.incidents.evidence.silence import silences
from muster.replay.incidents.evidence.standbys import call_for, call_text
from muster.replay.incidents.evidence.waiting import given_up
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.windows import REPLACED_MS
from muster.replay.times import duration, setting

ADVICE: Final = "look at what became of it, in its own log and in that of its machine"
STATIC_ADVICE: Final = (
    "a static member that is closed falls silent, too: retire one that is taken away for good (muster members retire),"
    f" and the group does not wait for its session; if this one was not, {ADVICE}"
)

KIND = Kind(
    "crash",
    "A process was not heard from any more, and nobody but a standby took its place within ten minutes.",
    "the process",
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    for act in view.free(Went):
        if not act.is_silent:
            continue
        is_static = act.member.group_instance_id is not None
        is_known = view.episode.silence_of(act).is_known
        silent = "fell silent without leaving" if is_known else "was not heard from any more"
        yield IncidentClaim(
            kind=KIND,
            acts=(act,),
            culprits=(act.member,),
            grade=Grade.RECORDED if is_known else Grade.INFERRED,
            headline=(
                f"{process_name(act.member)} {silent}, was removed {_why_removed(act, is_known=is_known)}, and"
                f" {_its_place(view, act)}{_held(view, act)}"
            ),
            chain=tuple(silences(view.episode, [act])),
            advice=(STATIC_ADVICE if is_static else ADVICE,),
        )


def _its_place(view: EpisodeView, act: Went) -> str:
    """The standby that was called for its place, or that nobody took it, as far as the history goes."""
    call = call_for(view.episode, act)
    if call is not None:
        return call_text(view.episode, call)
    known_ms = None if view.episode.known_until_ms is None else view.episode.known_until_ms - act.at_ms
    return (
        "nobody took its place" if known_ms is None or known_ms > REPLACED_MS else "nobody has taken its place so far"
    )


def _held(view: EpisodeView, act: Went) -> str:
    """The join phase that waited for it in vain, if one did."""
    rebalance = view.episode.rebalance_of(act)
    if rebalance is None or act not in given_up(rebalance, view.episode) or rebalance.trigger.seq == act.seq:
        return ""
    waited_ms = act.at_ms - rebalance.started_ms
    came = [each.member for each in view.free(Came) if rebalance.first_seq <= each.seq <= rebalance.last_seq]
    meanwhile = f"; {processes(came)} had come meanwhile" if came else ""
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
