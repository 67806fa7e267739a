"""Each scenario's incidents in a line; `python -m tests.replay.incidents.told_scenarios` writes the lines.

The scenarios are played as in `tests/replay/fleet/played_scenarios.py`. A line has the incidents and the number of
rebalances of each.
"""

from typing import Final

from tests.judge.case import play
from tests.judge.scenarios import SCENARIOS
from tests.replay.facts_and_words import checksums
from tests.replay.fleet.played_scenarios import SEEDS
from tests.replay.golden import FOLDER
from tests.replay.whole import incidents

STORED: Final = FOLDER / "incidents.txt"
NAMES: Final = tuple(sorted(SCENARIOS))


def line(name: str) -> str:
    """Return the incidents of each seed."""
    reported = [incidents(play(SCENARIOS[name], seed).history) for seed in SEEDS]
    kinds = " / ".join(", ".join(f"{each.kind} {len(each.rebalances)}" for each in of_seed) for of_seed in reported)
    return f"{name}: {kinds} {checksums(reported)}"


if __name__ == "__main__":
    STORED.write_text("".join(f"{line(name)}\n" for name in NAMES), encoding="utf-8")
