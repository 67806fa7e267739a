"""`python -m tests.mutants`: tries a sample of mutants, prints those that no test notices, and the share by area."""

import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Annotated, Final

import typer

from tests.mutants.areas import AREAS, Area
from tests.mutants.covering import Covering
from tests.mutants.making import MutableFile, Mutant
from tests.mutants.trial import WITH_BROKER, NoTests, Trial, Verdict

ROOT: Final = Path(__file__).parents[2]
EQUIVALENT: Final = Path(__file__).with_name("equivalent.txt")
Tried = tuple[Area, Mutant, Verdict]
UNNOTICED: Final = {Verdict.UNNOTICED, Verdict.NOT_COVERED}
NOTICED: Final = {Verdict.NOTICED, Verdict.TOO_LONG}


def main(
    areas: Annotated[list[str] | None, typer.Argument(help="Some of them; all unless named.")] = None,
    share: Annotated[float, typer.Option(help="The part of a whole sample that is tried.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Another seed, another sample.")] = 11,
    jobs: Annotated[int, typer.Option(help="How many are tried side by side.")] = 2,
    brokers: Annotated[bool, typer.Option(help="Try what is not noticed with the tests that need a broker.")] = True,
) -> None:
    """Try a sample; exit code 1 when an area is under its goal, 2 when its tests fail as they are, or are not there."""
    chosen = [area for area in AREAS if not areas or area.name in areas]
    todo = sample(chosen, share=share, seed=seed)
    print(f"{len(todo)} mutants, seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, _end)
    with ExitStack() as ending:
        scratch = ending.enter_context(tempfile.TemporaryDirectory(prefix="muster-mutants-"))
        pool = ending.enter_context(ThreadPoolExecutor(jobs))  # ends after the trials, which its threads wait for
        trials: SimpleQueue[Trial] = SimpleQueue()
        for number in range(jobs):
            directory = Path(scratch) / str(number)
            directory.mkdir()
            trials.put(ending.enter_context(closing(Trial(ROOT, directory))))
        try:
            covering = _covering(trials, chosen)
            tried = list(pool.map(lambda each: _tried(trials, covering[each[0].name], *each), todo))
            if brokers and any(verdict in UNNOTICED for _, _, verdict in tried):
                tried = _tried_with_brokers(trials, pool, tried)
        except NoTests as error:
            print(f"nothing can be said of the mutants: {error}")
            sys.exit(2)
    sys.exit(0 if _report(chosen, tried) else 1)


def sample(areas: Sequence[Area], *, share: float, seed: int) -> list[tuple[Area, Mutant]]:
    """The same for the same code, whichever areas are asked for: a share of each one's, without equivalent ones."""
    equivalent = equivalent_mutants(EQUIVALENT.read_text(encoding="utf-8"))
    taken: list[tuple[Area, Mutant]] = []
    for area in areas:
        paths = sorted(file.relative_to(ROOT) for folder in area.code for file in (ROOT / folder).rglob("*.py"))
        files = [MutableFile(ROOT, path) for path in paths if not any(map(path.is_relative_to, area.but))]
        places = [(file, number) for file in files for number in range(len(file))]
        random.Random(f"{seed} {area.name}").shuffle(places)
        mutants = (file.mutant(number) for file, number in places)
        wanted = (mutant for mutant in mutants if mutant is not None and mutant.name not in equivalent)
        taken += ((area, mutant) for mutant in islice(wanted, round(share * area.mutants)))
    return taken


def equivalent_mutants(text: str) -> dict[str, str]:
    """The name and the reason of each: a name is a line, and below it, set in, is the reason."""
    named: dict[str, str] = {}
    lines = text.splitlines()
    for line, reason in zip(lines[::2], lines[1::2], strict=True):
        assert reason.startswith("    "), reason
        named[line] = reason.strip()
    return named


def _end(number: int, _: FrameType | None) -> None:
    """Leave through `with`, so that no copy stays behind."""
    sys.exit(128 + number)


def _covering(trials: SimpleQueue[Trial], areas: Sequence[Area]) -> dict[str, Covering]:
    trial = trials.get()
    of_each: dict[str, Covering] = {}
    for area in areas:
        found = trial.covering(area)
        if found is None:
            print(f"the tests of {area.name} do not pass as they are")
            sys.exit(2)
        of_each[area.name] = found
    trials.put(trial)
    return of_each


def _tried(trials: SimpleQueue[Trial], covering: Covering, area: Area, mutant: Mutant) -> Tried:
    trial = trials.get()
    try:
        portions = covering.portions(mutant, trial.stage.tests_s)
        in_a_process = not portions and trial.stage is WITH_BROKER  # one that a test starts, maybe
        verdict = trial.of(mutant, *([area.tests] if in_a_process else portions))
    finally:
        trials.put(trial)
    if verdict not in NOTICED:
        print(f"\n{verdict}: {mutant.path}:{mutant.line}\n{mutant.diff}", flush=True)
    return area, mutant, verdict


def _tried_with_brokers(trials: SimpleQueue[Trial], pool: ThreadPoolExecutor, tried: Sequence[Tried]) -> list[Tried]:
    """Try the unnoticed ones again: a broker's start takes longer than most of the other trials."""
    left = [(area, mutant) for area, mutant, verdict in tried if verdict in UNNOTICED]
    print(f"\n{len(left)} of them again, with a broker", flush=True)
    for trial in [trials.get() for _ in range(trials.qsize())]:
        trial.stage = WITH_BROKER
        trials.put(trial)
    covering = _covering(trials, list(dict.fromkeys(area for area, _ in left)))
    again = pool.map(lambda each: _tried(trials, covering[each[0].name], *each), left)
    settled = [each for each in tried if each[2] not in UNNOTICED]
    return settled + [
        (area, mutant, Verdict.WITH_BROKER if verdict in NOTICED else verdict) for area, mutant, verdict in again
    ]


def _report(areas: Sequence[Area], tried: Sequence[Tried]) -> bool:
    """Print the share of each area; whether all have reached their goals."""
    reached = True
    print()
    for area in areas:
        verdicts = Counter(verdict for each, _, verdict in tried if each is area)
        with_broker = verdicts[Verdict.WITH_BROKER]
        noticed = sum(verdicts[each] for each in NOTICED) + with_broker
        share = noticed / max(1, verdicts.total())
        reached = reached and share >= area.goal
        these = f", {with_broker} of them with a broker alone" if with_broker else ""
        print(f"{area.name:10} {noticed:4} of {verdicts.total():4} noticed ({share:.0%}, goal {area.goal:.0%}){these}")
    return reached


if __name__ == "__main__":
    typer.run(main)
