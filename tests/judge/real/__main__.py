"""`python -m tests.judge.real [--mode sidecar] [--cases 60] [--jobs 6] [--family java] [--scenario crash]`.

Does incidents to processes of real clients, has the incidents in the logs reported, and prints the score by kind and
family, what was left out and why, and the failures with their seeds. `--each`: each scenario with each family, instead
of random ones. `--mode`: Muster alone, or in front of a broker that this starts. Exit code 1 if a goal is missed, 2 if
there is no broker.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.brokers.broker import BrokerFailed, NoBroker
from tests.brokers.choice import running_broker
from tests.coordinator.sidecar.admin_stage import until_coordinated
from tests.judge.count import Verdict, count
from tests.judge.real.case import Drawn, deal, draw, play, reports_of
from tests.judge.real.given import Family
from tests.judge.real.scenarios import SCENARIOS
from tests.judge.real.service import Mode
from tests.judge.real.spoiled import Spoiled
from tests.judge.real.table import Judged, by_family, missed_goals
from tests.judge.showing import shown
from tests.judge.table import described, failures, table

GENERATOR_FAILED = "the generator failed"

Outcome = tuple[Drawn, list[Verdict], str, str]
"""The case as drawn, the verdicts, the reason why it was left out (or an empty string), and the case as text."""


def judged(keep: Path | None, broker: str | None, drawn: Drawn) -> Outcome:
    try:
        folder = None if keep is None else keep / f"{drawn.seed}-{drawn.scenario.name}-{drawn.family}"
        case = play(drawn, folder, broker=broker)
    except Spoiled as why:
        return drawn, [], str(why), ""
    except Exception as error:  # noqa: BLE001 -- the other cases go on; the summary says it, and the exit code
        return drawn, [], f"{GENERATOR_FAILED}: {error!r}", ""
    return drawn, count(case, reports_of(case)), "", shown(case)


def judged_and_said(keep: Path | None, broker: str | None, drawn: Drawn) -> Outcome:
    outcome = judged(keep, broker, drawn)
    _say(outcome)
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.judge.real", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--cases", type=int, default=60, help="how many cases")
    parser.add_argument("--jobs", type=int, default=6, help="how many side by side: they wait most of the time")
    parser.add_argument("--mode", type=Mode, choices=list(Mode), default=Mode.STANDALONE, help="what Muster is")
    parser.add_argument("--family", type=Family, choices=list(Family), default=None)
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), default=None)
    parser.add_argument("--keep", type=Path, default=None, metavar="FOLDER", help="keep logs and diaries here")
    parser.add_argument("--each", action="store_true", help="each scenario with each family, instead of drawn ones")
    given = parser.parse_args()
    if given.keep is not None and given.keep.exists():
        parser.error(f"{given.keep} is there already")
    if given.each:
        drawn = [draw(given.seed, name, family) for name, family in every(given.scenario, given.family)]
    else:
        drawn = deal(range(given.seed, given.seed + given.cases), given.scenario, given.family)
    try:
        with _broker_behind(given.mode) as broker, ThreadPoolExecutor(given.jobs) as pool:
            outcomes = list(pool.map(partial(judged_and_said, given.keep, broker), drawn))
    except (BrokerFailed, NoBroker) as error:
        print(error, file=sys.stderr)
        return 2
    return _summary(outcomes)


@contextmanager
def _broker_behind(mode: Mode) -> Iterator[str | None]:
    """The address of the broker that all cases share; None if there is none."""
    if mode is Mode.STANDALONE:
        yield None
        return
    with running_broker() as broker:
        asyncio.run(until_coordinated(broker.bootstrap))
        yield broker.bootstrap


def every(name: str | None, family: Family | None) -> list[tuple[str, Family]]:
    """Each scenario with each family that it is for."""
    return [
        (scenario.name, each)
        for scenario in SCENARIOS.values()
        for each in scenario.wanted.families
        if name in (None, scenario.name) and family in (None, each)
    ]


def _say(outcome: Outcome) -> None:
    drawn, verdicts, left_out, text = outcome
    failed = failures(verdicts)
    message = f"left out: {left_out}" if left_out else "; ".join(map(described, failed)) or "right"
    line = f"{drawn.seed:>5} {drawn.family:<13} {drawn.scenario.name:<32} {message}"
    print(f"{line}\n{text}" if failed else line, flush=True)  # immediately: other processes print, too


def _summary(outcomes: list[Outcome]) -> int:
    verdicts: list[Judged] = [(drawn.family, verdict) for drawn, reported, _, _ in outcomes for verdict in reported]
    left_out = [(drawn, why) for drawn, _, why, _ in outcomes if why]
    print(table([verdict for _, verdict in verdicts]), by_family(verdicts), sep="\n\n")
    print(f"\n{len(outcomes) - len(left_out)} of {len(outcomes)} cases counted, {len(left_out)} left out")
    for drawn, why in left_out:
        print(f"  left out: seed {drawn.seed} ({drawn.scenario.name}, {drawn.family}): {why}")
    missed = missed_goals(verdicts)
    print(*missed, sep="\n", end="\n" if missed else "")
    return int(bool(missed) or any(why.startswith(GENERATOR_FAILED) for _, why in left_out))


if __name__ == "__main__":
    sys.exit(main())
