"""Pages do not repeat each other, and their links work."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE_OF_RIGHTS = ROOT / "docs" / "sidecar-acls.md"  # a right a row, and many of the rows begin alike
EVERY_PAGE = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "benchmarks" / "README.md"})
CHANGELOG = ROOT / "CHANGELOG.md"
ENTRY_WORDS_MAX = 39
INDEX = ROOT / "docs" / "index.md"
PAGES = [page for page in EVERY_PAGE if page not in {TABLE_OF_RIGHTS, ROOT / "benchmarks" / "README.md"}]
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s:]+)\)")  # those to other hosts have a colon
ALIKE_FROM = 54
"""Two lines that begin with so many characters alike are two versions of one, of which a merge has kept both."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_line_is_repeated_in_two_versions(page: Path) -> None:
    """In sentences and in the rows of a table alike."""
    lines = page.read_text(encoding="utf-8").splitlines()
    twice = [
        first
        for first, second in pairwise(lines)
        if len(first) > ALIKE_FROM and first[:ALIKE_FROM] == second[:ALIKE_FROM]
    ]
    assert twice == []


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    """With GitHub's names of headings."""
    broken = []
    for link in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (heading and heading not in _headings(target)):
            broken.append(link)
    assert broken == []


def _headings(page: Path) -> set[str]:
    lines = CODE.sub("", page.read_text(encoding="utf-8")).splitlines()
    titles = (line.lstrip("#").strip().lower() for line in lines if re.match(r"#+ ", line))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def test_the_index_has_every_page() -> None:
    """Each is a line for one kind of reader."""
    linked = LINK.findall(INDEX.read_text(encoding="utf-8"))
    assert sorted(link for link in linked if "/" not in link) == sorted(
        page.name for page in INDEX.parent.glob("*.md") if page != INDEX
    )


def test_entries_of_the_changelog_are_short() -> None:
    """So that it can be read at a glance."""
    entries = re.findall(r"^- (.+?)(?=^- |^#|\Z)", CHANGELOG.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert entries
    assert [entry for entry in entries if len(entry.split()) > ENTRY_WORDS_MAX] == []


def test_the_changelog_has_the_version() -> None:
    """The newest release is the one that is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    releases = re.findall(r"^## \[(\d[\w.]+)\] - \d{4}-\d\d-\d\d$", CHANGELOG.read_text(encoding="utf-8"), re.MULTILINE)
    assert releases[0] == project["version"]
