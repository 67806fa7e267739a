"""Which tests come by a mutant: only those can notice it, and they are few.

What belongs here: reading what coverage has recorded, by test. How it works: a line is taken with all others of its
statement. What runs while a module is imported (a constant, a default) is looked at by all tests that come by the file,
and where it has nothing else, by all there are.
What is not ideal: a test that starts a process of its own comes by nothing, and a fixture of many tests only for the
first of them; so a mutant that is said to be unnoticed may be noticed by the whole suite, but never the other way.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from coverage import CoverageData

from tests.mutants.making import Mutant


class Covering:
    """`directory` is the tree that `tests` ran in, `recorded` the file that coverage has written."""

    def __init__(self, directory: Path, recorded: Path, tests: Sequence[str]) -> None:
        self._tests = tests
        self._directory = directory
        self._data = CoverageData(str(recorded))
        self._data.read()
        measured = map(Path, self._data.measured_files())
        files = [file for file in measured if file.suffix == ".py"]  # a page's template runs, too, under its own name
        self._statements = {file: list(_statements(ast.parse(file.read_text(encoding="utf-8")))) for file in files}

    def tests_for(self, mutant: Mutant) -> Sequence[str]:
        """The names of the tests, those of the file's own module first."""
        file = self._directory / mutant.path
        by_line = self._data.contexts_by_lineno(str(file))
        around = [lines for lines in self._statements.get(file, ()) if mutant.line in lines]
        contexts = {context for line in min(around, key=len, default=()) for context in by_line.get(line, ())}
        if "" in contexts:  # the module's import
            contexts = {context for each in by_line.values() for context in each}
            if contexts == {""}:
                return self._tests
        names = {context.rpartition("|")[0] for context in contexts} - {""}
        own = f"/test_{mutant.path.stem}"
        return sorted(names, key=lambda name: (own not in name, name))


def _statements(module: ast.Module) -> Iterator[range]:
    """The lines of each; of a compound one its head alone."""
    for node in ast.walk(module):
        if isinstance(node, ast.stmt):
            body: list[ast.stmt] = getattr(node, "body", [])
            last = node.end_lineno or node.lineno
            yield range(node.lineno, max(node.lineno, body[0].lineno - 1 if body else last) + 1)
