"""Processes that came, or left, and replaced nobody: the group changed its size."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from muster.replay.incidents.acts import Came, Departure, Went
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import Claim, Kind, View
from muster.replay.incidents.naming import processes
from muster.replay.incidents.windows import SCALING_NEXT_MS
from muster.replay.times import duration

T = TypeVar("T", Came, Went)


def _runs(acts: Sequence[T]) -> Iterator[list[T]]:
    run: list[T] = []
    for act in acts:
        if run and act.at_ms - run[-1].at_ms > SCALING_NEXT_MS:
            yield run
            run = []
        run.append(act)
    if run:
        yield run


def _span(run: Sequence[Came] | Sequence[Went]) -> str:
    span_ms = run[-1].at_ms - run[0].at_ms
    return f" within {duration(span_ms)}" if len(run) > 1 else ""


def _ups(view: View) -> Iterator[Claim]:
    for run in _runs(list(view.free(Came))):
        members = tuple(act.member for act in run)
        started = not view.episode.members_at(run[0].at_ms)
        count = "a new process" if len(run) == 1 else f"{len(run)} new processes"
        to = " to an empty group" if started else ""
        yield Claim(
            acts=tuple(run),
            culprits=members,
            grade=Grade.RECORDED,
            headline=f"{count} came{to}{_span(run)}: {processes(members)}",
            advice=("members that come one by one make a rebalance each: members.expansion.delay.ms gathers them",)
            if len(run) > 1 and not started
            else (),
            name="start" if started else "scale-up",
        )


UPS = Kind(
    name="scale-up",
    about="New processes came, each within two minutes of the one before, and replaced nobody.",
    culprits="the new processes",
    find=_ups,
)


def _downs(view: View) -> Iterator[Claim]:
    for run in _runs([act for act in view.free(Went) if act.how is Departure.LEFT]):
        members = tuple(act.member for act in run)
        gone = {member.member_id for member in members}
        emptied = view.episode.members_at(run[-1].at_ms + 1) <= gone
        count = "a process" if len(run) == 1 else f"{len(run)} processes"
        yield Claim(
            acts=tuple(run),
            culprits=members,
            grade=Grade.RECORDED,
            headline=f"{count} left{', and the group was empty' if emptied else ''}{_span(run)}: {processes(members)}",
            name="shutdown" if emptied else "scale-down",
        )


DOWNS = Kind(
    name="scale-down",
    about="Processes left in good order, and none came for them.",
    culprits="the processes that left",
    find=_downs,
)
