"""A takeover as text: the old owner, the new one, and the reason, in the same words for all outputs.

Only reports what the takeover recorded (from format level 5 on).
"""

from typing import assert_never

from muster.events.ownership import OwnershipEnd, OwnershipEndCause
from muster.replay.text.times import moment


def taken_over(owner: str, owner_before: str, end: OwnershipEnd | None, *, with_time: bool = False) -> str | None:
    """Return 'b:2 took over from a:1, which ...'; None if there is nothing to say. `with_time`: add when it was seen.

    If two processes share the log, the old owner may still be running: it released a partition that the other one
    should own.
    """
    if end is None:
        return None if owner == owner_before else f"{owner} took over from {owner_before}"
    if end.cause is OwnershipEndCause.TAKEN_BACK:
        return f"{owner} took its partition back after it had lost the log"
    how = end_text(end, with_time=with_time)
    before = "a former process of that name" if owner == owner_before else owner_before
    return f"{owner} took over from {before}" + (f", which {how}" if how else "")


def end_text(end: OwnershipEnd | None, *, with_time: bool = False) -> str | None:
    """Return the former owner's end as the predicate of a sentence; None if it is not known."""
    if end is None:
        return None
    match end.cause:
        case OwnershipEndCause.STOPPED:
            return "had released its partition cleanly"
        case OwnershipEndCause.TAKEN_BACK:
            return "had lost the log"
        case OwnershipEndCause.GONE:
            at = f" at {moment(end.refused_ms)}" if with_time and end.refused_ms is not None else ""
            removed = "was no longer a member of the ownership group"
            return f"refused connections{at} and {f'was removed by {end.removed_by}' if end.removed_by else removed}"
        case OwnershipEndCause.REPLACED:
            return "had lost its place in the ownership group to another process of its node id"
        case OwnershipEndCause.NO_MEMBER:
            return "was no longer a member of the ownership group"
        case OwnershipEndCause.STILL_A_MEMBER:
            return "was still a member of the ownership group, and had not released its partition cleanly"
        case OwnershipEndCause.UNKNOWN:
            return None
        case _:
            assert_never(end.cause)
