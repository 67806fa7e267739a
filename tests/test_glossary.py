"""The glossary names code that is there, and each word once in each table."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "muster"  # the folders at the top are not in an sdist
PAGE = ROOT / "docs" / "glossary.md"
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| Word |")
]
TERMS = [(row[0], name) for row in ROWS for name in re.findall(r"`([^`]+)`", row[2])]


@cache
def _names() -> frozenset[str]:
    """Every class, function, constant and type of the code, and the fields and methods of each class: `Class.name`."""
    found: set[str] = set()
    for top in ("coordinator", "drills", "events", "replay"):
        for path in (SOURCE / top).rglob("*.py"):
            module = ast.parse(path.read_text(encoding="utf-8"))
            found |= _defined(module)
            for node in ast.walk(module):
                if isinstance(node, ast.ClassDef):
                    members = _defined(node)
                    found |= members | {f"{node.name}.{name}" for name in members}
    return frozenset(found)


def _defined(parent: ast.Module | ast.ClassDef) -> set[str]:
    found: set[str] = set()
    for node in parent.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Assign(targets=targets):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


@pytest.mark.parametrize(("word", "name"), TERMS, ids=str)
def test_the_code_has_what_the_glossary_names(word: str, name: str) -> None:
    """A class, a function, a field or a path."""
    assert _exists(name) if "/" in name else name in _names(), f"{word}: there is no {name}"


def _exists(path: str) -> bool:
    return any((folder / path).exists() for folder in (SOURCE, ROOT))


def test_each_word_has_one_row_and_a_place_in_the_code() -> None:
    """So that it has one meaning."""
    words = [word for row in ROWS for word in row[0].split(", ")]
    assert [word for word in words if words.count(word) > 1] == []
    assert [row[0] for row in ROWS if "`" not in row[2]] == []
