"""A scenario: what is done to real processes, its name, and its needs.

Has the registration, and what several scenarios share. The kinds are those of `docs/incidents.md`.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from tests.judge.real.stage import RealStage, Style, Wanted
from tests.judge.scenario import ScenarioSort

Play = Callable[[RealStage], None]

OWN: Final = (Style.OWN_IDS,)

PLAIN, COMPOUND, NEAR_MISS, QUIET = (
    ScenarioSort.PLAIN,
    ScenarioSort.COMPOUND,
    ScenarioSort.NEAR_MISS,
    ScenarioSort.QUIET,
)


class RealScenario(msgspec.Struct, frozen=True, kw_only=True):
    """`play` does it to a group that has formed."""

    name: str
    sort: ScenarioSort
    wanted: Wanted
    play: Play


SCENARIOS: Final[dict[str, RealScenario]] = {}


def scenario(sort: ScenarioSort, wanted: Wanted | None = None) -> Callable[[Play], Play]:
    """Register a function as a scenario, under its name."""

    def register(play: Play) -> Play:
        name = play.__name__.replace("_", "-")
        SCENARIOS[name] = RealScenario(name=name, sort=sort, wanted=wanted or Wanted(), play=play)
        return play

    return register
