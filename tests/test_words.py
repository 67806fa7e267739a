"""Docstrings say what a thing is or does: none begins with a bare What, Who, Whom, Whose, Of or By."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "coordinator/admin",
    "coordinator/commands",
    "coordinator/group",
    "coordinator/load",
    "coordinator/net",
    "coordinator/observability",
    "coordinator/offsets",
    "coordinator/runtime",
    "coordinator/settings",
    "coordinator/sidecar",
    "coordinator/standalone",
    "coordinator/upstream",
    "coordinator/wire",
    "demo",
    "events",
    "replay",
    "schemas",
    "src/muster",
    "tests/clients",
    "tests/conformance",
    "tests/coordinator/admin",
    "tests/coordinator/commands",
    "tests/coordinator/group",
    "tests/coordinator/load",
    "tests/coordinator/net",
    "tests/coordinator/observability",
    "tests/coordinator/offsets",
    "tests/coordinator/runtime",
    "tests/coordinator/settings",
    "tests/coordinator/sidecar",
    "tests/coordinator/standalone",
    "tests/coordinator/upstream",
    "tests/coordinator/wire",
    "tests/demo",
    "tests/events",
    "tests/faults",
    "tests/frames",
    "tests/known_bugs",
    "tests/model",
    "tests/mutants",
    "tests/replay",
    "tests/simulation",
)
"""Where it holds already; a folder that has been gone through is added."""

RIDDLE = re.compile(r"(What|Who|Whom|Whose|Of|By)\b")


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_begin_with_what_a_thing_is_or_does(folder: str) -> None:
    """Those of modules, classes, functions, constants and fields."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and RIDDLE.match(node.value.value)
    ]
    assert found == []
