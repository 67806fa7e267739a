"""The coordinator was unreachable or paused, with or without consequences."""

from collections.abc import Iterator, Sequence

from muster.events.causes import Cause
from muster.events.ids import MemberId
from muster.events.state import Member
from muster.replay.incidents.episode.acts import AnyAct, Came, CameBack, Departure, Rejoined, Went
from muster.replay.incidents.episode.coordinator_absences import Away, LastKnown
from muster.replay.incidents.evidence.connection_ends import Ending, ending
from muster.replay.incidents.evidence.naming import process_name, processes, span
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.asked_for import SAYS_METADATA_CHANGED, client_word, partitions_changed
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.outage_fates import OutageFates, fates_of, is_due_to
from muster.replay.incidents.kinds.replaced import WAITED_FOR
from muster.replay.incidents.windows import OUTAGE_AFTERMATH_MS
from muster.replay.rebalances.takeovers import end_text, taken_over
from muster.replay.rebalances.wording import says_something
from muster.replay.text.grammar import plural
from muster.replay.text.times import duration, instant, moment, setting

OUTAGE = Kind(
    "coordinator-outage",
    "The coordinator was unavailable or stalled, and members lost their places because of it.",
    "none of the members",
)
CHANGE = Kind(
    "coordinator-change",
    "The coordinator was unavailable or stalled, and no member lost its place because of it.",
    "none of the members",
)


_REBALANCE_FAILED = "rebalance failed due to"
"""The Java client's reason when the coordinator could not answer its join (KIP-800)."""

_SAYS_DUE_TO_IT = (_REBALANCE_FAILED, SAYS_METADATA_CHANGED)
"""The Java client's reasons after an outage. It forgets its topics while it reaches no broker (KIP-899)."""


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    for away in view.episode.aways:
        lost = _lost(view, away)
        back: tuple[CameBack | Rejoined, ...] = (*_back(view, away), *_asked(view, away))
        yield _outage(view, away, lost, back) if lost else _change(view, away, back)


def _lost(view: EpisodeView, away: Away) -> list[tuple[Went, Came]]:
    """Return members that expired and were not heard from since the outage, each with its join as a new member.

    If the outage was too short for a client to drop its member id, a process that rejoined as new had ended for another
    reason.
    """
    returns, there = view.returns(), _ids(away)
    lost: list[tuple[Went, Came]] = []
    for went in view.free(Went):
        returned = returns.get(went.seq)
        if returned is None or not isinstance(returned.came, Came):
            continue
        if went.member.member_id not in there or not is_due_to(went, away, view.episode):
            continue
        if returned.came.at_ms >= away.until_ms and _may_cost_its_id(away, went.member):
            lost.append((went, returned.came))
    return lost


def _ids(away: Away) -> set[MemberId]:
    return {member.member_id for member in away.members}


def _back(view: EpisodeView, away: Away) -> Iterator[CameBack]:
    """Yield static members that lost the connection and rejoined under their instance ids."""
    there = _ids(away)
    for act in view.free(CameBack):
        limit_ms = act.member.session_timeout_ms + OUTAGE_AFTERMATH_MS
        # Sessions restart just after the outage, and requests buffered during a pause are read then.
        is_late = away.paused or not act.heard
        silent_from_ms = away.until_ms + (OUTAGE_AFTERMATH_MS if is_late else 0)
        if ending(view.episode, act) is Ending.ENDED:
            continue  # the process had ended for another reason
        was_there = act.replaced_member_id in there and act.last_seen_ms <= silent_from_ms
        if was_there and _may_cost_its_id(away, act.member) and away.until_ms <= act.at_ms <= away.until_ms + limit_ms:
            yield act


def _asked(view: EpisodeView, away: Away) -> Iterator[Rejoined]:
    """Yield leaders that kept their place and asked for a new assignment after the outage.

    Their requests had failed during it, or they had forgotten their topics.
    """
    there = _ids(away)
    for act in view.free(Rejoined):
        reason = act.why.client_reason or ""
        is_own = act.changed_topics or act.changed_protocols or not _asks_again(act)
        if is_own or act.member.member_id not in there:
            continue
        rebalance = view.episode.rebalance_of(act)
        if rebalance is None or partitions_changed(rebalance) is not None:
            continue
        is_silent = not says_something(reason)
        is_due = reason.startswith(_SAYS_DUE_TO_IT) or (is_silent and _may_cost_its_id(away, act.member))
        if is_due and away.until_ms <= act.at_ms <= away.until_ms + act.member.session_timeout_ms + OUTAGE_AFTERMATH_MS:
            yield act


def _asks_again(act: Rejoined) -> bool:
    """Return whether this is a leader's rejoin with an unchanged subscription.

    With a cooperative assignor the metadata has changed, since it lists the owned partitions.
    """
    if act.why.cause is Cause.LEADER_REJOINED:
        return True
    return act.why.cause is Cause.METADATA_CHANGED and (act.why.client_reason or "").startswith(SAYS_METADATA_CHANGED)


def _may_cost_its_id(away: Away, member: Member) -> bool:
    """Return whether a client may have gone without a response for its whole session timeout: some then rejoin as new
    members.

    The last response may be one heartbeat interval older than the outage, at most a third of the timeout.
    """
    return away.longest_ms * 3 > member.session_timeout_ms * 2


# ---- text -----------------------------------------------------------------------------------------------------------


def _times(away: Away) -> str:
    if away.paused:
        times = span(away.since_ms, away.until_ms)
        return f"the coordinator {away.owner} stalled for at least {duration(away.longest_ms)}, from {times}"
    if away.last_known is LastKnown.EVENT:
        return (
            f"the coordinator was unavailable until {moment(away.until_ms)}; when that began is not known, and its last"
            f" event before it is from {moment(away.since_ms)}"
        )
    times = span(away.since_ms, away.until_ms)
    if away.last_known is LastKnown.STOP:
        return f"the coordinator was unavailable from {times}, for {duration(away.longest_ms)}"
    said = f"the coordinator was unavailable from {times}, for {duration(away.longest_ms)} since its last sign of life"
    lost_ms = None if away.owner_before_end is None else away.owner_before_end.link_lost_ms
    if lost_ms is None or not away.since_ms < lost_ms <= away.until_ms:
        return said
    return f"{said} and {duration(away.until_ms - lost_ms)} since a connection to it broke"


def _sessions(away: Away, lost: list[tuple[Went, Came]]) -> str:
    """Compare the members' session timeouts with the time without a coordinator."""
    timeouts_ms = sorted({went.member.session_timeout_ms for went, _ in lost})
    sessions = " and ".join(dict.fromkeys((setting(timeouts_ms[0]), setting(timeouts_ms[-1]))))
    shortest_ms = away.shortest_ms
    if shortest_ms is not None and shortest_ms > timeouts_ms[-1]:
        return f", longer than the sessions of {sessions}"
    return f" (sessions of {sessions})"


def _evidence(away: Away) -> Iterator[Statement]:
    """State both ends as the two owners recorded them, and the time in between, which is known only from their wall
    clocks.
    """
    if away.paused:
        yield Statement(text=_times(away), grade=Grade.RECORDED, at=instant(away.since_ms))
        return
    begin = Grade.UNKNOWN if away.last_known is LastKnown.EVENT else Grade.RECORDED
    unknown = "; when it ended after that is not known" if begin is Grade.UNKNOWN else ""
    text = f"the coordinator {away.owner_before} recorded {away.last_known}{unknown}"
    if away.last_known is LastKnown.STOP:  # it released only this partition: it may still run, and share the log
        text = f"the coordinator {away.owner_before} released its partition cleanly"
    yield Statement(text=text, grade=begin, at=instant(away.since_ms))
    yield from _takeover(away)
    yield Statement(
        text=f"the coordinator {away.owner} was ready, {duration(away.longest_ms)} later by their wall clocks",
        grade=Grade.INFERRED,
        at=instant(away.until_ms),
    )


def _takeover(away: Away) -> Iterator[Statement]:
    """State why the former owner lost the partition, as the new one recorded it."""
    end = away.owner_before_end
    if end is None or away.owner_before is None or (how := end_text(end, with_time=True)) is None:
        return
    lost = "" if end.link_lost_ms is None else f"; a connection to it had broken at {moment(end.link_lost_ms)}"
    at_ms = away.until_ms if end.refused_ms is None else end.refused_ms
    yield Statement(
        text=f"by the takeover's record the coordinator {away.owner_before} {how}{lost}",
        grade=Grade.RECORDED,
        at=instant(at_ms),
    )


def _fate(went: Went) -> str:
    if went.how is Departure.LEFT:
        return "left, since its poll had not returned in time,"
    return "was not heard from again, and was removed"


def _their_places(members: Sequence[Member]) -> str:
    return "its place" if len(members) == 1 else "their places"


def _places(fates: OutageFates, members: Sequence[Member], kept: str) -> str:
    """Describe which members kept their places in the group, as far as known. `kept`: how many did, as text."""
    told = []
    if fates.kept or not (fates.back or fates.held):
        told.append(f"{kept} kept {_their_places(fates.kept)}")
    if fates.back:
        told.append(f"{processes(fates.back)} {_came_back(fates.back)}")
    if fates.held:
        whose = _count(len(fates.held), len(members)) if len(fates.held) == len(members) else processes(fates.held)
        kept_so_far = "keeps its place so far" if len(fates.held) == 1 else "keep their places so far"
        told.append(f"{whose} {kept_so_far}: {_not_expired(fates.held)}")
    return "; ".join(told)


def _not_expired(members: Sequence[Member]) -> str:
    return "its session has not expired" if len(members) == 1 else "their sessions have not expired"


def _came_back(back: Sequence[Member]) -> str:
    ids = "a new member id" if len(back) == 1 else "new member ids"
    return f"came back to {_their_places(back)} under {ids}"


def _places_told(view: EpisodeView, away: Away, fates: OutageFates) -> Iterator[Statement]:
    """Yield the statements about the members' places."""
    if fates.kept:
        yield Statement(
            text=f"{processes(fates.kept)} kept {_their_places(fates.kept)}",
            grade=Grade.RECORDED,
            at=instant(away.until_ms),
        )
    back = {each.member_id for each in fates.back}
    for act in view.episode.of(CameBack):
        if act.replaced_member_id in back:
            yield Statement(
                text=(
                    f"{process_name(act.member)} {_came_back([act.member])}; it is not known whether it had kept"
                    " running"
                ),
                grade=Grade.UNKNOWN,
                at=instant(act.at_ms),
                seqs=(act.seq,),
            )
    if fates.held:
        yield Statement(
            text=f"it is not known whether {processes(fates.held)} kept running: {_not_expired(fates.held)}",
            grade=Grade.UNKNOWN,
            at=instant(away.until_ms),
        )


def _asked_text(back: tuple[CameBack | Rejoined, ...]) -> Iterator[Statement]:
    for act in back:
        if isinstance(act, Rejoined) and act.why.client_reason:
            yield Statement(
                text=f"{process_name(act.member)} asked for a new assignment; {client_word(act)}",
                grade=Grade.RECORDED,
                at=instant(act.at_ms),
                seqs=(act.seq,),
            )


def _outage(
    view: EpisodeView, away: Away, lost: list[tuple[Went, Came]], back: tuple[CameBack | Rejoined, ...]
) -> IncidentClaim:
    fates = fates_of(view.episode, away)
    places = "its place" if len(lost) == 1 else "their places"
    text = (
        f"{_times(away)}{_sessions(away, lost)}: {plural(len(lost), 'member')} lost {places} because of it and came"
        f" back as {'a new one' if len(lost) == 1 else 'new ones'} ({processes([went.member for went, _ in lost])});"
        f" {_places(fates, away.members, str(len(fates.kept) or 'none'))}"
    )
    acts: list[AnyAct] = [act for pair in lost for act in pair]
    return IncidentClaim(
        kind=OUTAGE,
        acts=(*acts, *back),
        culprits=(),
        grade=Grade.INFERRED,
        headline=text,
        chain=(
            *_evidence(away),
            *_places_told(view, away, fates),
            *_asked_text(back),
            *(
                Statement(
                    text=(
                        f"{process_name(came.member)} rejoined under a new member id; under its former one it"
                        f" {_fate(went)} at {moment(went.at_ms)}"
                    ),
                    grade=Grade.INFERRED,
                    at=instant(came.at_ms),
                    seqs=(came.seq, went.seq),
                )
                for went, came in lost
            ),
        ),
        advice=(
            f"a session timeout longer than the coordinator's restart keeps the members in their places; {WAITED_FOR}",
        ),
    )


def _count(kept: int, members: int) -> str:
    """'all 3 members', 'the only member', '2 of 3 members'."""
    if kept < members:
        return f"{kept} of {members} members"
    return "the only member" if members == 1 else f"all {plural(members, 'member')}"


def _change(view: EpisodeView, away: Away, back: tuple[CameBack | Rejoined, ...]) -> IncidentClaim:
    fates = fates_of(view.episode, away)
    told = []
    if fates.kept or fates.back or fates.held:
        told.append(_places(fates, away.members, _count(len(fates.kept), len(away.members))))
    if fates.missed:
        told.append(f"{processes(fates.missed)} {'was' if len(fates.missed) == 1 else 'were'} not heard from again")
    text = "; ".join(filter(None, (_times(away), ", ".join(told))))
    if fates.unknown:
        was = "was" if len(fates.unknown) == 1 else "were"
        text += f"; it is not known whether {processes(fates.unknown)} {was} heard from again"
    asked = [act.member for act in back if isinstance(act, Rejoined)]
    if asked:
        text += f"; {processes(asked)} asked for a new assignment after it"
    if not away.paused and away.owner_before is not None:
        took_over = taken_over(away.owner, away.owner_before, away.owner_before_end, with_time=True)
        text = ": ".join(filter(None, (took_over, text)))
    is_known = away.paused or away.last_known is not LastKnown.EVENT
    return IncidentClaim(
        kind=CHANGE,
        acts=back,
        culprits=(),
        grade=Grade.RECORDED,
        headline=text,
        chain=(*_evidence(away), *_places_told(view, away, fates), *_asked_text(back)),
        at_ms=away.since_ms if is_known else away.until_ms,
        until_ms=away.until_ms,
    )
