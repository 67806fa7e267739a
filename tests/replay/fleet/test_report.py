"""`muster fleet report`: the page has the facts of the tables, treats names as data, and is self-contained."""

import asyncio
import base64
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from muster.cli import app
from muster.events.log.memory import MemoryStorage
from muster.replay.fleet.questions.queries import AskedRows
from muster.replay.fleet.report.facts import THE_REST, facts_of
from muster.replay.fleet.report.heat import COLUMNS_MAX, LEVELS, level_of, paths_of, scale_of
from muster.replay.fleet.report.html import document
from muster.replay.fleet.report.teams import DEFAULT_PATTERN, GroupCost, team_of, teams_of
from muster.replay.html.document import PAGE_BYTES_MAX
from muster.replay.incidents.families import family_of
from muster.replay.text.times import wall_ms_of
from tests.replay.fleet.fleets import built, judged, rows_of
from tests.replay.report.browser import Tab, browser, found, url_of
from tests.replay.report.test_browser import IS_CI, IS_OPTED_OUT, WHY, pages_of
from tests.replay.report.test_document import Nesting
from tests.replay.report.told import MADE_MS, hostile
from tests.replay.written import sqlite_log

END_TAG = "</script><script>document.title = 'owned'</script>"
TEAM = re.compile(DEFAULT_PATTERN)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of some of the judge's cases."""
    folder = tmp_path_factory.mktemp("tables")
    asyncio.run(built(judged(range(0, 24, 2)), folder))
    return folder


@pytest.fixture(scope="module")
def page(tables: Path) -> str:
    """The page of these tables, with processes that flap; the name of one is longer than its column is wide."""
    facts = facts_of(tables, AskedRows(), TEAM, rows=5)
    process = "consumer-checkout-archive-00030-1 at 10.0.120.0"
    flapping = {"group_id": "checkout-archive-00030", "process": process, "stays": 21, "days": 1, "triggered": 44,
                "shortest_ms": 4_500_000, "at_once": 7, "last_at": facts.extent["last_at"]}  # fmt: skip
    alone = {**flapping, "process": "app-2", "at_once": 1}
    full = msgspec.structs.replace(facts, flapping=(flapping, alone))
    return document(full, str(tables), made_ms=MADE_MS)


def made(tables: Path, out: Path, *more: str) -> Result:
    return CliRunner().invoke(app, ["fleet", "report", "--tables", str(tables), "-o", str(out), *more])


def hostile_tables(text: str, folder: Path) -> Path:
    """Return the tables of a group whose members have these names."""
    log = asyncio.run(sqlite_log(folder / "muster.db", hostile(text)))
    answer = CliRunner().invoke(app, ["fleet", "build", "--log", log, "--to", str(folder / "tables")])
    assert answer.exit_code == 0, answer.output
    return folder / "tables"


# ---- facts ------------------------------------------------------------------------------------------------------


def test_its_numbers_are_those_of_the_tables(tables: Path) -> None:
    """Summed here row by row; the groups without a separate row are in the last one."""
    facts = facts_of(tables, AskedRows(), TEAM, rows=5)
    rebalances = rows_of(tables, "rebalances")
    costs = Counter[str]()
    for row in rebalances:
        costs[row["group_id"]] += row["partition_ms"] or 0
    for row in rows_of(tables, "incidents"):
        costs[row["group_id"]] += (row["silent_partition_ms"] or 0) + row["empty_partition_ms"]
        costs[row["group_id"]] += row["unassigned_partition_ms"] or 0
    *own, rest = facts.rows
    assert [(row.name, row.partition_ms) for row in own] == costs.most_common(5)
    assert (rest.name, rest.partition_ms) == (THE_REST, sum(costs.values()) - sum(row.partition_ms for row in own))
    assert facts.rest == len(costs) - 5
    assert sum(row.rebalances for row in facts.rows) == len(rebalances) == facts.extent["rebalances"]
    assert facts.extent["incidents"] == len(rows_of(tables, "incidents"))
    assert facts.extent["known_partition_ms"] == sum(costs.values())
    (team,) = facts.teams
    assert (team.name, team.groups, team.partition_ms) == ("group", len(costs), sum(costs.values()))


def test_the_window_and_the_pattern_choose(tables: Path) -> None:
    """Events that began outside of them are not on the page."""
    group_id = rows_of(tables, "rebalances")[0]["group_id"]
    facts = facts_of(tables, AskedRows(groups=group_id), TEAM)
    assert {row.name for row in facts.rows} == {group_id}
    assert {row["group_id"] for row in facts.incidents} == {group_id}
    assert facts.rest == 0
    nothing = facts_of(tables, AskedRows(since_ms=MADE_MS + 10**12), TEAM)
    assert (nothing.scale, nothing.rows, nothing.incidents) == (None, (), ())


async def test_its_groups_are_those_of_the_window(lived_log: MemoryStorage, tmp_path: Path) -> None:
    """Other groups are left out, even if something else of them began on that day."""
    await built(lived_log, tmp_path)
    at = max(row["started_at"] for row in rows_of(tmp_path, "rebalances"))
    began = {
        row["group_id"]
        for name in ("rebalances", "incidents")
        for row in rows_of(tmp_path, name)
        if row["started_at"] == at
    }
    facts = facts_of(tmp_path, AskedRows(since_ms=wall_ms_of(at), until_ms=wall_ms_of(at)), TEAM)
    assert facts.extent["groups"] == len(facts.rows) == len(began) < len(rows_of(tmp_path, "group_day"))


def test_a_window_in_which_an_incident_began_without_a_rebalance_says_so(tables: Path) -> None:
    """The incident has no rebalance."""
    incident = next(row for row in rows_of(tables, "incidents") if not row["rebalances"])
    at_ms = wall_ms_of(incident["started_at"])
    requested = AskedRows(since_ms=at_ms, until_ms=at_ms)
    reported = document(facts_of(tables, requested, TEAM), "fleet", made_ms=MADE_MS, asked=requested)
    assert "<p>No rebalance began, requested since <time" in reported
    assert "Partition time of rebalances that began within an hour:" in reported
    assert "None" not in reported.replace("<p>None.</p>", "")


@pytest.mark.parametrize(
    ("group_id", "pattern", "team"),
    [
        ("payments.orders", DEFAULT_PATTERN, "payments"),
        ("payments-orders.1", DEFAULT_PATTERN, "payments"),
        ("orders", DEFAULT_PATTERN, "(no team)"),
        ("x-team-a-orders", "team-[a-z]", "team-a"),
        ("x-team-a-orders", "team-([a-z])-", "a"),
        ("orders", "(x)?", "(no team)"),
    ],
)
def test_a_team_is_what_the_pattern_finds(group_id: str, pattern: str, team: str) -> None:
    assert team_of(group_id, re.compile(pattern)) == team


def test_teams_are_in_the_order_of_what_their_groups_cost() -> None:
    """Each with its most costly group."""
    costs = [("a-1", 10), ("b-1", 100), ("a-2", 95)]
    groups = [GroupCost(group_id=name, rebalances=1, rebalancing_ms=1, partition_ms=ms) for name, ms in costs]
    reported = [(team.name, team.groups, team.partition_ms, team.worst_group) for team in teams_of(groups, TEAM)]
    assert reported == [("a", 2, 105, "a-2"), ("b", 1, 100, "b-1")]


def test_cells_beside_each_other_are_one_stroke() -> None:
    """Their level is that of their cost; no cost has the lowest level."""
    cells = {10: 0, 11: 5, 13: 70_000, 14: 20_000}
    assert paths_of(cells, scale_of(10, 20)) == (
        (1, "M0 5h2"),
        (2, "M4 5h1"),
        (3, "M3 5h1"),
    )
    for least, level, _ in LEVELS:
        assert (level_of(least - 1), level_of(least)) == (level - 1, level)


def test_a_quarter_has_fewer_columns_than_hours() -> None:
    """They have several hours each; a month has a column for each hour."""
    assert scale_of(0, 24 * 31 - 1).hours == 1
    quarter = scale_of(100, 100 + 24 * 90 - 1)
    assert (quarter.hours, quarter.columns) == (3, 720)
    assert quarter.columns <= COLUMNS_MAX
    assert quarter.column(100 + 24 * 90 - 1) == quarter.columns - 1


# ---- document ---------------------------------------------------------------------------------------------------


def test_it_needs_nothing_but_itself(page: str) -> None:
    """Its tags are closed and its links have targets; the policy allows only its own style, and names no host."""
    nesting = Nesting()
    nesting.feed(page)
    assert nesting.open == []
    assert len(set(nesting.ids)) == len(nesting.ids)
    assert set(re.findall(r'(?:aria-labelledby|href)="#?(.*?)"', page)) <= set(nesting.ids)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.+?)"', page)
    (style,) = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'none'; style-src 'sha256-{digest}';" in policy.replace("&#39;", "'")
    assert not re.findall(r"\w+://", page)
    assert not re.findall(r"<[^>]+ (style|on\w+)=", page)
    assert "<script" not in page


def test_indistinguishable_processes_are_not_one_flapping_process(page: str) -> None:
    """The maximum number at once is shown, if there was more than one."""
    assert page.count("7 at once, indistinguishable") == 1
    assert page.count("at once, indistinguishable") == 1
    assert "Flapping processes, by whole days (UTC)" in page


def test_client_strings_are_escaped(tmp_path: Path) -> None:
    """In all fields that a client can set."""
    tables, out = hostile_tables(END_TAG, tmp_path), tmp_path / "fleet.html"
    assert made(tables, out).exit_code == 0
    page = out.read_text(encoding="utf-8")
    assert "owned" in page
    assert "<script" not in page
    nesting = Nesting()
    nesting.feed(page)
    assert nesting.open == []


def test_the_worst_of_a_quarter_of_ten_thousand_groups_fits(tables: Path) -> None:
    """Rows in which no two neighbours have the same level, and names of maximum length."""
    facts = facts_of(tables, AskedRows(), TEAM)
    scale = scale_of(0, 24 * 90 - 1)
    paths = paths_of({hour: 10**7 * (hour // 3 % 2) for hour in range(24 * 90)}, scale)
    rows = tuple(msgspec.structs.replace(facts.rows[0], name="<" * 32_000, paths=paths) for _ in range(41))
    incidents = tuple({**facts.incidents[0], "headline": "<" * 32_000, "group_id": "<" * 32_000} for _ in range(20))
    full = msgspec.structs.replace(facts, scale=scale, rows=rows, incidents=incidents)
    assert len(document(full, "fleet", made_ms=MADE_MS).encode()) < PAGE_BYTES_MAX / 2


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--team-pattern", "("), "--team-pattern '(' is no regular expression"),
        (("-o", "/none/fleet.html"), "there is no folder /none"),
        (("--tables", "/none"), "there are no tables in /none"),
    ],
)
def test_an_error_is_one_line(more: tuple[str, ...], told: str, tables: Path, tmp_path: Path) -> None:
    """And nothing is written."""
    answer = made(tables, tmp_path / "fleet.html", *more)
    assert (answer.exit_code, answer.stderr.count("\n")) == (2, 1)
    assert told in answer.stderr
    assert not (tmp_path / "fleet.html").exists()


def test_times_are_shown_in_the_requested_zone(tables: Path, tmp_path: Path) -> None:
    """In UTC unless one is given."""
    for zone, reported in ((), " UTC</time>"), (("--tz", "Asia/Kolkata"), " UTC+05:30</time>"):
        assert made(tables, tmp_path / "fleet.html", *zone).exit_code == 0
        assert reported in (tmp_path / "fleet.html").read_text(encoding="utf-8")


def test_groups_and_incidents_are_linked_to_their_stories(page: str, tables: Path) -> None:
    """Each group with a row, and each listed incident, in the same page, with its rebalances."""
    facts = facts_of(tables, AskedRows(), TEAM, rows=5)
    for row in facts.rows[:-1]:
        assert f'<th scope="row"><a href="#{facts.links[row.name]}"><bdi>{row.name}</bdi></a></th>' in page
    rebalances = Counter((row["group_id"], row["incident"]) for row in rows_of(tables, "rebalances"))
    for listed in facts.incidents[:5]:
        key = facts.incident_links[listed["group_id"], listed["incident"]]
        assert page.count(f'<a href="#{key}">') == 1
        (story,) = re.findall(rf'<article id="{key}".*?</article>', page, re.DOTALL)
        assert f'class="f-{family_of(listed["kind"])}"' in story
        assert unescape(story).count(listed["headline"]) == 1
        assert story.count("<li>") == min(10, rebalances[listed["group_id"], listed["incident"]])
        assert f"muster replay why {listed['group_id']} --at {listed['started_at']}" in story
    assert all(len(each.stories) <= 8 for each in facts.stories)


# ---- browser ----------------------------------------------------------------------------------------------------

in_browser = pytest.mark.skipif(IS_OPTED_OUT or not (IS_CI or found()), reason=f"{WHY}: NOT TESTED IN A BROWSER")


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    assert found() is not None, f"no Chromium: apt-get install chromium ({os.name})"
    with browser() as opened:
        yield opened


@in_browser
def test_headings_fit_on_a_phone_and_a_print_has_ten_pages(tab: Tab, page: str, tmp_path: Path) -> None:
    """Except for the heat map, which does not scroll."""
    tab.size(420, 900)
    path = tmp_path / "fleet.html"
    path.write_text(page, encoding="utf-8")
    tab.open(url_of(path))
    cut = """[...document.querySelectorAll('h1, h2, h3, h4, .heat th, .heat .axis text')].filter(each =>
        each.getBoundingClientRect().right > 412 || each.scrollWidth > each.clientWidth + 1
    ).map(each => each.textContent)"""
    assert tab.run(cut) == []
    assert pages_of(tab) <= 10


@in_browser
@pytest.mark.parametrize("width", [1200, 400])
def test_the_page_loads_without_errors_and_without_requests(tab: Tab, page: str, tmp_path: Path, width: int) -> None:
    """As wide as the screen, with a picture for each row, and a text for screen readers."""
    tab.size(width, 900)
    path = tmp_path / "fleet.html"
    path.write_text(page, encoding="utf-8")
    tab.open(url_of(path))
    assert (tab.errors, tab.requests) == ([], [url_of(path)])
    assert tab.run("document.documentElement.scrollWidth") == width
    pictures = tab.run("[...document.querySelectorAll('.heat svg[role=img]')].map(e => e.getAttribute('aria-label'))")
    assert len(pictures) == 6
    assert all(each.startswith("peak in the hour from 20") for each in pictures)
    wide = "[...document.querySelectorAll('tbody > tr > *')].filter(each => each.scrollWidth > each.clientWidth + 1)"
    assert tab.run(f"{wide}.map(each => each.textContent)") == []
    strokes = "[...document.querySelectorAll('.heat path')].every(each => getComputedStyle(each).stroke !== 'none')"
    assert tab.run(strokes)
