"""`python -m tests.clients.endings [--family java] [--act KILL] [--way direct] [--jobs 3] [--write]`.

Performs each act on a real client of each family, dynamic and static, and reports what the coordinator sees. `--write`:
into `recorded.json`, and into the tables of `docs/clients.md`. Without options it takes some 15 minutes. Exit code 1 if
a trial failed, 0 even if something is not available here, which is reported.
"""

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from tests.brokers.jars import JarsMissing
from tests.clients.endings.acts import NotAMember, watch
from tests.clients.endings.facts import Fact, fact_of
from tests.clients.endings.given import PROXIED_ACTS, PROXIED_FAMILIES, Act, Family, Trial, Way
from tests.clients.endings.page import PAGE, written
from tests.clients.endings.places import Place, PlaceMissing, place
from tests.clients.endings.process import ClientEnded
from tests.clients.endings.programs import command_of, version_of
from tests.clients.endings.recorded import read_facts, write_facts
from tests.clients.foreign.programs import BuildFailed, ToolMissing

FAILURES = (NotAMember, ClientEnded, BuildFailed, TimeoutError)


def trials(families: list[Family], acts: list[Act], ways: list[Way]) -> Iterator[Trial]:
    for way in ways:
        for family in families:
            for act in acts:
                is_wanted = (
                    act is not Act.PROXY_KILL
                    if way is Way.DIRECT
                    else act in PROXIED_ACTS and family in PROXIED_FAMILIES
                )
                if is_wanted and family in act.families:
                    for is_static in (False, True):
                        yield Trial(family=family, act=act, is_static=is_static, way=way)


class Places:
    """The places of a run: a place that an act changes belongs to one trial, the others are shared."""

    def __init__(self, folder: Path, stack: ExitStack, wanted: list[Trial]) -> None:
        self._folder = folder
        ways = {each.way for each in wanted if not self._spoils(each)}
        self._shared: dict[Way, Place] = {}
        for way in sorted(ways):
            own = folder / f"shared-{way}"
            own.mkdir()
            self._shared[way] = stack.enter_context(place(way, own))

    def fact(self, trial: Trial) -> Fact:
        folder = self._folder / trial.name
        folder.mkdir()
        if not self._spoils(trial):
            return fact_of(watch(trial, self._shared[trial.way], folder), version_of(trial.family))
        with place(trial.way, folder, can_be_cut=trial.act is Act.CUT) as own:
            return fact_of(watch(trial, own, folder), version_of(trial.family))

    @staticmethod
    def _spoils(trial: Trial) -> bool:
        return trial.act in {Act.CUT, Act.PROXY_KILL}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.endings", description=__doc__)
    parser.add_argument("--family", type=Family, choices=list(Family), action="append")
    parser.add_argument("--act", choices=[act.name for act in Act], action="append")
    parser.add_argument("--way", type=Way, choices=list(Way), action="append")
    parser.add_argument("--jobs", type=int, default=3, help="how many side by side: they wait most of the time")
    parser.add_argument("--write", action="store_true", help="write what was found down, and the page")
    given = parser.parse_args()
    acts = [Act[name] for name in given.act] if given.act else list(Act)
    families = [each for each in given.family or list(Family) if _can_run(each)]
    wanted = list(trials(families, acts, given.way or list(Way)))
    with TemporaryDirectory(prefix="endings-") as name, ExitStack() as stack, ThreadPoolExecutor(given.jobs) as pool:
        places = Places(Path(name), stack, wanted)
        outcomes = list(pool.map(lambda trial: _done(places, trial), wanted))
    found = [each for each in outcomes if each is not None]
    if given.write:
        write_facts(found)
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), read_facts()), encoding="utf-8")
    print(f"{len(found)} of {len(wanted)} trials done")
    return int(len(found) < len(wanted))


def _can_run(family: Family) -> bool:
    """Return whether it is available here; builds it."""
    try:
        command_of(family)
    except (ToolMissing, JarsMissing) as error:
        print(error, file=sys.stderr)
        return False
    return True


def _done(places: Places, trial: Trial) -> Fact | None:
    try:
        fact = places.fact(trial)
    except PlaceMissing as error:
        print(f"{trial.name}: {error}", file=sys.stderr)
        return None
    except FAILURES as error:
        print(f"{trial.name} FAILED: {error}", file=sys.stderr)
        return None
    print(msgspec.json.encode(fact).decode(), flush=True)  # in one call: others print, too
    return fact


if __name__ == "__main__":
    sys.exit(main())
