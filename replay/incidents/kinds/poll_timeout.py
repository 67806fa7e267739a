"""A member that did not poll in time, and whose client says so."""

from collections.abc import Iterator
from typing import Final

from muster.replay.incidents.episode.acts import Came, CameBack, Departure, Went
from muster.replay.incidents.evidence.naming import process_name
from muster.replay.incidents.evidence.silence import silences
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.replaced import grade_of, members_of
from muster.replay.times import duration, instant, setting

LONGER_POLLS: Final = "raise max.poll.interval.ms, or lower max.poll.records, so that a batch is done within it"

KIND = Kind(
    "poll-timeout",
    "A member did not poll within max.poll.interval.ms and left by itself, and its client says so, or bears it.",
    "the member",
)

_LEFT_BY_ITSELF: Final = "consumer pro-actively leaving the group"
"""Java's client says so when it joins again after it had left by itself: in a process that was restarted it does not
(KIP-800). A static member left without a LeaveGroup."""

_POLL_REASONS = ("max.poll.interval", "poll timeout", "poll time-out")


def is_poll_timeout(went: Went) -> bool:
    """Whether the client says that its poll was late."""
    reason = (went.why.client_reason or "").lower()
    return any(words in reason for words in _POLL_REASONS)


def _left_silently(came: Came | CameBack) -> bool:
    """Whether it is a process that went on, and had left its group without a word, as a static member does."""
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
            text=f"{process_name(came.member)} came under a new member id",
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
        again = f", and came back {duration(each.came.at_ms - went.at_ms)} later" if each is not None else ""
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
    yield from _of_static_members(view)


def _of_static_members(view: EpisodeView) -> Iterator[IncidentClaim]:
    for each in view.free_replacements():
        if each.came.member.group_instance_id is None or not _left_silently(each.came):
            continue
        name, went = process_name(each.member), each.went
        if went is None:
            how = "came back under a new member id"
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
                    text=f"{process_name(each.came.member)} came under a new member id",
                    grade=Grade.RECORDED,
                    at=instant(each.came.at_ms),
                    seqs=(each.came.seq,),
                ),
            ),
            advice=(LONGER_POLLS,),
        )
