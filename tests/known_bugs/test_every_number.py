"""No case is missing, and repeated ones have a note."""

import ast
import re
from collections import Counter
from pathlib import Path

NUMBERS = {f"{letter}{n}" for letter, last in (("p", 19), ("s", 20), ("r", 17), ("l", 9)) for n in range(1, last + 1)}
NAME = re.compile(r"test_([psrl]\d+)_\w+")


def numbered_tests() -> list[tuple[str, str]]:
    """The number in each test's name, and its docstring."""
    modules = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    return [
        (named[1], ast.get_docstring(node) or "")
        for module in modules
        for node in ast.parse(module).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (named := NAME.fullmatch(node.name))
    ]


def test_every_number_has_a_test_of_its_bug() -> None:
    tests = numbered_tests()
    assert Counter(number for number, _ in tests).keys() == NUMBERS
    assert [number for number, reported in tests if not reported] == []
