"""A copy of the tree, in which one mutant after another is tried: whether a test fails with it.

How it works: `muster` is imported from the copy, since `PYTHONPATH` comes before what is installed. Compiled files stay
for all but the mutant's. The tests that have the file's name run first, and the first failure is enough.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from tests.mutants.areas import Area
from tests.mutants.making import Mutant

COPIED: Final = (
    "src", "coordinator", "events", "replay", "schemas", "tests", "benchmarks", "demo", "docs",
    "conftest.py", "pyproject.toml", "README.md", "CHANGELOG.md", "Makefile",
)  # fmt: skip
PYTEST: Final = (
    "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--timeout=120",
    "-m", "not broker and not clients and not spark",
)  # fmt: skip
NO_TESTS = 5


class Verdict(StrEnum):
    """The fate of a mutant."""

    NOTICED = "noticed"
    TOO_LONG = "too long"
    UNNOTICED = "unnoticed"


class Trial:
    """One copy; one mutant at a time."""

    def __init__(self, root: Path, directory: Path, *, limit_s: float) -> None:
        self._directory = directory
        self._limit_s = limit_s
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, directory / name, symlinks=True)
            else:
                shutil.copy2(root / name, directory / name)

    def of(self, mutant: Mutant, area: Area) -> Verdict:
        """Run the tests of the area on it."""
        file = self._directory / mutant.path
        original = file.read_text(encoding="utf-8")
        try:
            self._write(file, mutant.text)
            return self._verdict(self._tests_for(mutant.path, area))
        finally:
            self._write(file, original)

    def passes(self, area: Area) -> bool:
        """Whether the tests of an area pass as they are; else all mutants would seem to be noticed."""
        return self._verdict(area.tests) is Verdict.UNNOTICED

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text, encoding="utf-8")
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()  # it goes by the second of the last change, and by size

    def _tests_for(self, path: Path, area: Area) -> Sequence[str]:
        own = [
            str(test.relative_to(self._directory))
            for folder in area.tests
            for test in sorted((self._directory / folder).rglob(f"test_{path.stem}*.py"))
        ]
        return (*own, *area.tests)

    def _verdict(self, tests: Sequence[str]) -> Verdict:
        variables = {"PYTHONPATH": str(self._directory / "src"), "HYPOTHESIS_PROFILE": "quick"}
        with subprocess.Popen(
            [sys.executable, *PYTEST, *tests],
            cwd=self._directory,
            env={**os.environ, **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        ) as running:
            try:
                code = running.wait(timeout=self._limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, 9)
                return Verdict.TOO_LONG
        assert code != NO_TESTS, f"no tests in {tests}"
        return Verdict.NOTICED if code else Verdict.UNNOTICED
