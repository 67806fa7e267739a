"""The coordinator was away: what followed from it, or that nothing did."""

from collections.abc import Iterator

from muster.replay.incidents.acts import AnyAct, Came, CameBack, Departure, Went
from muster.replay.incidents.episode import Away
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import Claim, Kind, View
from muster.replay.incidents.naming import processes
from muster.replay.incidents.windows import OUTAGE_AFTERMATH_MS
from muster.replay.rebalances.wording import plural
from muster.replay.times import duration, instant

OUTAGE = Kind(
    "coordinator-outage",
    "The coordinator was away or stood still, and members lost their places by it.",
    "none of the members",
)
CHANGE = Kind(
    "coordinator-change",
    "The coordinator was away or stood still, and all members kept their places.",
    "none of the members",
)


def find(view: View) -> Iterator[Claim]:
    for away in view.episode.aways:
        lost, came = _consequences(view, away)
        acts: tuple[AnyAct, ...] = (*lost, *came)
        kept = tuple(_kept(view, away))
        yield _outage(away, lost, came, kept) if acts else _change(away, kept)


def _consequences(view: View, away: Away) -> tuple[list[Went], list[Came]]:
    """Members that were not heard from since before it and expired, and came back as new ones."""
    back = view.returns()
    lost: list[Went] = []
    came: list[Came] = []
    for went in view.free(Went):
        returned = back.get(went.seq)
        if returned is None or not isinstance(returned.came, Came) or not _is_due_to(went, away):
            continue
        if returned.came.at_ms >= away.until_ms:
            lost.append(went)
            came.append(returned.came)
    return lost, came


def _kept(view: View, away: Away) -> Iterator[CameBack]:
    """Static members that lost the connection, and came back to their places."""
    for act in view.free(CameBack):
        limit_ms = act.member.session_timeout_ms + OUTAGE_AFTERMATH_MS
        was_there = act.replaced_member_id in away.members and act.last_seen_ms <= away.until_ms
        if was_there and away.until_ms <= act.at_ms <= away.until_ms + limit_ms:
            yield act


def _is_due_to(went: Went, away: Away) -> bool:
    if went.member.member_id not in away.members or went.how not in (Departure.EXPIRED, Departure.NOT_REJOINED):
        return False
    if went.last_seen_ms > away.until_ms + OUTAGE_AFTERMATH_MS or went.at_ms < away.until_ms:
        return False
    return went.at_ms <= away.until_ms + went.member.session_timeout_ms + OUTAGE_AFTERMATH_MS


def _times(away: Away) -> str:
    if away.paused:
        return f"stood still for at least {duration(away.duration_ms)}, until {instant(away.until_ms)}"
    return f"was away until {instant(away.until_ms)}; its last event before is of {instant(away.since_ms)}"


def _outage(away: Away, lost: list[Went], came: list[Came], kept: tuple[CameBack, ...]) -> Claim:
    sessions = sorted({went.member.session_timeout_ms for went in lost})
    longer = f" ({duration(away.duration_ms)} at most, their sessions are {duration(sessions[0])})"
    gone = {went.member.member_id for went in lost}
    others = [member_id for member_id in away.members if member_id not in gone]
    text = (
        f"the coordinator {_times(away)}{longer}: {plural(len(lost), 'member')} lost their place by it"
        f" ({processes([went.member for went in lost])}), {len(others)} kept it"
    )
    return Claim(
        kind=OUTAGE,
        acts=(*lost, *came, *kept),
        culprits=(),
        grade=Grade.INFERRED,
        headline=text,
        chain=(
            Statement(text=f"the coordinator {away.owner} {_times(away)}", grade=Grade.RECORDED),
            *(
                Statement(
                    text=f"{processes([went.member])} was not heard from again under its member id",
                    grade=Grade.INFERRED,
                    at=instant(went.at_ms),
                    seqs=(went.seq,),
                )
                for went in lost
            ),
        ),
        advice=("a session timeout longer than the coordinator's restart keeps the members in their places",),
    )


def _change(away: Away, kept: tuple[CameBack, ...]) -> Claim:
    how = "stopped in good order" if away.in_good_order else "was gone"
    text = f"the coordinator {_times(away)}; all {plural(len(away.members), 'member')} kept their places"
    if not away.paused and away.owner != away.owner_before:
        text = f"the coordinator {away.owner_before} {how} and {away.owner} took over; {text}"
    return Claim(kind=CHANGE, acts=kept, culprits=(), grade=Grade.RECORDED, headline=text, at_ms=away.until_ms)
