"""Which mutants are made; that a sample is the same each time, and that equivalent ones are still there to be named."""

import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from coverage import CoverageData
from msgspec import structs

from tests.mutants.__main__ import EQUIVALENT, ROOT, equivalent_mutants, sample
from tests.mutants.areas import AREAS, Area
from tests.mutants.covering import Covering
from tests.mutants.making import MutableFile, Mutant
from tests.mutants.trial import COPIED, WITH_BROKER, WITHOUT_BROKER, NoTests, Trial, Verdict, seconds_by_test
from tests.waiting import until_so

CODE = """\
N: Final = 50
if TYPE_CHECKING:
    from collections.abc import Sequence


def given(n: int | None = None) -> int:
    assert n != 7
    if n:
        told(n)
    return n if n is not None else N - 1
"""


def test_a_file_has_a_mutant_for_each_small_mistake(tmp_path: Path) -> None:
    """Annotations and assertions are left alone, and imports that only annotations need."""
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


def test_equal_changes_of_equal_lines_have_names_of_their_own(tmp_path: Path) -> None:
    """One that changes nothing excuses no other."""
    (tmp_path / "code.py").write_text(
        "def twice() -> None:\n    told()\n    if True:\n        told()\n", encoding="utf-8"
    )
    file = MutableFile(tmp_path, Path("code.py"))
    made = [file.mutant(number) for number in range(len(file))]
    assert [mutant.name for mutant in made if mutant is not None and "told" in mutant.diff] == [
        "code.py: -told() +pass",
        "code.py#2: -told() +pass",
    ]


def test_an_areas_mutants_are_the_same_whichever_others_are_tried() -> None:
    """So that an area that was tried alone counts."""
    first, second = (area for area in AREAS if area.name in {"standalone", "commands"})
    alone = [mutant.name for _, mutant in sample([second], share=0.2, seed=11)]
    beside = [mutant.name for area, mutant in sample([first, second], share=0.2, seed=11) if area is second]
    assert alone == beside != []


AREA = Area(name="few", code=("events",), tests=("tests/few",), goal=1, mutants=1)
MUTANT = Mutant(path=Path("events/code.py"), line=1, nth=1, text="N = 6\n", diff="-N = 5\n+N = 6")
LOOKS = """\
from pathlib import Path
def test_it():
    before = Path("before.txt").read_text() if Path("before.txt").exists() else ""
    Path("before.txt").write_text(before + "x")
    mutated = "6" in Path("events/code.py").read_text()
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files that are copied for a trial, all empty except one with code."""
    tree = tmp_path / "tree"
    for name in COPIED:
        if "." in name or name == "Makefile":
            (tree / name).touch()
        else:
            (tree / name).mkdir(parents=True)
    (tree / "events" / "code.py").write_text("N = 5\n", encoding="utf-8")
    (tree / "tests" / "few").mkdir()
    (tmp_path / "copy").mkdir()
    return tree


@pytest.mark.parametrize(
    ("fails", "verdict"),
    [
        ("assert not mutated", Verdict.NOTICED),
        ("if mutated: raise TimeoutError", Verdict.NOTICED),
        ("if len(before) < 2: raise TimeoutError", Verdict.UNNOTICED),
    ],
)
def test_a_timeout_that_unchanged_code_also_hits_does_not_count(
    tree: Path, tmp_path: Path, fails: str, verdict: Verdict
) -> None:
    """A loaded machine must not count as one: such a trial is repeated."""
    (tree / "tests" / "few" / "test_it.py").write_text(f"{LOOKS}    {fails}\n", encoding="utf-8")
    with closing(Trial(tree, tmp_path / "copy")) as trial:
        assert trial.of(MUTANT, ["tests/few/test_it.py::test_it"]) is verdict
    assert (tmp_path / "copy" / "events" / "code.py").read_text(encoding="utf-8") == "N = 5\n"


CALLED = """\
N = 5
def first(n):
    return (
        n + N
    )
def second(n):
    return 2
"""
CALLING = """\
from events.code import first, second
def test_a(): first(1)
def test_b(): first(2), second(1)
def test_c(): pass
"""


PAGE = """\
from pathlib import Path
def test_it():
    page = Path("events/template.html").absolute()
    exec(compile("n = 1", page, "exec"))
"""


def test_a_mutant_that_takes_too_long_is_ended(tree: Path, tmp_path: Path) -> None:
    """Like a mutant that hangs, which counts as noticed if the tests end in time without it."""
    stops = "    if mutated: __import__('signal').pause()"
    (tree / "tests" / "few" / "test_it.py").write_text(f"{LOOKS}{stops}\n", encoding="utf-8")
    with closing(Trial(tree, tmp_path / "copy", structs.replace(WITHOUT_BROKER, limit_s=2))) as trial:
        assert trial.of(MUTANT, ["tests/few/test_it.py::test_it"]) in {Verdict.TOO_LONG, Verdict.UNCLEAR}


@pytest.fixture
def covered(tree: Path, tmp_path: Path) -> Path:
    """The copy of a tree whose tests have been recorded."""
    (tree / "events" / "code.py").write_text(CALLED, encoding="utf-8")
    (tree / "events" / "constants.py").write_text("M = 1\n", encoding="utf-8")
    (tree / "tests" / "few" / "test_it.py").write_text(f"import events.constants\n{CALLING}", encoding="utf-8")
    (tree / "events" / "template.html").write_text("{{ N }} − 1\n", encoding="utf-8")
    (tree / "tests" / "few" / "test_page.py").write_text(PAGE, encoding="utf-8")
    (tree / "tests" / "few" / "test_nothing.py").write_text("def test_it(): pass\n", encoding="utf-8")
    with closing(Trial(tree, tmp_path / "copy")) as trial:
        assert trial.covering(AREA) is not None
    return tmp_path / "copy"


A, B, C, NOTHING, PAGES = ALL = [
    *(f"tests/few/test_it.py::test_{letter}" for letter in "abc"),
    "tests/few/test_nothing.py::test_it",
    "tests/few/test_page.py::test_it",
]


@pytest.mark.parametrize(
    ("file", "line", "tests"),
    [
        ("code", 1, ALL),
        ("code", 4, [A, B]),
        ("code", 7, [B]),
        ("constants", 1, ALL),
        ("template", 1, []),
    ],
)
def test_only_tests_that_come_by_a_mutant_are_run(covered: Path, file: str, line: int, tests: list[str]) -> None:
    """The lines of its statement count; code that runs at import is checked by all tests, those of its file first."""
    mutant = Mutant(path=Path(f"events/{file}.py"), line=line, nth=1, text="", diff="")
    covering = Covering(covered, covered / "covering-few", dict.fromkeys(ALL, 0.01))
    assert covering.tests_for(mutant) == tests


def test_quick_tests_are_tried_first_and_slow_ones_within_the_limit(covered: Path) -> None:
    """Those that come by its file before all others; a first one is always tried."""
    mutant = Mutant(path=Path("events/code.py"), line=1, nth=1, text="", diff="")

    def portions(limit_s: float, **seconds: float) -> list[list[str]]:
        taken = {test: seconds.get(name, 0.0) for test, name in zip(ALL, "abcnp", strict=True)}
        return [list(each) for each in Covering(covered, covered / "covering-few", taken).portions(mutant, limit_s)]

    assert portions(20, a=9, b=7, c=3, n=2) == [[B], [A, PAGES, NOTHING]]
    assert portions(1, a=9, b=7) == [[B]]


def test_a_test_is_near_by_its_files_name_then_by_its_folder(tmp_path: Path) -> None:
    """The folders of the tests mirror those of the code."""
    file = tmp_path / "replay" / "logs" / "opening.py"
    file.parent.mkdir(parents=True)
    file.write_text("N = 1\n", encoding="utf-8")
    recorded = CoverageData(str(tmp_path / "covering"))
    files = ("replay/logs/test_opening", "replay/logs/test_a", "replay/test_b", "test_c")
    names = [f"tests/{each}.py::test_it" for each in files]
    for name in reversed(names):
        recorded.set_context(f"{name}|run")
        recorded.add_lines({str(file): [1]})
    recorded.write()
    mutant = Mutant(path=Path("replay/logs/opening.py"), line=1, nth=1, text="", diff="")
    covering = Covering(tmp_path, tmp_path / "covering", {names[0]: 3.0, names[1]: 2.0})
    assert covering.tests_for(mutant) == names


def test_a_tests_duration_is_that_of_its_fixtures_too() -> None:
    """A name may have blanks in it."""
    printed = (
        "0.25s setup    tests/a.py::test[x y]\n1.00s call     tests/a.py::test[x y]\n0.50s call     tests/b.py::test\n"
    )
    assert seconds_by_test(printed) == {"tests/a.py::test[x y]": 1.25, "tests/b.py::test": 0.5}


def test_the_other_tests_run_if_the_first_ones_notice_nothing(tree: Path, tmp_path: Path) -> None:
    """A table of constants may be all that a test looks at."""
    (tree / "tests" / "few" / "test_it.py").write_text(f"{LOOKS}    assert not mutated\n", encoding="utf-8")
    (tree / "tests" / "few" / "test_nothing.py").write_text("def test_it(): pass\n", encoding="utf-8")
    with closing(Trial(tree, tmp_path / "copy")) as trial:
        assert trial.of(MUTANT, ["tests/few/test_nothing.py"]) is Verdict.UNNOTICED
        assert trial.of(MUTANT, ["tests/few/test_nothing.py"], ["tests/few"]) is Verdict.NOTICED
        assert (trial.of(MUTANT, []), trial.of(MUTANT, [], ["tests/few"])) == (Verdict.NOT_COVERED, Verdict.NOTICED)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("tests/few/test_gone.py", "no such tests: tests/few/test_gone.py"),
        ("tests/few/test_gone.py::test_it", "no such tests: tests/few/test_gone.py"),
        ("tests/few/test_nothing.py", "no test that is not broker"),
    ],
)
def test_tests_that_are_not_there_notice_nothing(tree: Path, tmp_path: Path, named: str, said: str) -> None:
    """pytest fails then as if the mutant had been noticed; so would any other one be."""
    (tree / "tests" / "few" / "test_nothing.py").touch()
    area = structs.replace(AREA, tests=(named,))
    with closing(Trial(tree, tmp_path / "copy")) as trial:
        with pytest.raises(NoTests, match=said):
            trial.of(MUTANT, [named])
        with pytest.raises(NoTests, match=said):
            trial.covering(area)


def test_a_mutant_that_is_in_the_way_of_a_conftest_is_noticed(tree: Path, tmp_path: Path) -> None:
    """pytest reports the same as for tests that it does not find; without the mutant it starts."""
    (tree / "tests" / "few" / "conftest.py").write_text(
        'from pathlib import Path\nassert "6" not in Path("events/code.py").read_text()\n', encoding="utf-8"
    )
    (tree / "tests" / "few" / "test_it.py").write_text("def test_it(): pass\n", encoding="utf-8")
    with closing(Trial(tree, tmp_path / "copy")) as trial:
        assert trial.of(MUTANT, ["tests/few/test_it.py::test_it"]) is Verdict.NOTICED


BROKERED = """\
import pytest
pytestmark = pytest.mark.broker
"""


@pytest.mark.parametrize(
    ("fails", "verdict"),
    [("assert not mutated", Verdict.NOTICED), ("raise ValueError", Verdict.UNCLEAR), ("", Verdict.UNNOTICED)],
)
def test_a_failure_with_a_broker_counts_if_the_test_passes_without_the_mutant(
    tree: Path, tmp_path: Path, fails: str, verdict: Verdict
) -> None:
    """The broker may have failed; and where no test needs one, none has looked."""
    (tree / "tests" / "few" / "test_it.py").write_text(f"{BROKERED}{LOOKS}    {fails}\n", encoding="utf-8")
    (tree / "tests" / "few" / "test_nothing.py").write_text("def test_it(): assert False\n", encoding="utf-8")
    with closing(Trial(tree, tmp_path / "copy", WITH_BROKER)) as trial:
        assert trial.of(MUTANT, ["tests/few"]) is verdict
        assert trial.of(MUTANT, ["tests/few/test_nothing.py"]) is Verdict.NOT_COVERED


def test_code_and_tests_of_each_area_exist() -> None:
    """A folder that was moved would take its mutants with it."""
    assert [path for area in AREAS for path in (*area.code, *area.tests) if not (ROOT / path).exists()] == []


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
        place, _, change = name.partition(": -")
        path, _, nth = place.partition("#")
        text = " -".join(line.strip() for line in ("", *(ROOT / path).read_text(encoding="utf-8").splitlines(), ""))
        ends = [plus.start() for plus in re.finditer(r" \+", change)] or [len(change)]  # a line may have one, too
        assert any(text.count(f" -{change[:end]} -") >= int(nth or 1) for end in ends), name
        assert reason


def test_a_tool_that_is_ended_leaves_no_copy_behind(tmp_path: Path) -> None:
    """Nor a process: what runs pytest ends with it, and the run that it is in."""
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.mutants", "admin", "--jobs", "1"]
    with subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.DEVNULL) as tool:
        until_so(lambda: list(tmp_path.glob("muster-mutants-*/0/printed.txt")))
        tool.terminate()
    assert (tool.returncode, list(tmp_path.iterdir())) == (128 + signal.SIGTERM, [])
