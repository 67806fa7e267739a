"""A package with folders lists its content with the purpose of each; any other package states its own purpose."""

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
    """In a folder without subfolders, the first line of each file states its purpose."""
    opening = _opening(package)
    if not any((ROOT / package).glob("*/__init__.py")):
        assert opening.strip(), "a sentence"
        return
    files = [path.name for path in (ROOT / package).glob("*.py") if path.name != "__init__.py"]
    folders = [f"{path.parent.name}/" for path in (ROOT / package).glob("*/__init__.py")]
    assert [name for name in sorted(files + folders) if name not in opening] == []


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_each_named_file_exists(package: Path) -> None:
    """In the package, or from the top of one of these folders."""
    above = [ROOT / package, *(ROOT / package).parents]
    named = re.findall(r"[\w/]*\w\.py\b|\b[\w/]+/(?=[\s`,.;:)])", _opening(package))
    assert [name for name in named if not any((folder / name).exists() for folder in above)] == []


def _opening(package: Path) -> str:
    return (ROOT / package / "__init__.py").read_text(encoding="utf-8").split('"""')[1]
