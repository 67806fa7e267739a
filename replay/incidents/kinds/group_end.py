"""The end of a group: the client that deleted it, or the expired offset retention, and how long it had been empty."""

from collections.abc import Iterator

from muster.events.causes import Cause
from muster.events.events import GroupDeleted
from muster.replay.incidents.episode.acts import Phase
from muster.replay.incidents.evidence.emptiness import emptied_text
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.rebalances.wording import asked_by, cause_text
from muster.replay.text.times import duration, instant

DELETED = Kind("group-deleted", "The group was deleted.", "none of the members; the sentence says who asked")
EXPIRED = Kind("group-expired", "The group had been empty for as long as it is kept.", "none of the members")


_ENDS = frozenset({Cause.GROUP_DELETED, Cause.GROUP_EXPIRED})


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    for act in view.free(Phase):
        event = act.event
        if not isinstance(event, GroupDeleted) or act.why.cause not in _ENDS:
            continue  # a refused join is the only reason why the group existed
        what = f"{cause_text(act.why, [])}{asked_by(act.why)}"
        yield IncidentClaim(
            kind=EXPIRED if act.why.cause is Cause.GROUP_EXPIRED else DELETED,
            acts=(act,),
            culprits=(),
            grade=Grade.RECORDED,
            headline=f"{what}{_emptiness(event)}",
            chain=(
                *_since(event, act.seq),
                Statement(
                    text=f"{what}{_retention(event)}", grade=Grade.RECORDED, at=instant(act.at_ms), seqs=(act.seq,)
                ),
            ),
        )


def _emptiness(event: GroupDeleted) -> str:
    if event.empty_since_ms is None:
        return ""
    return f": {emptied_text(event.group.emptied_by, event.why.decided_ms - event.empty_since_ms)}{_retention(event)}"


def _retention(event: GroupDeleted) -> str:
    kept_ms = event.retention_ms
    return f" (offsets.retention.minutes: {duration(kept_ms)})" if kept_ms is not None else ""


def _since(event: GroupDeleted, seq: int) -> Iterator[Statement]:
    """State since when the group had been empty, and why (format level 4)."""
    if event.empty_since_ms is None:
        yield Statement(text="since when it was empty, and why, is not recorded", grade=Grade.UNKNOWN, seqs=(seq,))
        return
    yield Statement(
        text="from then on the group was empty",
        grade=Grade.RECORDED,
        at=instant(event.empty_since_ms),
        seqs=(seq,),
    )
