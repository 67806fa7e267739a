"""Docstrings say what a thing is or does: none begins with a bare What, Who, Of or By. Class names are unique."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOPS = sorted(
    path.name
    for path in ROOT.iterdir()
    if path.suffix == ".py" or (path.is_dir() and not path.name.startswith((".", "build")) and any(path.rglob("*.py")))
)

TWICE = {"Groups", "Owner", "Partition"}
"""Names that denote one thing in the coordinator, and its result in `replay groups`."""

RIDDLE = re.compile(r"(What|Who|Whom|Whose|Of|By)\b")


@pytest.mark.parametrize("top", TOPS)
def test_docstrings_begin_with_what_a_thing_is_or_does(top: str) -> None:
    """Those of modules, classes, functions, constants and fields."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT.glob(top) if top.endswith(".py") else (ROOT / top).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and RIDDLE.match(node.value.value)
    ]
    assert found == []


def test_no_two_classes_have_one_name() -> None:
    """A name that is grepped for is found once. Names with an underscore are their module's own."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for top in ("coordinator", "events", "replay", "src/muster"):
        for path in (ROOT / top).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in found.items() if len(places) > 1 and name not in TWICE} == {}
