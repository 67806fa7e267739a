"""The scenarios: what is done to real processes. Importing this registers them.

What is told of a stretch in which nobody could say what came of which deed is left open (`may`).

    losses          processes that are killed
    silences        processes that live, and stand still, poll too late or unsubscribe
    replacing       processes that come, go or are replaced
    administration  deeds of administrators, refused consumers, changes of topics
    coordinators    Muster is away
    compounds       two at a time
    near_misses     what looks like another kind, and quiet
"""

from tests.judge.real.scenario import SCENARIOS
from tests.judge.real.scenarios import (
    administration,
    compounds,
    coordinators,
    losses,
    near_misses,
    replacing,
    silences,
)

__all__ = [
    "SCENARIOS",
    "administration",
    "compounds",
    "coordinators",
    "losses",
    "near_misses",
    "replacing",
    "silences",
]
