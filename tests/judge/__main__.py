"""`python -m tests.judge --teller MODULE:FUNCTION [--seeds N] [--page FILE]`, `python -m tests.judge show SEED`.

The first plays cases, has the teller report their incidents, and prints the score, with the first failures and their
seeds; exit code 1 if a goal is missed. `--teller truth` repeats the ground truth; `--page` writes the score into a
page. The second prints what was done in a case and its ground truth.
"""

import argparse
import sys
from collections.abc import Iterable
from functools import partial
from multiprocessing import Pool
from pathlib import Path

from tests.judge.case import HELD_OUT_FROM, WORK_SEEDS, Case, make_case
from tests.judge.count import Verdict, count
from tests.judge.showing import shown
from tests.judge.table import described, failures, markdown, misses, table
from tests.judge.tellers import repeated
from tests.judge.telling import teller_named

TRUTH = "truth"
CHUNK = 20
TABLE_BEGIN, TABLE_END = "<!-- judge -->", "<!-- /judge -->"


def judged(teller: str, kind: str | None, seed: int) -> list[Verdict]:
    """Return the verdicts on a case; none if it is not of the requested kind or scenario."""
    case = make_case(seed)
    if kind is not None and not is_of(case, kind):
        return []
    tellings = repeated(case) if teller == TRUTH else teller_named(teller)(case.history, case.until_ms)
    return count(case, tellings)


def is_of(case: Case, kind: str) -> bool:
    return kind == case.scenario or any(kind in truth.kinds for truth in case.truths)


def all_judged(teller: str, kind: str | None, seeds: Iterable[int], jobs: int) -> list[Verdict]:
    judge = partial(judged, teller, kind)
    if jobs == 1:
        return [each for seed in seeds for each in judge(seed)]
    with Pool(jobs) as pool:
        return [each for verdicts in pool.imap(judge, seeds, chunksize=CHUNK) for each in verdicts]


def with_table(page: str, reported: str) -> str:
    """The page with this table in its place."""
    before, begin, rest = page.partition(TABLE_BEGIN)
    _, end, after = rest.partition(TABLE_END)
    assert begin
    assert end
    return f"{before}{begin}\n{reported}\n{end}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.judge", description=__doc__)
    parser.add_argument("show", nargs="*", help="show SEED: what was done, and the truth")
    parser.add_argument("--teller", default=TRUTH, metavar="MODULE:FUNCTION", help="who tells; default: the truth")
    parser.add_argument("--seeds", type=int, default=len(WORK_SEEDS), help="how many cases")
    parser.add_argument(
        "--from",
        dest="first",
        type=int,
        default=0,
        metavar="SEED",
        help=f"the first of them; those from {HELD_OUT_FROM} on are held out",
    )
    parser.add_argument("--kind", default=None, help="only cases with an incident of this kind, or of this scenario")
    parser.add_argument("--jobs", type=int, default=1, help="processes to share the work")
    parser.add_argument("--failures", type=int, default=10, help="how many to print")
    parser.add_argument("--page", type=Path, default=None, help="write the count into this page, where it has a place")
    given = parser.parse_args()
    if given.show:
        if len(given.show) != 2 or given.show[0] != "show" or not given.show[1].isdigit():
            parser.error("should be: show SEED")
        print(shown(make_case(int(given.show[1]))))
        return 0
    verdicts = all_judged(given.teller, given.kind, range(given.first, given.first + given.seeds), given.jobs)
    print(table(verdicts))
    if given.page is not None:
        given.page.write_text(with_table(given.page.read_text(encoding="utf-8"), markdown(verdicts)), encoding="utf-8")
    for each in failures(verdicts)[: given.failures]:
        print(described(each))
    missed = misses(verdicts)
    print(*missed, sep="\n", end="\n" if missed else "")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
