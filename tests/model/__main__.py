"""`python -m tests.model`: explores for as long as allowed, and reports what it found. Exit code 1 after a
violation.
"""

import argparse
import sys

from tests.model.scopes import SCOPES
from tests.model.search import Report, Search


def text_of(report: Report) -> str:
    """Return the report as text."""
    rate = report.transitions / max(report.seconds, 0.001)
    whole = ", which is all there is" if report.is_all else ""
    size = f"{report.states} states, {report.transitions} transitions, complete to depth {report.depth}{whole}"
    lines = [
        f"{size}, {report.seconds:.1f} s ({rate:.0f} transitions/s)",
        f"new states at each depth: {' '.join(map(str, report.levels))}",
    ]
    if report.violation is not None:
        lines.append(report.violation.text)
        lines.extend(f"  {number}. {words}" for number, words in enumerate(report.violation.trace, start=1))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("scopes", nargs="*", metavar="SCOPE", help=f"default: all of {', '.join(SCOPES)}")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long, for each scope")
    parser.add_argument("--depth", type=int, default=None, help="how many steps from the ordinary ways at most")
    parser.add_argument("--jobs", type=int, default=1, help="processes to share the work")
    given = parser.parse_args()
    unknown = [name for name in given.scopes if name not in SCOPES]
    if unknown:
        parser.error(f"{unknown[0]!r} is none of {', '.join(SCOPES)}")
    failed = False
    for name in given.scopes or SCOPES:
        report = Search(SCOPES[name], jobs=given.jobs).run(depth=given.depth, seconds=given.seconds)
        print(f"{name}: {text_of(report)}", flush=True)
        failed = failed or report.violation is not None
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
