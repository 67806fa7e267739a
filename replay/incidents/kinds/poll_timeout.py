"""A member that did not poll in time, according to its client."""

from collections.abc import Iterator, Sequence
from typing import Final

from muster.replay.incidents.episode.acts import Came, CameBack, Departure, Went
from muster.replay.incidents.episode.replacements import Replacement
from muster.replay.incidents.evidence.naming import process_name
from muster.replay.incidents.evidence.poll_interval import (
    LONGER_POLLS,
    WHICH,
    interval_advice,
    may_have_left_late,
    may_have_polled_late,
)
from muster.replay.incidents.evidence.silence import silences
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.replaced import (
    IF_NOT_BACK,
    LOST_AGAIN,
    acts_of,
    after_last_sign,
    grade_of,
    is_over,
    later,
    lost_again,
    members_of,
    times_in_a_row,
)
from muster.replay.incidents.windows import CRASH_LOOP_NEXT_MS, CRASH_LOOP_TIMES_MIN, SCALING_NEXT_MS
from muster.replay.rebalances.wording import is_close, says_something
from muster.replay.text.times import duration, instant, setting

KIND = Kind(
    "poll-timeout",
    "A member did not poll within max.poll.interval.ms and left by itself, and its client says so, or bears it.",
    "the member",
)

LEFT_AGAIN: Final = "; then it left again, and has not come back so far"
_LEFT_BY_ITSELF: Final = "consumer pro-actively leaving the group"
"""The Java client's reason when it rejoins after it left on its own; a restarted process does not send it.

KIP-800. A static member leaves without a LeaveGroup.
"""

_POLL_REASONS = ("max.poll.interval", "poll timeout", "poll time-out")


def is_poll_timeout(went: Went) -> bool:
    """Return whether the client says that its poll was late."""
    reason = (went.why.client_reason or "").lower()
    return any(words in reason for words in _POLL_REASONS)


def _left_silently(came: Came | CameBack) -> bool:
    """Return whether the process kept running, and had left without a LeaveGroup as static members do."""
    return (came.why.client_reason or "").startswith(_LEFT_BY_ITSELF)


def _evidence(went: Went, came: Came | CameBack | None) -> Iterator[Statement]:
    name = process_name(went.member)
    yield Statement(
        text=f"{name} left by itself, since it had not polled",
        grade=Grade.RECORDED,
        at=instant(went.at_ms),
        seqs=(went.seq,),
    )
    if came is not None:
        yield Statement(
            text=f"{process_name(came.member)} joined under a new member id",
            grade=Grade.RECORDED,
            at=instant(came.at_ms),
            seqs=(came.seq,),
        )


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    back = view.returns()
    for went in view.free(Went):
        if went.how is not Departure.LEFT or not is_poll_timeout(went):
            continue
        each = back.get(went.seq)
        again = f", and came back {later(each)}" if each is not None else ""
        yield IncidentClaim(
            kind=KIND,
            acts=each.acts if each is not None else (went,),
            culprits=members_of([each]) if each is not None else (went.member,),
            grade=grade_of([each]) if each is not None else Grade.RECORDED,
            headline=(
                f"{process_name(went.member)} did not poll within max.poll.interval.ms and left{again}; the client"
                f' says: "{went.why.client_reason}"'
            ),
            chain=tuple(_evidence(went, None if each is None else each.came)),
            advice=(LONGER_POLLS,),
        )
    yield from _on_same_connection(view)
    yield from _of_static_members(view)


def _on_same_connection(view: EpisodeView) -> Iterator[IncidentClaim]:
    """Claim the cases in which a process left, or fell silent, and came back on the same connection.

    So it had not ended. A process that was paused or cut off would first use its old member id again; a client that
    unsubscribed on purpose may give that as its reason.
    """
    late = (each for each in view.free_replacements() if each.on_same_connection and _may_be_late_poll(view, each))
    for run in times_in_a_row(late):
        # Of two, one may be a late poll and the other an unsubscribe, which look the same: each is an incident of its
        # own.
        parts = [run] if len(run) >= CRASH_LOOP_TIMES_MIN else [[each] for each in run]
        yield from (_late_polls(view, part) for part in parts)


def _may_be_late_poll(view: EpisodeView, each: Replacement) -> bool:
    if each.former_id in view.episode.heard_again or _left_silently(each.came):
        return False
    if not may_have_polled_late(view.episode, each):
        return False
    if each.went is None:
        return True
    if each.went.how is not Departure.LEFT:  # a dynamic member leaves at its late poll, in all client families
        return each.went.member.group_instance_id is not None
    # For a static member's own LeaveGroup see `unsubscribe.py`.
    return each.went.member.group_instance_id is None and not says_something(each.went.why.client_reason)


def _late_polls(view: EpisodeView, run: Sequence[Replacement]) -> IncidentClaim:
    first, last = run[0], run[-1]
    left = first.went is not None and first.went.how is Departure.LEFT
    how = "left" if left else "fell silent" if first.went is not None else "joined again"
    if len(run) > 1:
        again = f" {len(run)} times within {duration(last.end_ms - first.begin_ms)}, and came back each time"
    elif first.went is not None:
        again = f", and came back {later(first)}"
    else:
        again = after_last_sign(first)
    gone = _left_again(view, run) if left else lost_again(view, last)
    since = "" if gone is None else LEFT_AGAIN if left else LOST_AGAIN
    return IncidentClaim(
        kind=KIND,
        acts=acts_of(run) if gone is None else (*acts_of(run), gone),
        culprits=members_of(run),
        grade=Grade.INFERRED,
        headline=(
            f"{process_name(first.member)} {how}{again}, on the same connection: its process had not ended, but polled"
            f" too late{'' if left else ', stalled'}, or unsubscribed and subscribed again{since}"
        ),
        chain=(
            *(statement for each in run if each.went is not None for statement in _parting(view, each.went)),
            *(
                Statement(
                    text=f"{process_name(each.came.member)} joined under a new member id, on its connection",
                    grade=Grade.RECORDED,
                    at=instant(each.came.at_ms),
                    seqs=tuple(act.seq for act in each.acts),
                )
                for each in run
            ),
            *(_parting(view, gone) if gone is not None else ()),
        ),
        advice=(
            f"if it polled too late: {interval_advice(first.member)}",
            *(() if left else (WHICH,)),
            *(() if gone is None else (IF_NOT_BACK,)),
        ),
    )


def _left_again(view: EpisodeView, run: Sequence[Replacement]) -> Went | None:
    """Return the last departure of a member that left repeatedly before, and may still come back.

    It was the only one to leave, gave no reason, and the history ends before the time to come back is over.
    """
    if len(run) < CRASH_LOOP_TIMES_MIN:
        return None
    left = [act for act in view.free(Went) if act.how is Departure.LEFT and act.seq not in view.episode.paired_seqs]
    went = next((act for act in left if act.member.member_id == run[-1].came.member.member_id), None)
    if went is None or went.at_ms - run[-1].end_ms > CRASH_LOOP_NEXT_MS or is_over(view.episode, went):
        return None
    reason = went.why.client_reason
    if is_close(reason) or says_something(reason) or not may_have_left_late(view.episode, went):
        return None
    is_alone = all(act is went or abs(act.at_ms - went.at_ms) > SCALING_NEXT_MS for act in left)
    return went if is_alone else None


def _parting(view: EpisodeView, went: Went) -> Iterator[Statement]:
    if went.is_silent:
        yield from silences(view.episode, [went])
        return
    yield Statement(
        text=f"{process_name(went.member)} left by itself, without a reason",
        grade=Grade.RECORDED,
        at=instant(went.at_ms),
        seqs=(went.seq,),
    )


def _of_static_members(view: EpisodeView) -> Iterator[IncidentClaim]:
    for each in view.free_replacements():
        if each.came.member.group_instance_id is None or not _left_silently(each.came):
            continue
        name, went = process_name(each.member), each.went
        if went is None:
            how = "rejoined under a new member id"
        else:
            session = setting(went.member.session_timeout_ms)
            how = f"was not heard from for its session timeout of {session}, and came back"
        yield IncidentClaim(
            kind=KIND,
            acts=each.acts,
            culprits=members_of([each]),
            grade=Grade.INFERRED,
            headline=(
                f"{name} {how}: its process had not ended, but had left by itself, as the client does that did not poll"
                f' within max.poll.interval.ms; it says: "{each.came.why.client_reason}"'
            ),
            chain=(
                *(silences(view.episode, [went]) if went is not None else ()),
                Statement(
                    text=f"{process_name(each.came.member)} joined under a new member id",
                    grade=Grade.RECORDED,
                    at=instant(each.came.at_ms),
                    seqs=(each.came.seq,),
                ),
            ),
            advice=(LONGER_POLLS,),
        )
