"""The report in a real Chromium: it loads without errors or requests, and shows the history; hover, filters."""

import base64
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.replay.report.browser import Tab, browser, found, middle, url_of
from tests.replay.report.told import busy, document_of, hostile
from tests.replay.stories import a_night

IS_CI = os.environ.get("CI") == "true"
IS_OPTED_OUT = os.environ.get("MUSTER_TEST_NO_BROWSER") == "1"
WHY = "MUSTER_TEST_NO_BROWSER=1" if IS_OPTED_OUT else "no Chromium is installed"
pytestmark = [
    pytest.mark.skipif(IS_OPTED_OUT or not (IS_CI or found()), reason=f"{WHY}: NOT TESTED IN A BROWSER"),
    pytest.mark.timeout(120),
]

SHOWN = "[...document.querySelectorAll('article:not([hidden])')].map(each => each.dataset.kind).sort()"
LANES = "[...document.querySelectorAll('#body .name')].map(each => each.textContent)"
TIP = "document.querySelector('#tip').textContent"
PAPER_WIDTH = 718
"""The width of A4 without its margins, in CSS pixels."""
RANGE = "document.querySelector('#range').textContent"
SHOWN_CHART = f"[{RANGE}, document.querySelector('#body').innerHTML]"
"""The range that the chart displays as text, and the range that it shows."""


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    assert found() is not None, "no Chromium: apt-get install chromium"
    with browser() as opened:
        opened.size(1200, 900)
        yield opened


@pytest.fixture
def night(tab: Tab, tmp_path: Path) -> Tab:
    """Open the report of the night of `orders`."""
    return opened(tab, document_of(a_night().history()), tmp_path)


def put(tab: Tab, selector: str, value: str) -> None:
    """Enter a value like a user."""
    tab.run(f"document.querySelector('{selector}').value = '{value}'")
    for event in ("input", "change"):
        tab.run(f"document.querySelector('{selector}').dispatchEvent(new Event('{event}', {{bubbles: true}}))")
    tab.frame()


def opened(tab: Tab, document: str, folder: Path) -> Tab:
    path = folder / "report.html"
    path.write_text(document, encoding="utf-8")
    tab.open(url_of(path))
    assert tab.requests == [url_of(path)]
    return tab


def test_it_loads_without_errors_and_shows_what_the_history_holds(night: Tab) -> None:
    """A lane for each process, a mark for each incident, the counts of partitions."""
    assert [lane.split(" ")[0] for lane in night.run(LANES)] == ["billing-1", "billing-2", "billing-3", "aiokafka-0.14"]
    night.run("document.querySelector('[data-do=all]').click()")
    night.frame()
    marks, articles = (
        night.run(f"document.querySelectorAll('{each}').length") for each in ("rect.incident", "article")
    )
    assert marks == articles > 5
    assert night.run("document.querySelector('.incident.f-failure') !== null")
    assert "4" in night.run("[...document.querySelectorAll('.count')].map(each => each.textContent)")
    assert night.errors == []


def test_the_chart_opens_on_what_cost_most(night: Tab, tmp_path: Path) -> None:
    """With the silence that it began with; a link to another incident opens that one, and the button shows all."""
    first = "[...document.querySelectorAll('article')].find(each => each.classList.contains('on')).dataset.kind"
    drawn = "[...document.querySelectorAll('#head rect.incident')].map(each => Number(each.dataset.n))"
    assert night.run(first) == "crash"
    kinds = night.run("[...document.querySelectorAll('article')].map(each => each.dataset.kind)")
    assert len(night.run(drawn)) < len(kinds)
    begin = night.run(RANGE).split(" to ")[0]
    assert "2026-11-21 02:11:00" < begin < "2026-11-21 02:12:45.1"
    n = kinds.index("scale-down")
    again = (tmp_path / "report.html").rename(tmp_path / "again.html")
    night.open(f"{url_of(again)}#incident-{n}")
    assert night.run(first) == "scale-down"
    night.run("document.querySelector('[data-do=all]').click()")
    night.frame()
    assert len(night.run(drawn)) == len(kinds)


def test_an_incident_is_shown_on_hover(night: Tab) -> None:
    """Its kind, its grade and its sentence; they disappear with the pointer."""
    n = night.run("[...document.querySelectorAll('article')].findIndex(each => each.dataset.kind === 'crash')")
    night.mouse("mouseMoved", *middle(night, f'[data-n="{n}"]'))
    reported = night.run(TIP)
    assert reported.startswith("crash (")
    assert "'billing-2'" in reported
    assert "UTC" in reported
    night.mouse("mouseMoved", 5, 5)
    assert night.run("document.querySelector('#tip').hidden")


def test_a_lane_shows_the_partitions_of_its_process(night: Tab) -> None:
    """Pointing at a bar shows the process, the time, and the number of partitions."""
    night.mouse("mouseMoved", *middle(night, "#body .count"))
    assert "4 partitions, generation 1" in night.run(TIP)


def test_filters_keep_the_selected_incidents(night: Tab) -> None:
    """Several by kind, one by process, and all again."""
    every = night.run(SHOWN)
    night.run("document.querySelector('[value=crash]').click()")
    assert night.run(SHOWN) == [kind for kind in every if kind != "crash"]
    night.run("document.querySelector('form').reset()")
    night.until(f"{SHOWN}.length === {len(every)}")
    night.run("document.querySelector('#none').click()")
    night.run("document.querySelector('[value=crash]').click()")
    assert night.run(SHOWN) == ["crash"]
    night.run("document.querySelector('form').reset()")
    night.until(f"{SHOWN}.length === {len(every)}")
    put(night, "#process", "BILLING-2")
    assert [lane.split(" ")[0] for lane in night.run(LANES)] == ["billing-2"]
    assert "crash" in night.run(SHOWN)
    assert "coordinator-change" not in night.run(SHOWN)
    assert night.run("document.querySelectorAll('#lanes tr:not([hidden])').length") == 1
    assert "1 of 4 processes" in night.run("document.querySelector('#filtered').textContent")


def test_it_is_used_by_keyboard(night: Tab) -> None:
    """Plus zooms, arrows move, n goes to the next incident and Enter to its text, Home shows everything."""
    night.run("document.querySelector('#chart').focus()")
    night.key("Home")
    ranges = [night.run(RANGE)]
    for key in ("+", "ArrowRight", "Home"):
        night.key(key)
        ranges.append(night.run(RANGE))
    assert len(set(ranges)) == 3
    assert ranges[0] == ranges[3]
    for _ in range(9):
        night.key("p")
    assert night.run(TIP).startswith("start (")
    night.key("Enter")
    assert night.run("document.activeElement.dataset.kind") == "start"


def test_times_change_their_zone_and_name_it(night: Tab) -> None:
    """The browser's zone is Europe/Berlin: UTC+1 in November."""
    first = "document.querySelector('header time').textContent"
    assert night.run(first) == "2026-11-21 02:00:05.800 UTC"
    put(night, "#zone", "local")
    assert night.run(first) == "2026-11-21 03:00:05.800 UTC+01:00"
    assert "Europe/Berlin" in night.run(RANGE)


@pytest.mark.parametrize(
    "text",
    [
        "</script><script>document.title = 'owned'</script>",
        "<!--<script>\"'`${1}{{ 1 }}{% raw %}",
        "\"><img src='http://203.0.113.1/x' onerror=\"document.title='owned'\">",
        "\u202etxt.exe\u202c \u05e9\u05dc\u05d5\u05dd \x1b[31m\x00\u2028",
        30_000 * "x",
    ],
    ids=["end-tag", "comment", "image", "directions", "long"],
)
def test_client_strings_are_only_text(tab: Tab, tmp_path: Path, text: str) -> None:
    """It is neither executed nor requested, and the page stays as wide as before."""
    opened(tab, document_of(hostile(text).history()), tmp_path)
    assert tab.run("document.title").startswith("Why ")
    assert tab.run("document.querySelectorAll('img, script').length") == 2
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    assert len(tab.run(LANES)) == 2
    assert tab.errors == []


COUNT_WORK = """(() => {
    window.work = {draws: 0, nodes: 0, attributes: 0, outlines: 0};
    const counted = (of, name, note) => {
        const does = of[name];
        of[name] = function (...given) { note(this, ...given); return does.apply(this, given); };
    };
    counted(Document.prototype, "createElementNS", () => { work.nodes += 1; });
    counted(Element.prototype, "replaceChildren", (on) => { work.draws += on.id === "body"; });
    counted(Element.prototype, "setAttribute", (_, name, value) => {
        work.attributes += 1;
        work.outlines += name === "d" ? value.length : 0;
    });
})()"""
"""Let the page count what its script does to the chart; an outline is the text of a path."""

NODES_MAX, ATTRIBUTES_MAX, OUTLINES_MAX = 2_000, 7_000, 80_000
"""The maximum size of a drawing of the chart, for any history; currently it is half of that."""
DRAWING_MS_MAX = 150
"""The maximum processor time of a step, including all of the browser's work; currently 25 ms."""


@pytest.fixture(params=[3, 20, 200], ids=["500-incidents", "20-lanes", "200-lanes"])
def busy_chart(tab: Tab, tmp_path: Path, request: pytest.FixtureRequest) -> Tab:
    """Open a report of 10,000 events, with the chart on the screen."""
    opened(tab, document_of(busy(10_000, members=request.param).history()), tmp_path)
    tab.run(COUNT_WORK)
    tab.run("document.querySelector('[data-do=all]').click()")
    tab.run("document.querySelector('#chart').focus()")
    tab.run("document.querySelector('#chart').scrollIntoView({block: 'center'})")
    tab.frame()
    return tab


def worked(tab: Tab, act: Callable[[], None]) -> tuple[dict[str, int], float]:
    """Return the work that the script did on the chart meanwhile, and the page's processor time in ms."""
    tab.run("Object.assign(work, {draws: 0, nodes: 0, attributes: 0, outlines: 0})")
    before_ms = tab.processor_ms()
    act()
    tab.frame()
    return tab.run("({...work})"), tab.processor_ms() - before_ms


def test_ten_thousand_events_are_zoomed_and_moved_without_lag(busy_chart: Tab) -> None:
    """The screen limits what is drawn, not the history: by wheel, by keys and by dragging, at any scale.

    And each step is drawn within a frame: another range is another chart.
    """
    tab = busy_chart
    x, y = middle(tab, "#chart")

    def wheel(right: int, down: int) -> None:
        ctrl = 2 if down else 0
        tab.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=right, deltaY=down, modifiers=ctrl)

    def drag(by: int) -> None:
        for kind, at in (("mousePressed", x), ("mouseMoved", x + by), ("mouseReleased", x + by)):
            tab.call("Input.dispatchMouseEvent", type=kind, x=at, y=y, button="left", clickCount=1)

    steps: list[Callable[[], None]] = [
        lambda: tab.key("-"),  # it shows everything already: the most that there is to draw
        *4 * [lambda: wheel(0, -400)],
        lambda: wheel(300, 0),
        lambda: drag(-200),
        lambda: tab.key("ArrowLeft"),
        *2 * [lambda: wheel(0, 600)],
        lambda: tab.key("+"),
        lambda: drag(100),
    ]
    ranges, took_ms, shown = {tab.run(RANGE)}, [], tab.run(SHOWN_CHART)
    for step in steps:
        work, processor_ms = worked(tab, step)
        before, shown = shown, tab.run(SHOWN_CHART)
        assert (shown[0] == before[0]) == (shown[1] == before[1]), shown[0]
        ranges.add(shown[0])
        took_ms.append(processor_ms)
        assert 0 < work["draws"] <= 2, work
        assert work["nodes"] <= NODES_MAX * work["draws"], work
        assert work["attributes"] <= ATTRIBUTES_MAX * work["draws"], work
        assert work["outlines"] <= OUTLINES_MAX * work["draws"], work
    assert len(ranges) > 10
    assert sorted(took_ms)[len(took_ms) // 2] < DRAWING_MS_MAX, took_ms
    assert tab.errors == []


def test_events_that_come_faster_than_frames_are_drawn_together(busy_chart: Tab) -> None:
    """A wheel or a finger sends hundreds a second; the chart is drawn once for each frame, at the latest position."""
    tab = busy_chart
    x, y = middle(tab, "#chart")
    first = tab.run(RANGE)
    burst = f"""for (let n = 0; n < 200; n++) document.querySelector('#chart').dispatchEvent(new WheelEvent('wheel', {{
        deltaY: n % 2 ? -40 : 20, clientX: {x}, clientY: {y}, ctrlKey: true, bubbles: true, cancelable: true}}))"""
    work, _ = worked(tab, lambda: tab.run(f"(() => {{ {burst} }})()"))
    assert work["draws"] == 1
    assert tab.run(RANGE) != first


def test_hovering_over_ten_thousand_events_does_not_redraw(busy_chart: Tab) -> None:
    """Hovering shows the details without drawing the chart again."""
    tab = busy_chart
    x, y = middle(tab, "#chart")

    def point() -> None:
        for n in range(5):
            tab.mouse("mouseMoved", x + 9 * n, y + 7 * n)

    work, _ = worked(tab, point)
    assert work == {"draws": 0, "nodes": 0, "attributes": 0, "outlines": 0}
    assert "app-" in tab.run(TIP)


def test_it_is_readable_on_a_phone(tab: Tab, tmp_path: Path) -> None:
    """Nothing is wider than the screen."""
    tab.size(400, 800)
    try:
        opened(tab, document_of(a_night().history()), tmp_path)
        assert tab.run("document.documentElement.scrollWidth <= 400")
    finally:
        tab.size(1200, 900)


@pytest.fixture
def paper(tab: Tab, tmp_path: Path) -> Iterator[Tab]:
    """Return a busy history laid out for A4 with margins of a centimetre, in a browser with a dark theme."""
    tab.size(PAPER_WIDTH, 1000)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    tab.call("Emulation.setEmulatedMedia", media="print", features=dark)
    yield opened(tab, document_of(busy(2_000).history()), tmp_path)
    tab.call("Emulation.setEmulatedMedia", media="", features=[])
    tab.size(1200, 900)


def test_a_print_has_all_that_the_page_has_and_nothing_to_click(paper: Tab) -> None:
    """A box that scrolls on a screen is expanded, and nothing is wider than the paper."""
    for selector in ("form", ".tools", ".show", ".skip", ".hint"):
        assert paper.run(f"[...document.querySelectorAll('{selector}')].every(each => !each.offsetHeight)"), selector
    cut_off = """[...document.querySelectorAll('body, body *')].filter(each =>
        getComputedStyle(each).overflow !== 'visible' && !(each instanceof SVGElement) && each.offsetHeight > 2 &&
        (each.scrollHeight > each.clientHeight + 1 || each.scrollWidth > each.clientWidth + 1)
    ).map(each => each.tagName + '#' + each.id + '.' + each.className)"""
    assert paper.run(cut_off) == []
    assert paper.run("document.documentElement.scrollWidth") <= PAPER_WIDTH
    assert paper.run("document.querySelector('#body').getBoundingClientRect().height") > 100


def test_a_print_is_dark_on_white_and_breaks_between_parts(paper: Tab) -> None:
    """No toner is spent on a background, and a heading stays with its text."""
    style = "getComputedStyle(document.querySelector('{}')).{}"
    assert paper.run(style.format("body", "color")) == "rgb(0, 0, 0)"
    assert paper.run(style.format("body", "backgroundColor")) in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
    assert paper.run(style.format("html", "backgroundColor")) in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
    assert paper.run(style.format("#head", "position")) == "static"
    for selector in ("#chart", "tr", "li", "dd"):
        assert paper.run(style.format(selector, "breakInside")) == "avoid", selector
    for selector in ("h1", "h2", "h3", "thead", "article > :first-child"):
        assert paper.run(style.format(selector, "breakAfter")) == "avoid", selector


def test_a_print_has_a_page_for_what_fits_on_one_and_more_for_more(paper: Tab, tmp_path: Path) -> None:
    """The whole page is printed, not only what is on the screen."""

    many = pages_of(paper)
    opened(paper, document_of(a_night().history()), tmp_path)
    assert 1 <= pages_of(paper) < many


def pages_of(tab: Tab) -> int:
    """Return the number of A4 pages of a print."""
    pdf = base64.b64decode(tab.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"])
    return len(re.findall(rb"/Type /Page\b", pdf))


@pytest.mark.parametrize("members", [3, 20, 200])
def test_a_large_report_is_printed_on_ten_pages(tab: Tab, tmp_path: Path, members: int) -> None:
    """Only the costly incidents; the rest of the page is counted, and is back after the print."""
    opened(tab, document_of(busy(10_000, members=members).history()), tmp_path)
    before = tab.run(f"[{LANES}.length, {RANGE}]")
    assert pages_of(tab) <= 10
    tab.until(f"{RANGE} === {json.dumps(before[1])}")
    assert tab.run(f"[{LANES}.length, {RANGE}]") == before
    notes = tab.run("[...document.querySelectorAll('.on-paper')].map(each => each.textContent)")
    assert any(note.startswith("Printed: the 12 most expensive of ") for note in notes)
    assert not tab.run("[...document.querySelectorAll('.on-paper')].some(each => each.offsetHeight)")
