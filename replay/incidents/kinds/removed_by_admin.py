"""Members that somebody else had removed."""

from collections.abc import Iterator
from itertools import groupby

from muster.replay.incidents.acts import AnyAct, Departure, Went
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
    back = view.returns()
    removed = [act for act in view.free(Went) if act.how is Departure.REMOVED]
    for _, together in groupby(removed, key=lambda act: (act.at_ms, act.why.client_id, act.why.client_host)):
        went = list(together)
        members = [act.member for act in went]
        verb = "was" if len(went) == 1 else "were"
        text = f"{processes(members)} {verb} removed{asked_by(went[0].why)}"
        if went[0].why.client_reason:
            text += f': "{went[0].why.client_reason}"'
        returned = [back[act.seq].came for act in went if act.seq in back]
        acts: list[AnyAct] = sorted([*went, *returned], key=lambda act: act.seq)
        yield Claim(kind=KIND, acts=tuple(acts), culprits=tuple(members), grade=Grade.RECORDED, headline=text)
