"""What administrators asked for and planned."""

from collections.abc import Iterator
from itertools import groupby

from muster.events.causes import Cause
from muster.replay.incidents.acts import AskedFor, Departure, Went
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import Claim, Kind, View
from muster.replay.rebalances.wording import cause_text

PLANNED = Kind(
    "planned",
    "An administrator registered or retired members, changed the group's configs, or released the group.",
    "the members that it removed, if any",
)
ENFORCED = Kind(
    "enforced-by-admin", "An administrator asked for a rebalance.", "none of the members; the sentence says who asked"
)
CAPACITY = Kind("capacity", "The group had more members than group.max.size allows.", "the members that were removed")


def find(view: View) -> Iterator[Claim]:
    planned: list[AskedFor | Went] = list(view.free(AskedFor))
    planned += [act for act in view.free(Went) if act.how is Departure.PLANNED]
    planned.sort(key=lambda act: act.seq)
    for _, acts in groupby(planned, key=lambda act: act.at_ms):
        asked = list(acts)
        members = [act.member for act in asked if isinstance(act, Went)]
        why = asked[-1].why
        enforced = why.cause is Cause.REBALANCE_REQUESTED
        yield Claim(
            kind=ENFORCED if enforced else CAPACITY if why.cause is Cause.OVER_CAPACITY else PLANNED,
            acts=tuple(asked),
            culprits=tuple(members),
            grade=Grade.RECORDED,
            headline=cause_text(why, []),
        )
