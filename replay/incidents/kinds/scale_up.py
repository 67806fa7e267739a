"""Processes that came, and replaced nobody."""

from collections.abc import Iterator

from muster.replay.incidents.acts import Came
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import Claim, Kind, View
from muster.replay.incidents.kinds.runs import runs_of, span_text
from muster.replay.incidents.naming import processes

UP = Kind(
    "scale-up",
    "New processes came, each within two minutes of the one before, and replaced nobody.",
    "the new processes",
)
START = Kind("start", "The first processes came to an empty group.", "the processes that came")


def find(view: View) -> Iterator[Claim]:
    for run in runs_of(list(view.free(Came))):
        members = tuple(act.member for act in run)
        started = not view.episode.members_at(run[0].at_ms)
        count = "a new process" if len(run) == 1 else f"{len(run)} new processes"
        to = " to an empty group" if started else ""
        yield Claim(
            kind=START if started else UP,
            acts=tuple(run),
            culprits=members,
            grade=Grade.RECORDED,
            headline=f"{count} came{to}{span_text(run)}: {processes(members)}",
            advice=("members that come one by one make a rebalance each: members.expansion.delay.ms gathers them",)
            if len(run) > 1 and not started
            else (),
        )
