"""The answer of `whatif`. Fields are named as in the JSON output.

Grades (`incidents/grade.py`): *recorded*, all inputs of the rules are in the log; *inferred*, the process is identified
by client id and host alone; *unknown*, the log does not contain enough for an answer, and `reason` says what is
missing.
"""

from enum import StrEnum, unique

import msgspec

from muster.events.ids import GroupId
from muster.replay.history.window import Bounds
from muster.replay.incidents.cost import total
from muster.replay.incidents.grade import Grade
from muster.replay.text.times import Instant, duration


@unique
class Verdict(StrEnum):
    WOULD_NOT = "would-not"
    """The rebalance would not have happened."""
    WOULD = "would"
    """The rebalance would have happened, perhaps at another time."""
    CANNOT_TELL = "cannot-tell"


class Standstill(msgspec.Struct, frozen=True, kw_only=True):
    """The time in which the group was not Stable, and the partition time without a consumer (partitions times ms).

    Both count rebalances. `partition_ms` also counts the silences of members, whether or not a rebalance ended them,
    and times without members that a rebalance ended.
    """

    not_stable_ms: int = 0
    partition_ms: int | None = 0
    """None: the log does not show how many partitions there were."""
    empty_partition_ms: int | None = 0
    """The part of `partition_ms` in which the group had no member."""

    def __add__(self, other: "Standstill") -> "Standstill":
        return Standstill(
            not_stable_ms=self.not_stable_ms + other.not_stable_ms,
            partition_ms=total([self.partition_ms, other.partition_ms]),
            empty_partition_ms=total([self.empty_partition_ms, other.empty_partition_ms]),
        )

    def __str__(self) -> str:
        number = "an unknown number of" if self.partition_ms is None else f"{self.partition_ms / 1_000:.1f}"
        return f"{duration(self.not_stable_ms)} not Stable, {number} partition-seconds without a consumer"


class Replayed(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="recorded"):
    """A recorded rebalance. `would_begin_at`: when it would have begun; None unless it would have happened.

    `recorded` and `played`: the cost as recorded, and with the other settings; None if it is not known. `played` is not
    known for a *cannot-tell*, and if `is_cost_final` is false: the rebalance, or the one that it would have been part
    of, was still running when the log ended. A rebalance that would not have happened still costs the silence of its
    members, and may have made another one longer.

    `generation_id`: the generation by which `muster replay why` finds it, if it led to one.
    """

    incarnation: int
    seq: int
    generation_id: int
    started_at: Instant
    duration_ms: int | None  # None: it is running, or its end is not in the log
    headline: str
    verdict: Verdict
    grade: Grade
    reason: str
    would_begin_at: Instant | None
    recorded: Standstill | None = None
    played: Standstill | None = None
    is_cost_final: bool = True


class Additional(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="additional"):
    """A rebalance that is not in the log: it would have happened between two times, or perhaps would have."""

    since: Instant
    until: Instant
    seq: int
    verdict: Verdict
    grade: Grade
    reason: str
    played: Standstill | None = None
    is_cost_final: bool = True


Line = Replayed | Additional


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """`settings`: the changed ones. `avoided_ms`: the recorded durations of rebalances that would not have happened.

    Counts are of all rebalances, or of those in the window. `besides` and `besides_unknown` count the additional ones
    by verdict; `left_out`: earlier rebalances that are counted but not listed. `recorded` and `played`: the total cost
    of all rebalances whose cost is known both ways, `played` with the additional ones; `advice` compares these.
    `undecided`: the minimum recorded cost of the others (those that cannot be determined, those that depend on them,
    and those whose cost is not final), which is in neither sum. `not_over`: how many have no final cost.
    """

    group_id: GroupId
    log: str
    settings: dict[str, str]
    would_not: int
    would: int
    cannot_tell: int
    avoided_ms: int
    besides: int
    besides_unknown: int
    left_out: int
    rebalances: tuple[Replayed, ...]
    additional: tuple[Additional, ...]
    notes: tuple[str, ...]
    recorded: Standstill
    played: Standstill
    undecided: Standstill
    not_over: int
    advice: str
    window: Bounds | None = None
