"""Evaluates requests with all their attempts: how long they waited, which errors members saw, which goals are met.

Instants are wall clock times in ms.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum, unique

import msgspec

from muster.drills.plan import Limits


@unique
class Kind(StrEnum):
    """The kinds of requests. A join is all the JoinGroup and SyncGroup requests until the member is in the group."""

    HEARTBEAT = "heartbeats"
    JOIN = "joins"
    COMMIT = "commits"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request, from its first attempt to the response after which a client does not retry.

    `ended_ms`: None if there was no such response before the load ended. `error`: Kafka's name of the error in it;
    empty for success. `retried`: the reason for each retry: Kafka's name of a retriable error, or NO_ANSWER.
    """

    kind: Kind
    group_id: str
    member: str
    began_ms: int
    ended_ms: int | None
    error: str = ""
    retried: tuple[str, ...] = ()

    def wait_ms(self, end_ms: int) -> int:
        """Return how long the request was unanswered. `end_ms`: the end of the load."""
        return (end_ms if self.ended_ms is None else self.ended_ms) - self.began_ms

    def is_over_before(self, at_ms: int) -> bool:
        return self.ended_ms is not None and self.ended_ms < at_ms


NO_ANSWER = "NO_ANSWER"
"""The connection was refused or lost, or no response arrived in time."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A membership that was acknowledged to a member, in a JoinGroup response, or in SyncGroup's (`assignment`)."""

    group_id: str
    generation_id: int
    member_id: str
    assignment: bytes | None = None


class Acknowledged(msgspec.Struct, kw_only=True):
    """All that was acknowledged to members. `commits`: the highest acknowledged offset. `sent`: the highest sent."""

    places: set[Place] = msgspec.field(default_factory=set)
    joins: int = 0
    commits: dict[tuple[str, int], int] = msgspec.field(default_factory=dict)
    sent: dict[tuple[str, int], int] = msgspec.field(default_factory=dict)
    commit_count: int = 0


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """The waits of one kind of requests, in ms; None if there were no requests.

    The `before` fields are about requests that ended before the fault. The wait of a request that was in progress when
    the fault happened counts from when the request began. `unanswered`: the number of requests without a response when
    the load ended; their waits count until then.
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
    """Return the smallest value that at least `percent` percent of the values do not exceed; None if there are none."""
    if not ordered:
        return None
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


class Noticed(msgspec.Struct, frozen=True, kw_only=True):
    """An error in responses since the fault, for one kind of request: how often, for how many members and groups."""

    kind: Kind
    error: str
    times: int
    members: int
    groups: int


def noticed(asked: Iterable[Asked], *, fault_ms: int) -> tuple[Noticed, ...]:
    """Return the errors that a client cannot hide: a lost membership, a rebalance, a refused commit."""
    return _counted((each, each.error) for each in asked if each.error and not each.is_over_before(fault_ms))


def hidden(asked: Iterable[Asked], *, fault_ms: int) -> tuple[Noticed, ...]:
    """Return the errors that a client hides: it looks up the coordinator and retries."""
    return _counted((each, error) for each in asked if not each.is_over_before(fault_ms) for error in each.retried)


def _counted(errors: Iterable[tuple[Asked, str]]) -> tuple[Noticed, ...]:
    found: dict[tuple[Kind, str], list[Asked]] = {}
    for each, error in errors:
        found.setdefault((each.kind, error), []).append(each)
    return tuple(
        Noticed(
            kind=kind,
            error=error,
            times=len(of_it),
            members=len({(each.group_id, each.member) for each in of_it}),
            groups=len({each.group_id for each in of_it}),
        )
        for (kind, error), of_it in sorted(found.items(), key=lambda each: (list(Kind).index(each[0][0]), each[0][1]))
    )


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A goal: `measured` must be at most `at_most`; both are counts, or ms if `is_time`. None: nothing was measured."""

    name: str
    measured: int | None
    at_most: int
    is_time: bool = False

    @property
    def is_met(self) -> bool:
        return self.measured is not None and self.measured <= self.at_most


def goals(
    waits: Iterable[Waits], limits: Limits, *, rebalances: int, noticed: int, events_lost: int, commits_lost: int
) -> tuple[Goal, ...]:
    """Return the goals in the order of the report. A kind of request that was never sent has no goal."""
    at_most = {Kind.HEARTBEAT: limits.heartbeats_ms, Kind.JOIN: limits.joins_ms, Kind.COMMIT: limits.commits_ms}
    return (
        Goal(name="rebalances caused", measured=rebalances, at_most=0),
        Goal(name="errors that members noticed", measured=noticed, at_most=0),
        Goal(name="events lost", measured=events_lost, at_most=0),
        Goal(name="commits lost", measured=commits_lost, at_most=0),
        *(
            Goal(name=f"{each.kind}: longest time without an answer", measured=each.longest_ms,
                 at_most=at_most[each.kind], is_time=True)
            for each in waits
            if each.before or each.asked
        ),
    )  # fmt: skip
