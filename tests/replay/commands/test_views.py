"""The options of `muster replay`: windows, time zones, formats, several groups, following."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from datetime import UTC
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from muster.cli import app as muster
from muster.events.causes import Cause
from muster.events.ids import GroupId
from muster.events.partitioner import partition_for
from muster.replay.cli import app
from muster.replay.form import Sort
from muster.replay.incidents.grade import Grade
from muster.replay.render.markdown import escaped
from muster.replay.results.group_tail import LastIncident
from muster.replay.results.groups import SORTS, GroupLine, Owner
from muster.replay.text.times import Instant, in_zone, instant
from tests.forked import run_muster
from tests.replay.commands.test_cli import BUFFERED, assert_fails, run
from tests.replay.histories import Script
from tests.replay.stories import a_night
from tests.replay.written import PARTITIONS, append, script, sqlite_log

DAY_MS = 24 * 3_600_000


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log with the night of `orders`, and a group without activity."""
    path = tmp_path_factory.mktemp("log") / "muster.db"
    return asyncio.run(sqlite_log(path, a_night(), script("payments").created()))


def test_a_window_shows_what_is_in_it(url: str) -> None:
    """It may be given by time or by seq, to the end or from the beginning; earlier events are folded."""
    whole = run("history", "orders", "--format", "jsonl", log=url).stdout.splitlines()
    lines = [msgspec.json.decode(line) for line in whole]
    since, until = lines[10]["at"], lines[30]["at"]
    given = run("history", "orders", "--since", since, "--until", until, "--format", "jsonl", log=url).stdout
    assert given.splitlines() == [line for line in whole if since <= msgspec.json.decode(line)["at"] <= until]
    by_number = run("history", "orders", "--since", "20", "--until", "25", "--seq", "--format", "jsonl", log=url).stdout
    assert [msgspec.json.decode(line)["seq"] for line in by_number.splitlines()] == [*range(20, 26)]


@pytest.mark.parametrize("command", [["why", "orders"], ["history", "orders"], ["groups"], ["digest"]])
def test_after_a_clock_step_back_the_extent_is_the_earliest_and_latest_time(tmp_path: Path, command: list[str]) -> None:
    """The last event then does not have the latest time, nor the first one the earliest."""
    back = Script().created()
    back.start(back.joined(back.member("a"))).complete(cause=Cause.INITIAL_DELAY_ELAPSED).stabilize({})
    latest = back.now_ms
    back.wait(-DAY_MS).start(back.joined(back.member("b")))
    earliest = back.now_ms
    back.wait(1_000).complete(back.rejoined(back.of("a"))).stabilize({})
    url = asyncio.run(sqlite_log(tmp_path / "back.db", back))
    begin, end = (in_zone(instant(each), UTC).replace("T", " ")[:23] for each in (earliest, latest))
    result = run(*command, "--since", "2027-01-01", log=url)
    told_of = " ".join((result.stdout + result.stderr).replace("T", " ").replace("Z", " ").split())
    assert end in told_of
    assert begin in told_of or command == ["digest"]  # which only says where the log ends


@pytest.mark.parametrize(
    ("window", "said"),
    [
        (["--since", "2027-01-01"], "since 2027-01-01T00:00:00.000Z"),
        (["--until", "2020-01-01"], "until 2020-01-01T00:00:00.000Z"),
        (["--since", "900", "--seq"], "since seq 900"),
    ],
)
@pytest.mark.parametrize("command", ["history", "why"])
def test_a_window_outside_of_the_history_is_reported_with_its_extent(
    url: str, command: str, window: list[str], said: str
) -> None:
    """Exit code 1."""
    result = run(command, "orders", *window, log=url)
    assert_fails(result, 1, said, "it has seq 1 to 44, from 2026-11-21T02:00:05.800Z to 2026-11-21T03:")


@pytest.mark.parametrize("form", ["table", "md"])
def test_a_window_without_events_is_reported_with_the_extent(url: str, form: str) -> None:
    """The log has groups, but none in that time."""
    reported = run("groups", "--since", "2027-01-01", "--format", form, log=url).stdout.replace("\\", "")
    reported = " ".join(reported.split())
    assert f"No group has an event in {url.removeprefix('sqlite:///')} since 2027-01-01 00:00:00.000 UTC; " in reported
    assert "it covers 2026-11-21 02:00:00.000 UTC to 2026-11-21 03:" in reported
    early = run("groups", "--until", "2020-01-01", "--format", form, log=url).stdout
    assert "until 2020-01-01 00:00:00.000 UTC." in " ".join(early.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "yesterday"], "--since 'yesterday' is none of these"),
        (["--since", "2026-10-25T02:30", "--tz", "Europe/Berlin"], "occurs twice in Europe/Berlin"),
        (["--since", "2026-11-22", "--until", "2026-11-21"], "--since 2026-11-22 is after --until 2026-11-21"),
        (["--tz", "Mars/Olympus"], "--tz: 'Mars/Olympus' is no time zone"),
    ],
)
def test_a_wrong_window_is_one_line(url: str, options: list[str], said: str) -> None:
    """Exit code 2."""
    assert_fails(run("history", "orders", *options, log=url), 2, said)


def test_times_are_shown_in_the_requested_zone(url: str) -> None:
    """And name it; JSON always has UTC."""
    out = run("history", "orders", "--tz", "Asia/Kathmandu", log=url).stdout
    assert "Asia/Kathmandu" in out
    assert "2026-11-21 UTC+05:45" in out
    assert "07:45:05.800" in out
    assert "UTC+05:45" in run("why", "orders", "--tz", "Asia/Kathmandu", log=url).stdout
    assert "UTC+05:45" in run("groups", "--tz", "Asia/Kathmandu", log=url).stdout
    assert "UTC+05:45" in run("state", "orders", "--at", "2", "--tz", "Asia/Kathmandu", log=url).stdout
    at = ["state", "orders", "--at", "2026-11-21T08:45", "--tz", "Asia/Kathmandu"]
    assert msgspec.json.decode(run(*at, "--format", "json", log=url).stdout)["asked_for"] == "2026-11-21T03:00:00.000Z"


def test_each_time_bears_its_zone_where_the_clocks_are_changed(tmp_path: Path) -> None:
    """In Berlin 02:59:59 of this night is followed by 02:00:00, so all times are shown with their offset."""
    groups = [across_the_change("orders"), across_the_change("bills", later_ms=30_000)]
    groups += [across_the_change("payments", later_ms=3_600_000)]
    url = asyncio.run(sqlite_log(tmp_path / "muster.db", *groups))

    def reported(*command: str) -> str:
        result = run(*command, "--tz", "Europe/Berlin", log=url)
        assert result.exit_code == 0, result.output
        return " ".join(result.stdout.split())

    overview = reported("groups")
    assert "UTC" not in overview[: overview.index("2026-10-25")]
    assert "2026-10-25 02:59:48 UTC+02:00" in overview
    assert "2026-10-25 02:59:48 UTC+01:00" in overview
    incident = reported("why", "orders", "--generation", "2")
    assert incident.startswith("2026-10-25 02:59:48.835 UTC+02:00, slow-member")
    assert "02:00:08.835 UTC+01:00 recorded 'billing-1' (10.0.0.7) rejoined" in incident
    found = reported("diff", "orders", "2026-10-25T00:59Z", "2026-10-25T01:00Z")
    assert "To 2026-10-25 02:59:48.835 UTC+02:00, seq 11" in found
    assert "asked for 2026-10-25 02:00:00.000 UTC+01:00" in found
    assert "Began (UTC+02:00) Seq" in reported("whatif", "orders", "--session-timeout", "60s")  # of both
    for form in ("table", "md"):
        of_two = reported("whatif", "bills", "--session-timeout", "60s", "--format", form)
        assert "Began (" not in of_two
        assert "2026-10-25 02:50:35.800 UTC+02:00" in of_two
        assert "2026-10-25 02:00:18.835 UTC+01:00" in of_two
    lines = reported("history", "orders")
    assert lines.index("2026-10-25 UTC+02:00") < lines.index("2026-10-25 UTC+01:00 02:00:08.835")


def across_the_change(name: str, *, later_ms: int = 0) -> Script:
    """Return a group whose second rebalance begins before 01:00Z and ends after it, or this much later."""
    began_ms = 1_792_889_400_000 + later_ms  # 2026-10-25T00:50:00Z
    story = Script(name, partition=partition_for(name, PARTITIONS), begin_ms=began_ms).coordinator("coordinator-a:100")
    story.wait(5_000).created()
    story.start(story.joined(story.member("billing-1")), timeout_ms=3_000)
    story.wait(400).advanced(story.joined(story.member("billing-2")))
    story.wait(2_600).complete(cause=Cause.INITIAL_DELAY_ELAPSED)
    story.wait(35).stabilize({"billing-1": {"orders": [0, 1]}, "billing-2": {"orders": [2, 3]}})
    story.wait(580_000).start(story.removed(story.of("billing-2"), Cause.SESSION_EXPIRED, silent_ms=45_020))
    story.wait(20_000).complete(story.rejoined(story.of("billing-1")))
    return story.wait(80).stabilize({"billing-1": {"orders": [0, 1, 2, 3]}})


def test_a_piped_table_has_the_whole_time_in_each_line(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its zone, for grep; nothing is left out."""
    monkeypatch.delenv("COLUMNS", raising=False)
    head, *lines = run_muster("replay", "history", "orders", "--all", "--log", url).stdout.splitlines()
    assert head.split(maxsplit=3) == ["Time", "Seq", "Gen", "What happened to orders"]
    assert len(lines) == len(run("history", "orders", "--format", "jsonl", log=url).stdout.splitlines())
    assert all(line[23] == "Z" for line in lines)


@pytest.mark.parametrize(
    "command", [["groups"], ["history", "orders"], ["why", "orders", "--all"], ["state", "orders", "--at", "2"]]
)
def test_markdown_cannot_be_formatted_by_a_client(url: str, command: list[str]) -> None:
    """This holds for each command; all rows of a table have the same number of cells."""
    out = run(*command, "--format", "md", log=url).stdout
    rows = [line for line in out.splitlines() if line.startswith("|")]
    assert len({row.replace("\\|", "").count("|") for row in rows}) <= 1
    assert rows or out.startswith("## ")
    assert "billing-1" in out or command == ["groups"]


HOSTILE = "\x1b[2J\u202e[red]\r\n<script>alert(1)</script> | `x` @all \x9b2J\u2028"


@pytest.mark.parametrize("form", ["table", "md"])
@pytest.mark.parametrize("name", [HOSTILE, 32_000 * "L"], ids=["control characters", "32 KB"])
def test_whatever_clients_are_called_is_printable_and_short(tmp_path: Path, name: str, form: str) -> None:
    """The name of a group, instance, client, host or topic neither affects a terminal nor fills it."""
    story = Script(name, partition=partition_for(name, PARTITIONS)).coordinator(f"host{HOSTILE}:1")
    story.created().start(story.joined(story.member(name, host=f"/{HOSTILE}", client_id=name)))
    story.wait(400).advanced(story.joined(story.member("b" + name)))
    story.wait(2_600).complete().wait(35).stabilize({name: {HOSTILE: [0, 1]}, "b" + name: {"orders": [2, 3]}})
    story.wait(580_000).start(story.removed(story.of("b" + name), Cause.SESSION_EXPIRED, silent_ms=45_020))
    story.wait(20_000).complete(story.rejoined(story.of(name))).wait(80).stabilize({name: {"orders": [0]}})
    url = asyncio.run(sqlite_log(tmp_path / "muster.db", story))
    commands = [
        "groups",
        "verify",
        "digest --since 2020-01-01",
        "history GROUP",
        "why GROUP --all",
        "why GROUP --generation 2",
    ]
    commands += ["state GROUP --at 8", "diff GROUP 4 14", "whatif GROUP --static"]
    for command in commands:
        given = [name if each == "GROUP" else each for each in command.split()]
        result = run(*given, "--format", form, log=url)
        assert result.exit_code in (0, 1), result.output
        assert all(line.isprintable() for line in result.output.split("\n")), command
        assert len(result.output) < 60_000, command
        assert "script" in result.output or name != HOSTILE


def test_json_of_a_history_is_one_document(url: str) -> None:
    """It has the same events as JSON lines, with the window first."""
    output = msgspec.json.decode(run("history", "orders", "--since", "40", "--seq", "--format", "json", log=url).stdout)
    lines = run("history", "orders", "--since", "40", "--seq", "--format", "jsonl", log=url).stdout.splitlines()
    assert output["lines"] == [msgspec.json.decode(line) for line in lines]
    assert output["window"]["since_seq"] == 40
    assert (output["group_id"], list(output)) == ("orders", ["group_id", "log", "window", "lines"])


def test_groups_are_chosen_and_sorted(url: str) -> None:
    """Their pattern, a time, or the number of rebalances decides."""

    def names(*options: str) -> list[str]:
        out = run("groups", "--format", "jsonl", *options, log=url).stdout
        return [msgspec.json.decode(line)["group_id"] for line in out.splitlines()]

    assert names() == ["orders", "payments"]
    assert names("--group", "p*") == ["payments"]
    assert names("--since", "2026-11-21T02:30:00") == ["orders"]
    assert names("--until", "2026-11-21T02:00:02") == ["payments"]
    assert names("--until", "2026-11-21T02:10:00") == ["orders", "payments"]
    assert names("--since", "2026-11-21T02:01:00", "--until", "2026-11-21T02:30:00") == ["orders"]
    assert names("--sort", "rebalances") == ["orders", "payments"]
    assert names("--sort", "last")[0] == "orders"
    assert_fails(run("groups", "--group", "x*", log=url), 1, "no group in", "'x*'")
    assert_fails(run("groups", "--since", "17", log=url), 2, "--since 17: a number is not a time; give a time")


def test_all_groups_at_one_instant(url: str) -> None:
    """Each is the same as alone."""
    at = ["--at", "2026-11-21T02:05:00Z", "--format", "jsonl"]
    every = run("state", *at, log=url).stdout.splitlines()
    assert every == [run("state", group, *at, log=url).stdout.strip() for group in ("orders", "payments")]
    assert run("state", "--group", "p*", *at, log=url).stdout.splitlines() == every[1:]
    assert "payments" in run("state", "--at", "2026-11-21T02:05:00Z", log=url).stdout
    assert_fails(run("state", "--at", "2001-01-01", log=url), 1, "has no such group at 2001-01-01T00:00:00.000Z")
    assert_fails(run("state", "--at", "17", log=url), 2, "--at 17: a number is not a time; give a time")
    assert_fails(run("state", "orders", "--group", "p*", "--at", "17", log=url), 2, "not both")


def test_following_shows_what_is_appended(tmp_path: Path) -> None:
    """Each follower prints a line for each event as soon as it is there; after an interrupt it exits silently."""
    story = script("orders").created()
    url = asyncio.run(append(tmp_path, story.partition, *story.stored_transitions()))
    command = [sys.executable, "-m", "muster", "replay", "history", "orders", "--follow", "--log", url]
    with contextlib.ExitStack() as stack:
        followers = []
        for _ in range(2):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=BUFFERED)
            followers.append(stack.enter_context(process))
            stack.callback(process.kill)
        for each in followers:
            assert each.stdout is not None
            assert "What happened to orders" in each.stdout.readline()
            assert "the group was created" in each.stdout.readline()
        more = story.start(story.joined(story.member("billing-9"))).stored_transitions()[1:]
        asyncio.run(append(tmp_path, story.partition, *more))
        for each in followers:
            assert each.stdout is not None
            assert "billing-9" in each.stdout.readline()
            assert "the join phase began" in each.stdout.readline()
            each.send_signal(signal.SIGINT)
            assert each.communicate(timeout=30) == ("", "")
            assert each.returncode == 128 + signal.SIGINT
    assert_fails(run("history", "orders", "--follow", "--format", "json", log=url), 2, "use --format jsonl")


@pytest.mark.parametrize(
    "command",
    [
        ["groups"],
        ["history", "orders"],
        ["history", "orders", "--follow"],
        ["why", "orders", "--all", "--format", "jsonl"],
        ["state", "--at", "now", "--format", "md"],
        ["diff", "orders", "2", "3"],
        ["whatif", "orders", "--static"],
        ["digest", "--since", "2026-11-21"],
        ["verify"],
    ],
)
def test_a_closed_pipe_ends_a_command_silently(url: str, command: list[str]) -> None:
    """As with SIGPIPE: the reader got what it wanted, and the log is sound."""
    read, write = os.pipe()
    os.close(read)
    arguments = [sys.executable, "-m", "muster", "replay", *command, "--log", url]
    ended = subprocess.run(arguments, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False, env=BUFFERED)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, b"")


def test_a_closed_output_is_not_written(url: str) -> None:
    """The exit code is the same nevertheless."""
    arguments = [sys.executable, "-m", "muster", "replay", "groups", "--log", url]
    for end, code in (([], 0), (["--group", "nobody"], 1)):
        command = ["sh", "-c", '"$@" >&-', "sh", *arguments, *end]
        ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        assert ended.returncode == code
        assert "Traceback" not in ended.stderr


def test_a_piped_history_has_a_line_for_each_event_with_day_and_zone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For grep and cut: time, seq, generation and text, under a header with the same columns."""
    monkeypatch.delenv("COLUMNS", raising=False)
    output = [
        msgspec.json.decode(each)
        for each in run("history", "orders", "--format", "jsonl", log=url).stdout.split("\n")[:-1]
    ]
    piped = CliRunner().invoke(app, ["history", "orders", "--all", "--log", url, "--tz", "UTC"]).stdout
    head, *lines = piped.splitlines()
    assert head.split() == ["Time", "Seq", "Gen", "What", "happened", "to", "orders"]
    starts = [head.index(name) + len(name) for name in ("Seq", "Gen")] + [head.index("What")]
    for line, each in zip(lines, output, strict=True):
        seq, generation = ("" if each[name] is None else str(each[name]) for name in ("seq", "generation"))
        assert line.startswith(each["at"])
        assert line[: starts[0]].endswith(f"  {seq}")
        assert line[: starts[1]].endswith(f"  {generation}")
        assert line[starts[2] :] == each["text"]


def test_a_history_in_markdown_is_a_table_of_the_same_lines(url: str) -> None:
    """It has one header."""
    output = run("history", "orders", "--format", "jsonl", log=url).stdout.splitlines()
    head, rule, *rows = run("history", "orders", "--all", "--format", "md", log=url).stdout.splitlines()
    assert (head.count("|"), rule.count("|"), len(rows)) == (5, 5, len(output))
    assert all(row.count(" | ") == 3 for row in rows)


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("# all\n- one", "\\# all\\\\n- one"),
        ("+1", "\\+1"),
        ("1. first", "1\\. first"),
        ("10) tenth", "10\\) tenth"),
        ("2.4 s", "2.4 s"),
        ("12.", "12\\."),
        ("[here](http://x) *now* `rm` <b> @channel", "\\[here\\](http://x) \\*now\\* \\`rm\\` \\<b\\> \\@channel"),
        ("2026-11-21 (billing-1)", "2026-11-21 (billing-1)"),
    ],
)
def test_format_characters_are_escaped_and_others_stay_readable(sent: str, shown: str) -> None:
    assert escaped(sent) == shown


def test_the_last_by_which_groups_are_sorted_is_the_one_that_is_shown() -> None:
    """An incident without a rebalance may be later than the last rebalance."""
    early, late = (Instant(f"2026-11-21T0{hour}:00:00.000Z") for hour in (2, 3))
    line = GroupLine(
        group_id=GroupId("a"),
        partition=0,
        state=None,
        generation_id=None,
        members=0,
        static_members=0,
        rebalances=1,
        last_rebalance_at=early,
        last_cause=None,
        last_text=None,
        last_outcome=None,
        last_event_at=None,
        events=1,
        missing_events=0,
        unknown_events=0,
        quarantined=(),
        coordinator="muster",
        owner=Owner.MUSTER,
    )
    last = LastIncident(kind="crash", grade=Grade.RECORDED, headline="", started_at=late, ended_at=late)
    reported = msgspec.structs.replace(line, last_incident=last)
    assert (line.last_at, reported.last_at) == (early, late)
    assert sorted((line, reported), key=SORTS[Sort.LAST]) == [reported, line]


@pytest.mark.parametrize("command", [each.name for each in app.registered_commands])
def test_the_help_has_each_option_whole_in_80_columns(command: str) -> None:
    """No name is cut off or broken, as `muster` prints it; nor are names in the descriptions."""
    output = CliRunner().invoke(muster, ["replay", command, "--help"], env={"COLUMNS": "80", "TERM": "dumb"}).stdout
    assert "--log " in output
    assert "…" not in output
    assert all(len(each) < 30 for each in re.findall(r"<[^>]*\|[^>]*", output)), output  # choices in two lines


@pytest.mark.parametrize("ms", ["x", "-1", "2147483648", "9" * 5_000, "1.5", "\u0661"])
def test_a_setting_is_a_number_of_ms(ms: str) -> None:
    """Kafka's settings have 32 bits; they are checked before anything is read."""
    result = CliRunner().invoke(app, ["whatif", "orders", "--session-timeout-ms", ms, "--log", "sqlite:///none.db"])
    assert result.exit_code == 2
    assert "Invalid value" in result.stderr


@pytest.mark.parametrize("form", ["table", "md"])
def test_the_groups_own_record_is_shown_on_request(form: str, url: str) -> None:
    """It is written with each change of a member, and adds nothing; programs get all events."""
    ask = ("history", "orders", "--format", form)
    plain, whole = (run(*ask, *more, log=url).stdout.splitlines() for more in ((), ("--all",)))
    own = [line for line in whole if "the group's own record was written" in line]
    assert own
    assert [line for line in whole if line not in own] == plain
    as_lines = run("history", "orders", "--format", "jsonl", log=url).stdout
    assert as_lines.count('"GroupAdvanced"') >= len(own)
