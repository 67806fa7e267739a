"""How long each kind of request waited for its answer, before the fault and from it on."""

from collections.abc import Iterable, Sequence

import msgspec

from muster.drills.measuring.asked import Asked, Kind


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """The waits of one kind, in ms. Those before the fault are of requests that were over before it.

    A request that was waiting when the fault came counts from its own beginning. `unanswered`: how many had no answer
    until the load ended, for which the wait until then is taken. None: there was none.
    """

    kind: Kind
    before: int
    before_p50_ms: int | None
    before_longest_ms: int | None
    asked: int
    p50_ms: int | None
    p99_ms: int | None
    longest_ms: int | None
    longest_group: str | None
    longest_member: str | None
    longest_from_ms: int | None
    unanswered: int


def waits(asked: Iterable[Asked], kind: Kind, *, fault_ms: int, end_ms: int) -> Waits:
    """Measure one kind of requests."""
    of_kind = [each for each in asked if each.kind is kind]
    before = sorted(each.wait_ms(end_ms) for each in of_kind if each.is_over_before(fault_ms))
    since = [each for each in of_kind if not each.is_over_before(fault_ms)]
    times = sorted(each.wait_ms(end_ms) for each in since)
    longest = max(since, key=lambda each: each.wait_ms(end_ms), default=None)
    return Waits(
        kind=kind,
        before=len(before),
        before_p50_ms=percentile(before, 50),
        before_longest_ms=before[-1] if before else None,
        asked=len(since),
        p50_ms=percentile(times, 50),
        p99_ms=percentile(times, 99),
        longest_ms=times[-1] if times else None,
        longest_group=None if longest is None else longest.group_id,
        longest_member=None if longest is None else longest.member,
        longest_from_ms=None if longest is None else longest.began_ms,
        unanswered=sum(each.ended_ms is None for each in since),
    )


def percentile(ordered: Sequence[int], percent: int) -> int | None:
    """The smallest value that at least so many percent do not exceed; None of nothing."""
    if not ordered:
        return None
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
