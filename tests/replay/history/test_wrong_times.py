"""Times that go backwards, and looking up events by time nevertheless."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster.events.avro.partial import PartialGroupEvent, PartialImage, PartialWhy
from muster.events.causes import Cause
from muster.events.state import GroupState
from muster.replay.fleet.simulation.world.rules import GROUP_ID
from muster.replay.history.items import Happened, Prelude
from muster.replay.history.skim import Skim
from muster.replay.history.window import AtTime, Window
from muster.replay.history.wrong_times import RUNS_MAX, ClockSurvey, Times
from muster.replay.results.why import WhyFold
from muster.replay.text.times import instant
from tests.replay.commands.test_cli import run
from tests.replay.incidents.fleet import QUIET_MS, Fleet
from tests.replay.written import script, sqlite_log, stored_items

LOG = str(Path(__file__).parents[1] / "data" / "clock-ahead-orders.jsonl")
"""A coordinator's wall clock was a day ahead from seq 7 to 13; from seq 20 on another owner wrote."""

DAY_MS = 86_400_000
SAID = "the coordinator's wall clock was ahead by 1 d 0 h for seq 7 to 13"


def ended(epoch: int, seq: int, decided_ms: int, uptime_ms: int | None) -> PartialGroupEvent:
    image = PartialImage(state=GroupState.STABLE, previous_state=GroupState.STABLE, generation_id=1)
    why = PartialWhy(cause=Cause.ALL_JOINED, decided_ms=decided_ms, uptime_ms=uptime_ms)
    return PartialGroupEvent(incarnation=1, seq=seq, owner_epoch=epoch, group=image, why=why)


def surveyed(*lives: Sequence[tuple[int, int | None]]) -> Times:
    """Return the corrections for events of consecutive owners, each with its wall clock and uptime, one offset each."""
    survey, offset = ClockSurvey(), 0
    for epoch, life in enumerate(lives):
        for decided_ms, uptime_ms in life:
            survey.note(offset, ended(epoch, offset + 1, decided_ms, uptime_ms))
            offset += 1
    return survey.times()


def wrong_spans(times: Times) -> list[tuple[int, int, int, bool]]:
    return [(each.first_seq, each.last_seq, each.ahead_ms, each.is_known) for each in times.wrong]


@pytest.mark.parametrize("ahead_ms", [DAY_MS, -DAY_MS])
def test_between_two_jumps_that_cancel_out_the_clock_was_wrong(ahead_ms: int) -> None:
    """It was wrong by the size of the jump, in either direction; also if it happens twice with different sizes."""
    life = [(0, 0), (ahead_ms + 5_000, 5_000), (ahead_ms + 6_000, 6_000), (9_000, 9_000)]
    assert wrong_spans(surveyed(life)) == [(2, 3, ahead_ms, True)]
    again = [*life, (3 * ahead_ms + 10_000, 10_000), (11_000, 11_000)]
    assert wrong_spans(surveyed(again)) == [(2, 3, ahead_ms, True), (5, 5, 3 * ahead_ms, True)]


def test_a_clock_that_jumped_ahead_permanently_is_accepted() -> None:
    """It may have been corrected, or the machine was suspended: the times increase."""
    assert surveyed([(0, 0), (DAY_MS, 1_000), (DAY_MS + 9_000, 10_000)]) == Times()
    assert surveyed([(0, 0), (9_000, 9_000)], [(DAY_MS, 0)]) == Times()
    assert surveyed([(0, 0), (900, 1_000), (100, 1_100)]) == Times(), "within a second"


def test_if_times_decrease_log_order_counts_and_is_noted() -> None:
    """The clock was set back, the next owner has an earlier time, or the format level has no uptime."""
    expected = [(1, 2, DAY_MS - 1_000, False)]
    assert wrong_spans(surveyed([(DAY_MS, 0), (DAY_MS + 1_000, 1_000), (2_000, 2_000)])) == expected
    assert wrong_spans(surveyed([(DAY_MS, 0), (DAY_MS + 1_000, 1_000)], [(2_000, 5)])) == expected
    times = surveyed([(DAY_MS, None), (DAY_MS + 1_000, None), (2_000, None)])
    assert wrong_spans(times) == expected
    assert "which clock was right is not known" in times.texts[0]
    assert wrong_spans(surveyed([(0, None)], [(DAY_MS, None)], [(DAY_MS - 5_000, None)], [(9, None)])) == [
        (2, 2, DAY_MS - 9, False),
        (3, 3, DAY_MS - 5_009, False),
    ]


def test_of_a_clock_that_jumps_all_the_time_a_bounded_part_is_kept() -> None:
    """The last jumps are kept, and a few sentences."""
    life = [(n * 10_000 + (n % 2) * DAY_MS, n * 10_000) for n in range(10 * RUNS_MAX)]
    times = surveyed(life)
    assert 0 < len(times.wrong) <= RUNS_MAX
    assert len(times.texts) == 4


# ---- commands -------------------------------------------------------------------------------------------------------


def test_the_state_at_a_time_is_that_of_the_right_clock() -> None:
    """For one group and for all, with a sentence about it; also for a time in between."""
    for group in (["orders"], []):
        result = run("state", *group, "--at", "2026-11-28T18:00:00Z", "--format", "jsonl", log=LOG)
        state = msgspec.json.decode(result.stdout)
        assert (state["state"], state["generation_id"], state["seq"]) == ("Empty", 4, 22)
        assert SAID in state["notes"][0]
        between = run("state", *group, "--at", "2026-11-28T15:59:30Z", "--format", "jsonl", log=LOG)
        assert msgspec.json.decode(between.stdout)["generation_id"] == 2
    compared = run("diff", "orders", "2026-11-28T15:59:25Z", "2026-11-28T18:00:00Z", "--format", "json", log=LOG)
    diff = msgspec.json.decode(compared.stdout)
    assert (diff["before"]["seq"], diff["after"]["seq"], SAID in compared.stderr) == (6, 22, True)


def test_the_groups_and_their_last_incident_have_the_right_day() -> None:
    """The last incident is read from a checkpoint at which the clock was ahead."""
    for window in ([], ["--since", "2026-11-28T15:59:30Z"], ["--until", "2026-11-28T18:00:00Z"]):
        (line,) = msgspec.json.decode(run("groups", *window, "--format", "json", log=LOG).stdout)["groups"]
        assert (line["last_event_at"], line["last_incident"]["kind"]) == ("2026-11-28T15:59:56.229Z", "crash"), window
        assert (line["last_rebalance_at"], line["state"]) == ("2026-11-28T15:59:56.229Z", "Empty")
    (line,) = msgspec.json.decode(run("groups", "--until", "2026-11-28T15:59:30Z", "--format", "json", log=LOG).stdout)[
        "groups"
    ]
    assert (line["state"], line["generation_id"]) == ("Stable", 2)


def test_incidents_are_found_by_the_right_time() -> None:
    """A window that ends after the clock was corrected has all four; one in between has the second rebalance's."""
    window = ["--since", "2026-11-28T15:00:00Z", "--until", "2026-11-28T18:00:00Z"]
    digest = run("digest", *window, "--format", "json", log=LOG)
    assert (msgspec.json.decode(digest.stdout)["told"], SAID in digest.stderr, digest.exit_code) == (4, True, 0)
    why = run("why", "orders", *window, "--format", "jsonl", log=LOG)
    assert (len(why.stdout.splitlines()), SAID in why.stderr) == (4, True)
    last = msgspec.json.decode(run("why", "orders", "--last", "--format", "jsonl", log=LOG).stdout)
    assert last["started_at"].startswith("2026-11-28T15:59:5")
    at = msgspec.json.decode(
        run("why", "orders", "--at", "2026-11-28T15:59:38Z", "--format", "jsonl", log=LOG).stdout.splitlines()[0]
    )
    assert at["kind"] == "scale-down"
    for command in ("why", "history"):
        later = run(command, "orders", "--since", "2026-11-29", log=LOG)
        assert (later.exit_code, "to 2026-11-28T15:59:56.229Z" in later.stderr) == (1, True)


def test_events_are_found_by_the_right_time(tmp_path: Path) -> None:
    """The output shows their recorded times; reports do, too."""
    window = ["--since", "2026-11-28T15:59:25Z", "--until", "2026-11-28T15:59:33Z"]
    output = run("history", "orders", *window, "--format", "jsonl", log=LOG).stdout.splitlines()
    assert [msgspec.json.decode(line)["seq"] for line in output] == [7, 8, 9, 10, 11, 12, 13]
    page = tmp_path / "page.html"
    made = run("report", "orders", "-o", str(page), "--since", "2026-11-28T15:59:36Z", log=LOG)
    assert "with 2 rebalances" in made.stdout


def test_the_start_of_reading_makes_no_difference() -> None:
    """Incidents that are read from a checkpoint at which the clock was ahead are those of the whole history."""
    fleet = Fleet(3)
    for number in (4, 5, 6, 7):
        fleet.start(number)
        fleet.rest(2 * QUIET_MS)
        if number == 4:
            fleet.world.rules.wall_offset_ms += 20 * QUIET_MS
    history = fleet.history()
    whole = WhyFold(GROUP_ID)
    expected = [incident for item in history.items for incident in whole.feed(item)] + list(whole.end())
    skim = Skim(Prelude(), quiet_ms=QUIET_MS)
    for _ in skim.transitions(stored_items(history.items, 0)):
        pass
    begin = skim.before_rebalances[-1]
    assert begin.clock.jumped_ms
    part = WhyFold(GROUP_ID, begin)
    later = [item for item in history.items if item.position.offset >= begin.offset]
    found = [incident for item in later for incident in part.feed(item)] + list(part.end())
    assert found
    assert _without_jumps(found) == _without_jumps(expected[-len(found) :])


def _without_jumps(incidents: list[Any]) -> list[tuple[str, str, str | None]]:
    return [(each.kind, each.started_at, each.ended_at) for each in incidents]


def test_a_window_that_the_clock_was_behind_in_has_its_events() -> None:
    """The clock was an hour behind for a while."""
    fleet = Fleet(3)
    for number, hours in ((4, -1), (5, 1), (6, 0)):
        fleet.start(number)
        fleet.rest(QUIET_MS)
        fleet.world.rules.wall_offset_ms += hours * 3_600_000
    items = fleet.history().items
    survey = ClockSurvey()
    survey.take(stored_items(items, 0))
    (wrong,) = survey.times().wrong
    assert (wrong.ahead_ms, wrong.is_known) == (-3_600_000, True)
    (first,) = (
        item.at_ms for item in items if isinstance(item, Happened) and item.position.offset == wrong.first_offset
    )
    since = AtTime(first + 3_600_000 - 1)
    fold = WhyFold(GROUP_ID, window=Window(since=since), times=survey.times())
    found = [incident for item in items for incident in fold.feed(item)] + list(fold.end())
    names = [culprit.client_id for incident in found for culprit in incident.culprits]
    assert names == ["app-5", "app-6"]


@pytest.mark.parametrize("begin", [None, "2026-11-28T15:59:25Z"])
@pytest.mark.parametrize("end", [None, "2026-11-28T15:59:30Z", "2026-11-28T15:59:40Z"])
def test_exports_and_checks_have_the_windows_of_the_other_commands(
    begin: str | None, end: str | None, tmp_path: Path
) -> None:
    """An event is in the same windows for all commands, also if the clock was a day ahead."""
    window = [*(["--since", begin] if begin else []), *(["--until", end] if end else [])]
    expected = seqs_told(LOG, *window)
    exported = tmp_path / "part.jsonl"
    result = run("export", str(exported), *window, log=LOG)
    assert (result.exit_code, SAID in result.stderr) == (0, bool(window))
    kept = seqs_told(str(exported))
    assert set(expected) <= set(kept)
    assert all(seq < expected[0] for seq in set(kept) - set(expected))
    checked = msgspec.json.decode(run("verify", "--format", "json", *window, log=LOG).stdout)
    assert checked["events"] == len(expected)


def seqs_told(log: str, *window: str) -> list[int]:
    """Return the seqs of a window's events."""
    lines = run("history", "orders", "--format", "jsonl", "--all", *window, log=log).stdout.splitlines()
    return [line["seq"] for line in map(msgspec.json.decode, lines) if line["seq"]]


def test_an_export_has_no_hole_where_the_next_owners_clock_is_a_little_behind(tmp_path: Path) -> None:
    """Less than a second is not corrected, and the window ends once, as in `history`."""
    story = script("orders").coordinator("a:1").created()
    story.start(story.joined(story.member("a"))).complete().stabilize({"a": {"orders": [0]}})
    until = instant(story.wait(600).now_ms)
    story.wait(100).advanced(story.joined(story.member("b"))).coordinator("b:1", took_ms=0)
    story.wait(-400).start(story.rejoined(story.of("a")))
    url = asyncio.run(sqlite_log(tmp_path / "muster.db", story))
    path = tmp_path / "orders.jsonl"
    run("export", str(path), "--until", until, log=url)
    output = run("history", "orders", "--until", until, "--format", "jsonl", log=url).stdout
    assert run("history", "orders", "--format", "jsonl", log=str(path)).stdout == output


@pytest.mark.parametrize("ahead_ms", [0, DAY_MS])
def test_an_owner_that_started_with_a_clock_ahead_hides_no_event(ahead_ms: int, tmp_path: Path) -> None:
    """The clock was right before the first group came: only the election has a time after the window."""
    story = script("orders").wait(ahead_ms).coordinator("a:1").wait(-ahead_ms).created()
    story.start(story.joined(story.member("a"))).complete().stabilize({"a": {"orders": [0]}})
    url = asyncio.run(sqlite_log(tmp_path / "muster.db", story))
    until = instant(story.wait(1_000).now_ms)
    state = msgspec.json.decode(run("state", "orders", "--at", until, "--format", "jsonl", log=url).stdout)
    assert (state["state"], state["generation_id"]) == ("Stable", 1)
    history = run("history", "orders", "--until", until, "--format", "jsonl", log=url).stdout.splitlines()
    assert [each["type"] for each in map(msgspec.json.decode, history)][-1] == "GroupStabilized"
    page = tmp_path / "page.html"
    assert "1 rebalance" in run("report", "orders", "-o", str(page), "--until", until, log=url).stdout
