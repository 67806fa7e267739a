"""Members that somebody else had removed."""

from collections.abc import Iterator
from itertools import groupby

from muster.replay.incidents.acts import Departure, Went
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import Claim, Kind, View
from muster.replay.incidents.naming import processes
from muster.replay.rebalances.wording import asked_by

KIND = Kind(
    "removed-by-admin",
    "Somebody else than the members asked for their removal.",
    "the members that were removed; the sentence says who asked",
)


def find(view: View) -> Iterator[Claim]:
    removed = [act for act in view.free(Went) if act.how is Departure.REMOVED]
    for _, acts in groupby(removed, key=lambda act: (act.at_ms, act.why.client_id, act.why.client_host)):
        went = list(acts)
        members = [act.member for act in went]
        verb = "was" if len(went) == 1 else "were"
        text = f"{processes(members)} {verb} removed{asked_by(went[0].why)}"
        if went[0].why.client_reason:
            text += f': "{went[0].why.client_reason}"'
        yield Claim(kind=KIND, acts=tuple(went), culprits=tuple(members), grade=Grade.RECORDED, headline=text)
