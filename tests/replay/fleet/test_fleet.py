"""`muster fleet ...` from a shell: builds of a log file, queries, and missing requirements."""

import asyncio
import io
import re
import subprocess
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from zoneinfo import ZoneInfo

import duckdb
import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from muster.cli import app
from muster.events.log.memory import MemoryStorage
from muster.events.partitioner import partition_for
from muster.events.records import StoredRecord
from muster.replay.fleet.asked import By
from muster.replay.fleet.building.pieces import survey
from muster.replay.fleet.building.stage import stage
from muster.replay.fleet.questions import queries
from muster.replay.fleet.questions.queries import Answer, AskedRows
from muster.replay.fleet.questions.show import partition_time, show
from muster.replay.fleet.report.facts import facts_of
from muster.replay.fleet.report.html import document
from muster.replay.fleet.report.teams import DEFAULT_PATTERN
from muster.replay.fleet.simulation.world.rules import GROUP_ID
from muster.replay.fleet.tables.schemas import TABLES
from muster.replay.form import Format, View
from muster.replay.progress import unwatched
from muster.replay.text.times import duration
from tests.forked import run_muster
from tests.replay.fleet.fleets import CAUSES, GROUPS, PLANNED, built, in_order, judged, opened, rows_of, sqlite_copy
from tests.replay.incidents.fleet import Fleet
from tests.replay.written import PARTITIONS, append, broken_value, stored_items


@pytest.fixture(scope="module")
def sqlite_log(lived_log: MemoryStorage, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Several groups, a takeover, and plans, as a file."""
    return asyncio.run(sqlite_copy(lived_log, tmp_path_factory.mktemp("fleet") / "muster.db"))


@pytest.fixture(scope="module")
def tables(sqlite_log: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of this log."""
    folder = tmp_path_factory.mktemp("tables")
    built = run_wide("fleet", "build", "--log", sqlite_log, "--to", str(folder))
    assert built.returncode == 0, built.stderr
    assert " KB of events are too few for Spark to be worth its start)" in built.stdout
    return folder


def run_wide(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command with lines of full length."""
    return run_muster(*args, variables={"COLUMNS": "1000", **variables}, within_s=280)


def run_here(*args: str, COLUMNS: str | None = None) -> Result:  # noqa: N803 -- the variable
    """Run the same in this process."""
    terminal = {"COLUMNS": "1000"} if COLUMNS is None else {"COLUMNS": COLUMNS, "TERM": "dumb", "TTY_COMPATIBLE": "1"}
    return CliRunner(env=terminal).invoke(app, args)


def test_the_tables_and_the_command_line_agree(sqlite_log: str, tables: Path) -> None:
    """All rebalances of `why --format jsonl`, of all groups, with their incidents."""
    table = rows_of(tables, "rebalances")
    for group_id in (*GROUPS, *PLANNED):
        lines = run_wide("replay", "why", group_id, "--all", "--format", "jsonl", "--log", sqlite_log)
        output = [msgspec.json.decode(line) for line in lines.stdout.splitlines()]
        rebalances = [
            (each["first_seq"], each["trigger"]["cause"], one["id"]) for one in output for each in one["rebalances"]
        ]
        rows = [(row["first_seq"], row["trigger"], row["incident"]) for row in table if row["group_id"] == group_id]
        assert sorted(rows) == sorted(rebalances)
        assert len(rows) > 1


@pytest.mark.spark
def test_a_build_on_spark(sqlite_log: str, tables: Path, tmp_path: Path, java_home: Path | None) -> None:
    """The command makes the same rows."""
    env = {} if java_home is None else {"JAVA_HOME": str(java_home)}
    arguments = ("--engine", "spark", "--master", "local[2]")
    built = run_wide("fleet", "build", "--log", sqlite_log, "--to", str(tmp_path), *arguments, **env)
    assert built.returncode == 0, built.stderr
    assert "engine spark (asked for)" in built.stdout
    assert in_order(rows_of(tmp_path, "rebalances"), CAUSES) == in_order(rows_of(tables, "rebalances"), CAUSES)


def test_an_export_is_built_as_the_log_is(sqlite_log: str, tables: Path, tmp_path: Path) -> None:
    """So is everything that `muster replay` opens."""
    export = tmp_path / "night.jsonl"
    assert run_wide("replay", "export", str(export), "--log", sqlite_log).returncode == 0
    built = run_wide("fleet", "build", "--log", str(export), "--to", str(tmp_path / "tables"))
    assert built.returncode == 0, built.stderr
    assert rows_of(tmp_path / "tables", "rebalances") == rows_of(tables, "rebalances")


# ---- questions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "column"),
    [
        (("top",), "group_id"),
        (("causes",), "kind"),
        (("causes", "--by", "trigger"), "trigger"),
        (("incidents", "--sort", "time"), "headline"),
    ],
)
def test_the_usual_questions_are_answered_for_eyes_and_for_programs(
    asked: tuple[str, ...], column: str, tables: Path
) -> None:
    """The rows are the same."""
    as_json = run_here("fleet", *asked, "--tables", str(tables), "--format", "json", "--limit", "3")
    rows = msgspec.json.decode(as_json.stdout)
    assert len(rows) == 3
    as_table = run_here("fleet", *asked, "--tables", str(tables), "--limit", "3")
    for row in rows:
        assert row[column] in as_table.stdout


def test_groups_and_windows_are_chosen(tables: Path) -> None:
    """Patterns and times choose; a missing group is reported."""
    ask = ("fleet", "top", "--tables", str(tables))
    rows = msgspec.json.decode(run_here(*ask, "--group", "*-mail", "--format", "json").stdout)
    assert [row["group_id"] for row in rows] == ["e-mail"]
    never = run_here(*ask, "--since", "9999-01-01")
    (line,) = never.stdout.splitlines()
    assert "have no rebalance since 9999-01-01T00:00:00.000Z. Looked at: no incident; in all they have" in line
    whole = msgspec.json.decode(
        run_here("fleet", "incidents", "--tables", str(tables), "--format", "json", "--limit", "1000").stdout
    )
    assert f"{len(whole)} incidents of " in line


async def test_patterns_match_what_they_match_for_replay(tmp_path: Path) -> None:
    """A `?` matches any character, including a backslash and an open bracket; DuckDB has other rules.

    An id may have a NUL.
    """
    names = ["\u00e9", "a\\b", "a[b", "nul\0", "line\nend", "it's"]
    await built(judged(range(len(names)), names.__getitem__), tmp_path)
    for pattern in ("?", "a?b", "a\\b", "a[[]b", "a[b", "nul*", "*\0", "line*", "*'s", "[!a]*"):
        matched = {name for name in names if fnmatchcase(name, pattern)}
        assert {row[0] for row in queries.top(tmp_path, AskedRows(groups=pattern)).rows} == matched, pattern
    for name in names:
        assert queries.group(tmp_path, AskedRows(groups=name))["causes"].rows, name


def test_without_a_storm_the_searched_range_is_reported(tables: Path) -> None:
    """The incidents of days without a storm."""
    ask = ("--tables", str(tables), "--since", "1970-01-01", "--until")
    ends = [
        row["started_at"]
        for row in msgspec.json.decode(
            run_here("fleet", "incidents", "--tables", str(tables), "--sort", "time", "--format", "json").stdout
        )
    ]
    first = min(ends)
    result = run_here("fleet", "storms", *ask, first)
    (line,) = result.stdout.splitlines()
    count = len(run_here("fleet", "incidents", *ask, first, "--limit", "1000", "--format", "jsonl").stdout.splitlines())
    assert count > 0
    assert "have no storm (of 3 groups or more) since 1970-01-01" in line
    assert f". Looked at: {count} incident" in line


def test_the_moments_of_tables_are_times_and_no_seq() -> None:
    """Only a log has seqs; the help of each question lists the accepted forms."""
    for command in ("top", "causes", "storms", "incidents", "group", "report"):
        output = run_here("fleet", command, "--help").stdout
        assert "now-10m" in output
        assert "seq number" not in output


@pytest.mark.parametrize(
    ("asked", "code", "told"),
    [
        (("top", "--group", "none-*"), 1, "no group in TABLES matches 'none-*'"),
        (("top", "--since", "whenever"), 2, "--since 'whenever' is none of these: a time"),
        (("top", "--since", "1h", "--until", "2h"), 2, "--since 1h is after --until 2h"),
        (("top", "--tz", "Europe/Nowhere"), 2, "is no time zone: give UTC, local, or a name"),
        (("incidents", "--kind", "crush"), 1, "no incident in TABLES is a 'crush': there are "),
        (("group", "order"), 1, "there is no group 'order' in TABLES; did you mean orders?"),
        (("group", "orders", "--since", "9999-01-01"), 1, "since 9999-01-01T00:00:00.000Z; they have it from "),
    ],
)
def test_an_error_names_the_way_out(asked: tuple[str, ...], code: int, told: str, tables: Path) -> None:
    """In one line; the exit codes are those of `muster replay`."""
    answer = run_here("fleet", *asked, "--tables", str(tables))
    assert (answer.exit_code, answer.stdout, answer.stderr.count("\n")) == (code, "", 1)
    assert answer.stderr.startswith("muster fleet: ")
    assert told.replace("TABLES", str(tables)) in answer.stderr


def test_times_are_shown_in_the_requested_zone(tables: Path) -> None:
    """In Markdown, too; JSON always has UTC."""
    ask = ("fleet", "incidents", "--tables", str(tables), "--limit", "3", "--tz", "Asia/Kolkata")
    as_lines = [msgspec.json.decode(line) for line in run_here(*ask, "--format", "jsonl").stdout.splitlines()]
    assert as_lines == msgspec.json.decode(run_here(*ask, "--format", "json").stdout)
    at = as_lines[0]["started_at"]
    assert at.endswith("Z")
    there = datetime.fromisoformat(at).astimezone(ZoneInfo("Asia/Kolkata")).isoformat(timespec="milliseconds")
    rows = [line for line in run_here(*ask).stdout.splitlines() if line.startswith("20")]  # each has more below it
    assert rows[0].split()[:2] == [there[:10], there[11:19]]
    assert len(rows) == len(as_lines) == 3
    as_markdown = run_here(*ask, "--format", "md").stdout
    assert f"| {there[:10]} {there[11:23]} UTC+05:30 |" in as_markdown


async def test_a_partition_time_that_is_not_known_is_null_and_at_least_what_is_known(tmp_path: Path) -> None:
    """The coordinator was unreachable while a member was silent: in tables, totals and on the page."""
    fleet = Fleet(3)
    fleet[2].die()
    fleet.run(1_000)
    fleet.away(5_000)
    fleet.rest(60_000)
    storage = MemoryStorage(partitions=1)
    storage.records[0] += stored_items(fleet.history().items, 0)
    await built(storage, tmp_path)
    (crash,) = queries.incidents(tmp_path, AskedRows(), kind="crash").records
    assert (crash["partition_ms"], crash["known_partition_ms"] > 0) == (None, True)
    (cause,) = [each for each in queries.causes(tmp_path, AskedRows(), By.KIND).records if each["kind"] == "crash"]
    (group,) = queries.top(tmp_path, AskedRows()).records
    (totals,) = queries.group(tmp_path, AskedRows(groups=GROUP_ID))["totals"].records
    assert [each["partition_ms"] for each in (cause, group, totals)] == [None] * 3
    assert {each["known_partition_ms"] for each in (cause, group, totals)} == {crash["known_partition_ms"]}
    known = f"at least {duration(crash['known_partition_ms'])}"
    for form in Format.TABLE, Format.MD:
        console = Console(width=200, file=io.StringIO())
        show(queries.incidents(tmp_path, AskedRows(), kind="crash"), View(form=form, zone=UTC), console, nothing="")
        assert isinstance(console.file, io.StringIO)
        assert known in console.file.getvalue()
    page = document(facts_of(tmp_path, AskedRows(), re.compile(DEFAULT_PATTERN)), "tables", made_ms=0)
    assert f"partition time {known}" in page
    assert partition_time(None, 0) == "unknown"


@pytest.mark.parametrize("asked", [("top",), ("causes",), ("storms",), ("incidents",), ("group", "orders")])
def test_a_terminal_of_80_columns_cuts_no_word(asked: tuple[str, ...], tables: Path) -> None:
    """Each line fits, and no heading or kind is broken."""
    output = run_here("fleet", *asked, "--tables", str(tables), COLUMNS="80").stdout
    assert max(map(len, output.splitlines())) <= 80
    if asked == ("causes",):
        kinds = msgspec.json.decode(run_here("fleet", *asked, "--tables", str(tables), "--format", "json").stdout)
        assert {row["kind"] for row in kinds} <= set(output.split())


def test_at_80_columns_a_flapping_process_leaves_days_and_durations_whole() -> None:
    """Its name is long, and takes a second line."""
    process = "consumer-reports-archive-01753-10 at 10.27.100.110"
    row = ("2026-01-06", process, False, 3, 1, "2026-01-06T16:31:41.000Z", "2026-01-06T17:31:41.000Z", 3_047_000, 6)
    columns = (
        "day", "process", "is_static", "stays", "at_once", "first_at", "last_at", "shortest_ms", "triggered"
    )  # fmt: skip
    console = Console(width=80, file=io.StringIO())
    show(Answer(name="flapping", columns=columns, rows=(row,)), View(zone=UTC), console, nothing="")
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[2].split()[0] == "2026-01-06"
    assert "50 min 47 s" in lines[2]
    assert len([line for line in lines if line.strip()]) == 4


def test_the_parts_of_a_group_are_shown(tables: Path) -> None:
    """Its totals, causes, days, and times without a coordinator."""
    result = run_here("fleet", "group", "orders", "--tables", str(tables), "--format", "json")
    output = msgspec.json.decode(result.stdout)
    assert {name for name, rows in output.items() if rows} >= {"totals", "causes", "days", "downtime"}
    assert output["totals"][0]["rebalances"] == sum(day["rebalances"] for day in output["days"])
    missing = run_here("fleet", "group", "none", "--tables", str(tables))
    assert (missing.exit_code, missing.stderr.count("\n")) == (1, 1)


def test_whole_days_and_partial_days_of_the_window_are_shown(tables: Path) -> None:
    """A heading says so. A day that begins at the window's end is not included."""
    (day,) = (row for row in rows_of(tables, "group_day") if row["group_id"] == "orders")
    ask = ("fleet", "group", "orders", "--tables", str(tables), "--format", "json", "--until")
    parts = msgspec.json.decode(run_here(*ask, "2023-11-14T22:20:00Z").stdout)
    assert [row["rebalances"] for row in parts["days"]] == [day["rebalances"]]
    assert parts["totals"][0]["rebalances"] < day["rebalances"]
    parts = msgspec.json.decode(run_here(*ask, "2023-11-15T00:00:00Z").stdout)
    assert [row["day"] for row in parts["days"]] == ["2023-11-14"]
    never = run_here(*ask, "2023-11-14T00:00:00Z")
    assert (never.exit_code, never.stdout) == (1, "")
    output = run_here("fleet", "group", "orders", "--tables", str(tables)).stdout.splitlines()
    assert "Whole days (UTC)" in output


def test_a_process_that_flapped_is_of_the_windows_in_which_it_joined(tables: Path) -> None:
    """One whose instance id another process takes over, again and again."""
    (flaps,) = (row for row in rows_of(tables, "flapping_members") if row["group_id"] == "duelled")
    ask = ("fleet", "group", "duelled", "--tables", str(tables), "--format", "json", "--until")
    before = msgspec.json.decode(run_here(*ask, "2023-11-14T22:13:20.999Z").stdout)
    assert before["flapping"] == []
    parts = msgspec.json.decode(run_here(*ask, flaps["first_at"]).stdout)
    assert [row["process"] for row in parts["flapping"]] == [flaps["process"]]
    output = run_here("fleet", "group", "duelled", "--tables", str(tables)).stdout.splitlines()
    assert "Flapping, by whole days (UTC)" in output


@pytest.mark.parametrize("columns", [80, 120, 130])
def test_no_kind_of_a_day_is_folded_within(columns: int) -> None:
    """The longest one, beside numbers of the greatest width."""
    row = ("2026-01-06", 1_098, 3_430_000, 3_215_000, 10_500_000, 694, 10, 4, 2, "coordinator-change", 161, 160, 30, 0)
    names = tuple(column.name for column in TABLES["group_day"].columns if column.name != "group_id")
    names = ("day", *(name for name in names if name != "day"))
    console = Console(width=columns, file=io.StringIO())
    show(Answer(name="days", columns=names, rows=(row,)), View(zone=UTC), console, nothing="")
    assert isinstance(console.file, io.StringIO)
    output = console.file.getvalue()
    assert {"coordinator-change", "2026-01-06"} <= set(output.split())
    assert "2 h 55 min" in output
    assert max(map(len, output.splitlines())) <= columns


async def test_a_build_reports_the_number_of_unreadable_records(tmp_path: Path) -> None:
    """And which table lists them; the rest is built."""
    url = await append(tmp_path, partition_for("orders", PARTITIONS), (broken_value("orders"),))
    answer = await asyncio.to_thread(
        run_here, "fleet", "build", "--log", url, "--to", str(tmp_path / "tables"), "--engine", "local"
    )
    assert answer.exit_code == 0, answer.output
    assert "; 1 record cannot be read: see the table quarantine\n" in answer.stdout


def test_missing_tables_are_named(tmp_path: Path) -> None:
    """With the command that makes them."""
    answer = run_here("fleet", "storms", "--tables", str(tmp_path))
    assert answer.exit_code == 2
    assert f"there are no tables in {tmp_path}: muster fleet build" in answer.stderr


# ---- what is missing ------------------------------------------------------------------------------------------------


def test_without_java_the_command_reports_what_is_missing(
    sqlite_log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, exit code 2, and nothing is written."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    to = str(tmp_path / "out")
    answer = run_wide("fleet", "build", "--log", sqlite_log, "--to", to, "--engine", "spark")
    assert answer.returncode == 2
    assert answer.stderr.count("\n") == 1
    assert "Spark needs Java 17 or 21: there is no java on the PATH" in answer.stderr
    assert not (tmp_path / "out").exists()


def test_a_java_home_without_java_is_named(sqlite_log: str, tmp_path: Path) -> None:
    """The variable and its value are in the message."""
    to = str(tmp_path / "out")
    answer = run_wide("fleet", "build", "--log", sqlite_log, "--to", to, "--engine", "spark", JAVA_HOME=str(tmp_path))
    assert answer.returncode == 2
    assert f"JAVA_HOME={tmp_path}" in answer.stderr


def test_the_tables_do_not_go_into_the_archives_folder(tmp_path: Path) -> None:
    """However the path is written: they would be among its segments."""
    answer = run_wide("fleet", "build", "--archive", str(tmp_path), "--to", f"{tmp_path}/.")
    assert answer.returncode == 2
    assert "the archive's folder: give the tables a folder of their own" in " ".join(
        answer.stderr.replace("│", "").split()
    )
    assert not list(tmp_path.iterdir())


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    """Reading does not create a log."""
    answer = run_wide("fleet", "build", "--log", f"sqlite:///{tmp_path}/none.db", "--to", str(tmp_path / "out"))
    assert answer.returncode == 2
    assert "none.db" in answer.stderr
    assert not (tmp_path / "none.db").exists()


async def test_foreign_records_are_not_staged(lived_log: MemoryStorage, tmp_path: Path) -> None:
    """It is counted, and the first one is reported, as in `muster replay`."""
    storage, with_foreign = lived_log, MemoryStorage(partitions=len(lived_log.records))
    for partition, records in enumerate(lived_log.records):
        end = records[-1].offset
        foreign_records = [
            StoredRecord(partition, end + n, 0, key, None, is_foreign=True)
            for n, key in ((1, b"x"), (2, records[0].key))
        ]
        with_foreign.records[partition] = [*records, *foreign_records]
    staged = []
    for number, kept in enumerate((storage, with_foreign)):
        (directory := tmp_path / str(number)).mkdir()
        log = await opened(kept)
        ends = {partition: await log.end_offset(partition) for partition in range(log.partitions)}
        staged.append(await stage(log, directory, since={}, ends=ends, watch=unwatched))
    alone, mixed = staged
    assert [survey(each.pieces, unwatched).records for each in staged] == [survey(alone.pieces, unwatched).records] * 2
    assert (alone.foreign_records.records, mixed.foreign_records.records) == (0, 2 * len(storage.records))
    assert mixed.foreign_records.first[0] == storage.records[0][-1].offset + 1


def test_a_query_that_takes_too_much_memory_advises_a_smaller_one(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, as with all errors."""

    def too_large(*_: object) -> Answer:
        raise duckdb.OutOfMemoryException("Out of Memory Error: failed to pin block\n\nPossible solutions: ...")

    monkeypatch.setattr(queries, "_answer", too_large)
    result = CliRunner().invoke(app, ["fleet", "top", "--tables", str(tables)])
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert "memory: ask for less, by --since or --group (Out of Memory Error: failed to pin block)" in line
