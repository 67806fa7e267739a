"""A request with all its attempts, as a member saw it, and what it was acknowledged. Instants are wall clock ms."""

from enum import StrEnum, unique

import msgspec


@unique
class Kind(StrEnum):
    """The kinds of requests. A join is JoinGroup and SyncGroup, until the member has its place."""

    HEARTBEAT = "heartbeats"
    JOIN = "joins"
    COMMIT = "commits"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request, from its first attempt until an answer that is no reason to try again.

    `ended_ms`: None if there was none until the load ended. `error`: Kafka's name of what was answered, empty if all
    was well. `retried`: why each attempt before was no answer: Kafka's name of a retriable error, or NO_ANSWER.
    """

    kind: Kind
    group_id: str
    member: str
    began_ms: int
    ended_ms: int | None
    error: str = ""
    retried: tuple[str, ...] = ()

    def wait_ms(self, end_ms: int) -> int:
        """How long there was no answer; `end_ms`: when the load ended."""
        return (end_ms if self.ended_ms is None else self.ended_ms) - self.began_ms

    def is_over_before(self, at_ms: int) -> bool:
        return self.ended_ms is not None and self.ended_ms < at_ms


NO_ANSWER = "NO_ANSWER"
"""A connection that was refused or lost, or an attempt that nobody answered in time."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a group that a member was told it has, by an answer to JoinGroup, or to SyncGroup (`assignment`)."""

    group_id: str
    generation_id: int
    member_id: str
    assignment: bytes | None = None


class Acknowledged(msgspec.Struct, kw_only=True):
    """All that members were told is so. `commits`: the highest offset that was acknowledged, `sent`: that was sent."""

    places: set[Place] = msgspec.field(default_factory=set)
    joins: int = 0
    commits: dict[tuple[str, int], int] = msgspec.field(default_factory=dict)
    sent: dict[tuple[str, int], int] = msgspec.field(default_factory=dict)
    commit_count: int = 0
