"""Each scenario with other settings, in a line; `python -m tests.replay.whatif.scenarios_otherwise` writes the lines.

The scenarios are played as in `tests/replay/fleet/played_scenarios.py`. For each of some settings, a line has how many
rebalances would not have happened, would have happened, and cannot be determined; then the result of deciding all of it
again, and the last state.
"""

from typing import Final

from muster.replay.history.window import AtTime
from muster.replay.whatif.alterations import Alterations
from tests.judge.case import play
from tests.judge.scenarios import SCENARIOS
from tests.replay.facts_and_words import checksums
from tests.replay.golden import FOLDER
from tests.replay.whole import rerun, state_at, what_if

STORED: Final = FOLDER / "otherwise.txt"
NAMES: Final = tuple(sorted(SCENARIOS))
SEED: Final = 1
OTHERS: Final = (
    Alterations(session_timeout_ms=60_000),
    Alterations(session_timeout_ms=8_000, rebalance_timeout_ms=15_000),
    Alterations(initial_rebalance_delay_ms=10_000, scale_up_delay_ms=60_000),
    Alterations(is_static=True),
)


def line(name: str) -> str:
    """Return the verdicts, the repeated decisions, and the last state."""
    case = play(SCENARIOS[name], SEED)
    results = [what_if(case.history, other) for other in OTHERS]
    counts = ", ".join(f"{each.would_not}-{each.would}-{each.cannot_tell}" for each in results)
    again = rerun(case.history)
    decided = f"{len(again.inputs)} inputs, {len(again.differences)} differences, {again.skipped} skipped"
    last = state_at(case.history, AtTime(case.until_ms))
    members = 0 if last is None else len(last.members)
    return f"{name}: {counts}; {decided}; {members} members {checksums((results, last))}"


if __name__ == "__main__":
    STORED.write_text("".join(f"{line(name)}\n" for name in NAMES), encoding="utf-8")
