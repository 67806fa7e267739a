"""The values that tell an incident: what `why`, `digest` and the report print, and what programs read.

All fields are plain values, and their names are those of the JSON output. Instants are ISO 8601 in UTC, durations ms.
"""

import msgspec

from muster.events.ids import GroupId
from muster.replay.history.window import WindowEdge
from muster.replay.incidents.grade import Grade
from muster.replay.rebalances.rebalance import MemberRef, Rebalance
from muster.replay.text.times import Instant, Sentence, wall_ms_of


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence, how well it is known, and the events that bear it by their `seq`."""

    text: Sentence
    grade: Grade
    at: Instant | None = None
    seqs: tuple[int, ...] = ()


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of an incident; see docs/incidents.md for the definitions. A field that is None cannot be known."""

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
        """The measure by which costs are compared: partitions without a consumer, time not Stable, rebalances.

        Of what is not known the part that is.
        """
        return (self.known_partition_ms, self.rebalancing_ms or 0, self.rebalances)


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One story of a group.

    `id` is unique in the history of its group; `parent` is the id of the incident within which this one happened.
    `culprits` are the members that it is blamed on, all of them, or other clients (an administrator's), which have no
    member id; none if it is nobody. `affected` are members that it befell and that are not to blame. `started_at` and
    `ended_at`: from when the group left its state, or somebody else's request came, until its last rebalance ended;
    None: it has not.
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
    """The edges of the window that was asked for; it is told whole all the same."""

    @property
    def newest_ms(self) -> int:
        """When its newest rebalance began; without one, when it began itself. Wall clock ms."""
        if self.rebalances:
            return max(each.started_ms for each in self.rebalances)
        return wall_ms_of(self.started_at)
