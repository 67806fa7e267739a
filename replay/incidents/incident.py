"""The values that describe an incident in `why`, `digest`, the report and the JSON output.

All fields are plain values with the names of the JSON output. Instants are ISO 8601 in UTC, durations are in ms.
"""

import msgspec

from muster.events.ids import GroupId
from muster.replay.history.window import WindowEdge
from muster.replay.incidents.grade import Grade
from muster.replay.rebalances.rebalance import MemberRef, Rebalance
from muster.replay.text.times import Instant, Sentence, wall_ms_of


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence, how certain it is, and the `seq` of the events that support it."""

    text: Sentence
    grade: Grade
    at: Instant | None = None
    seqs: tuple[int, ...] = ()


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of an incident, as defined in docs/incidents.md. None: cannot be determined."""

    rebalances: int
    rebalancing_ms: int | None
    partition_ms: int | None
    partitions_moved: int | None
    partitions_moved_back: int | None = None
    silent_partition_ms: int | None = 0
    empty_partition_ms: int = 0
    known_partition_ms: int = 0
    restarts_absorbed: int = 0
    unassigned_partition_ms: int | None = 0

    @property
    def weight(self) -> tuple[int, int, int]:
        """The key for comparing costs: known partition time without a consumer, time not Stable, rebalances."""
        return (self.known_partition_ms, self.rebalancing_ms or 0, self.rebalances)


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """Related events and rebalances of a group, with one explanation.

    `id` is unique in the history of its group; `parent` is the id of the incident within which this one happened.
    `culprits` are all members that caused it, or other clients (an administrator's), which have no member id; empty if
    no client caused it. `affected` are members that suffered from it but did not cause it. `started_at`: when the group
    left its state, or another client's request arrived; `ended_at`: when its last rebalance ended; None if that is
    still running.
    """

    id: str
    group_id: GroupId
    kind: str
    grade: Grade
    headline: Sentence
    culprits: tuple[MemberRef, ...]
    started_at: Instant
    ended_at: Instant | None
    rebalances: tuple[Rebalance, ...]
    parent: str | None
    chain: tuple[Statement, ...]
    cost: Cost
    advice: tuple[str, ...]
    notes: tuple[str, ...]
    affected: tuple[MemberRef, ...] = ()
    crosses: tuple[WindowEdge, ...] = ()
    """The edges of the requested window that it crosses; it is nevertheless reported as a whole."""

    @property
    def newest_ms(self) -> int:
        """When its latest rebalance began; without rebalances, when the incident began. Wall clock ms."""
        if self.rebalances:
            return max(each.started_ms for each in self.rebalances)
        return wall_ms_of(self.started_at)
