"""The goals of a drill, and whether they are met."""

from collections.abc import Iterable

import msgspec

from muster.drills.measuring.asked import Kind
from muster.drills.measuring.waits import Waits
from muster.drills.plan import Limits


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A goal: `measured` is at most `at_most`, both counts, or ms where `is_time`. None: nothing was measured."""

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
    """The goals in the order in which they are told. A kind of which nothing was asked has no goal."""
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
