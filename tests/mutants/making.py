"""All mutants of a file: the text with one node replaced, for each node that an operator knows something about."""

import ast
import difflib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import libcst as cst
import msgspec
from mutmut.mutation import mutators
from mutmut.mutation.file_mutation import deep_replace


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """`text` is the whole file's; the `nth` of those in the file that change equal lines alike."""

    path: Path
    line: int
    nth: int
    text: str
    diff: str

    @property
    def name(self) -> str:
        """The lines that it removes and adds, stripped: this name stays the same if they move within the file."""
        changed = [line[0] + line[1:].strip() for line in self.diff.splitlines() if line[:1] in {"-", "+"}]
        return f"{self.path}{f'#{self.nth}' if self.nth > 1 else ''}: {' '.join(changed)}"


def call_left_out(node: cst.Expr) -> Iterable[cst.CSTNode]:
    """A statement that is a call does nothing."""
    value = node.value.expression if isinstance(node.value, cst.Await) else node.value
    if isinstance(value, cst.Call):
        yield cst.Pass()


def condition_turned_round(node: cst.If | cst.CompIf) -> Iterable[cst.CSTNode]:
    """The other branch, where nothing else of the condition is changed by the operators."""
    if isinstance(node.test, cst.Name | cst.Attribute | cst.Call):
        negated = cst.UnaryOperation(operator=cst.Not(), expression=node.test)
        yield node.with_changes(test=negated, whitespace_before_test=cst.SimpleWhitespace(" "))


def larger_number(node: cst.Integer | cst.Float) -> Iterable[cst.CSTNode]:
    """Add one to a small number; multiply a larger one, such as a limit, by 1,000, so that it has no effect."""
    value = node.evaluated_value
    yield node.with_changes(value=repr(value + 1 if value < 10 else value * 1_000))


OPERATORS: Final[tuple[tuple[Any, Callable[[Any], Iterable[cst.CSTNode]]], ...]] = (
    (cst.Integer, larger_number),
    (cst.Float, larger_number),
    (cst.Name, mutators.operator_name),
    (cst.AugAssign, mutators.operator_augmented_assignment),
    (cst.UnaryOperation, mutators.operator_remove_unary_ops),
    (cst.CSTNode, mutators.operator_keywords),
    (cst.CSTNode, mutators.operator_swap_op),
    (cst.Match, mutators.operator_match),
    (cst.IfExp, mutators.operator_if_exp),
    (cst.Expr, call_left_out),
    ((cst.If, cst.CompIf), condition_turned_round),
)
# Nothing comes to the one, and only annotations need what the other imports.
LEFT_TO_MYPY: Final = ("assert_never", "if TYPE_CHECKING")
# Annotations, decorators and assertions.
LEFT_ALONE: Final = (cst.Annotation, cst.Decorator, cst.Assert, cst.Import, cst.ImportFrom, cst.TypeAlias)


def _places(node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
    """The nodes that are changed, each with what comes in its place."""
    if isinstance(node, LEFT_ALONE):
        return
    for kind, operator in OPERATORS:
        if isinstance(node, kind):
            for mutated in operator(node):
                yield node, mutated
    # What else a class is given (frozen, kw_only) is for mypy to notice.
    for child in (node.body,) if isinstance(node, cst.ClassDef) else node.children:
        yield from _places(child)


class MutableFile:
    """The file at `path` below `root`, and the places where an operator can change it, `len` of them."""

    def __init__(self, root: Path, path: Path) -> None:
        self._path = path
        self._text = (root / path).read_text(encoding="utf-8")
        self._lines = [line.strip() for line in self._text.splitlines()]
        self._module = cst.parse_module(self._text)
        self._found = list(_places(self._module))

    def __len__(self) -> int:
        return len(self._found)

    def mutant(self, number: int) -> Mutant | None:
        """The mutant at one of the places. None where nothing changes, or Python cannot read it."""
        changed = deep_replace(self._module, *self._found[number])
        assert isinstance(changed, cst.Module)
        if changed.code == self._text or not _is_python(changed.code):
            return None
        diff = list(difflib.unified_diff(self._text.splitlines(), changed.code.splitlines(), lineterm="", n=0))[2:]
        if any(name in each for name in LEFT_TO_MYPY for each in diff):
            return None
        line = int(diff[0].split()[1].partition(",")[0][1:])
        nth = self._lines[:line].count(self._lines[line - 1])
        return Mutant(path=self._path, line=line, nth=nth, text=changed.code, diff="\n".join(diff[1:]))


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:  # a loop's `break` became a `return`, outside of a function
        return False
    return True
