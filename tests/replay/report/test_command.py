"""`muster replay report`: its output file and its messages."""

import asyncio
import errno
import html
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.events.causes import Cause
from muster.events.ids import GroupId
from muster.replay.history.items import Happened
from muster.replay.history.window import AtTime, Window, WindowEdge
from muster.replay.incidents.windows import QUIET_MS
from muster.replay.logs.reading import Reading
from muster.replay.logs.sources import find_start, items
from muster.replay.report.fold import ReportFold
from muster.replay.report.page import Page
from muster.replay.text.grammar import size_text
from tests.replay.commands.test_cli import assert_fails, run
from tests.replay.histories import Script
from tests.replay.report.told import MADE_MS, page_of
from tests.replay.stories import a_night
from tests.replay.whole import incidents, read_histories
from tests.replay.written import append, broken_value, memory_log, script, sqlite_log


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log with the night of `orders`."""
    path = tmp_path_factory.mktemp("log") / "muster.db"
    return asyncio.run(sqlite_log(path, a_night(), script("payments").created()))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The path of the page, which does not exist yet."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder / "report.html"


def text_of(path: Path) -> str:
    """Return the page's text, without tags."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", "", path.read_text(encoding="utf-8"))))


def test_a_report_is_written_to_the_file(url: str, out: Path) -> None:
    """One line summarizes it; an earlier page is replaced as a whole, and nothing else is left behind."""
    out.write_text("an earlier one")
    result = run("report", "orders", "-o", str(out), log=url)
    span = "from 2026-11-21T02:00:05.800Z to 2026-11-21T03:14:06.255Z"
    text = rf"{re.escape(str(out))}: 7 incidents with 4 rebalances of orders, {span}; \d\d KB\n"
    assert result.exit_code == 0
    assert re.fullmatch(text, result.stdout), result.stdout
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert list(out.parent.iterdir()) == [out]


def test_a_report_that_cannot_be_made_is_one_line(url: str, out: Path) -> None:
    """An unknown group, or a time that is not in the log: the earlier page stays as it is."""
    out.write_text("an earlier one")
    assert_fails(run("report", "order", "-o", str(out), log=url), 1, "'order'", "did you mean orders?")
    late = run("report", "orders", "-o", str(out), "--since", "2027-01-01", log=url)
    assert_fails(late, 1, "since 2027-01-01T00:00:00.000Z", "it has seq 1 to 44, from 2026-11-21T02:00:05.800Z")
    quiet = ["--since", "2026-11-21T02:40:00Z", "--until", "2026-11-21T02:41:00Z"]
    assert_fails(run("report", "orders", "-o", str(out), *quiet, log=url), 1, "it has seq 1 to 44")
    assert (out.read_text(), list(out.parent.iterdir())) == ("an earlier one", [out])


def test_a_missing_folder_is_named(url: str, out: Path) -> None:
    """Before anything is read; a folder instead of a file is refused, too."""
    none = out.parent / "none" / "report.html"
    assert_fails(run("report", "orders", "-o", str(none), log=url), 2, f"there is no folder {none.parent}")
    assert run("report", "orders", "-o", str(out.parent), log=url).exit_code == 2


def test_a_page_that_could_not_be_written_leaves_the_earlier_one(
    url: str, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new page is written beside it: a full disk ends the command, and leaves nothing behind."""
    out.write_text("an earlier one")

    def refuse(path: Path, to: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    assert_fails(
        run("report", "orders", "-o", str(out), log=url), 2, f"{out} cannot be written: No space left on device"
    )
    assert (out.read_text(), list(out.parent.iterdir())) == ("an earlier one", [out])


def test_output_to_a_device_is_written_and_a_link_stays_a_link(url: str, out: Path) -> None:
    """A pipe, as in -o /dev/stdout."""
    link = out.with_name("latest.html")
    link.symlink_to(out)
    assert run("report", "orders", "-o", str(link), log=url).exit_code == 0
    assert link.is_symlink()
    assert out.is_file()
    result = run("report", "orders", "-o", "/dev/null", log=url)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "7 incidents" in result.stderr
    assert not Path("/dev/null").is_file()
    piped = subprocess.run(
        [sys.executable, "-m", "muster", "replay", "report", "orders", "-o", "/dev/stdout", "--log", url],
        capture_output=True, text=True, timeout=280, check=True,
    )  # fmt: skip
    assert piped.stdout.startswith("<!doctype html>")
    assert "7 incidents" in piped.stderr


def test_times_are_shown_in_the_given_zone(url: str, out: Path) -> None:
    """Otherwise in UTC; the page can be switched to either."""
    run("report", "orders", "-o", str(out), "--tz", "Europe/Berlin", log=url)
    assert "2026-11-21 03:00:05.800 UTC+01:00" in text_of(out)
    assert '<option value="Europe/Berlin">Europe/Berlin</option><option value="UTC">' in out.read_text()
    run("report", "orders", "-o", str(out), log=url)
    assert "2026-11-21 02:00:05.800 UTC" in text_of(out)
    assert "Europe/Berlin" not in out.read_text()


def test_only_the_window_is_shown(url: str, out: Path) -> None:
    """With the members that were there before; the page says that it is a part of the history."""
    result = run("report", "orders", "-o", str(out), "--since", "2026-11-21T02:10:00Z", log=url)
    assert "from 2026-11-21T02:10:00.000Z to 2026-11-21T03:14:06.255Z" in result.stdout
    assert "This is a part of the history: from 2026-11-21 02:10:00.000 UTC." in text_of(out)
    run("report", "orders", "-o", str(out), "--since", "20", "--until", "30", "--seq", log=url)
    assert "This is a part of the history: from seq 20 until seq 30." in text_of(out)


def test_unreadable_records_are_on_the_page_and_in_the_exit_code(tmp_path: Path, out: Path) -> None:
    """A broken record is reported with its position; of a file that is cut off the first part is used, with code 3."""
    night = a_night()
    transitions = night.stored_transitions()
    url = asyncio.run(
        append(tmp_path, night.partition, *transitions[:-4], (broken_value("orders"),), *transitions[-4:])
    )
    result = run("report", "orders", "-o", str(out), log=url)
    assert "1 part of the history missing or uncertain: the page lists them." in result.stdout
    assert "Missing data" in text_of(out)
    export = tmp_path / "night.jsonl"
    run("export", str(export), "--log", url)
    export.write_bytes(export.read_bytes()[:-100])
    result = run("report", "orders", "-o", str(out), log=f"jsonl:///{export}")
    assert result.exit_code == 3
    assert ": it is cut off (" in text_of(out)


# ---- windows --------------------------------------------------------------------------------------------------------


def outage() -> Script:
    """Return a quiet group that lost its coordinator: two members lost their places and rejoined as new ones."""
    story = script("orders").coordinator("a:1").created()
    names = [f"app-{number}" for number in range(4)]
    members = [story.member(name, static=False, client_id=name) for name in names]
    story.start(*map(story.joined, members)).wait(100).complete().stabilize({})
    story.wait(2 * QUIET_MS).coordinator("b:2").wait(44_000)
    story.start(*(story.removed(each, Cause.SESSION_EXPIRED, silent_ms=45_000) for each in members[:2]))
    story.advanced(*(story.joined(story.member(name, static=False, client_id=name)) for name in names[:2]))
    return story.wait(300).complete().stabilize({})


async def windowed(reported: Script, window: Window) -> Page:
    """Return the page of a window, read as the command does."""
    log = await memory_log(reported.stored_records())
    reading = Reading(log=log)
    start = await find_start(reading, GroupId(reported.group_id), window, quiet_ms=QUIET_MS)
    group = start.checkpoint.group(start.group_id)
    fold = ReportFold(start.group_id, group, at_ms=start.checkpoint.at_ms, window=window, life=start.life)
    async for item in items(reading, start):
        fold.feed(item)
    fold.end()
    return fold.page("memory", made_ms=MADE_MS)


@pytest.mark.parametrize("story", [a_night, outage])
async def test_an_incident_of_a_window_is_that_of_the_whole_history(story: Callable[[], Script]) -> None:
    """Wherever the window begins or ends; only incidents that cross an edge say so."""
    reported = story()
    history = (await read_histories(await memory_log(reported.stored_records())))[GroupId(reported.group_id)]
    whole = page_of(history)
    times = sorted({item.at_ms for item in history.items if isinstance(item, Happened)})
    assert [each.headline for each in incidents(history)] == [each.headline for each in whole.stories]
    for edge in times[:: max(1, len(times) // 12)]:
        late = await windowed(reported, Window(since=AtTime(edge)))
        assert [(each.kind, each.headline, each.cost) for each in late.stories] == [
            (each.kind, each.headline, each.cost)
            for each in whole.stories
            if each.end_ms is None or each.end_ms >= edge
        ]
        assert [WindowEdge.SINCE in each.crosses for each in late.stories] == [
            each.begin_ms < edge for each in late.stories
        ]
        assert late.state == whole.state
        early = await windowed(reported, Window(until=AtTime(edge)))
        assert [(each.kind, each.headline, each.cost) for each in early.stories] == [
            (each.kind, each.headline, each.cost) for each in whole.stories if each.begin_ms <= edge
        ]
        assert [WindowEdge.UNTIL in each.crosses for each in early.stories] == [
            each.end_ms is None or each.end_ms > edge for each in early.stories
        ]


async def test_a_member_from_before_the_window_has_a_lane_in_it() -> None:
    """Processes that had left before have none; only events in the window are drawn."""
    reported = a_night()
    whole = page_of(reported.history())
    edge = whole.lanes[1].end_ms
    assert edge is not None
    late = await windowed(reported, Window(since=AtTime(edge + 1)))
    assert (late.begin_ms, late.end_ms) == (edge + 1, whole.end_ms)
    assert [lane.name for lane in late.lanes] == [lane.name for lane in whole.lanes if lane.name != "billing-2"]
    assert late.lanes[0].begin_ms < late.begin_ms
    early = await windowed(reported, Window(until=AtTime(edge - 1)))
    assert [lane.end_ms for lane in early.lanes if lane.name == "billing-2"] == [None]
    assert (early.begin_ms, early.end_ms) == (whole.begin_ms, edge - 1)


def test_a_report_does_not_replace_the_log_that_it_reads(tmp_path: Path) -> None:
    """The file stays as it was."""
    path = tmp_path / "muster.db"
    log = asyncio.run(sqlite_log(path, a_night()))
    before = path.read_bytes()
    assert_fails(run("report", "orders", "-o", str(path), log=log), 2, f"{path} is the log that is read")
    assert path.read_bytes() == before


def test_a_groups_name_is_printable_beside_its_page(tmp_path: Path) -> None:
    """Control sequences in a group's id do not reach the terminal."""
    name = "\x1b[31morders\n\u202e"
    log = asyncio.run(sqlite_log(tmp_path / "muster.db", script(name).created()))
    result = run("report", name, "-o", str(tmp_path / "report.html"), log=log)
    assert result.exit_code == 0, result.output
    assert "\\x1b[31morders\\n\\u202e" in result.stdout


@pytest.mark.parametrize(
    ("size", "told"),
    [(10, "1 KB"), (93_999, "93 KB"), (999_999, "999 KB"), (1_000_000, "1.0 MB"), (1_960_000, "2.0 MB")],
)
def test_the_size_of_a_report_is_shown_in_readable_units(size: int, told: str) -> None:
    """The limit is 2 MB."""
    assert size_text(size) == told
