"""Processes that joined without replacing others."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from muster.events.state import GroupState
from muster.replay.incidents.episode.acts import Came, CameBack, Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.evidence.emptiness import emptied_text
from muster.replay.incidents.evidence.naming import processes
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.scaling import changes_of_size, span_text
from muster.replay.incidents.windows import START_OVER_MS
from muster.replay.rebalances.rebalance import Outcome
from muster.replay.rebalances.wording import asked_by, cause_text
from muster.replay.text.times import instant

UP = Kind(
    "scale-up",
    "New processes joined, each within two minutes of the one before, and replaced no member.",
    "the new processes",
)
START = Kind(
    "start",
    "The first processes joined an empty group, each before it had been Stable for 15 seconds.",
    "the processes that joined",
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    for run in _runs(view):
        members = tuple(act.member for act in run)
        started = _is_start(view, run)
        count = "a new process" if len(run) == 1 else f"{len(run)} new processes"
        to = " an empty group" if started else ""
        yield IncidentClaim(
            kind=START if started else UP,
            acts=tuple(run),
            culprits=members,
            grade=Grade.RECORDED,
            headline=f"{count} joined{to}{span_text(run)}: {processes(members)}",
            chain=tuple(_life_before(view.episode, run[0])) if started else (),
            advice=("members that join one by one cause a rebalance each: members.expansion.delay.ms gathers them",)
            if len(run) > 1 and not started
            else (),
        )


def _is_start(view: EpisodeView, run: Sequence[Came]) -> bool:
    return not view.episode.members_at(run[0].at_ms)


def _runs(view: EpisodeView) -> Iterator[list[Came]]:
    """Yield runs of processes that joined one after another; those that joined after the group's start are a separate
    run.
    """
    for run in changes_of_size(list(view.free(Came))):
        if not _is_start(view, run):
            yield run
            continue
        over_seq = _start_is_over(view.episode, run[0])
        yield [act for act in run if act.seq < over_seq]
        later = [act for act in run if act.seq >= over_seq]
        if later:
            yield later


def _start_is_over(episode: Episode, first: Came) -> float:
    """Return the seq at which the group's start is over: a member left or was replaced, or a rebalance began after the
    group had been Stable for a while.
    """
    others = (act.seq for act in episode.acts if isinstance(act, Went | CameBack) and act.seq > first.seq)
    stood = (
        after.first_seq
        for before, after in pairwise(each for each in episode.rebalances if each.last_seq > first.seq)
        if before.outcome is Outcome.STABLE and after.started_ms - before.ended_ms >= START_OVER_MS
    )
    return min(next(others, math.inf), next(stood, math.inf))


def _life_before(episode: Episode, first: Came) -> Iterator[Statement]:
    """State how the group ended before they joined: it was deleted, had expired, or was emptied."""
    end = episode.life_before
    if end is not None:
        yield Statement(
            text=f"the former group of this name ended: {cause_text(end.why, [])}{asked_by(end.why)}",
            grade=Grade.RECORDED,
            at=instant(end.why.decided_ms),
            seqs=(end.seq,),
        )
    before = episode.before
    if before is not None and before.state is GroupState.EMPTY and before.generation_id > 0:
        empty_ms = first.at_ms - before.image.state_since_ms
        yield Statement(
            text=f"the group was empty: {emptied_text(before.image.emptied_by, empty_ms)}",
            grade=Grade.RECORDED,
            at=instant(first.at_ms),
            seqs=(before.seq,),
        )
