"""Administrators: members that they removed, plans that they made, the end of a group."""

from collections.abc import Iterator
from itertools import groupby

from muster.events.causes import Cause
from muster.events.events import GroupDeleted
from muster.replay.incidents.acts import AskedFor, Departure, Phase, Went
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import Claim, Kind, View
from muster.replay.incidents.naming import processes
from muster.replay.why.wording import asked_by, cause_text


def _removed(view: View) -> Iterator[Claim]:
    removed = [act for act in view.free(Went) if act.how is Departure.REMOVED]
    for _, acts in groupby(removed, key=lambda act: (act.at_ms, act.why.client_id, act.why.client_host)):
        went = list(acts)
        members = [act.member for act in went]
        verb = "was" if len(went) == 1 else "were"
        text = f"{processes(members)} {verb} removed{asked_by(went[0].why)}"
        if went[0].why.client_reason:
            text += f': "{went[0].why.client_reason}"'
        yield Claim(acts=tuple(went), culprits=tuple(members), grade=Grade.RECORDED, headline=text)


REMOVALS = Kind(
    name="removed-by-admin",
    about="Somebody else than the members asked for their removal.",
    culprits="the members that were removed; the sentence says who asked",
    find=_removed,
)


def _planned(view: View) -> Iterator[Claim]:
    planned: list[AskedFor | Went] = list(view.free(AskedFor))
    planned += [act for act in view.free(Went) if act.how is Departure.PLANNED]
    planned.sort(key=lambda act: act.seq)
    for _, acts in groupby(planned, key=lambda act: act.at_ms):
        asked = list(acts)
        members = [act.member for act in asked if isinstance(act, Went)]
        why = asked[-1].why
        enforced = why.cause is Cause.REBALANCE_REQUESTED
        yield Claim(
            acts=tuple(asked),
            culprits=tuple(members),
            grade=Grade.RECORDED,
            headline=cause_text(why, []),
            name="enforced" if enforced else "capacity" if why.cause is Cause.OVER_CAPACITY else "planned",
        )


PLANS = Kind(
    name="planned",
    about="An administrator registered or retired members, changed the group's configs, or released the group.",
    culprits="the members that it removed, if any",
    find=_planned,
)


def _ended(view: View) -> Iterator[Claim]:
    for act in view.free(Phase):
        if not isinstance(act.event, GroupDeleted):
            continue
        expired = act.why.cause is Cause.GROUP_EXPIRED
        yield Claim(
            acts=(act,),
            culprits=(),
            grade=Grade.RECORDED,
            headline=f"{cause_text(act.why, [])}{asked_by(act.why)}",
            name="group-expired" if expired else "group-deleted",
        )


ENDS = Kind(
    name="group-deleted",
    about="The group was deleted, or expired when it had been empty for long enough.",
    culprits="none of the members; the sentence says who asked, or which retention applied",
    find=_ended,
)
