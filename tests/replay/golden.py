"""Compares whole outputs with files. MUSTER_UPDATE_GOLDEN=1 writes them again; review the difference then."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def assert_golden(name: str, output: str) -> None:
    """Check that the output equals the file, except for trailing blanks."""
    output = "".join(line.rstrip() + "\n" for line in output.splitlines())
    path = FOLDER / name
    if os.environ.get("MUSTER_UPDATE_GOLDEN") == "1":
        path.write_text(output, encoding="utf-8")
    assert output == path.read_text(encoding="utf-8")
