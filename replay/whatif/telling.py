"""Verdicts, and doubts about them, as text."""

from collections.abc import Iterator, Sequence
from typing import Final

from muster.events.causes import Cause
from muster.events.events import MemberEvent, MemberJoined, MemberRemoved
from muster.events.ids import MemberId
from muster.events.state import Member
from muster.replay.incidents.evidence.naming import process_name
from muster.replay.incidents.grade import Grade
from muster.replay.text.times import duration, instant
from muster.replay.whatif.addresses import address_of
from muster.replay.whatif.alterations import Altered
from muster.replay.whatif.departures import Departures, Fate, FateOf
from muster.replay.whatif.facts import Fact
from muster.replay.whatif.play import Play
from muster.replay.whatif.played import Started
from muster.replay.whatif.rebalances import Open
from muster.replay.whatif.verdict import Additional, Verdict

FOLLOWED = "it followed from the one before, which would not have happened"

BACK_ANEW = (
    "with these settings a member that was dropped would have kept its place, and come back to it instead of joining"
    " as a new member: the log does not show what would have followed"
)
PLANNED = "it was planned (a registration, a retirement, learners): the log does not show how long that had waited"
SAME_CAUSE = "these settings make no difference to its cause"
ANOTHER_CAUSE = "its first cause would not have occurred, but another of its causes would have started it"
WHEN_MISSED = (
    "as a static member it would have been removed when its session ended: whether together with another member or in"
    " a rebalance of its own depends on their last heartbeats"
)


def doubt(fact: Fact, altered: Altered, play: Play, fate_of: FateOf, *, is_static: bool) -> str:
    """Return why it cannot be determined whether the rebalance would have happened; empty if it can."""
    return next(_doubts(fact, altered, play, fate_of, is_static=is_static), "")


def _doubts(fact: Fact, altered: Altered, play: Play, fate_of: FateOf, *, is_static: bool) -> Iterator[str]:
    for event in fact.events:
        if not isinstance(event, MemberEvent) or event.member.group_instance_id is not None:
            continue
        member = event.member
        if is_static and not altered.is_known(member):
            yield (
                f"several processes of client id {member.client_id!r} were at {member.client_host}: which of them came"
                " back as which is not known"
            )
        if isinstance(event, MemberJoined):
            for silent in play.silent.values():
                if silent.client_id == member.client_id:
                    yield from _of_silent(silent, member, fate_of, is_static=is_static)


def doubt_of_poll(fact: Fact, altered: Altered, departures: Departures) -> str:
    """Return the doubt about a process that left and came back, perhaps because it polled too late; empty if there is
    none, or if the other settings do not raise its rebalance timeout, which is its client's max.poll.interval.ms.
    """
    longer_ms = altered.alterations.rebalance_timeout_ms or 0
    for event in fact.events:
        if not isinstance(event, MemberJoined | MemberRemoved) or event.member.group_instance_id is not None:
            continue
        member, which = event.member, isinstance(event, MemberJoined)
        if member.rebalance_timeout_ms >= longer_ms:
            continue
        if any(each[which] == member.member_id for each in departures.late_polls()):
            return (
                f"{process_name(member)} may have left because it polled too late: with a longer max.poll.interval.ms"
                " (its rebalance timeout) it would have left later, or not at all"
            )
    return ""


def came_back(fact: Fact, play: Play, fate_of: FateOf) -> dict[MemberId, Fate]:
    """Return silent members that, by client id and host, may be the processes that joined, restarted or not."""
    came = [event.member for event in fact.events if isinstance(event, MemberJoined)]
    silent_ones = [each for each in play.silent.values() if each.group_instance_id is None]
    pairs = ((silent, each) for each in came for silent in silent_ones if address_of(silent) == address_of(each))
    return {silent.member_id: fate_of(silent, each) for silent, each in pairs}


def _of_silent(silent: Member, member: Member, fate_of: FateOf, *, is_static: bool) -> Iterator[str]:
    """Yield doubts about a dynamic member that joined while one with its client id is silent."""
    if silent.client_host != member.client_host:
        if is_static:
            yield f"it is not known whether {member.client_id!r} moved to {member.client_host}, or is new there"
    elif silent.group_instance_id is None and fate_of(silent, member) is Fate.UNKNOWN:
        yield (
            f"the log does not show whether {member.client_id!r} was restarted or only silent; if only silent, it would"
            " have kept its member id"
        )


DELETED: Final = "the group was deleted before it would have been decided"
NOT_AGAIN: Final = (
    "the member was heard from again before that session would have ended, and is not known to have joined again"
)
TAKEN_OVER: Final = "another coordinator took over meanwhile, and it is not known what the one before it still did"
BEHIND_UNKNOWN: Final = (
    "it is not known whether the rebalance before it would have happened, and so not which members the group would have"
    " had"
)
BEHIND_GAP: Final = "parts of the history after it are missing"
BARELY_SILENT: Final = (
    "the log does not show whether the member would have rejoined: it fell silent while its join waited for the others,"
    " or shortly before"
)


def close_text(ms: int) -> str:
    """Return why it cannot be determined whether a process came back in time."""
    return (
        f"the process came back {duration(ms)} from the end of that session: a heartbeat more or less before it fell"
        " silent decides"
    )


def would_text(one: Open) -> str:
    """Say when the rebalance would have begun."""
    recorded_ms = one.started.why.decided_ms
    assert one.begins_ms is not None
    later_ms = one.begins_ms - recorded_ms
    if abs(later_ms) < 1_000:
        return ANOTHER_CAUSE if _is_by_another(one) else SAME_CAUSE
    text = f"it would have begun {duration(abs(later_ms))} {'later' if later_ms > 0 else 'earlier'}"
    if one.begun is not None and one.begun.cause is Cause.SYNC_TIMED_OUT is not one.started.why.cause:
        text += ", when the group had waited in vain for the member to ask for its assignment"
    return text


def _is_by_another(one: Open) -> bool:
    """Return whether a member that joined or was lost while it ran would have started it."""
    begun_by = one.begun.member_id if one.begun is not None else None
    return begun_by not in one.subjects and any(begun_by == each for each, _ in one.folded)


def would_not_text(one: Open, together: Sequence[Open], play: Play) -> str:
    """Say why it would not have begun; `together`: the rebalances of the same play, including this one."""
    if one.follows is not None:
        return FOLLOWED
    if one.subjects & play.kept:
        return "the process would have come back as the same member, within its session"
    running = running_for(one, play)
    if running is not None:
        return f"it would have been a part of {_name(running, together)}"
    return "nothing that was recorded would have started one with these settings"


def not_of_its_own_text(one: Open, together: Sequence[Open], play: Play) -> str:
    """Say why a member's loss would not have started a separate rebalance, although it is not known what became of its
    process; empty if it may have.

    Either the process was restarted, and the group waited for its former member id when it came back; or it was not
    lost.
    """
    running = running_for(one, play)
    other = next((each for each in together if running is not None and each.begun is running), None)
    if other is None or not one.lost or one.lost != one.subjects or not one.lost <= other.perhaps_back:
        return ""
    return f"either it would have been a part of the one that began with seq {other.started.seq}, or nobody was lost"


def doubt_of_other(one: Open, together: Sequence[Open], play: Play) -> str:
    """Return the doubt about the rebalance that this one would have been part of, or followed from; empty if there is
    none.
    """
    other = one.follows
    if other is None and not one.subjects & play.kept:
        running = running_for(one, play)
        other = next((each for each in together if running is not None and each.begun is running), None)
    if other is None or not other.doubt:
        return ""
    return f"it depends on the one that began with seq {other.started.seq}, which cannot be decided"


def running_for(one: Open, play: Play) -> Started | None:
    """Return the rebalance of the play that this recorded one would have been part of."""
    since_ms = one.started.why.decided_ms
    parts = (play.played.part_of(each, since_ms, is_loss=each in one.lost) for each in sorted(one.subjects))
    return next((each for each in parts if each is not None), None)


def _name(running: Started, together: Sequence[Open]) -> str:
    recorded = next((each for each in together if each.begun is running), None)
    if recorded is not None:
        return f"the one that began with seq {recorded.started.seq}"
    return f"one that the log does not have, and that would have begun at {instant(running.at_ms)}"


def additional(begun: Started, together: Sequence[Open], *, is_first: bool) -> Additional:
    """Describe a rebalance of the play that is not recorded. `is_first`: whether it is the first such one."""
    reason = f"one more rebalance would have begun ({begun.cause.value})"
    if begun.is_late:
        reason = (
            "a member that would have been dropped for being late would have come back, in the same rebalance or in"
            " another"
        )
    elif begun.is_dead:
        reason = (
            "a member that died during a rebalance would have been removed: when it did not sync, or when its session"
            " ended"
        )
    elif not is_first:
        reason = f"there may have been another ({begun.cause.value}): how fast members would have rejoined is not known"
    is_known = is_first and not begun.is_late and not begun.is_dead
    return _additional(begun, together, reason, is_known=is_known)


def given_up(last: Started, together: Sequence[Open], reason: str) -> Additional:
    """Describe the rebalances of a play that was aborted, and those that would have followed the last one."""
    return _additional(last, together, reason, is_known=False)


def _additional(begun: Started, together: Sequence[Open], reason: str, *, is_known: bool) -> Additional:
    seq = together[-1].started.seq if together else 0
    since = min((each.started.why.decided_ms for each in together), default=begun.at_ms)
    return Additional(
        since=instant(min(since, begun.at_ms)),
        until=instant(begun.at_ms),
        seq=seq,
        verdict=Verdict.WOULD if is_known else Verdict.CANNOT_TELL,
        grade=Grade.INFERRED if is_known else Grade.UNKNOWN,
        reason=reason,
    )
