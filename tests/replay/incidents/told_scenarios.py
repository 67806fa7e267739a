"""Each scenario's incidents in a line, as they are told: `python -m tests.replay.incidents.told_scenarios` writes them.

How it works: the scenarios are played as in `tests/replay/fleet/played_scenarios.py`. A line has the incidents and how
many rebalances each has; the first checksum is over the facts that a program reads of them, the second over the words,
so that a sentence that is said better changes that one alone.
"""

import zlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from muster.replay.fleet.simulation.scenario import SCENARIOS
from muster.replay.incidents.telling import incidents
from tests.judge.case import play
from tests.replay.fleet.played_scenarios import SEEDS
from tests.replay.golden import FOLDER

STORED: Final = FOLDER / "incidents.txt"
NAMES: Final = tuple(sorted(SCENARIOS))
WORDS: Final = frozenset({"text", "headline", "advice", "notes"})


def line(name: str) -> str:
    """The incidents of each seed."""
    told = [incidents(play(SCENARIOS[name], seed).history) for seed in SEEDS]
    kinds = " / ".join(", ".join(f"{each.kind} {len(each.rebalances)}" for each in of_seed) for of_seed in told)
    built = msgspec.to_builtins(told)
    facts, words = zlib.crc32(msgspec.json.encode(_facts(built))), zlib.crc32(msgspec.json.encode(list(_words(built))))
    return f"{name}: {kinds} [{facts:08x}, in words {words:08x}]"


def _facts(value: Any) -> Any:
    """All but the words."""
    match value:
        case dict():
            return {key: _facts(each) for key, each in value.items() if key not in WORDS}
        case list() | tuple():
            return [_facts(each) for each in value]
    return value


def _words(value: Any) -> Iterator[Any]:
    match value:
        case dict():
            for key, each in value.items():
                if key in WORDS:
                    yield each
                else:
                    yield from _words(each)
        case list() | tuple():
            for each in value:
                yield from _words(each)


if __name__ == "__main__":
    STORED.write_text("".join(f"{line(name)}\n" for name in NAMES), encoding="utf-8")
