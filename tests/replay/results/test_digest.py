"""`digest`: the important incidents of all groups."""

import asyncio
import gc
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster.events.causes import Cause
from muster.events.events import MemberJoined
from muster.events.log.memory import MemoryStorage
from muster.replay.fleet.simulation.world.rules import GROUP_ID
from muster.replay.history import skim
from muster.replay.history.items import Happened
from muster.replay.history.skim import Skim
from muster.replay.history.window import AtTime, Window
from muster.replay.logs.exports import FORM, Head, export_to
from muster.replay.results import digest as results_digest
from muster.replay.results import kept_records
from muster.replay.results.digest import Digest, DigestFold
from muster.replay.text.times import instant
from tests.replay.commands.test_cli import assert_fails, run
from tests.replay.golden import assert_golden
from tests.replay.histories import Script
from tests.replay.incidents.fleet import QUIET_MS, Fleet
from tests.replay.stories import a_night
from tests.replay.written import CountedValue, append, counted, script, sqlite_log, stored_items

GROUPS = ("payments", "invoices", "e-mail", "refunds")
SINCE = ["--since", "2026-11-21T01:30:00"]


def one_host(group_id: str, client_host: str, *, after_ms: int = 0) -> Script:
    """Return a group of two members of which one crashes, at this host, an hour and this much later."""
    story = script(group_id).wait(after_ms).created()
    story.start(story.joined(story.member("a", host="/10.0.0.1"))).advanced(
        story.joined(story.member("b", host=client_host))
    )
    story.complete(cause=Cause.INITIAL_DELAY_ELAPSED).stabilize({"a": {"orders": [0]}, "b": {"orders": [1]}})
    story.wait(3_600_000).start(story.removed(story.of("b"), Cause.SESSION_EXPIRED, silent_ms=45_000))
    return story.wait(500).complete(story.rejoined(story.of("a"))).stabilize({"a": {"orders": [0, 1]}})


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The night of `orders`; groups with crashes on one host at one time; one behind a sidecar, and a quiet one."""
    path = tmp_path_factory.mktemp("log") / "muster.db"
    crashed = [one_host(group_id, "/10.0.0.7") for group_id in GROUPS]
    return asyncio.run(
        sqlite_log(path, a_night(), *crashed, one_host("local", "/127.0.0.1"), script("quiet").created())
    )


def digest(url: str, *options: str) -> dict[str, Any]:
    output: dict[str, Any] = msgspec.json.decode(run("digest", "--format", "json", *options, log=url).stdout)
    return output


def test_the_costliest_groups_come_first_and_quiet_groups_are_counted(url: str) -> None:
    """Those in storms are only shown there."""
    reported = digest(url, *SINCE)
    weights = [each["cost"]["partition_ms"] or 0 for each in reported["incidents"]]
    assert weights == sorted(weights, reverse=True)
    assert (reported["groups"], reported["quiet"]) == (7, 1)
    in_storms = sum(storm["incidents"] for storm in reported["storms"])
    shown = len(reported["incidents"]) + len(reported["listed"]) + len(reported["unserved"]) + in_storms
    assert (reported["told"], reported["more"]) == (shown, 0)


def test_processes_of_one_host_that_crash_in_several_groups_are_a_storm(url: str) -> None:
    """The host of a sidecar's clients proves nothing."""
    (storm,) = digest(url, *SINCE)["storms"]
    assert (storm["kind"], storm["client_host"], storm["rebalances"]) == ("host", "10.0.0.7", 4)
    assert storm["groups"] == sorted(GROUPS)


def test_an_incident_matches_that_of_why(url: str) -> None:
    """Also if it crosses the window's edge."""
    since = ["--since", "2026-11-21T02:13:31"]
    reported = [each for each in digest(url, *since)["incidents"] if each["group_id"] == "orders"]
    alone = run("why", "orders", "--format", "jsonl", *since, log=url).stdout.splitlines()
    expected = list(map(msgspec.json.decode, alone))
    assert sorted(reported, key=lambda each: str(each["started_at"])) == expected
    assert expected[0]["crosses"] == ["since"]


def test_events_after_the_window_end_no_incident_of_it(url: str) -> None:
    """The crash is shown as without an end of the window, except for groups that did not exist yet."""
    until = [*SINCE, "--until", "2026-11-21T02:14:00"]
    reported = [each["id"] for each in digest(url, *until)["incidents"] if each["group_id"] == "orders"]
    alone = run("why", "orders", "--format", "jsonl", *until, log=url).stdout.splitlines()
    expected = [each["id"] for each in map(msgspec.json.decode, alone)]
    assert sorted(reported) == sorted(expected)
    assert len(expected) > 1


def test_piped_output_is_formatted_for_a_chat(url: str) -> None:
    """Markdown, as in the golden file; the table has the same contents."""
    out = run("digest", *SINCE, log=url).stdout
    assert out == run("digest", *SINCE, "--format", "md", log=url).stdout
    assert_golden("digest.md", out)
    assert "1 was quiet" in run("digest", *SINCE, "--format", "table", log=url).stdout


def test_the_twenty_costliest_are_shown_and_the_others_listed_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are 23 unrelated crashes; each group's start is an incident, too."""
    crashed = [one_host(f"g{number}", f"/10.0.1.{number}", after_ms=number * 600_000) for number in range(23)]
    url = asyncio.run(sqlite_log(tmp_path / "muster.db", *crashed))
    reported = digest(url, *SINCE)
    assert {each["kind"] for each in reported["incidents"]} == {"crash"}
    assert (len(reported["incidents"]), len(reported["listed"]), reported["more"], reported["told"]) == (20, 26, 0, 46)
    assert [each["kind"] for each in reported["listed"]].count("start") == 23
    assert [each["started_at"] for each in reported["listed"]] == sorted(
        each["started_at"] for each in reported["listed"]
    )
    first = reported["listed"][0]
    for form in "md", "table":
        out = run("digest", *SINCE, "--format", form, log=url).stdout
        assert f", {first['group_id']}: {first['kind']} ({first['grade']}): " in out
    monkeypatch.setattr(results_digest, "LISTED", 10)
    reported = digest(url, *SINCE)
    assert (len(reported["incidents"]), len(reported["listed"]), reported["more"], reported["told"]) == (20, 10, 16, 46)


def test_a_poll_timeout_within_a_deployment_is_shown(tmp_path: Path) -> None:
    """Its rebalance is the deployment's: it has none of its own, and no cost."""
    fleet = Fleet(6)
    for number in (1, 2, 3):
        fleet.restart(number, 1_000)
        if number == 2:
            fleet.restart(5, 4_000, reason="consumer poll timeout has expired.")
        fleet.run(3_000)
    fleet.rest(60_000)
    log = MemoryStorage(partitions=1)
    log.records[0] += stored_items(fleet.history().items, 0)
    fold = DigestFold(Window(since=AtTime(fleet.began_ms)))
    fold.take(log.records[0])
    reported = fold.result("memory", None)
    assert sorted(each.id for each in reported.incidents) == sorted(each.id for each in fleet.told())
    assert [each.kind for each in reported.incidents if not each.rebalances] == ["poll-timeout"]


def test_groups_can_be_chosen(url: str) -> None:
    """A pattern without a match is reported."""
    assert digest(url, *SINCE, "--group", "ord*")["groups"] == 1
    assert_fails(run("digest", *SINCE, "--group", "x*", log=url), 1, "no group in", "'x*'")


@pytest.mark.parametrize("form", ["table", "md"])
def test_a_time_after_the_history_is_reported_with_its_end(url: str, form: str) -> None:
    """The result is that nothing happened; with it comes a note that nothing is known about that time."""
    result = run("digest", "--since", "2027-01-01", "--format", form, log=url)
    assert result.exit_code == 0
    assert "0 incidents in 0 of 7 groups since 2027-01-01" in result.stdout
    end = digest(url, "--since", "2027-01-01")["ended_at"]
    assert end.startswith("2026-11-21T03:")
    assert f"no events in that time: its last event is from {end[:10]} {end[11:23]} UTC" in result.stdout
    assert digest(url, *SINCE)["ended_at"] is None


def test_a_time_before_the_history_is_reported_with_its_beginning(url: str) -> None:
    """Exit code 1, as with the other commands."""
    window = ["--since", "2026-01-01", "--until", "2026-01-02"]
    assert_fails(run("digest", *window, log=url), 1, "no group since 2026-01-01T00", "begins at 2026-11-21T02:00:00")
    assert_fails(run("digest", *window, "--group", "ord*", log=url), 1, "no group that matches 'ord*' since 2026-01-01")


def test_a_coordinator_outage_is_one_storm_over_its_groups(tmp_path: Path) -> None:
    """Whatever its members lost; groups of all its partitions are in it."""
    scripts = []
    for group_id in ("g0", "g1", "g2", "g3"):
        story = script(group_id).coordinator("a:1").created()
        member = story.member("m", static=False, client_id="app")
        story.start(story.joined(member)).complete().stabilize({member.member_id: {"orders": [0]}})
        scripts.append(story.wait(3_600_000).coordinator("b:2", took_ms=400))
    assert len({each.partition for each in scripts}) == 4
    url = asyncio.run(sqlite_log(tmp_path / "muster.db", *scripts))
    (storm,) = digest(url, *SINCE)["storms"]
    assert (storm["kind"], storm["groups"], storm["rebalances"]) == ("coordinator", ["g0", "g1", "g2", "g3"], 0)
    assert "the coordinator was unavailable: 4 groups" in run("digest", *SINCE, log=url).stdout


def test_repeated_coordinator_outages_are_counted_with_the_last_end(tmp_path: Path) -> None:
    """Three times within a minute of each other: one storm, with its end."""
    scripts = []
    for group_id in ("g0", "g1", "g2"):
        story = script(group_id).coordinator("a:1").created()
        member = story.member("m", static=False, client_id="app")
        story.start(story.joined(member)).complete().stabilize({member.member_id: {"orders": [0]}}).wait(3_600_000)
        for owner in ("b:2", "c:3", "d:4"):
            story.wait(50_000).coordinator(owner, took_ms=400)
        scripts.append(story)
    url = asyncio.run(sqlite_log(tmp_path / "muster.db", *scripts))
    (storm,) = digest(url, *SINCE)["storms"]
    assert (storm["times"], storm["incidents"]) == (3, 9)
    end = storm["ended_at"]
    assert end > storm["started_at"]
    out = run("digest", *SINCE, log=url).stdout
    assert "the coordinator was unavailable 3 times: 3 groups" in out
    assert f"with 0 rebalances; it ended at {end[:10]} {end[11:23]} UTC" in out


def test_the_host_of_a_sidecar_makes_no_storm(tmp_path: Path) -> None:
    """All its clients have that host, whatever machine they run on."""
    scripts = [one_host(group_id, "/127.0.0.1") for group_id in GROUPS]
    url = asyncio.run(sqlite_log(tmp_path / "muster.db", *scripts))
    reported = digest(url, *SINCE)
    assert (reported["storms"], reported["kinds"]["crash"]) == ([], len(GROUPS))


def test_of_a_group_that_is_never_quiet_a_bounded_tail_is_kept_before_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The incident in the window is shown nevertheless."""
    monkeypatch.setattr(skim, "BUSY_EVENTS", 1_000)
    story = script("busy").created()
    story.start(story.joined(story.member("a"))).advanced(story.joined(story.member("b")))
    story.complete(cause=Cause.INITIAL_DELAY_ELAPSED).stabilize({"a": {"orders": [0]}, "b": {"orders": [1]}})
    for _ in range(3_000):
        story.wait(1_000).advanced(story.rejoined(story.of("a")))
    before = len(story.stored_records())
    since_ms = story.wait(1_000).now_ms
    story.start(story.removed(story.of("b"), Cause.SESSION_EXPIRED, silent_ms=45_000)).complete(
        story.rejoined(story.of("a"))
    )
    story.stabilize({"a": {"orders": [0, 1]}})
    fold = DigestFold(Window(since=AtTime(since_ms)))
    for number, record in enumerate(story.stored_records()):
        if number == before:
            assert CountedValue.kept < 4_000 < before
        fold.take([counted(record)])
    incidents = fold.result("memory", None).incidents
    assert [each.kind for each in incidents if each.rebalances] == ["crash"]  # and the tombstone is no tombstone here


def test_a_deployment_of_a_large_group_that_began_before_the_window_is_found() -> None:
    """Its rebalances before the window have more than 2,000 events."""
    fleet = Fleet(30)
    fleet.rest()
    since_ms = 0
    for number in range(1, 31):
        fleet.restart(number, 2_000)
        fleet.run(8_000)
        since_ms = fleet.wall_ms if number == 29 else since_ms
    fleet.rest()
    records = stored_items(fleet.history().items, 0)
    fold = DigestFold(Window(since=AtTime(since_ms)))
    for at in range(0, len(records), 100):
        fold.take(records[at : at + 100])
    (deployment,) = (each for each in fold.result("memory", None).incidents if each.rebalances)
    assert (deployment.kind, deployment.crosses) == ("deployment", ("since",))
    assert deployment.headline.startswith("30 processes of 30 ")


def test_a_window_in_which_the_clock_was_behind_has_its_incidents(tmp_path: Path) -> None:
    """As `why` has them: the clock was an hour behind for a while, then right again."""
    fleet = Fleet(3)
    for number, hours in ((4, -1), (5, 1), (6, 0)):
        fleet.start(number)
        fleet.rest(QUIET_MS)
        fleet.world.rules.wall_offset_ms += hours * 3_600_000
    items = fleet.history().items
    (joined,) = (
        item.at_ms
        for item in items
        if isinstance(item, Happened)
        and isinstance(item.event, MemberJoined)
        and item.event.member.client_id == "app-5"
    )
    path = tmp_path / "behind.jsonl"
    with path.open("wb") as file:
        export = export_to(path, file, Head(form=FORM, log="memory", identity="memory", partitions=1))
        for record in stored_items(items, 0):
            export.write(record)
        export.close()
    since = ["--since", instant(joined + 3_600_000 - 1)]
    found = digest(str(path), *since)["incidents"]
    why = run("why", GROUP_ID, "--format", "jsonl", *since, log=str(path)).stdout.splitlines()
    assert {each["id"] for each in found} == {msgspec.json.decode(line)["id"] for line in why}
    assert {culprit["client_id"] for each in found for culprit in each["culprits"]} == {"app-5", "app-6"}


def test_of_groups_that_never_rest_a_bounded_part_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the results are the same, wherever their records were kept."""
    groups = [one_host(f"g{number}", f"/10.0.1.{number}", after_ms=number * 1_000) for number in range(20)]
    for reported in groups:
        for _ in range(50):
            reported.wait(60_000).start(reported.rejoined(reported.of("a"))).complete().stabilize(
                {"a": {"orders": [0, 1]}}
            )
    in_turn = list(zip_longest(*(reported.stored_records() for reported in groups)))

    def told_with(in_memory: int) -> Digest:
        monkeypatch.setattr(kept_records, "IN_MEMORY_MAX", in_memory)
        fold, offset, before = DigestFold(Window(since=AtTime(0))), count(), CountedValue.kept
        for records in in_turn:
            there = [each for each in records if each is not None]
            fold.take([counted(msgspec.structs.replace(each, partition=0, offset=next(offset))) for each in there])
            assert CountedValue.kept - before <= in_memory + len(there)
        return fold.result("memory", None)

    assert told_with(100) == told_with(1_000_000)


def test_nothing_is_kept_of_the_groups_of_a_finished_partition() -> None:
    """Even if the garbage collector has not run, which it rarely does in a command."""

    def there() -> int:
        return sum(isinstance(each, Skim) for each in gc.get_objects())

    fold, before = DigestFold(Window(since=AtTime(0))), there()
    gc.disable()
    try:
        for partition in range(3):
            for name in range(5):
                reported = one_host(f"g{name}", "/10.0.0.1").stored_records()
                fold.take([msgspec.structs.replace(each, partition=partition) for each in reported])
            assert there() - before == 5
        assert fold.result("memory", None).groups == 15
        assert there() == before
    finally:
        gc.enable()


# ---- groups to which nothing happened in the window -----------------------------------------------------------------

LATER = ["--since", "2026-11-21T03:30:00"]


def of_one_partition(groups: int) -> list[Script]:
    """Return this many groups, each with a member, an hour and a half before the window."""
    names = [name for name in (f"g{number}" for number in range(1_000)) if script(name).partition == 3][:groups]
    reported = [script(name).coordinator("a:1").created() for name in names]
    for each in reported:
        each.start(each.joined(each.member("m"))).complete().stabilize({"m": {"orders": [0]}}).wait(7_200_000)
    return reported


@pytest.mark.parametrize("own", [0, 3])
def test_an_outage_is_one_of_all_groups_of_its_partition(tmp_path: Path, own: int) -> None:
    """Including those without an event in the window; so it is in `groups` and `why`."""
    reported = of_one_partition(6)
    before = [transition for each in reported for transition in each.stored_transitions()]
    begun = len(reported[0].stored_transitions())
    outage = reported[0].coordinator("b:2", took_ms=20_000).stored_transitions()[begun:]
    later = []
    for each in reported[:own]:
        begun = len(each.stored_transitions())
        each.wait(120_000).start(each.removed(each.of("m"), Cause.SESSION_EXPIRED, silent_ms=45_000))
        later += each.stored_transitions()[begun:]
    url = asyncio.run(append(tmp_path, 3, *before, *outage, *later))
    result = digest(url, *LATER)
    (storm,) = (each for each in result["storms"] if each["kind"] == "coordinator")
    assert (len(storm["groups"]), result["quiet"]) == (6, 0)
    whole = digest(url, "--since", "2026-11-20")
    assert [each for each in whole["storms"] if each["kind"] == "coordinator"][-1]["groups"] == storm["groups"]
    lines = msgspec.json.decode(run("groups", "--format", "json", *LATER, log=url).stdout)["groups"]
    assert {each["group_id"] for each in lines} == {each.group_id for each in reported}
    last = lines[-1]
    assert (last["events"], last["rebalances"], last["last_incident"]["kind"]) == (0, 0, "coordinator-change")
    incident = msgspec.json.decode(run("why", last["group_id"], "--format", "jsonl", *LATER, log=url).stdout)
    assert incident["kind"] == "coordinator-change"


def test_a_running_rebalance_belongs_to_the_window(tmp_path: Path) -> None:
    """It began before, and nothing happened since: the group waits for a member all the time."""
    reported = of_one_partition(1)[0]
    asyncio.run(append(tmp_path, 3, *reported.stored_transitions()))
    begun = len(reported.stored_transitions())
    reported.start(reported.joined(reported.member("new")))
    url = asyncio.run(append(tmp_path, 3, *reported.stored_transitions()[begun:]))
    result = digest(url, "--since", "2026-11-22")
    (incident,) = result["incidents"]
    assert (incident["ended_at"], result["quiet"], result["ended_at"]) == (None, 0, None)
    (line,) = msgspec.json.decode(run("groups", "--format", "json", "--since", "2026-11-22", log=url).stdout)["groups"]
    assert line["state"] == "PreparingRebalance"
    assert run("why", reported.group_id, "--since", "2026-11-22", log=url).exit_code == 0
    page = tmp_path / "page.html"
    made = run("report", reported.group_id, "-o", str(page), "--since", "2026-11-22", log=url)
    assert "1 incident with 1 rebalance" in made.stdout


def test_a_window_without_events_is_empty(tmp_path: Path) -> None:
    """A Stable group whose owner stays is quiet; so is one that was emptied long ago."""
    reported = of_one_partition(1)[0]
    url = asyncio.run(append(tmp_path, 3, *reported.stored_transitions()))
    result = digest(url, "--since", "2026-11-22")
    assert (result["told"], result["groups"], result["quiet"]) == (0, 1, 1)
    assert_fails(run("why", reported.group_id, "--since", "2026-11-22", log=url), 1, "has no events of")


def test_consumers_that_were_refused_are_shown_though_nothing_rebalanced(tmp_path: Path) -> None:
    """The latest first, since on-call engineers are asked about them; in tables and in JSON."""
    logged = []
    for number in range(30):
        reported = one_host(f"group-{number}", "/10.0.0.8", after_ms=number * 1_000)
        reported.wait(7_200_000).refused(reported.member("odd", host="/10.0.0.9"), 23, Cause.PROTOCOL_MISMATCH)
        logged.append(reported)
    url = asyncio.run(sqlite_log(tmp_path / "muster.db", *logged))
    ever = ["--since", "2026-01-01T00:00:00"]
    shown = digest(url, *ever)
    assert [each["group_id"] for each in shown["unserved"]] == [f"group-{number}" for number in range(29, 9, -1)]
    assert {each["kind"] for each in shown["unserved"]} == {"refused"}
    assert [each["kind"] for each in shown["listed"]].count("refused") == 10
    assert shown["told"] == sum(len(shown[each]) for each in ("incidents", "listed", "unserved")) + sum(
        storm["incidents"] for storm in shown["storms"]
    )
    assert "was refused: it had no protocol in common" in run("digest", *ever, log=url).stdout
    assert "## Consumers without partitions" in run("digest", *ever, "--format", "md", log=url).stdout
