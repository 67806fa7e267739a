"""The scenarios of the judge: the fleet's, and its own in these files, by what they are about."""

from typing import Final

import muster.replay.fleet.simulation.scenarios  # noqa: F401 -- registers them
from muster.replay.fleet.simulation.stage import SCENARIOS as OF_FLEET
from tests.judge.scenario import OWN, SORT_OF, JudgedScenario, ScenarioSort
from tests.judge.scenarios import (  # noqa: F401 -- registers them
    administration,
    changes,
    compounds,
    coordinators,
    losses,
    near_misses,
    quiet,
    refusals,
    replacing,
    unassigned_topics,
)


def _of_fleet(name: str, sort: ScenarioSort) -> JudgedScenario:
    scenario = OF_FLEET[name]
    return JudgedScenario(name=name, sort=sort, wanted=scenario.wanted, play=scenario.play)


SCENARIOS: Final = {name: OWN.get(name) or _of_fleet(name, sort) for name, sort in SORT_OF.items()}
