"""The builds: the wheel owns one name where it is installed; the sdist can run its own tests."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEIGHBOUR = "opensearch-py==3.0.0"
"""It needs a package with the name `events`."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "--out-dir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


def test_it_owns_one_name(wheel: Path) -> None:
    """And it has the files that are read beside the code."""
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
    assert {name.split("/")[0] for name in names} == {"muster", f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"}
    for name in (
        "cli.py",
        "admin.py",
        "py.typed",
        "schemas/RecordKey.avsc",
        "replay/html/chart.js",
        "drills/report/drill.css",
    ):
        assert f"muster/{name}" in names


@pytest.mark.timeout(600)
def test_it_works_beside_other_packages(wheel: Path, tmp_path: Path) -> None:
    environment, python = tmp_path / "venv", tmp_path / "venv" / "bin" / "python"
    _run(sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, environment)
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    _run(*install, "--constraint", ROOT / "requirements.lock", wheel)
    _run(*install, NEIGHBOUR)
    message = "import events, opensearchpy, muster.admin; print(events.Events, muster.admin.GroupAdmin)"
    assert "muster" not in _run(python, "-c", message, at=tmp_path).split()[1]
    assert _run(environment / "bin" / "muster", "--version", at=tmp_path).startswith("muster ")
    typed = tmp_path / "typed.py"
    typed.write_text("from muster.admin import GroupAdmin\n\nreveal_type(GroupAdmin.list_members)\n")
    seen = _run(sys.executable, "-m", "mypy", "--strict", "--python-executable", python, typed, at=tmp_path)
    assert "ListedMember" in seen, seen
    log = f"sqlite:///{tmp_path}/none.db"
    refused = subprocess.run(
        [environment / "bin" / "muster", "replay", "groups", "--log", log],
        capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    assert (refused.returncode, "none.db" in refused.stderr) == (2, True), refused.stderr


@pytest.mark.timeout(600)
def test_the_sdist_can_run_its_own_tests(wheel: Path, tmp_path: Path) -> None:
    """Including the tests that read files beside the code, but not the first steps of the README, which need the tree.

    Its code is in `src` only, not also in the top-level folders; and `src` has everything that the wheel has.
    """
    _run(sys.executable, "-m", "uv", "build", "--quiet", "--sdist", "--out-dir", tmp_path, ROOT)
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as content:
        content.extractall(tmp_path, filter="data")
    unpacked = built.with_name(built.name.removesuffix(".tar.gz"))
    assert not {"coordinator", "drills", "events", "replay", "schemas"} & {path.name for path in unpacked.iterdir()}
    with zipfile.ZipFile(wheel) as content:
        installed = {name for name in content.namelist() if name.startswith("muster/")}
    packed = {str(path.relative_to(unpacked / "src")) for path in unpacked.glob("src/muster/**/*") if path.is_file()}
    assert installed == packed
    for name in (
        "Makefile",
        "requirements.lock",
        "LICENSE",
        "compose.yaml",
        "demo/__main__.py",
        "benchmarks/__main__.py",
    ):
        assert (unpacked / name).is_file(), name
    tests = [
        f"tests/{name}" for name in ("test_packages.py", "test_glossary.py", "test_readme.py", "coordinator/settings")
    ]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not spark",
        *tests,
        "tests/coordinator/observability",
    ]
    assert "failed" not in _run(*command, at=unpacked, PYTHONPATH=str(unpacked / "src"))


def _run(*command: object, at: Path = ROOT, **variables: str) -> str:
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True, text=True, check=False, timeout=300, cwd=at, env={**os.environ, **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr
    return done.stdout
