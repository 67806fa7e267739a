"""A copy of the tree in which one mutant after another is tried: does a test fail with it?

`muster` is imported from the copy, since `PYTHONPATH` comes before installed packages. Compiled files stay for all but
the mutant's. One failure is enough. If it is a timeout, the machine may have been overloaded: the same test is run
without the mutant, and must pass. With a broker there are more such reasons, so there every failure is checked like
this. A missing test would notice nothing, so it ends the tool (`NoTests`).
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from tests.mutants.areas import Area
from tests.mutants.covering import Covering
from tests.mutants.making import Mutant
from tests.mutants.running import LATE

COPIED: Final = (
    "src", "coordinator", "events", "replay", "schemas", "tests", "benchmarks", "demo", "docs",
    "conftest.py", "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile",
)  # fmt: skip
PYTEST: Final = ("-q", "-x", "--hypothesis-seed=0")
DURATIONS: Final = ("--durations=0", "--durations-min=0")
DURATION: Final = re.compile(r"^([0-9.]+)s (?:setup|call|teardown) +(.+)$", re.MULTILINE)
LAST_FAILED: Final = "--last-failed"
UNKNOWN_TESTS = 4
NO_TESTS = 5
TRIES_MAX = 3
RUNNING: Final = Path(__file__).with_name("running.py")
COVERING_LIMIT_S: Final = 3_600.0


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Which tests are run, by pytest's marks, and the limits of one and of all.

    `tests_s`: how many seconds of tests are run on a mutant, by what they took while coverage recorded them.
    `all_doubted`: brokers fail. `may_be_none`: not all code has tests that need one.
    """

    marked: str
    test_limit_s: int
    limit_s: float
    tests_s: float
    all_doubted: bool
    may_be_none: bool


WITHOUT_BROKER: Final = Stage(
    marked="not broker and not clients and not spark",
    test_limit_s=60,
    limit_s=300,
    tests_s=100,
    all_doubted=False,
    may_be_none=False,
)
WITH_BROKER: Final = Stage(
    marked="(broker or clients) and not spark",
    test_limit_s=240,
    limit_s=1_200,
    tests_s=600,
    all_doubted=True,
    may_be_none=True,
)


class Verdict(StrEnum):
    """The fate of a mutant."""

    NOTICED = "noticed"
    WITH_BROKER = "noticed with a broker"
    TOO_LONG = "too long"
    UNNOTICED = "unnoticed"
    NOT_COVERED = "no test comes by"
    UNCLEAR = "unclear"


class NoTests(Exception):
    """Requested tests do not exist: the caller named them wrongly, whatever the mutant."""


class Trial:
    """One copy; one mutant at a time. `stage` may be changed between two of them."""

    def __init__(self, root: Path, directory: Path, stage: Stage = WITHOUT_BROKER) -> None:
        self.stage = stage
        self._directory = directory
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, directory / name, symlinks=True)
            else:
                shutil.copy2(root / name, directory / name)
        variables = {
            "PYTHONPATH": f"{directory / 'src'}{os.pathsep}{directory}",
            "HYPOTHESIS_PROFILE": "quick",
            "MUSTER_TEST_NO_BROWSER": "1",  # a script in a page has no mutants
        }
        self._running = subprocess.Popen(
            [sys.executable, "-P", RUNNING],
            cwd=directory,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def covering(self, area: Area) -> Covering | None:
        """Which of its tests come by which lines; None if they fail as they are, and would notice all.

        Where each failure is doubted, one that fails now and then notices nothing. Raises NoTests.
        """
        recorded = self._directory / f"covering-{area.name}"
        recorded.unlink(missing_ok=True)  # of the stage before
        settings = self._directory / "covering.ini"
        settings.write_text(f"[run]\ndata_file = {recorded}\n", encoding="utf-8")
        folders = [f"--cov={folder}" for folder in area.code]
        options = ("--cov-context=test", "--cov-report=", f"--cov-config={settings}", "--maxfail=10", *DURATIONS)
        all_passed = self._run(COVERING_LIMIT_S, *folders, *options, *area.tests)[0] is Verdict.UNNOTICED
        seconds = seconds_by_test(self._printed)
        if all_passed or self.stage.all_doubted:
            return Covering(self._directory, recorded, seconds)
        if self._run(COVERING_LIMIT_S, LAST_FAILED, *area.tests)[0] is Verdict.UNNOTICED:
            return Covering(self._directory, recorded, seconds)
        print(self._printed)
        return None

    def of(self, mutant: Mutant, *portions: Sequence[str]) -> Verdict:
        """Run the first tests on it, and the others where those notice nothing. Raises NoTests."""
        verdict = Verdict.NOT_COVERED
        for tests in filter(None, portions):
            if verdict not in {Verdict.UNNOTICED, Verdict.NOT_COVERED}:
                break
            verdict = self._of(mutant, tests)
        return verdict

    def _of(self, mutant: Mutant, tests: Sequence[str]) -> Verdict:
        """Run them, again where they run into a time-out and do so without the mutant, too."""
        for _ in range(TRIES_MAX):
            verdict, timed_out = self._with(mutant, tests)
            is_notice = verdict in {Verdict.NOTICED, Verdict.TOO_LONG}
            doubted = is_notice and (timed_out or self.stage.all_doubted)
            if not doubted or self._passes_without(verdict, tests):
                return verdict
        return Verdict.UNCLEAR

    def _with(self, mutant: Mutant, tests: Sequence[str]) -> tuple[Verdict, bool]:
        file = self._directory / mutant.path
        original = file.read_text(encoding="utf-8")
        try:
            self._write(file, mutant.text)
            return self._run(self.stage.limit_s, "--cache-clear", self._test_limit, *tests)
        finally:
            self._write(file, original)

    def _passes_without(self, verdict: Verdict, tests: Sequence[str]) -> bool:
        """Return whether the failure disappears without the mutant: of the test that failed, or of all within the
        limit.
        """
        only = () if verdict is Verdict.TOO_LONG else (LAST_FAILED,)
        return self._run(self.stage.limit_s, *only, self._test_limit, *tests)[0] is Verdict.UNNOTICED

    @property
    def _test_limit(self) -> str:
        return f"--timeout={self.stage.test_limit_s}"

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text, encoding="utf-8")
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()  # it goes by the second of the last change, and by size

    def _run(self, limit_s: float, *arguments: str) -> tuple[Verdict, bool]:
        """Return the tests' verdict, and whether it may have a reason other than the mutant, such as a timeout. Raises
        NoTests.
        """
        code, printed = self._pytest(limit_s, arguments)
        if code == UNKNOWN_TESTS:  # the mutant is in their names, or in the way of their module's import
            whole = list(dict.fromkeys(each.partition("::")[0] for each in arguments))
            absent = [each for each in whole if not each.startswith("-") and not (self._directory / each).exists()]
            if absent:
                raise NoTests(f"no such tests: {', '.join(absent)}")
            code, printed = self._pytest(limit_s, whole)
        if code is None:
            return Verdict.TOO_LONG, True
        if code == NO_TESTS:
            if not self.stage.may_be_none:
                raise NoTests(f"no test that is {self.stage.marked} in: {' '.join(arguments)}")
            return Verdict.NOT_COVERED, False
        # What pytest cannot begin with may be a conftest, which the mutant harms.
        return Verdict.NOTICED if code else Verdict.UNNOTICED, b"Timeout" in printed or code == UNKNOWN_TESTS

    def _pytest(self, limit_s: float, arguments: Sequence[str]) -> tuple[int | None, bytes]:
        """Its exit code, None if it took too long, and what it printed."""
        (self._directory / "arguments.txt").write_text(
            "\n".join([*PYTEST, "-m", self.stage.marked, *arguments]), encoding="utf-8"
        )
        assert self._running.stdin is not None
        assert self._running.stdout is not None
        self._running.stdin.write(f"{self._directory} {limit_s}\n")
        self._running.stdin.flush()
        code = self._running.stdout.readline().strip()
        assert code, "the process that runs pytest has ended"
        return None if code == LATE else int(code), (self._directory / "printed.txt").read_bytes()

    @property
    def _printed(self) -> str:
        return (self._directory / "printed.txt").read_text(encoding="utf-8")

    def close(self) -> None:
        """End the process that runs pytest, and the run that it is in."""
        self._running.terminate()
        self._running.communicate()


def seconds_by_test(printed: str) -> Mapping[str, float]:
    """How long each test took, with its fixtures, by what pytest has printed of durations."""
    seconds: dict[str, float] = {}
    for taken, name in DURATION.findall(printed):
        seconds[name] = seconds.get(name, 0.0) + float(taken)
    return seconds
