"""The page of a drill in a real Chromium: it loads without errors and without requests, and its timeline works."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.drills.report.html import document
from muster.drills.report.making import result
from tests.drills.report.recorded import FAULT_MS, rebalanced, recorded
from tests.replay.report.browser import Tab, browser, found, middle, url_of
from tests.replay.report.test_browser import IS_CI, IS_OPTED_OUT, LANES, RANGE, TIP, WHY, opened, put

pytestmark = [
    pytest.mark.skipif(IS_OPTED_OUT or not (IS_CI or found()), reason=f"{WHY}: NOT TESTED IN A BROWSER"),
    pytest.mark.timeout(120),
]


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser() as begun:
        begun.size(1200, 900)
        yield begun


@pytest.fixture
def page(tab: Tab, tmp_path: Path) -> Tab:
    """The page of a drill that caused a rebalance, opened."""
    reported = recorded(rebalanced())
    return opened(tab, document(result(reported), reported, made_ms=FAULT_MS + 60_000), tmp_path)


def test_it_loads_without_errors_and_shows_processes_and_members(page: Tab) -> None:
    """A lane for each, a box for each moment, and a cross where a process was killed."""
    assert page.errors == []
    assert [lane.split(" · ")[0] for lane in page.run(LANES)] == [
        "process 1", "process 2", "static-0 member-0", "static-0 member-1",
    ]  # fmt: skip
    assert page.run("document.querySelectorAll('rect.incident').length") == 8
    assert page.run("document.querySelectorAll('#body .lost').length") == 1
    assert page.run("document.querySelectorAll('#body .silent').length") == 2
    assert page.run("document.querySelectorAll('#head .takeover').length") == 1
    assert page.run("document.documentElement.scrollWidth <= innerWidth")


def test_hovering_shows_details(page: Tab) -> None:
    """A box by its sentences; a lane by its name and its state at that time."""
    n = page.run("[...document.querySelectorAll('article')].findIndex(each => each.dataset.kind === 'reading')")
    page.mouse("mouseMoved", *middle(page, f'[data-n="{n}"]'))
    assert "reading: 400 ms, of partition" in page.run(TIP)
    page.mouse("mouseMoved", *middle(page, "#body .count"))
    assert "1 partition" in page.run(TIP)
    page.mouse("mouseMoved", *middle(page, "#body .silent"))
    assert "waiting for an answer" in page.run(TIP)
    page.mouse("mouseMoved", 5, 5)


def test_it_is_filtered_and_zoomed(page: Tab) -> None:
    """The filters are by name and by kind; a moment is shown in the chart."""
    put(page, "#process", "member-1")
    assert [lane.split(" · ")[0] for lane in page.run(LANES)] == ["static-0 member-1"]
    page.run("document.querySelector('form').reset()")
    page.until(f"{LANES}.length === 4")
    page.run("document.querySelector('#none').click()")
    page.run("document.querySelector('[value=rebalance]').click()")
    assert page.run("[...document.querySelectorAll('article:not([hidden])')].map(each => each.dataset.kind)") == [
        "rebalance"
    ]
    before = page.run(RANGE)
    page.run("document.querySelector('article:not([hidden]) .show').click()")
    page.frame()
    page.key("+")
    assert page.run(RANGE) != before


def test_it_is_readable_on_a_phone(tab: Tab, tmp_path: Path) -> None:
    """Nothing is wider than the screen."""
    tab.size(400, 800)
    try:
        reported = recorded()
        opened(tab, document(result(reported), reported, made_ms=FAULT_MS), tmp_path)
        assert tab.run("document.documentElement.scrollWidth <= 400")
        assert tab.run("document.title") == "Muster drill: takeover"
        assert url_of(tmp_path).startswith("file:")
    finally:
        tab.size(1200, 900)
