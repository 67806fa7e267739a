"""A package that has folders lists what is in it, each with its purpose; any other one says its own in a sentence."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "muster"  # the folders at the top are not in an sdist
PACKAGES = sorted(
    path.parent.relative_to(ROOT)
    for top in ("coordinator", "drills", "events", "replay")
    for path in (ROOT / top).rglob("__init__.py")
)


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_a_package_with_folders_lists_its_files_and_folders(package: Path) -> None:
    """In a folder without others, each file's own first line says what it is for."""
    opening = _opening(package)
    if not any((ROOT / package).glob("*/__init__.py")):
        assert opening.strip(), "a sentence"
        return
    files = [path.name for path in (ROOT / package).glob("*.py") if path.name != "__init__.py"]
    folders = [f"{path.parent.name}/" for path in (ROOT / package).glob("*/__init__.py")]
    assert [name for name in sorted(files + folders) if name not in opening] == []


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_each_file_that_is_named_is_there(package: Path) -> None:
    """In the package, or from the top of one of these folders."""
    above = [ROOT / package, *(ROOT / package).parents]
    named = re.findall(r"[\w/]*\w\.py\b|\b[\w/]+/(?=[\s`,.;:)])", _opening(package))
    assert [name for name in named if not any((folder / name).exists() for folder in above)] == []


def _opening(package: Path) -> str:
    return (ROOT / package / "__init__.py").read_text(encoding="utf-8").split('"""')[1]
