"""Scenarios by name: what a case is made of. `scenarios/` has them, one file for what is alike."""

from collections.abc import Callable
from enum import StrEnum, unique
from typing import Final

import msgspec

from muster.replay.fleet.simulation.stage import Stage, Wanted

Play = Callable[[Stage], None]


@unique
class ScenarioSort(StrEnum):
    """A third of all cases are not plain."""

    PLAIN = "plain"
    COMPOUND = "compound"
    NEAR_MISS = "near miss"
    QUIET = "quiet"
    FLEET = "of a fleet's days"
    """Not among the judge's cases."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """`play` does it to a group that has formed, and has been quiet, unless it `opens` the stage itself."""

    name: str
    sort: ScenarioSort
    wanted: Wanted
    play: Play
    opens: bool
    cuts: int | None
    """The incident whose records are missing from the log, or cannot be read; 0 is the start."""
    keeps_second_round: bool
    """Whether they are there but for the first of its rebalances."""


SCENARIOS: Final[dict[str, Scenario]] = {}


def scenario(
    sort: ScenarioSort,
    wanted: Wanted | None = None,
    *,
    opens: bool = False,
    cuts: int | None = None,
    keeps_second_round: bool = False,
) -> Callable[[Play], Play]:
    """Register a function as a scenario, under its name."""

    def register(play: Play) -> Play:
        name = play.__name__.replace("_", "-")
        assert name not in SCENARIOS
        SCENARIOS[name] = Scenario(
            name=name,
            sort=sort,
            wanted=wanted or Wanted(),
            play=play,
            opens=opens,
            cuts=cuts,
            keeps_second_round=keeps_second_round,
        )
        return play

    return register
