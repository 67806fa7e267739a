"""Exports can be read: whole, in part, with pseudonyms, and up to the end of a file that is cut off."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from muster.events.avro.codec import decode, records_of
from muster.events.causes import Cause
from muster.events.consumer_protocol import encode_subscription
from muster.events.events import EVENT_TYPES, AnyRecordedEvent
from muster.events.ids import GroupId
from muster.events.kafka.security import NOT_SECURED
from muster.events.log.base import LogMismatch
from muster.events.records import FORMAT_LEVEL, StoredRecord
from muster.replay.cli import app
from muster.replay.history.items import Happened
from muster.replay.history.window import AtTime, Window
from muster.replay.logs.exports import FORM, Head, Selection, export_to, line_of
from muster.replay.logs.opening import open_for_reading
from muster.replay.logs.pseudonyms import _KINDS, Pseudonyms, _metadata
from tests.events.strategies import events
from tests.replay.stories import a_night
from tests.replay.told import rebalances_of
from tests.replay.whole import read_histories
from tests.replay.written import BROKEN_KEY, broken_value, script, sqlite_log, unknown_type

HEAD = Head(form=FORM, log="muster.db", identity="abc", partitions=8)
FORMS = ("night.jsonl", "night.avro")
KEY = b"a key of thirty-two bytes or so!"


def written(path: Path, records: list[StoredRecord]) -> Path:
    with path.open("wb") as file:
        export = export_to(path, file, HEAD)
        for record in records:
            export.write(record)
        export.close()
    return path


async def read(path: Path) -> list[StoredRecord]:
    log = open_for_reading(str(path), security=NOT_SECURED)
    await log.open()
    assert not log.warnings
    found: list[StoredRecord] = []
    for partition in range(log.partitions):
        end = await log.end_offset(partition)
        async for chunk in log.read(partition, end=end):
            found += chunk
    assert not log.warnings
    return found


def stored(reported: list[AnyRecordedEvent]) -> list[StoredRecord]:
    """Return one partition's records."""
    return [StoredRecord(3, 2 * n, n, r.key, r.value) for n, r in enumerate(records_of(reported, FORMAT_LEVEL))]


@pytest.mark.parametrize("name", FORMS)
@given(told=st.lists(events(), max_size=5))
def test_any_events_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, name: str, told: list[AnyRecordedEvent]
) -> None:
    """With position, time, key and value, including tombstones."""
    records = stored(told)
    path = written(tmp_path_factory.mktemp("export") / name, records)
    assert asyncio.run(read(path)) == records


@pytest.mark.parametrize("name", FORMS)
def test_unreadable_records_are_exported_unchanged(tmp_path: Path, name: str) -> None:
    """A value that is no event, a type from a newer version, a key that is not Muster's."""
    odd = [broken_value("orders"), unknown_type("orders"), BROKEN_KEY]
    records = [StoredRecord(n, 7, 9, each.key, each.value) for n, each in enumerate(odd)]
    assert asyncio.run(read(written(tmp_path / name, records))) == records


@pytest.mark.parametrize("name", FORMS)
def test_many_partitions_and_sections_are_found_again(tmp_path: Path, name: str) -> None:
    """Also from the middle of a section."""
    night = a_night().stored_records()
    records = [
        msgspec.structs.replace(record, partition=partition, offset=turn * len(night) + record.offset)
        for partition in (1, 2, 7)
        for turn in range(60)
        for record in night
    ]
    path = written(tmp_path / name, records)
    assert asyncio.run(read(path)) == records

    async def part(start: int, end: int | None) -> list[int]:
        log = open_for_reading(f"{path.suffix[1:]}:///{path}", security=NOT_SECURED)
        await log.open()
        return [each.offset async for chunk in log.read(2, start=start, end=end) for each in chunk]

    assert asyncio.run(part(1_234, 1_236)) == [1_234, 1_235]
    last = max(record.offset for record in records)
    assert asyncio.run(part(last - 1, None)) == [last - 1, last]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "140", "TERM": "dumb"})


@pytest.fixture
def url(tmp_path: Path) -> str:
    return asyncio.run(sqlite_log(tmp_path / "muster.db", a_night(), script("payments").coordinator("a:1").created()))


@pytest.mark.parametrize("name", FORMS)
def test_every_command_gives_the_same_results_for_an_export(url: str, tmp_path: Path, name: str) -> None:
    """Except for the name of the log."""
    path = tmp_path / name
    done = run("export", str(path), "--log", url)
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    written = sum(len(each.stored_records()) for each in (a_night(), script("payments").coordinator("a:1").created()))
    assert done.stdout.startswith(f"{written} records of ")
    assert f"were written to {path}" in done.stdout
    for command in (["groups"], ["history", "orders"], ["why", "orders", "--all"], ["state", "orders", "--at", "2"]):
        original = run(*command, "--format", "jsonl", "--log", url)
        again = run(*command, "--format", "jsonl", "--log", str(path))
        assert (again.exit_code, again.stderr) == (0, "")
        assert again.stdout.replace(str(path), "") == original.stdout.replace(url.removeprefix("sqlite:///"), "")


@pytest.mark.parametrize("name", FORMS)
def test_the_part_before_the_cut_of_a_truncated_file_is_shown(url: str, tmp_path: Path, name: str) -> None:
    """With the position, and an exit code of its own."""
    path = tmp_path / name
    run("export", str(path), "--log", url)
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    result = run("groups", "--log", str(path))
    assert result.exit_code == 3, result.output
    assert f"the export {path}" in result.stderr
    assert "cut off" in result.stderr
    path.write_bytes(content[: len(content) // 2] + b"\xff\x00" * 20 + content[len(content) // 2 + 40 :])
    assert run("groups", "--log", str(path)).exit_code == 3


async def test_the_position_is_reported_if_a_file_is_truncated_while_it_is_read(tmp_path: Path) -> None:
    """Each missing line, or part, is reported."""
    records = [
        msgspec.structs.replace(record, partition=partition)
        for partition in range(3)
        for record in a_night().stored_records()
    ]
    path = written(tmp_path / "night.jsonl", records)
    lines = path.read_bytes().splitlines(keepends=True)
    first = sum(map(len, lines[: 1 + len(records) // 3]))
    log = open_for_reading(str(path), security=NOT_SECURED)
    await log.open()
    os.truncate(path, first - 10)
    found = 0
    for partition in range(3):
        async for chunk in log.read(partition):
            found += len(chunk)
    assert found == len(records) // 3 - 1
    third = len(records) // 3
    begins = [f", line {1 + third}: it is cut off", *(f", line {2 + each * third}: from here on" for each in (1, 2))]
    assert all(begin in warning for begin, warning in zip(begins, log.warnings, strict=True)), log.warnings


async def test_a_container_with_other_bytes_in_it_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """Deflated blocks have no checksum: the contents may be anything, but there is no other error."""
    path = written(tmp_path / "night.avro", a_night().stored_records())
    content = path.read_bytes()
    for at in range(0, len(content), 11):
        path.write_bytes(content[:at] + b"\xff\x00" * 20 + content[at + 40 :])
        log = open_for_reading(str(path), security=NOT_SECURED)
        with suppress(LogMismatch):
            await log.open()
            for partition in range(log.partitions):
                async for _ in log.read(partition, end=await log.end_offset(partition)):
                    pass


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}\n",
        b"nonsense",
        b"Obj\x01nonsense",
        b'{"form":"muster-export-9","log":"x","identity":"y","partitions":1}\n',
    ],
)
@pytest.mark.parametrize("name", FORMS)
def test_a_file_of_something_else_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    """In one line."""
    path = tmp_path / name
    path.write_bytes(content)
    result = run("groups", "--log", str(path))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.output
    assert str(path) in result.stderr


async def test_an_export_can_only_be_read(tmp_path: Path) -> None:
    """A claim raises an error."""
    log = open_for_reading(str(written(tmp_path / "a.avro", [])), security=NOT_SECURED)
    await log.open()
    with pytest.raises(LogMismatch, match="can only be read"):
        await log.claim(0)


def test_a_part_is_exported_with_what_makes_it_readable(url: str, tmp_path: Path) -> None:
    """One group, from a given time on: the state before is included, and left-out events are a gap."""
    path = tmp_path / "part.jsonl"
    assert run("export", str(path), "--log", url, "--group", "ord*", "--since", "2026-11-21T02:14:00Z").exit_code == 0
    (line,) = [
        msgspec.json.decode(each) for each in run("groups", "--format", "jsonl", "--log", str(path)).stdout.splitlines()
    ]
    assert (line["group_id"], line["members"], line["missing_events"] > 0) == ("orders", 2, True)
    whole = run("why", "orders", "--last", "--format", "jsonl", "--log", url).stdout
    part = run("why", "orders", "--last", "--format", "jsonl", "--log", str(path)).stdout
    assert msgspec.json.decode(part)["headline"] == msgspec.json.decode(whole)["headline"]


def test_a_group_to_which_nothing_happened_since_is_exported_as_it_stood(url: str, tmp_path: Path) -> None:
    """The left-out events are a gap."""
    path = tmp_path / "part.jsonl"
    assert run("export", str(path), "--log", url, "--since", "2026-12-01").exit_code == 0
    (whole, part) = (run("state", "orders", "--format", "json", "--log", log).stdout for log in (url, str(path)))
    whole, part = (msgspec.json.decode(each) for each in (whole, part))
    assert (part["members"], part["seq"]) == (whole["members"], whole["seq"])


def test_no_file_is_written_of_groups_that_are_not_there(url: str, tmp_path: Path) -> None:
    """The error is the same as for the other commands."""
    path = tmp_path / "none.jsonl"
    result = run("export", str(path), "--log", url, "--group", "nope*")
    assert (result.exit_code, path.exists()) == (1, False)
    assert "matches 'nope*'" in result.stderr


def test_nothing_is_kept_of_what_ended_before_the_span() -> None:
    """The last record of each key stays."""
    records = a_night().stored_records()
    last_ms = records[-1].timestamp_ms
    selection = Selection(Window(since=AtTime(last_ms)), None)
    reported = [each for record in records for each in selection.take(record)]
    before = [each.key for each in reported if each.timestamp_ms < last_ms]
    assert len(before) == len(set(before)) > 0
    assert len(reported) < len(records)


# ---- pseudonyms ---------------------------------------------------------------------------------


def test_every_field_that_may_hold_a_name_is_replaced() -> None:
    """Decide for each new field of an event: it is a name, or it belongs in this list."""
    nameless = {"group_id", "cause", "protocol_type", "protocol_name", "version", "name", "coordinator", "state"}
    nameless |= {"previous_state", "role", "settings", "metadata", "assignment", "absent"}
    nameless |= {"absent_seen_ms", "outcome", "emptied_by", "end", "offered_protocols", "topic"}
    found: set[str] = set()

    def look(kind: type) -> None:
        info = msgspec.inspect.type_info(kind)
        assert isinstance(info, msgspec.inspect.StructType)
        for field in info.fields:
            kinds = field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else (field.type,)
            for each in kinds:
                if isinstance(each, msgspec.inspect.StructType):
                    look(each.cls)
                elif isinstance(each, msgspec.inspect.VarTupleType) and isinstance(
                    each.item_type, msgspec.inspect.StructType
                ):
                    look(each.item_type.cls)
                elif not isinstance(
                    each, msgspec.inspect.IntType | msgspec.inspect.BoolType | msgspec.inspect.NoneType
                ):
                    found.add(field.name)

    for event_type in EVENT_TYPES:
        look(event_type)
    assert found - set(_KINDS) - nameless == set()


@given(events())
def test_pseudonyms_are_the_same_for_the_same_names(event: AnyRecordedEvent) -> None:
    """With one key; with another key they differ. Applying it twice does not undo it."""
    hidden = Pseudonyms(KEY).event(event)
    assert Pseudonyms(KEY).event(event) == hidden
    assert type(hidden) is type(event)


@pytest.mark.parametrize(("cut", "left"), [(0, 18), (1, 0), (4, 0), (12, 0)])
def test_of_a_subscription_that_is_not_whole_nothing_is_exported(cut: int, left: int) -> None:
    """It is not known where its user data would begin."""
    whole = encode_subscription(["orders"])
    assert _metadata(whole[: len(whole) - cut]) == whole[:left]


def test_no_name_is_left_and_the_story_is_the_same(url: str, tmp_path: Path) -> None:
    """Kinds, rebalances, generations and partitions are the same; so are identities that occur in both forms."""
    key = tmp_path / "key"
    key.write_bytes(KEY)
    stories = []
    for name in FORMS:
        path = tmp_path / name
        assert run("export", str(path), "--log", url, "--pseudonyms", str(key)).exit_code == 0
        stories.append(run("why", "orders", "--all", "--format", "jsonl", "--log", str(path)).stdout)
        raw = path.read_bytes() if name.endswith("jsonl") else stories[-1].encode()
        for secret in (b"billing", b"10.0.0.", b"coordinator-a", b"aiokafka-0.14", b"muster.db"):
            assert secret not in raw, secret
    assert stories[0] == stories[1]
    assert "the consumer is being closed" in stories[0]
    reported = [msgspec.json.decode(line) for line in stories[0].splitlines()]
    original = run("why", "orders", "--all", "--format", "jsonl", "--log", url).stdout
    for pseudonymous, real in zip(reported, map(msgspec.json.decode, original.splitlines()), strict=True):
        for field in ("kind", "grade", "started_at", "ended_at", "cost"):
            assert pseudonymous[field] == real[field]
        assert len(pseudonymous["culprits"]) == len(real["culprits"])
        for ours, theirs in zip(pseudonymous["rebalances"], real["rebalances"], strict=True):
            for field in ("started_at", "from_generation", "to_generation", "outcome", "duration_ms"):
                assert ours[field] == theirs[field]
            assert len({m["group_instance_id"] for m in ours["members_after"]}) == len(
                {m["group_instance_id"] for m in theirs["members_after"]}
            )


def test_unreadable_records_only_keep_their_positions() -> None:
    """A broken value may contain any name, and so may a broken key."""
    pseudonyms = Pseudonyms(KEY)
    for record in (broken_value("orders"), unknown_type("orders"), BROKEN_KEY):
        reported = pseudonyms.record(
            StoredRecord(3, 5, 7, record.key, b"billing-1" if record is BROKEN_KEY else record.value)
        )
        assert (reported.partition, reported.offset, reported.value) == (3, 5, b"left out")
    value, tombstone = (pseudonyms.record(StoredRecord(3, 5, 7, BROKEN_KEY.key, each)) for each in (b"billing-1", None))
    assert (value.key, tombstone.value) == (tombstone.key, None)


def test_a_key_that_can_be_guessed_is_refused(url: str, tmp_path: Path) -> None:
    """And a missing key file; nothing is written then."""
    key = tmp_path / "key"
    for prepare in (lambda: None, lambda: key.write_bytes(b"short\n")):
        prepare()
        result = run("export", str(tmp_path / "a.avro"), "--log", url, "--pseudonyms", str(key))
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith((".a", "a"))] == []


def test_exported_records_are_decoded_by_anybodys_avro(url: str, tmp_path: Path) -> None:
    """The container has its schema, and the values are single objects."""
    import fastavro

    path = tmp_path / "night.avro"
    run("export", str(path), "--log", url)
    with path.open("rb") as file:
        records = list(fastavro.reader(file))
    values: list[bytes] = [record["value"] for record in records]  # type: ignore[index, call-overload, misc]
    assert type(decode(values[0])) in EVENT_TYPES
    histories = asyncio.run(_histories(path))
    assert len(rebalances_of(histories[GroupId("orders")])) == 4


async def _histories(path: Path):  # type: ignore[no-untyped-def]  # noqa: ANN202
    log = open_for_reading(str(path), security=NOT_SECURED)
    await log.open()
    return await read_histories(log)


@pytest.mark.parametrize("changed", [{"level": 0}, {"level": 99}, {}])
def test_a_line_that_cannot_be_an_event_is_damage(url: str, tmp_path: Path, changed: dict[str, int]) -> None:
    """A level that does not exist, or an impossible number: reported in one line, after the events before it."""
    path = tmp_path / "night.jsonl"
    run("export", str(path), "--log", url)
    *lines, last = path.read_bytes().splitlines()
    line = msgspec.json.decode(last) | changed
    if not changed:
        line["event"]["owner_epoch" if "owner_epoch" in line["event"] else "seq"] = 2**63
        line["event"]["partition"] = 2**40
    path.write_bytes(b"\n".join([*lines, msgspec.json.encode(line)]) + b"\n")
    result = run("groups", "--log", str(path))
    assert (result.exit_code, result.stderr.count("\n")) == (3, 1), result.output
    assert f"line {len(lines) + 1}: " in result.stderr


@pytest.mark.parametrize("name", FORMS)
def test_an_export_does_not_replace_the_log_that_it_reads(url: str, tmp_path: Path, name: str) -> None:
    """Not even under another name: the left-out events would be lost."""
    path = tmp_path / name
    run("export", str(path), "--log", url)
    before = path.read_bytes()
    other = tmp_path / f"other-{name}"
    other.symlink_to(path)
    for to in (path, other):
        result = run("export", str(to), "--group", "payments", "--log", str(path))
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
        assert "is the log that is read" in result.stderr
    assert path.read_bytes() == before
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]


def test_a_part_of_a_file_that_is_cut_off_is_exported_as_far_as_it_goes(url: str, tmp_path: Path) -> None:
    """The exit code says that it is incomplete; the exported part can be read."""
    path, again = tmp_path / "night.jsonl", tmp_path / "again.jsonl"
    run("export", str(path), "--log", url)
    path.write_bytes(path.read_bytes()[:-100])
    result = run("export", str(again), "--log", str(path))
    assert result.exit_code == 3, result.output
    assert run("groups", "--log", str(again)).exit_code == 0
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_an_event_with_an_unknown_cause_is_exported_byte_for_byte() -> None:
    """A newer version has a name for the cause, which would be lost if this version wrote the event again."""
    happened = next(each for each in a_night().reads if isinstance(each, Happened))
    why = msgspec.structs.replace(happened.event.why, cause=Cause.UNKNOWN)
    (record,) = stored([msgspec.structs.replace(happened.event, why=why)])
    line = line_of(record)
    assert (line.type, line.key, line.value) == (None, record.key, record.value)
