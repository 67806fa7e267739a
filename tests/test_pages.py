"""The pages tell each thing once."""

from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE_OF_RIGHTS = ROOT / "docs" / "sidecar-acls.md"  # a right a row, and many of the rows begin alike
PAGES = sorted({ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")} - {TABLE_OF_RIGHTS})
ALIKE_FROM = 54
"""Two lines that begin with so many characters alike are two versions of one, of which a merge has kept both."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_line_stands_there_in_two_versions(page: Path) -> None:
    """In sentences and in the rows of a table alike."""
    lines = page.read_text(encoding="utf-8").splitlines()
    twice = [
        first
        for first, second in pairwise(lines)
        if len(first) > ALIKE_FROM and first[:ALIKE_FROM] == second[:ALIKE_FROM]
    ]
    assert twice == []
