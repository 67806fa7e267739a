"""A member that did not poll in time, and whose client says so."""

from collections.abc import Iterator
from typing import Final

from muster.replay.incidents.episode.acts import Came, CameBack, Departure, Went
from muster.replay.incidents.evidence.naming import process_name
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.replaced import grade_of, members_of
from muster.replay.times import duration, instant

LONGER_POLLS: Final = "raise max.poll.interval.ms, or lower max.poll.records, so that a batch is done within it"

KIND = Kind(
    "poll-timeout",
    "A member did not poll within max.poll.interval.ms and left by itself, and its client says so.",
    "the member",
)

_POLL_REASONS = ("max.poll.interval", "poll timeout", "poll time-out")


def is_poll_timeout(went: Went) -> bool:
    """Whether the client says that its poll was late."""
    reason = (went.why.client_reason or "").lower()
    return any(words in reason for words in _POLL_REASONS)


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
