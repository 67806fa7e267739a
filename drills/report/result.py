"""The values of a report. All fields are plain values; their names are those of the JSON output.

Times are ISO 8601 in UTC, or wall clock ms if the field ends in `_ms`; durations are in ms.
"""

import msgspec

from muster.drills.measuring.answers import Goal, Noticed, Waits
from muster.drills.measuring.losses import LostCommit
from muster.drills.measuring.takeovers import Takeover
from muster.drills.plan import Fault
from muster.replay.text.times import Instant


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """An action of the drill. `is_fault`: takeovers are measured from it."""

    at: Instant
    text: str
    is_fault: bool
    process: str | None


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    """A rebalance that the fault has caused, with its reason, as `muster replay why` reports it."""

    group_id: str
    at: Instant
    took_ms: int | None
    generations: str
    incident: str
    why: str


class GoalMet(msgspec.Struct, frozen=True, kw_only=True):
    """A goal. `measured` and `at_most` are counts, or ms if `is_time`; None: nothing was measured."""

    name: str
    measured: int | None
    at_most: int
    is_time: bool
    is_met: bool


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The acknowledgements: how many there were, and descriptions of what is missing."""

    joins: int
    places: int
    commits: int
    committed_partitions: int
    places_missing: tuple[str, ...]
    history_missing: tuple[str, ...]
    commits_missing: tuple[LostCommit, ...]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A report. `service`: the service under test. `fault_at`: the first fault; `over_at`: the end of the recovery.

    `noticed`: errors that reached the members; `hidden`: those that clients hide by trying again.
    """

    drill: Fault
    run: str
    version: str
    service: str
    groups: int
    members: int
    static_groups: int
    began_at: Instant
    fault_at: Instant
    over_at: Instant
    ended_at: Instant
    done: tuple[Done, ...]
    is_met: bool
    goals: tuple[GoalMet, ...]
    waits: tuple[Waits, ...]
    noticed: tuple[Noticed, ...]
    hidden: tuple[Noticed, ...]
    rebalances: tuple[Rebalance, ...]
    takeovers: tuple[Takeover, ...]
    compared: Compared
    left: tuple[str, ...] = ()
    """Descriptions of what could not be cleaned up."""


def with_verdict(goal: Goal) -> GoalMet:
    """Return the goal and whether it is met."""
    return GoalMet(
        name=goal.name, measured=goal.measured, at_most=goal.at_most, is_time=goal.is_time, is_met=goal.is_met
    )
