"""Which mutants are made; that a sample is the same each time, and that equivalent ones are still there to be named."""

import re
from pathlib import Path

import pytest

from tests.mutants.__main__ import EQUIVALENT, ROOT, equivalent_mutants
from tests.mutants.areas import AREAS
from tests.mutants.making import MutableFile

CODE = """\
N: Final = 50


def given(n: int | None = None) -> int:
    assert n != 7
    if n:
        told(n)
    return n if n is not None else N - 1
"""


def test_a_file_has_a_mutant_for_each_small_mistake(tmp_path: Path) -> None:
    """Annotations and assertions are left alone."""
    (tmp_path / "code.py").write_text(CODE, encoding="utf-8")
    file = MutableFile(tmp_path, Path("code.py"))
    made = [file.mutant(number) for number in range(len(file))]
    assert sorted(mutant.name for mutant in made if mutant is not None) == [
        "code.py: -N: Final = 50 +N: Final = 50000",
        "code.py: -if n: +if not n:",
        "code.py: -return n if n is not None else N - 1 +return n if (n is not None) and False else N - 1",
        "code.py: -return n if n is not None else N - 1 +return n if (n is not None) or True else N - 1",
        "code.py: -return n if n is not None else N - 1 +return n if n is None else N - 1",
        "code.py: -return n if n is not None else N - 1 +return n if n is not None else N + 1",
        "code.py: -return n if n is not None else N - 1 +return n if n is not None else N - 2",
        "code.py: -told(n) +pass",
    ]  # fmt: skip


def test_code_and_tests_of_each_area_are_there() -> None:
    """A folder that was moved would take its mutants with it."""
    assert [path for area in AREAS for path in (*area.code, *area.tests) if not (ROOT / path).is_dir()] == []


def test_equivalent_mutants_are_named_with_their_reasons() -> None:
    """Two lines each, the reason set in."""
    text = (
        "events/ids.py: -N = 5 +N = 6\n    nobody counts so far\nevents/keys.py: -return n +pass\n    another reason\n"
    )
    assert equivalent_mutants(text) == {
        "events/ids.py: -N = 5 +N = 6": "nobody counts so far",
        "events/keys.py: -return n +pass": "another reason",
    }


@pytest.mark.parametrize("text", ["events/ids.py: -N = 5 +N = 6\n", "events/ids.py: -N = 5 +N = 6\nat the margin\n"])
def test_an_equivalent_mutant_without_a_reason_is_not_taken(text: str) -> None:
    """Or one whose reason looks like another mutant's name."""
    with pytest.raises((ValueError, AssertionError)):
        equivalent_mutants(text)


def test_each_equivalent_mutant_has_its_lines_and_a_reason() -> None:
    """A line that is gone needs no excuse."""
    for name, reason in equivalent_mutants(EQUIVALENT.read_text(encoding="utf-8")).items():
        path, _, change = name.partition(": -")
        text = " -".join(line.strip() for line in ("", *(ROOT / path).read_text(encoding="utf-8").splitlines(), ""))
        ends = [plus.start() for plus in re.finditer(r" \+", change)] or [len(change)]  # a line may have one, too
        assert any(f" -{change[:end]} -" in text for end in ends), name
        assert reason
