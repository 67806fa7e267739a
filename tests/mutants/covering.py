"""Which tests come by a mutant: only those can notice it, and they are few.

What belongs here: reading what coverage has recorded, by test. How it works: a line is taken with all others of its
statement. What runs while a module is imported (a constant, a default) is looked at by all tests that come by the file;
and where they do not notice, by all there are: a table of such constants may be all that a test looks at.
What is not ideal: a test that starts a process of its own comes by nothing, and a fixture of many tests only for the
first of them; so a mutant that is said to be unnoticed may be noticed by the whole suite, but never the other way.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from coverage import CoverageData

from tests.mutants.making import Mutant


class Covering:
    """`directory` is the tree that the tests ran in, `recorded` the file that coverage has written."""

    def __init__(self, directory: Path, recorded: Path) -> None:
        self._directory = directory
        self._data = CoverageData(str(recorded))
        self._data.read()
        measured = map(Path, self._data.measured_files())
        files = [file for file in measured if file.suffix == ".py"]  # a page's template runs, too, under its own name
        self._statements = {file: list(_statements(ast.parse(file.read_text(encoding="utf-8")))) for file in files}

    def tests_for(self, mutant: Mutant) -> Sequence[str]:
        """The names of the tests, those of the file's own module first."""
        contexts = self._contexts(mutant)
        if "" in contexts:  # the module's import
            contexts = {context for each in self._by_line(mutant).values() for context in each}
        names = {context.rpartition("|")[0] for context in contexts} - {""}
        own = f"/test_{mutant.path.stem}"
        return sorted(names, key=lambda name: (own not in name, name))

    def runs_at_import(self, mutant: Mutant) -> bool:
        """Whether its line runs when the module is imported: then any test may notice it."""
        return "" in self._contexts(mutant)

    def _contexts(self, mutant: Mutant) -> set[str]:
        """The tests that come by its statement; "" is an import."""
        by_line = self._by_line(mutant)
        statements = self._statements.get(self._directory / mutant.path, ())
        around = [lines for lines in statements if mutant.line in lines]
        return {context for line in min(around, key=len, default=()) for context in by_line.get(line, ())}

    def _by_line(self, mutant: Mutant) -> dict[int, list[str]]:
        return self._data.contexts_by_lineno(str(self._directory / mutant.path))


def _statements(module: ast.Module) -> Iterator[range]:
    """The lines of each; of a compound one its head alone."""
    for node in ast.walk(module):
        if isinstance(node, ast.stmt):
            body: list[ast.stmt] = getattr(node, "body", [])
            last = node.end_lineno or node.lineno
            yield range(node.lineno, max(node.lineno, body[0].lineno - 1 if body else last) + 1)
