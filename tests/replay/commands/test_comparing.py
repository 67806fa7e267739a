"""`muster replay verify`, `whatif` and `diff` on real files: as written, exported, compacted, cut off."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from muster.events.events import RebalanceStarted
from muster.events.log.url import open_log
from muster.events.partitioner import partition_for
from muster.replay.cli import app
from muster.replay.text.times import instant, wall_ms_of
from tests.coordinator.group.harness import GROUP_ID, Harness
from tests.events.histories import recorded_levels
from tests.replay.lived import Settings, live
from tests.replay.test_verify import events_of, stored, verified
from tests.replay.written import PARTITIONS

LEVEL_3 = Path(__file__).parents[2] / "events" / "histories" / "level3.db"
A_RESTART = [(5, "crash", "b"), (25, "start", "b"), (60, "start", "d")]


def run(*arguments: str, width: str = "140") -> Result:
    return CliRunner().invoke(
        app, list(arguments), env={"COLUMNS": width, "TERM": "xterm", "NO_COLOR": "1", "TTY_COMPATIBLE": "1"}
    )


@pytest.fixture(scope="module")
def story() -> Harness:
    """Return a log with a restart that its session of 10 s did not cover, and then a fourth process."""
    return live(A_RESTART, Settings(), until_s=90)


@pytest.fixture(scope="module")
def url(story: Harness, tmp_path_factory: pytest.TempPathFactory) -> str:
    return asyncio.run(_written(story, tmp_path_factory.mktemp("log") / "muster.db"))


async def _written(story: Harness, path: Path) -> str:
    log = open_log(f"sqlite:///{path}", partitions=PARTITIONS)
    await log.open()
    writer = await log.claim(partition_for(story.group_id, PARTITIONS))
    for record in stored(events_of(story)):
        await writer.append([(record,)])  # type: ignore[list-item]
    await log.close()
    return f"sqlite:///{path}"


@pytest.mark.parametrize("level", recorded_levels())
def test_histories_of_each_format_level_are_consistent(level: int, story: Harness) -> None:
    """Fields that a level does not have yet are no difference."""
    result = verified(stored(events_of(story), level))
    assert (result.found, result.decided_again) == (0, len(story.events))


def test_a_file_of_an_older_level_holds_together(tmp_path: Path) -> None:
    """The Muster of that time wrote it."""
    copy = tmp_path / "level3.db"
    copy.write_bytes(LEVEL_3.read_bytes())
    result = run("verify", "--log", f"sqlite:///{copy}")
    assert result.exit_code == 0, result.output
    assert "21 of 21 events, with the recorded result" in result.stdout


@pytest.mark.parametrize("name", ["night.jsonl", "night.avro"])
@pytest.mark.parametrize("has_pseudonyms", [False, True])
def test_an_export_holds_together_as_its_log_does(url: str, tmp_path: Path, name: str, has_pseudonyms: bool) -> None:
    """And a what-if of it gives the same result, also with pseudonyms."""
    path, key = tmp_path / name, tmp_path / "key"
    key.write_text("0123456789abcdef")
    assert (
        run("export", str(path), "--log", url, *(["--pseudonyms", str(key)] if has_pseudonyms else [])).exit_code == 0
    )
    read = [run("verify", "--log", log, "--format", "json") for log in (url, str(path))]
    assert [each.exit_code for each in read] == [0, 0], read[1].output
    one, other = (msgspec.json.decode(each.stdout) for each in read)
    assert one | {"log": ""} == other | {"log": ""}
    arguments = ("whatif", GROUP_ID, "--session-timeout", "45s", "--format", "jsonl")
    verdicts = [
        [msgspec.json.decode(line)["verdict"] for line in _lines(*arguments, log=log)] for log in (url, str(path))
    ]
    assert verdicts[0] == verdicts[1] == ["would", "would-not", "would-not", "would"]


def test_a_partial_export_is_not_an_error(url: str, tmp_path: Path) -> None:
    """`verify` reports the missing events, and how many could not be decided again."""
    path = tmp_path / "part.jsonl"
    middle = instant(_starts(url)[1] - 1)
    assert run("export", str(path), "--log", url, "--since", middle).exit_code == 0
    result = run("verify", "--log", str(path))
    assert result.exit_code == 0, result.output
    assert "Compacted" in result.stdout
    assert "no longer in the log" in result.stdout


def test_a_truncated_file_is_reported_as_not_fully_read(url: str, tmp_path: Path) -> None:
    """Exit code 3: the readable part is consistent, but the log is not called sound."""
    path = tmp_path / "cut.jsonl"
    run("export", str(path), "--log", url)
    path.write_bytes(path.read_bytes()[:-100])
    result = run("verify", "--log", str(path), width="400")
    assert result.exit_code == 3, result.output
    assert "the rest cannot be read" in result.stdout
    assert ": it is cut off (" in result.stderr


def test_a_file_of_something_else_is_one_line(tmp_path: Path) -> None:
    """Exit code 2."""
    other = tmp_path / "other.db"
    other.write_text("no database")
    for log in (f"sqlite:///{other}", str(other), "avro:///" + str(other)):
        result = run("verify", "--log", log)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.output


def test_a_compacted_log_holds_together(story: Harness) -> None:
    """Each key keeps its last record: missing events are counted, and are no finding."""
    records = stored(events_of(story))
    kept = {record.key: record for record in records}
    result = verified(sorted(kept.values(), key=lambda record: record.offset))
    assert result.findings == ()
    (compacted,) = result.compacted
    assert compacted.missing + result.events == len(story.events)
    assert compacted.unchecked > 0


def test_findings_include_advice(tmp_path: Path) -> None:
    """Each kind once, in the table, in Markdown and in JSON."""
    h = Harness()
    h.stable_group(h.static("a"))
    path = tmp_path / "muster.db"
    h.events.pop()
    url = asyncio.run(_written(h, path))
    for form, part in (("table", "What to do"), ("md", "**What to do**"), ("json", '"advice"')):
        result = run("verify", "--log", url, "--format", form, width="200")
        assert result.exit_code == 1, result.output
        assert part in result.stdout
        assert "the end of the log" in result.stdout


def test_a_window_of_a_what_if(url: str) -> None:
    """Earlier history is folded, later history is read as far as needed, and neither is reported."""
    starts = _starts(url)
    arguments = ("whatif", GROUP_ID, "--session-timeout", "45s", "--format", "jsonl")
    every = _lines(*arguments, log=url)
    assert [msgspec.json.decode(line)["verdict"] for line in every] == ["would", "would-not", "would-not", "would"]
    since, until = instant(starts[1]), instant(starts[2])
    assert _lines(*arguments, "--since", since, "--until", until, log=url) == every[1:3]
    assert _lines(*arguments, "--since", since, log=url) == every[1:]
    assert _lines(*arguments, "--until", since, log=url) == every[:2]
    table = run("whatif", GROUP_ID, "--session-timeout", "45s", "--since", since, "--until", until, "--log", url)
    assert f"2 of 2 rebalances of {GROUP_ID} would not have happened" in table.stdout
    nothing = run("whatif", GROUP_ID, "--static", "--since", "2100-01-01T00:00:00Z", "--log", url)
    assert (nothing.exit_code, nothing.stdout) == (1, "")


def test_times_are_shown_in_the_zone(url: str) -> None:
    """In the tables' headers and cells, never in JSON."""
    for command in (("whatif", GROUP_ID, "--static"), ("diff", GROUP_ID, "1", "2")):
        result = run(*command, "--tz", "Asia/Tokyo", "--log", url)
        assert "UTC+09:00" in result.stdout, result.output
        assert "UTC+09:00" not in run(*command, "--tz", "Asia/Tokyo", "--format", "json", "--log", url).stdout


def test_a_comparison_of_times_names_the_requested_times(url: str) -> None:
    """The group is that after the last event until then."""
    late = instant(_starts(url)[-1] + 3_600_000)
    result = run("diff", GROUP_ID, "2", late, "--log", url)
    assert result.exit_code == 0, result.output
    assert f"asked for {late[:10]} {late[11:23]}" in result.stdout


def _lines(*arguments: str, log: str) -> list[str]:
    result = run(*arguments, "--log", log)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def _starts(url: str) -> list[int]:
    """Return the wall clock ms at which the rebalances began."""
    lines = (msgspec.json.decode(line) for line in _lines("history", GROUP_ID, "--format", "jsonl", log=url))
    return [wall_ms_of(line["at"]) for line in lines if line.get("type") == RebalanceStarted.__name__]


def test_verify_of_a_part_names_what_was_checked(url: str) -> None:
    """A window, and groups of a pattern; nothing outside of the log is called consistent."""
    middle = instant(_starts(url)[1] - 1)
    result = run("verify", "--log", url, "--since", middle, "--group", "ord*", "--tz", "UTC", width="200")
    assert result.exit_code == 0, result.output
    assert f"that match 'ord*' since {middle[:10]} {middle[11:-1]} UTC; " in result.stdout
    assert "before that checked but not reported" in result.stdout
    part = msgspec.json.decode(run("verify", "--log", url, "--since", middle, "--format", "json").stdout)
    whole = msgspec.json.decode(run("verify", "--log", url, "--format", "json").stdout)
    assert (part["window"]["since"], whole["window"]) == (middle, None)
    assert part["events"] + part["folded"] == whole["events"] == whole["decided_again"]
    assert part["decided_again"] == part["events"] > 0
    for requested, reported in (
        (("--group", "x*"), "no group"),
        (("--since", "2050-01-01T00:00"), "it covers "),
        (("--since", "7"), "--since 7: a number is not a time; give a time"),
    ):
        result = run("verify", "--log", url, *requested)
        assert (result.exit_code in (1, 2), result.stdout, result.stderr.count("\n")) == (True, "", 1), result.output
        assert reported in result.stderr
