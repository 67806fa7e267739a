"""Which tests execute a mutant, and in which order they run: only those can notice it.

Reads what coverage has recorded by test, and how long each test took. A line counts with all others of its statement.
Code that runs while a module is imported (a constant, a default, and what a test module does with the code) is checked
by all tests that execute the file, and if those do not notice, by all tests: they may check nothing but a table of such
constants. The tests of the file's own module run first, then those of its folder, quick ones before slow ones: most
mutants are noticed within the first seconds. A line that each command runs may be executed by hundreds of tests; those
that would take too long are not run.

The limits: a test that starts its own process executes nothing here, and a fixture shared by several tests counts only
for the first of them; so the whole suite may notice a mutant that is reported as unnoticed, but never the reverse.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Final

from coverage import CoverageData

from tests.mutants.making import Mutant

NEAREST_S: Final = 4.0


class Covering:
    """`directory` is the tree that the tests ran in, `recorded` the file that coverage has written.

    `seconds`: how long each test took while it was recorded, about twice of what it takes otherwise.
    """

    def __init__(self, directory: Path, recorded: Path, seconds: Mapping[str, float]) -> None:
        self._directory = directory
        self._seconds = seconds
        self._data = CoverageData(str(recorded))
        self._data.read()
        measured = map(Path, self._data.measured_files())
        files = [file for file in measured if file.suffix == ".py"]  # a page's template runs, too, under its own name
        self._statements = {file: list(_statements(ast.parse(file.read_text(encoding="utf-8")))) for file in files}

    def portions(self, mutant: Mutant, limit_s: float) -> Sequence[Sequence[str]]:
        """Yield its tests: first a few seconds of them, then the rest within the limit."""
        tests = self.tests_for(mutant)
        taken = list(accumulate(self._seconds.get(test, 0.0) for test in tests))
        few, many = (sum(each <= limit for each in taken) for limit in (NEAREST_S, limit_s))
        few = max(few, 1)  # the first one, however slow
        return [by_file(part) for part in (tests[:few], tests[few:many]) if part]

    def tests_for(self, mutant: Mutant) -> Sequence[str]:
        """The names of the tests, the nearest first, the quick ones of those before the slow ones."""
        contexts = self._contexts(mutant)
        own = _names(contexts)
        if "" not in contexts:
            return self._nearest_first(mutant, own)
        of_file = _names(context for each in self._by_line(mutant).values() for context in each) - own
        others = self._seconds.keys() - own - of_file
        return [test for part in (own, of_file, others) for test in self._nearest_first(mutant, part)]

    def _nearest_first(self, mutant: Mutant, names: Iterable[str]) -> list[str]:
        own = f"/test_{mutant.path.stem}"
        return sorted(
            names,
            key=lambda name: (own not in name, -_nearness(mutant, name), self._seconds.get(name, 0.0), name),
        )

    def _contexts(self, mutant: Mutant) -> set[str]:
        """The tests that come by its statement; "" is an import."""
        by_line = self._by_line(mutant)
        statements = self._statements.get(self._directory / mutant.path, ())
        around = [lines for lines in statements if mutant.line in lines]
        return {context for line in min(around, key=len, default=()) for context in by_line.get(line, ())}

    def _by_line(self, mutant: Mutant) -> dict[int, list[str]]:
        return self._data.contexts_by_lineno(str(self._directory / mutant.path))


def by_file(tests: Iterable[str]) -> Sequence[str]:
    """Those of a file one after another, in the order of the first of each: so its fixtures are made once."""
    files: dict[str, list[str]] = {}
    for test in tests:
        files.setdefault(test.partition("::")[0], []).append(test)
    return [test for each in files.values() for test in each]


def _names(contexts: Iterable[str]) -> set[str]:
    """Return the tests' names: a context also says whether it is the test or its fixtures."""
    return {context.rpartition("|")[0] for context in contexts} - {""}


def _nearness(mutant: Mutant, test: str) -> int:
    """How many folders are the same: the tests' folders mirror those of the code."""
    folders = zip(mutant.path.parts[:-1], Path(test.partition("::")[0]).parts[1:-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], folders))


def _statements(module: ast.Module) -> Iterator[range]:
    """The lines of each; of a compound one its head alone."""
    for node in ast.walk(module):
        if isinstance(node, ast.stmt):
            body: list[ast.stmt] = getattr(node, "body", [])
            last = node.end_lineno or node.lineno
            yield range(node.lineno, max(node.lineno, body[0].lineno - 1 if body else last) + 1)
