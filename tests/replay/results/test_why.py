"""`why`: the incidents of one night in each format, and which of them are shown."""

import asyncio
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from muster.events.causes import Cause
from muster.replay.commands.why import AskedIncidents, _end, _Shown
from muster.replay.fleet.simulation.world.rules import GROUP_ID
from muster.replay.form import Format
from muster.replay.history.window import AtTime
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Incident, Statement
from muster.replay.rebalances.rebalance import Rebalance
from muster.replay.render import Detail, IncidentStream
from muster.replay.render.incident_table import print_incident, rows_of
from muster.replay.results.why import NEWEST, Around, Every, IncidentChoice, NewestIncidents, WhyFold
from tests.replay.commands.test_cli import assert_fails, run
from tests.replay.golden import assert_golden
from tests.replay.histories import Script
from tests.replay.incidents.fleet import Fleet, of_kind
from tests.replay.stories import a_night
from tests.replay.told import printed_incidents
from tests.replay.whole import incidents
from tests.replay.written import script, sqlite_log

NIGHT = incidents(a_night().history())


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log with the night of `orders`, and a group with many events."""
    path = tmp_path_factory.mktemp("log") / "muster.db"
    return asyncio.run(sqlite_log(path, a_night(), busy()))


def busy() -> Script:
    """Return a group that a member joins and leaves 25 times, an hour apart: 50 incidents."""
    story = script("busy").created()
    for _ in range(25):
        story.wait(3_600_000).start(story.joined(story.member("a"))).complete(cause=Cause.INITIAL_DELAY_ELAPSED)
        story.stabilize({"a": {"orders": [0]}})
        story.wait(3_600_000).start(story.removed(story.of("a"), Cause.MEMBER_LEFT)).emptied()
    return story


def why_incidents(url: str, *options: str, group: str = "orders") -> list[dict[str, Any]]:
    """Return the incidents in JSON lines."""
    out = run("why", group, "--format", "jsonl", *options, log=url).stdout
    return [msgspec.json.decode(line) for line in out.splitlines()]


def shown(url: str, *options: str, group: str = "orders") -> list[str]:
    """Return when each of the incidents in a table began, in its order."""
    out = run("why", group, *options, log=url).stdout
    return [line.partition(" UTC,")[0] for line in out.splitlines() if " UTC," in line and line.startswith("20")]


def begins(incidents: list[dict[str, Any]]) -> list[str]:
    return [each["started_at"].replace("T", " ").removesuffix("Z") for each in incidents]


@pytest.mark.parametrize(
    ("form", "name"),
    [(Format.TABLE, "why.txt"), (Format.JSON, "why.json"), (Format.JSONL, "why.jsonl"), (Format.MD, "why.md")],
)
def test_a_night_matches_its_golden_in_every_format(form: Format, name: str) -> None:
    """All incidents of the story are printed exactly as in the golden file."""
    assert_golden(name, printed_incidents(NIGHT, form))


def test_json_lines_are_the_incidents_of_the_json_document(url: str) -> None:
    """Both formats have all of them, oldest first."""
    document = msgspec.json.decode(run("why", "orders", "--format", "json", log=url).stdout)
    assert list(document) == ["group_id", "log", "window", "incidents"]
    assert document["incidents"] == why_incidents(url)
    assert [each["id"] for each in why_incidents(url)] == [each.id for each in NIGHT]


@pytest.mark.parametrize("width", [40, 80, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """The table folds its cells to the width it is given."""
    assert max(map(len, printed_incidents(NIGHT, width=width).splitlines())) <= width


def test_people_are_shown_the_newest_first_and_how_many_more_there_are(url: str) -> None:
    """On a terminal and in Markdown; `--all` has all of them, the latest at the bottom."""
    every = begins(why_incidents(url, group="busy"))
    assert len(every) == 50
    assert shown(url, group="busy") == every[: -NEWEST - 1 : -1]
    assert shown(url, "--all", group="busy") == every
    for form in ("table", "md"):
        out = run("why", "busy", "--format", form, log=url).stdout
        assert "30 older" in out
        assert "30 older" not in run("why", "busy", "--all", "--format", form, log=url).stdout
    assert "older" not in run("why", "orders", log=url).stdout


def test_the_last_one_is_that_which_began_last(url: str) -> None:
    """With or without a rebalance; the rest of the log is not read for it."""
    for group in ("orders", "busy"):
        assert why_incidents(url, "--last", group=group) == why_incidents(url, group=group)[-1:]


def test_a_generation_is_that_of_its_incident_with_the_rebalance_whole(url: str) -> None:
    """The details of the rebalance are below the incident."""
    (crash,) = why_incidents(url, "--generation", "2")
    assert (crash["kind"], [each["to_generation"] for each in crash["rebalances"]]) == ("crash", [2])
    out = run("why", "orders", "--generation", "2", log=url).stdout
    assert "Generation 1 -> 2: static member 'billing-2'" in out
    assert "Join phase" in out
    assert "aiokafka-0.14-00000007… : orders 4-7" in out.replace("-> aiokafka", "aiokafka").replace("…:", "… :")


def test_a_time_selects_the_incidents_that_span_it(url: str) -> None:
    """A time or a seq; between two incidents both are shown, with a note."""
    (crash,) = why_incidents(url, "--at", "2026-11-21T02:13:31.000Z")
    assert crash["kind"] == "crash"
    assert why_incidents(url, "--seq", "--at", str(crash["rebalances"][0]["first_seq"] + 1))[0]["id"] == crash["id"]
    assert why_incidents(url, "--at", str(crash["rebalances"][0]["to_generation"]))[0]["id"] == crash["id"]
    before, after = why_incidents(url, "--at", "2026-11-21T02:30:00Z")
    assert [before["started_at"], after["started_at"]] == ["2026-11-21T02:13:30.185Z", "2026-11-21T03:13:33.415Z"]
    out = run("why", "orders", "--at", "2026-11-21T02:30:00Z", log=url).stdout
    assert "There was no incident of orders at 2026-11-21T02:30:00.000Z. The nearest before and after" in out
    (last,) = why_incidents(url, "--at", "2027-01-01")
    assert last == why_incidents(url)[-1]
    assert "The nearest before:" in run("why", "orders", "--at", "2027-01-01", log=url).stdout
    assert_fails(run("why", "orders", "--at", "2020-01-01", log=url), 1, "has no events of orders at", "seq 1 to 44")
    assert_fails(run("why", "orders", "--at", "900", "--seq", log=url), 1, "has no events of orders at seq 900")


def test_an_incident_that_crosses_the_edge_of_a_window_is_whole_and_marked(url: str) -> None:
    """Without a window there is no note; a seq is an edge, too."""
    every = why_incidents(url)
    (crash,) = (each for each in every if each["kind"] == "crash")
    first, last = crash["rebalances"][0]["first_seq"], crash["rebalances"][0]["last_seq"]
    for window in (["--since", "2026-11-21T02:13:31Z"], ["--since", str(first + 4), "--seq"]):
        begun = why_incidents(url, *window)
        assert [each["crosses"] for each in begun if each["kind"] == "crash"] == [["since"]]
        assert {**begun[0], "crosses": []} == crash
        assert "it began before --since" in run("why", "orders", *window, log=url).stdout
    for window in (["--until", "2026-11-21T02:13:31Z"], ["--until", str(last - 6), "--seq"]):
        cut = why_incidents(url, *window)
        assert [each["crosses"] for each in cut if each["kind"] == "crash"] == [["until"]]
        assert cut[-1]["started_at"] < every[-2]["started_at"]
    assert all(each["crosses"] == [] for each in every)


def test_a_window_shows_a_takeover_like_the_whole_history(tmp_path: Path) -> None:
    """The log has the former owner, and the settings of the current one, before the window."""
    story = script("orders").coordinator("a:1").created()
    story.start(story.joined(story.member("x"))).complete(cause=Cause.INITIAL_DELAY_ELAPSED)
    story.stabilize({"x": {"orders": [0]}}).wait(3_600_000).start(story.joined(story.member("y")))
    story.wait(1_000).complete(story.rejoined(story.of("x"))).stabilize({"x": {"orders": [0]}})
    story.wait(3_600_000).coordinator("b:2").wait(3_600_000).coordinator("c:3").wait(1_000)
    story.start(story.removed(story.of("y"), Cause.MEMBER_LEFT)).emptied()
    url = asyncio.run(sqlite_log(tmp_path / "muster.db", story))
    whole = why_incidents(url)
    changes = [each["headline"] for each in whole if each["kind"] == "coordinator-change"]
    assert [("a:1" in each, "b:2" in each) for each in changes] == [(True, True), (False, True)]
    for since in ("02:30", "03:30", "04:30"):
        assert why_incidents(url, "--since", f"2026-11-21T{since}:00Z") == [
            each for each in whole if each["started_at"] > f"2026-11-21T{since}"
        ]


def test_a_time_without_an_incident_is_not_an_error(url: str) -> None:
    """The history covers it, and nothing happened."""
    result = run("why", "orders", "--since", "2026-11-21T02:20", "--until", "2026-11-21T02:40", log=url)
    assert (result.exit_code, result.stdout) == (
        0,
        "The log has no incident of orders since 2026-11-21T02:20:00.000Z until 2026-11-21T02:40:00.000Z.\n",
    )


def test_last_and_at_take_no_window(url: str) -> None:
    """Exit code 2."""
    for option in (["--last"], ["--at", "17"]):
        assert_fails(run("why", "orders", *option, "--since", "2h", log=url), 2, f"{option[0]} searches the whole")


def test_a_client_can_write_neither_to_the_terminal_nor_markdown() -> None:
    """Escape sequences and markup from clients are printed, not executed."""
    hostile = Script().created()
    hostile.start(hostile.joined(hostile.member("x", host="/10.0.0.1", client_id="\x1b[2J[bold]boo[/bold]\x07")))
    found = incidents(hostile.history())
    table = printed_incidents(found, width=300)
    assert "\x1b" not in table
    assert "\\x1b[2J[bold]boo[/bold]\\x07" in table
    assert "[bold]" not in printed_incidents(found, Format.MD).replace("\\[bold\\]", "")


def test_the_page_of_kinds_is_named() -> None:
    """In the command's help."""
    assert "docs/incidents.md" in " ".join(run("why", "--help").stdout.split())


def test_the_newest_of_a_list_is_shown_in_full_and_the_others_in_brief() -> None:
    """If all were as long as the first one, it would hide how many there are."""

    class Stream(IncidentStream):
        def __init__(self) -> None:
            self.details: list[Detail] = []

        def feed(self, incident: Incident, detail: Detail, rebalances: Sequence[Rebalance] = ()) -> None:
            assert incident.headline
            assert not rebalances
            self.details.append(detail)

        def note(self, sentence: str) -> None:
            raise AssertionError(sentence)

        def end(self) -> None:
            pass

    for choice, others in ((NewestIncidents(NEWEST), Detail.BRIEF), (Every(), Detail.WHOLE)):
        stream = Stream()
        _Shown(stream, AskedIncidents(), choice).feed(NIGHT[:3])
        assert stream.details == [Detail.WHOLE, others, others]


def test_nested_incidents_are_marked_and_the_excess_is_counted() -> None:
    """A crash in a deployment: its kind and number; a terminal shows some sentences and rebalances, not all."""
    fleet = Fleet(12)
    for number in range(1, 9):
        fleet.restart(number, 5_000)
        fleet.run(20_000)
        if number == 3:
            fleet[12].die()
    fleet.rest(20_000)
    crash, deployment = (of_kind(fleet.told(), kind) for kind in ("crash", "deployment"))
    assert crash.parent == deployment.id
    _, seq, kind = deployment.id.split("-")
    assert f"Within {kind} (seq {seq})" in " ".join(printed_incidents([crash]).split())
    assert "Within" not in printed_incidents([deployment])
    brief, whole = StringIO(), StringIO()
    print_incident(deployment, Console(file=brief, width=200), Detail.BRIEF)
    print_incident(deployment, Console(file=whole, width=200), Detail.ALL)
    assert f"... and {len(deployment.chain) - Detail.BRIEF} more; --format json has all" in brief.getvalue()
    assert "--format json" not in whole.getvalue()


def test_many_rebalances_events_and_culprits_are_marked_as_many() -> None:
    """The range of generations, as long as none is missing in between; each culprit has its name in a row."""
    fleet = Fleet(12)
    for number in range(1, 9):
        fleet.restart(number, 5_000)
        fleet.run(20_000)
    fleet.rest(20_000)
    deployment = of_kind(fleet.told(), "deployment")
    first, *before, _, between, last = deployment.rebalances

    def rows(incident: Incident) -> dict[str, str]:
        return {label: str(content) for label, content in rows_of(incident, Detail.BRIEF)}

    broken = msgspec.structs.replace(deployment, rebalances=(first, *before, between, last))
    assert rows(broken)["Rebalances"].startswith(
        f"{first.from_generation} to {before[-1].to_generation}, {len(before) + 1} rebalances;"
        f" {between.from_generation} to {last.to_generation}, 2 rebalances (the longest took "
    )
    few = msgspec.structs.replace(deployment, rebalances=(first, last), culprits=deployment.culprits[:5])
    assert rows(few)["Rebalances"].startswith(f"{first.from_generation} -> {first.to_generation} (")
    assert "and 3 more" in deployment.headline
    assert all(f"'app-{number}' (" in rows(deployment)["Culprits"] for number in range(1, 9))
    assert "Culprits" not in rows(few)
    seqs = Statement(text="They went.", grade=Grade.RECORDED, seqs=tuple(range(93, 211, 2)))
    reported = rows(msgspec.structs.replace(deployment, chain=(seqs,)))["What happened"]
    assert reported.endswith("They went. (seq 93 to 209, 59 events)")


@pytest.mark.parametrize(
    ("choice", "of", "noted"),
    [
        (NewestIncidents(2), NIGHT, [f"... and {len(NIGHT) - 2} older: --all"]),
        (NewestIncidents(2), NIGHT[:2], []),
        (Every(), NIGHT, []),
        (NewestIncidents(2), [], ["The log has no incident of orders."]),
    ],
)
def test_the_number_of_older_incidents_is_reported(
    choice: IncidentChoice, of: Sequence[Incident], noted: list[str]
) -> None:
    """Below them; also if there are none."""
    notes: list[str] = []

    class Stream(IncidentStream):
        def feed(self, incident: Incident, detail: Detail, rebalances: Sequence[Rebalance] = ()) -> None:
            assert not notes

        def note(self, sentence: str) -> None:
            notes.append(sentence)

        def end(self) -> None:
            pass

    shown = _Shown(Stream(), AskedIncidents(), choice)
    for incident in of:
        shown.feed(choice.take(incident))
    _end(choice, shown, "orders")
    assert notes == noted
    assert shown.count == (min(2, len(of)) if isinstance(choice, NewestIncidents) else len(of))


def crash_in_a_deployment() -> Fleet:
    """The deployment begins before the crash, and continues after it."""
    fleet = Fleet(6)
    for number in (1, 2, 3, 4):
        fleet.restart(number, 5_000)
        fleet.run(20_000)
        if number == 2:
            fleet[6].die()
    fleet.rest(20_000)
    return fleet


@pytest.mark.parametrize("at_most", [1, NEWEST])
def test_an_incident_is_as_new_as_its_newest_rebalance(at_most: int) -> None:
    """A deployment that began before a crash is newer than the crash if it has the newer rebalance."""
    fleet = crash_in_a_deployment()
    newest = max((each for reported in fleet.told() for each in reported.rebalances), key=lambda each: each.first_seq)
    fold, choice = WhyFold(GROUP_ID), NewestIncidents(at_most)
    for item in fleet.history().items:
        for incident in fold.feed(item):
            choice.take(incident)
    for incident in fold.end():
        choice.take(incident)
    reported = list(choice.end())
    assert [each.kind for each in reported] == ["deployment", "crash", "start"][:at_most]
    assert newest in reported[0].rebalances


def test_the_nearest_incident_after_a_time_is_the_first_to_begin() -> None:
    """Even if it counts as newer than another one, since it ends later."""
    fleet = crash_in_a_deployment()
    fold = WhyFold(GROUP_ID, at=AtTime(fleet.began_ms - 60_000))
    around = Around(fold)
    for item in fleet.history().items:
        for incident in fold.feed(item):
            around.take(incident)
    for incident in fold.end():
        around.take(incident)
    assert [each.kind for each in around.end()] == ["start", "deployment"]
