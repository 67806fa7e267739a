"""Outputs that are compared whole with files. MUSTER_UPDATE_GOLDEN=1 writes them anew; read the difference then."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def assert_golden(name: str, output: str) -> None:
    """The output is that of the file, trailing blanks aside."""
    output = "".join(line.rstrip() + "\n" for line in output.splitlines())
    path = FOLDER / name
    if os.environ.get("MUSTER_UPDATE_GOLDEN") == "1":
        path.write_text(output, encoding="utf-8")
    assert output == path.read_text(encoding="utf-8")
