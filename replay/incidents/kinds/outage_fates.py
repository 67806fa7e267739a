"""The outcome of an outage for each member: whether it kept its place in the group, or lost it because of the
outage.
"""

import math
from bisect import bisect_right
from collections import defaultdict

import msgspec

from muster.events.state import Member
from muster.replay.incidents.episode.acts import CameBack, Departure, Rejoined, Went
from muster.replay.incidents.episode.coordinator_absences import Away
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.kinds.poll_timeout import is_poll_timeout
from muster.replay.incidents.windows import OUTAGE_AFTERMATH_MS


class OutageFates(msgspec.Struct, frozen=True):
    """The outcome for the members. `kept`: still in the group, as they were heard from again, or did not expire.

    `missed`: not heard from again. `unknown`: it is not known whether they were heard from. `back`: rejoined under new
    member ids while their old sessions still held their places. `held`: their sessions still hold their places.
    """

    kept: tuple[Member, ...]
    missed: tuple[Member, ...]
    unknown: tuple[Member, ...]
    back: tuple[Member, ...]
    held: tuple[Member, ...]


def fates_of(episode: Episode, away: Away) -> OutageFates:
    """Return the outcome for each member that was in the group when the coordinator became unreachable."""
    later = [act for act in episode.acts if act.at_ms >= away.until_ms]
    went = {act.member.member_id: act for act in later if isinstance(act, Went)}
    taken = {act.replaced_member_id: act for act in later if isinstance(act, CameBack)}
    rejoined = {act.member.member_id for act in later if isinstance(act, Rejoined)}
    fates: defaultdict[str, list[Member]] = defaultdict(list)
    for each in away.members:
        gone, back = went.get(each.member_id), taken.get(each.member_id)
        if gone is not None:
            fate = _fate_of_gone(gone, away, episode)
        elif each.member_id in rejoined or (back is not None and _was_heard(back.last_seen_ms, bool(back.heard), away)):
            fate = "kept"
        else:  # a session that has not expired shows nothing
            known_ms = back.at_ms if back is not None else episode.known_until_ms or away.until_ms
            is_alive = known_ms > _aftermath_until_ms(each, away, episode, known_ms)
            fate = "kept" if is_alive else "held" if back is None else "back"
        fates[fate].append(each)
    return OutageFates(**{name: tuple(fates[name]) for name in OutageFates.__struct_fields__})


def is_due_to(went: Went, away: Away, episode: Episode) -> bool:
    """Return whether the member was lost because it was not heard from since the outage, or because the outage made it
    exceed its max.poll.interval.ms.
    """
    late_poll = went.how is Departure.LEFT and is_poll_timeout(went)
    if went.how not in (Departure.EXPIRED, Departure.NOT_REJOINED) and not late_poll:
        return False
    if went.last_seen_ms > away.until_ms + OUTAGE_AFTERMATH_MS:
        return False
    if went.heard is False and away.until_ms <= went.at_ms:
        return True  # however late: a new owner also waits for the former owner's lease to expire
    return away.until_ms <= went.at_ms <= _aftermath_until_ms(went.member, away, episode, went.at_ms)


def _aftermath_until_ms(member: Member, away: Away, episode: Episode, at_ms: float = math.inf) -> int:
    """Return the latest time at which the member would be removed if it was not heard from since the outage.

    Each new owner, and each end of a pause, restarts all sessions, so later outages extend this time. Outages after
    `at_ms` are ignored.
    """
    allowance_ms = member.session_timeout_ms + OUTAGE_AFTERMATH_MS
    until_ms = away.until_ms
    aways = episode.aways
    for later in aways[bisect_right(aways, until_ms, key=lambda each: each.until_ms) :]:
        if later.since_ms > until_ms + allowance_ms or until_ms >= at_ms:
            break
        until_ms = max(until_ms, later.until_ms)
    return until_ms + allowance_ms


def _may_be_due_to(went: Went, away: Away, episode: Episode) -> bool:
    """Return whether a later takeover hides whether the member was heard from since the outage."""
    if not went.is_silent or not away.until_ms <= went.last_seen_ms:
        return False
    silence = episode.silence_of(went)
    is_hidden = not silence.is_known and silence.from_ms <= away.until_ms
    return is_hidden and went.at_ms <= _aftermath_until_ms(went.member, away, episode, went.at_ms)


def _fate_of_gone(went: Went, away: Away, episode: Episode) -> str:
    """Return what became of a member that left or was removed since."""
    if is_due_to(went, away, episode):
        return "missed"
    if _may_be_due_to(went, away, episode):
        return "unknown"
    is_removed = went.how in (Departure.REMOVED, Departure.PLANNED)
    is_late = went.at_ms > _aftermath_until_ms(went.member, away, episode, went.at_ms)
    if not is_removed or is_late or _was_heard(went.last_seen_ms, went.heard, away):
        return "kept"
    return "unknown" if went.heard is None else "missed"


def _was_heard(last_seen_ms: int, heard: bool | None, away: Away) -> bool:
    """Return whether the member was heard from after the outage (requests buffered during a pause do not count)."""
    later_ms = OUTAGE_AFTERMATH_MS if away.paused or heard is None else 0
    return heard is not False and last_seen_ms > away.until_ms + later_ms
