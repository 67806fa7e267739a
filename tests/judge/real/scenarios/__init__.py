"""The scenarios: what is done to real processes. Importing this registers them.

If the effects of simultaneous actions cannot be separated, their reports are optional (`may`).

    losses          processes that are killed
    silences        live processes that pause, poll too late or unsubscribe
    replacing       processes that join, leave or are replaced
    administration  administrators' commands, refused consumers, changed topics
    coordinators    Muster outages
    compounds       two at a time
    near_misses     incidents that resemble another kind, and quiet times
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
