"""The end of a group."""

from collections.abc import Iterator

from muster.events.causes import Cause
from muster.events.events import GroupDeleted
from muster.replay.incidents.acts import Phase
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import Claim, Kind, View
from muster.replay.rebalances.wording import asked_by, cause_text

DELETED = Kind("group-deleted", "The group was deleted.", "none of the members; the sentence says who asked")
EXPIRED = Kind("group-expired", "The group had been empty for as long as it is kept.", "none of the members")


def find(view: View) -> Iterator[Claim]:
    for act in view.free(Phase):
        if not isinstance(act.event, GroupDeleted):
            continue
        expired = act.why.cause is Cause.GROUP_EXPIRED
        yield Claim(
            kind=EXPIRED if expired else DELETED,
            acts=(act,),
            culprits=(),
            grade=Grade.RECORDED,
            headline=f"{cause_text(act.why, [])}{asked_by(act.why)}",
        )
