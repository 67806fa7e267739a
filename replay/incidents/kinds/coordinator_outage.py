"""The coordinator was away: what followed from it, or that nothing did."""

from collections.abc import Iterator

from muster.events.ids import MemberId
from muster.events.state import Member
from muster.replay.incidents.acts import AnyAct, Came, CameBack, Departure, Went
from muster.replay.incidents.aways import Away, LastKnown
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import Claim, Kind, View
from muster.replay.incidents.kinds.poll_timeout import is_poll_timeout
from muster.replay.incidents.naming import moment, process_name, processes, span
from muster.replay.incidents.windows import OUTAGE_AFTERMATH_MS
from muster.replay.rebalances.wording import plural
from muster.replay.times import duration, instant, setting

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
        lost = _lost(view, away)
        back = tuple(_back(view, away))
        yield _outage(view, away, lost, back) if lost else _change(view, away, back)


def _lost(view: View, away: Away) -> list[tuple[Went, Came]]:
    """Members that were not heard from since before it and expired, each with itself as it came back as a new one."""
    returns, there = view.returns(), _ids(away)
    lost: list[tuple[Went, Came]] = []
    for went in view.free(Went):
        returned = returns.get(went.seq)
        if returned is None or not isinstance(returned.came, Came):
            continue
        if went.member.member_id not in there or not _is_due_to(went, away):
            continue
        if returned.came.at_ms >= away.until_ms:
            lost.append((went, returned.came))
    return lost


def _ids(away: Away) -> set[MemberId]:
    return {member.member_id for member in away.members}


def _back(view: View, away: Away) -> Iterator[CameBack]:
    """Static members that lost the connection, and came back to their places."""
    there = _ids(away)
    for act in view.free(CameBack):
        limit_ms = act.member.session_timeout_ms + OUTAGE_AFTERMATH_MS
        was_there = act.replaced_member_id in there and act.last_seen_ms <= away.until_ms
        if was_there and away.until_ms <= act.at_ms <= away.until_ms + limit_ms:
            yield act


def _is_due_to(went: Went, away: Away) -> bool:
    """Whether nothing was heard from it since, and it was lost for that; or it had waited for longer than it may."""
    late_poll = went.how is Departure.LEFT and is_poll_timeout(went)
    if went.how not in (Departure.EXPIRED, Departure.NOT_REJOINED) and not late_poll:
        return False
    if went.last_seen_ms > away.until_ms + OUTAGE_AFTERMATH_MS or went.at_ms < away.until_ms:
        return False
    return went.at_ms <= away.until_ms + went.member.session_timeout_ms + OUTAGE_AFTERMATH_MS


def _kept(view: View, away: Away) -> list[Member]:
    """The members that had their places when it was over, and were heard from again."""
    gone = {went.member.member_id for went in view.episode.of(Went) if _is_due_to(went, away)}
    return [member for member in away.members if member.member_id not in gone]


# ---- words ----------------------------------------------------------------------------------------------------------


def _times(away: Away) -> str:
    if away.paused:
        times = span(away.since_ms, away.until_ms)
        return f"the coordinator {away.owner} stood still for at least {duration(away.longest_ms)}, from {times}"
    if away.last_known is LastKnown.EVENT:
        return (
            f"the coordinator was away until {moment(away.until_ms)}; since when is not known, its last event before is"
            f" of {moment(away.since_ms)}"
        )
    times = span(away.since_ms, away.until_ms)
    if away.last_known is LastKnown.STOP:
        return f"the coordinator was away from {times}, for {duration(away.longest_ms)}"
    return f"the coordinator was away from {times}, for {duration(away.longest_ms)} since its last sign of life"


def _sessions(away: Away, lost: list[tuple[Went, Came]]) -> str:
    """The members' session timeouts beside the time without a coordinator."""
    timeouts_ms = sorted({went.member.session_timeout_ms for went, _ in lost})
    sessions = " and ".join(dict.fromkeys((setting(timeouts_ms[0]), setting(timeouts_ms[-1]))))
    shortest_ms = away.shortest_ms
    if shortest_ms is not None and shortest_ms > timeouts_ms[-1]:
        return f", longer than the sessions of {sessions}"
    return f" (sessions of {sessions})"


def _evidence(away: Away) -> Iterator[Statement]:
    """The two ends: what each owner recorded, and the time between them, which is known by their wall clocks alone."""
    if away.paused:
        yield Statement(text=_times(away), grade=Grade.RECORDED, at=instant(away.since_ms))
        return
    begin = Grade.UNKNOWN if away.last_known is LastKnown.EVENT else Grade.RECORDED
    unknown = "; when it ended after that is not known" if begin is Grade.UNKNOWN else ""
    yield Statement(
        text=f"the last that is known of the coordinator {away.owner_before} is {away.last_known}{unknown}",
        grade=begin,
        at=instant(away.since_ms),
    )
    yield Statement(
        text=f"the coordinator {away.owner} was ready, {duration(away.longest_ms)} later by their wall clocks",
        grade=Grade.INFERRED,
        at=instant(away.until_ms),
    )


def _fate(went: Went) -> str:
    if went.how is Departure.LEFT:
        return "left, since its poll had not returned in time,"
    return "was not heard from any more, and was removed"


def _kept_text(away: Away, kept: list[Member]) -> Iterator[Statement]:
    if kept:
        yield Statement(
            text=f"{processes(kept)} kept {'its place' if len(kept) == 1 else 'their places'}",
            grade=Grade.RECORDED,
            at=instant(away.until_ms),
        )


def _outage(view: View, away: Away, lost: list[tuple[Went, Came]], back: tuple[CameBack, ...]) -> Claim:
    kept = _kept(view, away)
    places = "its place" if len(lost) == 1 else "their places"
    text = (
        f"{_times(away)}{_sessions(away, lost)}: {plural(len(lost), 'member')} lost {places} by it and came back as"
        f" {'a new one' if len(lost) == 1 else 'new ones'} ({processes([went.member for went, _ in lost])});"
        f" {len(kept) or 'none'} kept {'its place' if len(kept) == 1 else 'their places'}"
    )
    acts: list[AnyAct] = [act for pair in lost for act in pair]
    return Claim(
        kind=OUTAGE,
        acts=(*acts, *back),
        culprits=(),
        grade=Grade.INFERRED,
        headline=text,
        chain=(
            *_evidence(away),
            *_kept_text(away, kept),
            *(
                Statement(
                    text=(
                        f"{process_name(came.member)} came back under a new member id; under its former one it"
                        f" {_fate(went)} at {moment(went.at_ms)}"
                    ),
                    grade=Grade.INFERRED,
                    at=instant(came.at_ms),
                    seqs=(came.seq, went.seq),
                )
                for went, came in lost
            ),
        ),
        advice=("a session timeout longer than the coordinator's restart keeps the members in their places",),
    )


def _change(view: View, away: Away, back: tuple[CameBack, ...]) -> Claim:
    kept = _kept(view, away)
    count = (
        f"all {plural(len(kept), 'member')}"
        if len(kept) == len(away.members)
        else f"{len(kept)} of {len(away.members)} members"
    )
    text = f"{_times(away)}; {count} kept {'its place' if len(kept) == 1 else 'their places'}"
    there = {member.member_id for member in kept}
    missed = [member for member in away.members if member.member_id not in there]
    if missed:
        text += f", {processes(missed)} {'was' if len(missed) == 1 else 'were'} not heard from any more"
    if not away.paused and away.owner != away.owner_before:
        text = f"{away.owner} took over from {away.owner_before}: {text}"
    is_known = away.paused or away.last_known is not LastKnown.EVENT
    return Claim(
        kind=CHANGE,
        acts=back,
        culprits=(),
        grade=Grade.RECORDED,
        headline=text,
        chain=(*_evidence(away), *_kept_text(away, kept)),
        at_ms=away.since_ms if is_known else away.until_ms,
        until_ms=away.until_ms,
    )
