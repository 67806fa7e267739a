"""Each scenario, played, in a line; `python -m tests.replay.fleet.played_scenarios` writes the lines again.

Each is played on a few seeds, and each group for some days. A line has the main numbers; the checksum is over the time
and the type of each event, and over the truth. So a scenario's line changes if and only if the scenario changes.
"""

import zlib
from collections.abc import Iterable, Iterator
from random import Random
from typing import Final

import msgspec

from muster.events.ids import GroupId
from muster.replay.fleet.simulation.fleet import SimulatedDays, deeds, outages
from muster.replay.fleet.simulation.week import live
from muster.replay.fleet.simulation.world.truth import Truth
from muster.replay.history.items import Coordinated, Happened
from tests.judge.case import play
from tests.judge.scenario import JudgedScenario
from tests.judge.scenarios import SCENARIOS
from tests.replay.fleet.simulated import MONDAY_MS, fleet
from tests.replay.golden import FOLDER

STORED: Final = FOLDER / "scenarios.txt"
SEEDS: Final = range(3)
DAYS: Final = 3


OF_DAYS: Final = ("checkout-orders-00001", "maps-index-00002", "risk-audit-00003")
OF_LOTS: Final = "lots"


def line(name: str) -> str:
    """Return the line of a scenario, of a group over days, or of the random choices."""
    if name == OF_LOTS:
        return _line_of_lots()
    return _line_of_days(name) if name in OF_DAYS else _line_of(SCENARIOS[name])


NAMES: Final = (*sorted(SCENARIOS), *OF_DAYS, OF_LOTS)


def _line_of(scenario: JudgedScenario) -> str:
    """Return the events, processes, incidents and rebalances of each seed."""
    cases = [play(scenario, seed) for seed in SEEDS]
    text = " / ".join(
        f"{_events(case.history.items)} events, {len(set(case.names.values()))} processes, {_incidents(case.truths)}"
        for case in cases
    )
    checksum = _checksum(each for case in cases for each in (*_times(case.history.items), *map(_truth, case.truths)))
    return f"{scenario.name} ({scenario.sort}): {text} [{checksum:08x}]"


def _line_of_days(name: str) -> str:
    number, span = OF_DAYS.index(name), SimulatedDays(MONDAY_MS, DAYS)
    lived = live(number, GroupId(name), number, span, outages(Random(f"outages {number}"), span))
    checksum = _checksum((*_times(lived.told), *map(_truth, lived.truths)))
    text = f"{_events(lived.told)} events, {len(set(lived.names.values()))} processes, {_incidents(lived.truths)}"
    return f"{name}: {lived.setting}: {text} [{checksum:08x}]"


def _line_of_lots() -> str:
    """Return the actions and outages of many weeks, and the groups of a fleet."""
    weeks = SimulatedDays(MONDAY_MS, 70)
    drawn = [*deeds(Random("deeds"), weeks), *outages(Random("outages"), weeks)]
    small = fleet(60, 7)
    groups = _checksum(f"{each}" for each in small.by_partition().items())
    lots = f"{len(drawn)} deeds and outages [{_checksum(map(repr, drawn)):08x}]"
    return f"{OF_LOTS}: {lots}, {small.identity} [{groups:08x}]"


def _events(items: Iterable[object]) -> int:
    return sum(isinstance(each, Happened | Coordinated) for each in items)


def _incidents(truths: Iterable[Truth]) -> str:
    return ", ".join(f"{each.kind} {len(each.must)}+{len(each.may)}" for each in truths)


def _times(items: Iterable[object]) -> Iterator[str]:
    """Return the time and the type of each event; an unreadable one has its type only."""
    for each in items:
        if isinstance(each, Happened | Coordinated):
            yield f"{each.position.timestamp_ms} {type(each.event).__name__}"
        else:
            yield type(each).__name__


def _truth(truth: Truth) -> str:
    """Return all of the truth, with sets sorted."""
    fields = msgspec.structs.asdict(truth)
    return repr({name: sorted(value) if isinstance(value, frozenset) else value for name, value in fields.items()})


def _checksum(texts: Iterable[str]) -> int:
    checksum = 0
    for text in texts:
        checksum = zlib.crc32(text.encode(), checksum)
    return checksum


if __name__ == "__main__":
    STORED.write_text("".join(f"{line(name)}\n" for name in NAMES), encoding="utf-8")
