"""docs/faults.md names a test for each promise: each one is there."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "faults.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
PROMISES = [cells for cells in ROWS if cells[0] != "Fault"]
TEST_NAMES = {
    name
    for path in TESTS.rglob("*.py")
    for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
}


@pytest.mark.parametrize("cells", PROMISES, ids=lambda cells: str(cells[0])[:40])
def test_each_promise_names_existing_tests(cells: list[str]) -> None:
    _, _, shown_by = cells
    named = re.findall(r"`([^`]+)`", shown_by)
    assert named
    missing = [name for name in named if name not in TEST_NAMES and not (TESTS / name).is_file()]
    assert missing == []
