"""`muster replay` as a user runs it: outputs, exit codes, one line for each error."""

import asyncio
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from muster.events.avro.codec import records_of
from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.log.url import open_log
from muster.events.records import FORMAT_LEVEL, Record
from muster.replay.cli import app
from tests.forked import run_muster
from tests.replay.stories import a_night
from tests.replay.written import BROKEN_KEY, PARTITIONS, append, broken_value, script, sqlite_log, unknown_type

WIDE = {"COLUMNS": "140", "LINES": "25", "TERM": "dumb", "TTY_COMPATIBLE": "1"}
"""A terminal of 140 columns without colours. rich assumes 80 for a dumb one unless LINES is set, too."""
BUFFERED = {**os.environ, "PYTHONUNBUFFERED": ""}
"""For processes that write as users have them do, wherever the tests run."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log with the night of `orders`, and a group without activity."""
    path = tmp_path_factory.mktemp("log") / "muster.db"
    return asyncio.run(sqlite_log(path, a_night(), script("payments").created()))


def run(*arguments: str, log: str | None = None) -> Result:
    given = [*arguments, "--log", log] if log is not None else [*arguments]
    return CliRunner().invoke(app, given, env=WIDE)


def assert_fails(result: Result, code: int, *parts: str) -> None:
    """Check for one line on stderr, no stdout, and no traceback."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    for part in parts:
        assert part in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["groups"],
        ["why", "orders", "--all"],
        ["why", "orders", "--generation", "2"],
        ["state", "orders", "--at", "2026-11-21T02:30:00Z"],
        ["diff", "orders", "1", "2"],
        ["whatif", "orders", "--static"],
        ["digest", "--since", "2000-01-01", "--until", "9999-01-01", "--format", "table"],
    ],
)
def test_piped_output_is_as_wide_as_columns_and_has_no_trailing_blanks(command: list[str], url: str) -> None:
    """Nothing is cut off, and no line is padded."""

    def piped(columns: int) -> list[str]:
        result = CliRunner().invoke(app, [*command, "--log", url], env={"COLUMNS": str(columns)})
        assert result.exit_code == 0, result.output
        lines = result.stdout.splitlines()
        assert max(map(len, lines)) <= columns
        assert all(line == line.rstrip() for line in lines)
        return lines

    narrow, wide = (sorted("".join(piped(columns)).translate(_NO_FRAMES)) for columns in (80, 10_000))
    assert narrow == wide or command == ["groups"]  # which has sentences if there is room


_NO_FRAMES = str.maketrans("", "", " \u2500")


def test_without_a_terminal_and_without_columns_a_line_has_120(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a cron job; each entry of a history is one line nevertheless, for grep."""
    log = asyncio.run(sqlite_log(tmp_path / "muster.db", a_night()))
    monkeypatch.delenv("COLUMNS", raising=False)

    def piped(*arguments: str) -> list[str]:
        return run_muster("replay", *arguments, "orders", "--log", log).stdout.splitlines()

    assert 80 < max(map(len, piped("why"))) <= 120
    assert max(map(len, piped("history"))) > 120


@pytest.mark.parametrize(
    "command",
    [
        ["groups"],
        ["history", "orders"],
        ["why", "orders"],
        ["state", "orders", "--at", "2"],
        ["diff", "orders", "2", "3"],
        ["whatif", "orders", "--session-timeout", "60s"],
    ],
)
@pytest.mark.parametrize("form", ["table", "json", "jsonl", "md"])
def test_each_command_prints_each_format(url: str, command: list[str], form: str) -> None:
    """JSON is one document, JSON lines are documents, a table has no colours without a terminal."""
    result = run(*command, "--format", form, log=url)
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout
    assert result.stderr == ""
    if form == "json":
        msgspec.json.decode(result.stdout)
    elif form == "jsonl":
        assert all(isinstance(msgspec.json.decode(line), dict) for line in result.stdout.splitlines())


def test_a_group_that_never_rebalanced_is_not_an_error(url: str) -> None:
    """The output says that there was none."""
    result = run("why", "payments", log=url)
    assert (result.exit_code, result.stdout) == (0, "The log has no incident of payments.\n")


def test_an_unknown_group_is_named_with_the_log_and_near_matches(url: str) -> None:
    """Exit code 1: the log is sound."""
    path = url.removeprefix("sqlite:///")
    for command in (["history", "order"], ["why", "order"], ["state", "order", "--at", "1"]):
        assert_fails(run(*command, log=url), 1, "'order'", path, "did you mean orders?")
    assert "; it has orders and payments. A group that a Kafka cluster" in run("why", "zzz", log=url).stderr


def test_an_unknown_generation_is_reported_with_the_known_ones(url: str) -> None:
    assert_fails(run("why", "orders", "--generation", "9", log=url), 1, "generation 9", "it has generations 1 to 4\n")


def test_a_generation_whose_rebalance_is_running_is_not_shown_as_reached(tmp_path: Path) -> None:
    running = script("orders").created()
    a, b = running.member("a"), running.member("b")
    running.start(running.joined(a)).wait(3_000).complete().wait(100).stabilize({"a": {"t": [0]}})
    running.wait(60_000).start(running.joined(b))
    url = asyncio.run(sqlite_log(tmp_path / "running.db", running))
    text = "it has generations 1 to 2; the rebalance to generation 2 is still running"
    assert_fails(run("why", "orders", "--generation", "55", log=url), 1, "generation 55", text)


def test_a_time_before_the_log_is_reported_with_its_extent(url: str) -> None:
    """Exit code 1, with the valid range."""
    result = run("state", "orders", "--at", "2020-01-01T00:00:00Z", log=url)
    assert_fails(result, 1, "seq 1 to 44", "2026-11-21T02:00:05.800Z")


def test_an_invalid_time_lists_the_formats(url: str) -> None:
    """Exit code 2."""
    assert_fails(run("state", "orders", "--at", "yesterday", log=url), 2, "'yesterday'", "a generation", "02:14:07")


def test_two_choices_at_once_are_refused(url: str) -> None:
    """Exit code 2."""
    assert_fails(run("why", "orders", "--last", "--all", log=url), 2, "only one of --generation, --at, --last and")


@pytest.mark.parametrize(
    ("log", "part"),
    [
        ("muster.db", "no scheme"),
        ("redis://host/1", "redis"),
        ("memory:", "memory: is inside the muster serve process"),
        ("sqlite:///no/such/file.db", "no/such/file.db"),
        ("sqlite:///" + str(Path(__file__)), "test_cli.py"),
    ],
)
def test_a_log_that_cannot_be_read_is_one_line(log: str, part: str) -> None:
    """Exit code 2: a URL without scheme or with an unknown one, a file in use by another process, no file, no log."""
    assert_fails(run("groups", log=log), 2, part)
    assert_fails(run("why", "orders", log=log), 2, part)


def test_a_log_of_a_newer_version_is_one_line(tmp_path: Path) -> None:
    """Exit code 2."""
    story = script("orders").coordinator("a:1")
    ((_, (elected,)), *_) = story.transitions
    newer = records_of([msgspec.structs.replace(elected, format_level=99)], FORMAT_LEVEL)
    url = asyncio.run(append(tmp_path, story.partition, newer))
    assert_fails(run("why", "orders", log=url), 2, "format level 99")


@pytest.mark.parametrize(
    "command",
    [
        ["groups"],
        ["history", "orders"],
        ["why", "orders"],
        ["state", "orders", "--at", "2"],
        ["diff", "orders", "2", "3"],
        ["whatif", "orders", "--session-timeout", "60s"],
    ],
)
def test_properties_of_a_cluster_that_cannot_be_used_are_named(url: str, command: list[str]) -> None:
    """The error has the property's name; the value may be a secret."""
    result = run(*command, "--kafka-config", "sasl.pasword=hunter2", log=url)
    assert_fails(result, 2, "--kafka-config: unknown property 'sasl.pasword'; did you mean sasl.password?")
    assert "hunter2" not in result.stderr


def test_a_broken_record_is_shown_at_its_position(tmp_path: Path) -> None:
    """The command shows the events before it; the exit code says that the history is incomplete."""
    story = script("orders").created()
    url = asyncio.run(append(tmp_path, story.partition, *story.stored_transitions(), (broken_value("orders"),)))
    result = run("history", "orders", log=url)
    assert result.exit_code == 3
    assert "the group was created" in result.stdout
    assert f"the record at partition {story.partition}, offset" in result.stdout
    assert "orders is quarantined" in run("groups", log=url).stdout.replace("\n", " ")


EVERY_COMMAND = (
    ("groups",),
    ("digest", "--since", "2000-01-01T00:00"),
    ("history", "orders"),
    ("history", "orders", "--since", "5", "--seq"),
    ("why", "orders"),
    ("why", "orders", "--last"),
    ("why", "orders", "--generation", "99"),
    ("state", "orders", "--at", "2100-01-01T00:00"),
    ("state", "--at", "2100-01-01T00:00"),
    ("diff", "orders", "1", "2100-01-01T00:00"),
    ("whatif", "orders", "--static"),
    ("verify",),
)


@pytest.mark.parametrize(
    "broken", [broken_value("orders"), unknown_type("orders"), BROKEN_KEY], ids=["value", "type", "key"]
)
def test_every_command_reports_an_unreadable_record(tmp_path: Path, broken: Record) -> None:
    """It has the position, and exit code 3 if the result depends on it; a copy of the log is complete."""
    night = a_night()
    transitions = night.stored_transitions()
    middle = len(transitions) // 2
    url = asyncio.run(append(tmp_path, night.partition, *transitions[:middle], (broken,), *transitions[middle:]))
    place = f"partition {night.partition}, offset {sum(map(len, transitions[:middle]))}"
    page = ("report", "orders", "-o", str(tmp_path / "report.html"))
    for command in (*EVERY_COMMAND, page):
        result = run(*command, log=url)
        assert result.exit_code == 3, (command, result.output)
        found = result.stdout if command == ("verify",) else result.stderr
        assert place in found.replace("\n", " "), (command, result.output)
    assert run("export", str(tmp_path / "copy.avro"), log=url).exit_code == 0
    assert run("groups", log=str(tmp_path / "copy.avro")).exit_code == 3


def test_an_irrelevant_unreadable_record_is_not_a_gap(tmp_path: Path) -> None:
    """It is another group's, or later than the requested time."""
    night = a_night()
    url = asyncio.run(append(tmp_path, night.partition, *night.stored_transitions(), (broken_value("shadow"),)))
    for command in ("history", "why", "whatif"):
        more = ["--static"] if command == "whatif" else []
        assert run(command, "orders", *more, log=url).exit_code == 0
    assert run("groups", "--group", "ord*", log=url).exit_code == 0
    assert run("groups", log=url).exit_code == 3
    asyncio.run(append(tmp_path, night.partition, (broken_value("orders"),)))
    assert run("history", "orders", "--until", "5", "--seq", log=url).exit_code == 0


def test_the_readable_part_of_a_damaged_file_is_shown(tmp_path: Path) -> None:
    """With a warning and an exit code of its own: the result may be incomplete."""
    story = script("orders").created()
    filler = [(Record(encode_key(RecordKey(f"g{n}", EntityKind.GROUP_CONFIG, "")), b"x" * 1000),) for n in range(100)]
    url = asyncio.run(append(tmp_path, story.partition, *story.stored_transitions(), *filler))
    file = tmp_path / "muster.db"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) - 10 * 4096])
    result = run("history", "orders", log=url)
    assert result.exit_code == 3, result.output
    assert "the group was created" in result.stdout
    assert f"muster replay: the event log {file} is damaged" in result.stderr


def test_a_group_missing_from_a_damaged_file_may_have_existed(tmp_path: Path) -> None:
    """A missing group is no proof: the exit code is that of damage, also if a row has become empty."""
    story = script("orders").created()
    filler = [(Record(encode_key(RecordKey(f"g{n}", EntityKind.GROUP_CONFIG, "")), b"x" * 1000),) for n in range(100)]
    url = asyncio.run(append(tmp_path, story.partition, *filler, *story.stored_transitions()))
    file = tmp_path / "muster.db"
    content = bytearray(file.read_bytes())
    page = content.index(b"orders") // 4096 * 4096
    content[page + 1000 : page + 4096] = bytes(3096)  # keep the page header: its rows are full of NULL
    file.write_bytes(content)
    for command in (["history"], ["why"], ["state", "--at", "3"], ["whatif", "--static"]):
        result = run(*command, "orders", log=url)
        assert result.exit_code == 3, result.output
        assert "there is no group 'orders' in" in result.stderr
        assert "muster status names those behind a sidecar" in result.stderr
        assert f"muster replay: the event log {file} is damaged" in result.stderr
        assert f"The unreadable records of partition {story.partition} were left out" in result.stderr


def test_a_log_without_its_write_ahead_log_is_used_and_reported(tmp_path: Path) -> None:
    """The result has what is there; the exit code says that there may have been more."""
    story = script("orders").created()
    url = asyncio.run(append(tmp_path, story.partition, *story.stored_transitions()))
    file, copy = tmp_path / "muster.db", tmp_path / "copy.db"

    async def copy_while_it_is_open() -> None:
        log = open_log(url)
        await log.open()
        copy.write_bytes(file.read_bytes())
        await log.close()

    asyncio.run(copy_while_it_is_open())
    result = run("history", "orders", log=f"sqlite:///{copy}")
    assert result.exit_code == 3, result.output
    assert "the group was created" in result.stdout
    assert "copy.db-wal, which has the latest writes, is missing" in result.stderr
    assert result.stderr.count("\n") == 1


async def test_a_live_log_is_read_while_its_writer_continues(tmp_path: Path) -> None:
    """Reading claims nothing: the writer appends before and after."""
    night, more = a_night(), script("orders").created()
    url = f"sqlite:///{tmp_path / 'muster.db'}"
    log = open_log(url, partitions=PARTITIONS)
    await log.open()
    writer = await log.claim(night.partition)
    await writer.append(night.stored_transitions())
    result = await asyncio.to_thread(run, "why", "orders", "--format", "jsonl", log=url)
    assert result.exit_code == 0, result.output
    await writer.append(more.stored_transitions())
    await log.close()


def test_help_teaches_by_example() -> None:
    """Each command shows how to call it."""
    assert "muster replay why orders --generation 8" in run("--help").stdout
    for command in ("groups", "history", "why", "state"):
        assert f"muster replay {command}" in run(command, "--help").stdout


@pytest.mark.parametrize("no_color", [False, True])
def test_colours_are_for_terminals_that_want_them(url: str, no_color: bool) -> None:
    """There are colours on a terminal unless NO_COLOR is set."""
    main, terminal = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm-256color"}
    environment |= {"NO_COLOR": "1"} if no_color else {}
    command = [sys.executable, "-c", "from muster.replay.cli import app; app()", "groups", "--log", url]
    process = subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    shown = b""
    try:
        while chunk := os.read(main, 4096):
            shown += chunk
    except OSError:
        pass  # the terminal is gone with the process
    finally:
        os.close(main)
    assert process.wait(timeout=30) == 0
    assert b"orders" in shown
    assert (b"\x1b[32m" in shown) is not no_color


def test_verify_ends_with_1_when_something_is_found_and_with_2_when_nothing_can_be_read(
    url: str, tmp_path: Path
) -> None:
    """The night of the other tests was written by hand, not by the rules, which `verify` notices."""
    night = run("verify", log=url)
    assert night.exit_code == 1
    assert "finding" in night.stdout
    assert "orders, seq" in night.stdout
    found = msgspec.json.decode(run("verify", "--format", "json", log=url).stdout)["findings"]
    assert {"check", "partition", "offset", "group_id", "seq", "expected", "found"} <= found[0].keys()
    well = asyncio.run(sqlite_log(tmp_path / "muster.db", script("payments").created()))
    result = run("verify", log=well)
    assert result.exit_code == 0, result.output
    assert "is consistent" in " ".join(result.stdout.split())  # a path may be long
    assert_fails(run("verify", log=f"sqlite:///{tmp_path}/none.db"), 2)


def test_a_finding_of_verify_names_its_place_in_two_lines(tmp_path: Path) -> None:
    """Partition and offset, and below them group and seq."""
    story = script("orders").created()
    twice = story.stored_transitions()
    url = asyncio.run(append(tmp_path, story.partition, *twice, *twice))
    lines = run("verify", log=url).stdout.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith(f"partition {story.partition}, offset"))
    assert lines[place + 1].startswith("orders, seq 1 ")
    assert "\\n" not in lines[place]


def test_whatif_needs_another_setting(url: str) -> None:
    """And reports each rebalance with its reason."""
    assert_fails(run("whatif", "orders", log=url), 2, "at least one setting")
    assert_fails(run("whatif", "order", "--static", log=url), 1, "did you mean orders")
    for requested in (("--session-timeout", "1m"), ("--session-timeout-ms", "60000"), ("--session-timeout-ms", "60s")):
        assert "session.timeout.ms=60000" in run("whatif", "orders", *requested, log=url).stdout
    both = run("whatif", "orders", "--session-timeout", "1m", "--session-timeout-ms", "60000", log=url)
    assert_fails(both, 2, "--session-timeout and --session-timeout-ms are the same option")
    without_unit = run("whatif", "orders", "--session-timeout", "60000", log=url)
    assert "60000' should be a number with a unit" in without_unit.output


@pytest.mark.parametrize("form", ["table", "jsonl"])
def test_whatif_refuses_settings_that_a_coordinator_would_refuse(url: str, form: str) -> None:
    """With the setting, its value and the accepted range; no result is printed."""
    given = ("whatif", "orders", "--session-timeout-ms", "0", "--format", form)
    assert_fails(run(*given, log=url), 2, "session.timeout.ms=0 would be refused: give")


def test_diff_of_generations_and_of_moments(url: str) -> None:
    """A generation is the group at its assignment; an unknown one is an error that lists the known ones."""
    generations = run("diff", "orders", "1", "2", log=url)
    assert generations.stdout == run("diff", "orders", "1", "2", "--generations", log=url).stdout
    assert generations.exit_code == 0, generations.output
    assert "generation 1" in generations.stdout
    assert "generation 2" in generations.stdout
    assert_fails(run("diff", "orders", "1", "99", log=url), 1, "generation 99", "it has the starts of generations 1 to")
    assert_fails(
        run("state", "orders", "--at", "99", log=url), 1, "generation 99", "it has the starts of generations 1 to"
    )
    assert_fails(run("diff", "orders", "1", "noon", log=url), 2, "'noon'")
    assert_fails(run("diff", "orders", "1", "9999", "--seq", log=url), 1, "it has seq 1")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("form", ["table", "json", "jsonl", "md"])
def test_an_answer_that_cannot_be_written_is_one_line(url: str, form: str) -> None:
    """The disk is full: exit code 2, whether the output is long or stays in a buffer until the end."""
    line = [sys.executable, "-m", "muster", "replay", "history", "orders", "--format", form, "--log", url]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            line, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60, env=BUFFERED
        )
    assert (ran.returncode, ran.stderr) == (2, "muster replay: the answer cannot be written: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_an_unwritable_output_is_reported_for_a_damaged_log_too(url: str, tmp_path: Path) -> None:
    """After the damage, and with exit code 2: there is no result."""
    export = tmp_path / "night.jsonl"
    run("export", str(export), log=url)
    export.write_bytes(export.read_bytes()[:-100])
    line = [
        sys.executable,
        "-m",
        "muster",
        "replay",
        "history",
        "orders",
        "--format",
        "jsonl",
        "--until",
        "4",
        "--seq",
        "--log",
        f"jsonl:///{export}",
    ]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            line, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60, env=BUFFERED
        )
    damage, written = ran.stderr.splitlines()
    assert ": it is cut off (" in damage
    assert (ran.returncode, written) == (2, "muster replay: the answer cannot be written: No space left on device")


def test_a_number_of_thousands_of_digits_is_not_a_time(url: str) -> None:
    """Nor a generation."""
    assert_fails(run("why", "orders", "--at", "9" * 5_000, log=url), 2, "is none of these")
    assert_fails(run("diff", "orders", "1", "9" * 5_000, log=url), 2, "is none of these")


def test_quotes_in_errors_are_printable(tmp_path: Path) -> None:
    """A file may have any content, so its text does not reach the terminal as it is."""
    path = tmp_path / "night.jsonl"
    head = {"form": "\x1b[31m\nform", "log": "x", "identity": "y", "partitions": 1}
    path.write_bytes(msgspec.json.encode(head) + b"\n")
    assert_fails(run("groups", log=str(path)), 2, "\\x1b[31m")


def test_a_path_that_is_not_a_log_is_reported_with_the_accepted_forms(tmp_path: Path) -> None:
    """And for an existing file, how to write the URL of a SQLite log there."""
    path = tmp_path / "muster.db"
    result = run("groups", log=str(path))
    assert_fails(result, 2, "has no scheme", "NAME.jsonl", "archive:DIR")
    assert "sqlite:///" + str(path) not in result.stderr
    path.touch()
    assert_fails(run("groups", log=str(path)), 2, f"a SQLite log is named sqlite:///{path}")


def test_the_default_time_of_a_state_is_now(url: str) -> None:
    """So is that of all groups."""
    now, given = (run("state", "orders", *at, "--format", "json", log=url) for at in ((), ("--at", "now")))
    drop = {"asked_for": None}
    assert msgspec.json.decode(now.stdout) | drop == msgspec.json.decode(given.stdout) | drop
    assert run("state", log=url).exit_code == 0


@pytest.mark.parametrize("name", ["night.jsonl", "report.html"])
def test_a_disk_that_is_full_under_a_file_leaves_what_was_there(tmp_path: Path, name: str) -> None:
    """One line reports it, with exit code 2; the file stays as before, and no partial file is left."""
    log = asyncio.run(
        sqlite_log(tmp_path / "muster.db", a_night(), *(script(f"g{each}").created() for each in range(99)))
    )
    out = tmp_path / "out" / name
    out.parent.mkdir()
    out.write_text("before")
    what = ["report", "orders", "-o", str(out)] if name == "report.html" else ["export", str(out)]
    line = shlex.join([sys.executable, "-m", "muster", "replay", *what, "--log", log])
    ran = subprocess.run(
        ["bash", "-c", f"ulimit -S -f 32; exec {line}"], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.splitlines() == [f"muster replay: {out} cannot be written: File too large"]
    assert {each.name: each.read_text() for each in out.parent.iterdir()} == {name: "before"}
