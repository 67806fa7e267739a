"""docs/architecture.md is true: its walks are those of real processes, and imports do not go in a circle.

That its pictures agree with the imports is tested with all other generated parts of pages (tests/test_readme.py).
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.pictures import WORDS, Circle, drawn, imports_within, reduced
from tests.architecture.walks import JOIN_GROUP, TAKEOVER, WHY, Step, Walk, lacking
from tests.conformance.wire import Connection, ms
from tests.muster_process import TEST_CONFIG, MusterProcess, sqlite_log

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
TRACED = (sys.executable, "-m", "tests.architecture.traced")
ENDS_WITHIN_S = 120
PATH = re.compile(r"`((?:coordinator|drills|events|replay|schemas|src|tests)/[\w/.]*)`")


class Seen:
    """The calls of a coordinator that starts, gets one JoinGroup and ends, and of a `why` about it."""

    def __init__(self, folder: Path) -> None:
        self.log = sqlite_log(folder)
        self.calls = folder / "calls"

    def taken(self) -> list[tuple[str, str]]:
        """The calls since the last look."""
        lines = self.calls.read_text(encoding="utf-8").splitlines()
        self.calls.write_text("", encoding="utf-8")
        return [(file, function) for file, _, function in (line.partition(" ") for line in lines)]

    async def serve_one_join(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """The calls of the start, and those of a JoinGroup of a new group."""
        config = [word for name, value in TEST_CONFIG.items() for word in ("--config", f"{name}={value}")]
        command = (*TRACED, str(self.calls), "serve")
        arguments = ("--log", self.log, "--topic", "orders:1", *config)
        muster = MusterProcess(*arguments, output=self.calls.with_name("output"), command=command)
        muster.start()
        try:
            started = self.taken()
            connection = await Connection.open(muster.bootstrap, client_id="app")
            joined = await connection.ask(
                "JoinGroup",
                9,
                group_id="orders",
                session_timeout=ms(10_000),
                rebalance_timeout=ms(10_000),
                member_id="",
                group_instance_id="orders-1",
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": b""}],
                reason=None,
            )
            connection.close()
            assert joined["error_code"] == 0
            assert muster.stop() == 0
        finally:
            muster.end()
        return started, self.taken()

    def why(self) -> list[tuple[str, str]]:
        """The calls of `muster replay why`."""
        subprocess.run(
            [*TRACED, str(self.calls), "replay", "why", "orders", "--log", self.log],
            check=True,
            capture_output=True,
            timeout=ENDS_WITHIN_S,
        )
        return self.taken()


async def test_a_joingroup_a_takeover_and_a_why_pass_the_files_of_the_page_in_its_order(tmp_path: Path) -> None:
    """The first start finds an empty log, so the takeover is that of the second, which loads the group."""
    seen = Seen(tmp_path)
    _, joined = await seen.serve_one_join()
    assert lacking(JOIN_GROUP, joined) == []
    assert lacking(WHY, seen.why()) == []
    started, _ = await seen.serve_one_join()
    assert lacking(TAKEOVER, started) == []


def test_a_step_that_is_not_called_is_found() -> None:
    """And so is a step that is called before the one above it."""
    first, second, third = (Step(f"{each}.py", "f", "") for each in "abc")
    walk = Walk((first, second, third))
    assert lacking(walk, [("a.py", "f"), ("b.py", "f"), ("c.py", "f")]) == []
    assert lacking(walk, [("a.py", "f"), ("c.py", "f"), ("b.py", "f")]) == [third]
    assert lacking(walk, [("a.py", "f"), ("b.py", "other"), ("c.py", "f")]) == [second, third]


@pytest.mark.parametrize("top", WORDS)
def test_imports_between_rooms_do_not_go_in_a_circle(top: str) -> None:
    """Those of the command line included, which imports a command when it is asked for."""
    assert reduced(imports_within(top)).keys() == WORDS[top].keys()


def test_rooms_that_import_each_other_are_named() -> None:
    """The message is the circle."""
    imports = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("b")}
    with pytest.raises(Circle, match="b -> c -> b"):
        reduced(imports)


def test_an_import_that_follows_from_others_is_not_drawn() -> None:
    """A new import that does not follow changes the picture."""
    imports = {"a": frozenset("bc"), "b": frozenset("c"), "c": frozenset(), "d": frozenset()}
    words = dict.fromkeys(imports, "-")
    assert reduced(imports) == {**imports, "a": frozenset("b")}
    assert drawn(imports, words, {}) != drawn({**imports, "d": frozenset("a")}, words, {})


def test_every_file_and_folder_of_the_page_exists() -> None:
    """Those between the tables, too."""
    named = PATH.findall(PAGE.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []
