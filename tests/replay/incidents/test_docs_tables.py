"""The page of kinds matches the code."""

import re
from pathlib import Path

import pytest

from muster.replay.incidents.kinds import KINDS, PRECEDENCE
from tests.replay.incidents.docs_tables import kinds_table, windows_table

PAGE = Path(__file__).parents[3] / "docs" / "incidents.md"


@pytest.mark.parametrize(("name", "table"), [("kinds", kinds_table()), ("windows", windows_table())])
def test_the_page_has_the_table_that_the_code_makes(name: str, table: str) -> None:
    """`python -m tests.replay.incidents.docs_tables` prints both tables."""
    page = PAGE.read_text(encoding="utf-8")
    assert f"<!-- {name} -->\n{table}\n<!-- /{name} -->" in page


def test_no_two_kinds_have_one_name() -> None:
    """And each finder is in `PRECEDENCE` once."""
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert len({find for find, _ in PRECEDENCE}) == len(PRECEDENCE)


def test_the_page_names_the_evidence_of_each_kind() -> None:
    """The table is below that of the kinds."""
    page = PAGE.read_text(encoding="utf-8")
    rows = page.partition("## The evidence that each kind rests on")[2].partition("\n## ")[0]
    named = {name for row in rows.splitlines() for name in re.findall(r"`([a-z-]+)`", row.partition(" | ")[0])}
    assert named == {kind.name for kind in KINDS}
