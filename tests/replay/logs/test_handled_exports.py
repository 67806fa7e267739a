"""Exports that passed through other tools: editors, pagers, Windows, gzip. The readable part is used."""

import asyncio
import gzip
import random
import shutil
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from typer.testing import CliRunner, Result

from muster.cli import app as muster
from muster.replay.cli import app
from muster.replay.logs import container_form
from muster.replay.logs.exports import RECORD_SCHEMA
from tests.replay.stories import a_night
from tests.replay.written import script, sqlite_log

LEFT_OUT = 15
"""The spoiled line: one of the group's, in the middle of its history."""

Change = Callable[[list[bytes]], bytes]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "400", "TERM": "dumb"})


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Return an intact export."""
    url = asyncio.run(sqlite_log(tmp_path / "muster.db", a_night()))
    path = tmp_path / "whole.jsonl"
    assert run("export", str(path), "--log", url).exit_code == 0
    return path


def history(path: Path) -> tuple[int, list[tuple[int, str]], str]:
    """Return the exit code, the offsets and types in the output, and the messages."""
    result = run("history", "orders", "--format", "jsonl", "--log", str(path))
    output = [msgspec.json.decode(line) for line in result.stdout.splitlines()]
    return result.exit_code, [(each["offset"], each["type"]) for each in output], result.stderr


def changed(whole: Path, change: Change, name: str = "night.jsonl") -> Path:
    path = whole.with_name(name)
    path.write_bytes(change(whole.read_bytes().splitlines()))
    return path


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(b"\n".join, id="no last newline"),
        pytest.param(lambda lines: b"\r\n".join(lines) + b"\r\n", id="CRLF"),
        pytest.param(lambda lines: b"\r\n".join(lines[:5]) + b"\n" + b"\n".join(lines[5:]), id="CRLF and LF"),
        pytest.param(lambda lines: b"\n\n \r\n".join(lines) + b"\n", id="blank lines"),
        pytest.param(lambda lines: b"\n \r\n" + b"\n".join(lines), id="blank lines before the first"),
        pytest.param(lambda lines: b"\xef\xbb\xbf" + b"\n".join(lines), id="byte order mark"),
        pytest.param(lambda lines: b"\r\n".join(lines).decode().encode("utf-16"), id="UTF-16, as PowerShell writes"),
        pytest.param(lambda lines: b"\n".join(lines).decode().encode("utf-16-be"), id="UTF-16 without a mark"),
        pytest.param(lambda lines: b"\n".join(lines).decode().encode("utf-32"), id="UTF-32"),
        pytest.param(lambda lines: gzip.compress(b"\n".join(lines)), id="gzip"),
        pytest.param(lambda lines: gzip.compress(lines[0] + b"\n") + gzip.compress(b"\n".join(lines[1:])), id="two"),
    ],
)
def test_an_export_in_other_clothes_is_read_whole(whole: Path, change: Change) -> None:
    """Nothing is missing, so there is no message."""
    assert history(changed(whole, change)) == history(whole)


def test_a_file_may_be_named_for_what_packed_it(whole: Path) -> None:
    """NAME.jsonl.gz, NAME.avro.gz, also in capitals; other names are opened by URL, as the error says."""
    _, reported, _ = history(whole)
    avro = whole.with_name("night.avro")
    assert run("export", str(avro), "--log", str(whole)).exit_code == 0
    for name, content in (("NIGHT.JSONL.GZ", whole.read_bytes()), ("night.avro.gz", avro.read_bytes())):
        assert history(changed(whole, lambda _, content=content: gzip.compress(content), name)) == (0, reported, "")  # type: ignore[misc]
    text = changed(whole, b"\n".join, "night.txt")
    refused = run("groups", "--log", str(text))
    assert (refused.exit_code, f"jsonl:///{text}" in refused.stderr) == (2, True)
    assert run("groups", "--log", f"jsonl:///{text}").exit_code == 0


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(lambda line: line.replace(b'"group_id":"', b'"group_id":"\xe4'), "utf-8", id="latin-1"),
        pytest.param(lambda line: line[:40], "malformed", id="cut"),
        pytest.param(lambda line: b"--More--" + line, "malformed", id="a pager's words"),
        pytest.param(lambda line: line.replace(b'"seq":', b'"seq":null,"x":'), "Expected", id="a field"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_and_skipped(
    whole: Path, spoil: Callable[[bytes], bytes], reason: str
) -> None:
    """The rest is read, with a gap that is not called compaction, and exit code 3."""
    _, reported, _ = history(whole)
    path = changed(
        whole, lambda lines: b"\n".join([*lines[: LEFT_OUT - 1], spoil(lines[LEFT_OUT - 1]), *lines[LEFT_OUT:]])
    )
    code, found, result = history(path)
    offset = msgspec.json.decode(whole.read_bytes().splitlines()[LEFT_OUT - 1])["offset"]
    assert [each for each in found if each[1] != "Gap"] == [each for each in reported if each[0] != offset]
    assert (code, result.count("\n")) == (3, 1)
    assert f"the export {path}, line {LEFT_OUT}: " in result
    assert reason.lower() in result.lower()
    verified = run("verify", "--log", str(path))
    assert verified.exit_code == 3
    assert "or among what could not be read" in verified.stdout or "Compacted" not in verified.stdout
    shown = run("history", "orders", "--log", str(path)).stdout
    assert "older than the log, or lost" in shown


def test_a_part_that_was_taken_out_is_noticed(whole: Path) -> None:
    """A line in the middle, or the last ones: the first line has the number of records. In both forms."""
    for cut in (slice(LEFT_OUT, LEFT_OUT + 1), slice(-3, None)):

        def without(lines: list[bytes], cut: slice = cut) -> bytes:
            del lines[cut]
            return b"\n".join(lines) + b"\n"

        code, _, reported = history(changed(whole, without))
        assert (code, "its end is missing, or a part was taken out" in reported) == (3, True), reported
    avro = whole.with_name("night.avro")
    assert run("export", str(avro), "--log", str(whole)).exit_code == 0
    content = avro.read_bytes()
    begin = content.index(content[-16:]) + 16  # after the header there is only one block
    avro.write_bytes(content[:begin])
    result = run("groups", "--log", str(avro))
    assert (result.exit_code, "has 0" in result.stderr) == (3, True), result.stderr


def test_an_export_of_an_older_version_has_no_count(whole: Path) -> None:
    """So there is no message."""

    def uncounted(lines: list[bytes]) -> bytes:
        head = msgspec.json.decode(lines[0])
        del head["records"]
        return b"\n".join([msgspec.json.encode(head), *lines[1:-1]])

    assert history(changed(whole, uncounted))[0::2] == (0, "")


def test_the_part_before_the_cut_of_truncated_gzip_is_read(whole: Path) -> None:
    """And there is a message."""
    packed = gzip.compress(whole.read_bytes(), compresslevel=1)
    code, reported, result = history(changed(whole, lambda _: packed[: len(packed) // 2]))
    assert code == 3
    assert reported
    assert "cannot be unpacked to its end" in result


def test_many_lines_that_cannot_be_read_are_counted(whole: Path) -> None:
    """The first ones are listed."""
    code, _, reported = history(changed(whole, lambda lines: b"\n".join([*lines, *[b"?"] * 100])))
    assert (code, reported.count("\n")) == (3, 6)
    assert "95 other parts cannot be read, up to line " in reported


def test_two_exports_in_one_file_are_not_mixed(whole: Path) -> None:
    """The first is read; the other one, which may be of another log, is reported."""
    _, reported, _ = history(whole)
    code, found, result = history(changed(whole, lambda lines: b"\n".join([*lines, *lines])))
    assert (code, found) == (3, reported)
    assert "another export begins" in result


def test_another_export_with_a_mark_before_it_is_not_mixed_in(whole: Path) -> None:
    """As `type a.jsonl b.jsonl > c.jsonl` writes files of PowerShell."""
    _, reported, _ = history(whole)
    code, found, result = history(
        changed(whole, lambda lines: b"\n".join([*lines, b"\xef\xbb\xbf" + lines[0], *lines[1:]]))
    )
    assert (code, found) == (3, reported)
    assert "another export begins" in result


def test_the_records_of_another_export_are_noticed(whole: Path, tmp_path: Path) -> None:
    """Its first line is missing, and its groups are in other partitions, so that no offset gives it away."""
    name = next(name for name in map(str, range(100)) if script(name).partition != script("orders").partition)
    other = tmp_path / "other.jsonl"
    url = asyncio.run(sqlite_log(tmp_path / "other.db", script(name).created()))
    assert run("export", str(other), "--log", url).exit_code == 0
    added = other.read_bytes().splitlines()[1:]
    result = run("groups", "--log", str(changed(whole, lambda lines: b"\n".join([*lines, *added]))))
    assert result.exit_code == 3
    assert "those of another export were added" in result.stderr


def test_duplicate_lines_are_reported_once(whole: Path) -> None:
    """And are reported."""
    _, reported, _ = history(whole)
    code, found, result = history(changed(whole, lambda lines: b"\n".join([*lines, *lines[1:]])))
    assert (code, found) == (3, reported)
    assert "before it" in result


def test_without_its_first_line_it_is_refused(whole: Path) -> None:
    """As with `grep orders`: only that line has the log and the number of partitions."""
    result = run("groups", "--log", str(changed(whole, lambda lines: b"\n".join(lines[1:]))))
    assert (result.exit_code, "the line before it that names its log is missing" in result.stderr) == (2, True)


def test_a_block_that_cannot_be_read_is_stepped_over(tmp_path: Path) -> None:
    """The blocks before and after it are read."""
    nights = [a_night()]
    url = asyncio.run(sqlite_log(tmp_path / "muster.db", *nights))
    path = tmp_path / "night.avro"
    assert run("export", str(path), "--log", url).exit_code == 0
    lines = run("history", "orders", "--format", "jsonl", "--log", str(path)).stdout
    content = path.read_bytes()
    sync = content[-16:]
    begin = content.index(sync) + 16
    spoiled = b"\x02\x08abcd" + sync  # a block with one record that is no event
    path.write_bytes(content[:begin] + spoiled + content[begin:])
    result = run("history", "orders", "--format", "jsonl", "--log", str(path))
    assert (result.exit_code, result.stdout) == (3, lines)
    assert f"the block at byte {begin:,}: " in result.stderr


def test_a_head_with_partitions_that_no_log_has_is_refused(whole: Path) -> None:
    """Each partition is read separately, so an invented number of them would take for ever."""
    avro = whole.with_name("night.avro")
    assert run("export", str(avro), "--log", str(whole)).exit_code == 0
    head = msgspec.json.decode(whole.read_bytes().splitlines()[0])
    for number in (-1, 0, 10**15, "many"):
        new_head = msgspec.json.encode(head | {"partitions": number})
        jsonl = changed(whole, lambda lines, new_head=new_head: b"\n".join([new_head, *lines[1:]]))  # type: ignore[misc]
        altered = whole.with_name("altered.avro")
        text, key = str(number).encode(), b"muster.partitions"
        old = key + b"\x02" + str(head["partitions"]).encode()
        assert old in avro.read_bytes()
        altered.write_bytes(avro.read_bytes().replace(old, key + bytes([2 * len(text)]) + text))
        for path in (jsonl, altered):
            refused = run("groups", "--log", str(path))
            assert (refused.exit_code, refused.stdout) == (2, "")
            assert str(path) in refused.stderr
            assert "partitions" in refused.stderr


def test_records_of_a_partition_that_the_log_has_not_are_named_and_skipped(whole: Path) -> None:
    head = msgspec.json.decode(whole.read_bytes().splitlines()[0])
    for partition in (-1, head["partitions"], 10**15):
        line = msgspec.json.encode({"partition": partition, "offset": 0, "timestamp_ms": 0, "key": "", "value": None})
        code, _, reported = history(changed(whole, lambda lines, line=line: b"\n".join([*lines, line])))  # type: ignore[misc]
        assert code == 3
        assert f"records of partition {partition} of a log of {head['partitions']}" in reported


@pytest.mark.parametrize(
    "line", [b'{"partition":0,"offset":1,"x":' + b"[" * 10**5, b'{"partition":0,"offset":%d}' % 10**30]
)
def test_a_line_that_was_made_to_end_the_reader_is_named_and_skipped(whole: Path, line: bytes) -> None:
    code, reported, result = history(changed(whole, lambda lines: b"\n".join([lines[0], line, *lines[1:]])))
    assert (code, reported) == (3, history(whole)[1])
    assert "line 2: " in result


def test_line_numbers_count_leading_blank_lines(whole: Path) -> None:
    code, reported, result = history(changed(whole, lambda lines: b"\n".join([b"", b" ", lines[0], b"{", *lines[1:]])))
    assert (code, reported) == (3, history(whole)[1])
    assert "line 4: " in result


def container(
    path: Path, schema: Mapping[str, object], records: list[dict[str, object]], codec: str = "deflate"
) -> Path:
    """Return a container that another tool wrote."""
    fastavro = pytest.importorskip("fastavro")
    with path.open("wb") as file:
        fastavro.writer(file, schema, records, codec=codec)
    return path


def test_a_container_of_another_schema_is_refused_with_both(tmp_path: Path) -> None:
    """Both are in one short line, before any record is read: such records may be empty, and there may be many."""
    field = {"name": "user", "type": "string"}
    other = container(tmp_path / "other.avro", {"type": "record", "name": "User", "fields": [field]}, [{"user": "a"}])
    refused = run("groups", "--log", str(other))
    assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    for each in (str(other), "user string", "partition int, offset long", "muster replay export other.avro"):
        assert each in refused.stderr
    packed = container(tmp_path / "packed.avro", RECORD_SCHEMA, [], "bzip2")
    assert "compressed with 'bzip2', and only deflate is supported" in run("groups", "--log", str(packed)).stderr


def test_a_block_that_was_made_to_mislead_is_named_and_skipped(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is unpacked up to a limit. The following blocks are read, also if the next marker spans two reads.

    A record takes 200 bytes in memory and at least 5 bytes unpacked, so 130 KB could become 5 GB.
    """
    path = tmp_path / "night.avro"
    assert run("export", str(path), "--log", str(whole)).exit_code == 0
    content, limit = path.read_bytes(), 64 * 1024
    sync = content[-16:]
    begin = content.index(sync) + 16
    monkeypatch.setattr(container_form, "BLOCK_BYTES_MAX", limit)
    monkeypatch.setattr(container_form, "BLOCK_RECORDS_MAX", 1_000)
    monkeypatch.setattr(container_form, "_PIECE_BYTES", 10)
    noise = random.Random(1).randbytes(limit + 1)
    for block, reason in (
        (block_of(1, deflated(bytes(limit + 1)), sync), "it has more than 65,536 bytes when it is unpacked"),
        (block_of(1, noise, sync), "it has more than 65,536 bytes; "),
        (block_of(10**12, deflated(bytes(5)), sync), "it has more than 1,000 records (1,000,000,000,000)"),
        (block_of(1_001, deflated(bytes(5 * 1_001)), sync), "it has more than 1,000 records (1,001)"),
        (block_of(2, deflated(bytes(5)), sync), "2 records in 5 bytes"),
        (block_of(1, deflated(bytes(6)), sync), "bytes after its last record"),
        (block_of(1, deflated(bytes(5))[:-1], sync), "its compressed content is cut off"),
        (block_of(1, deflated(bytes(5)), bytes(16)) + sync, "the marker is missing at its end"),
        (avro_long(1) + b"\x23" + sync, "its size is negative"),  # as if it ended where it begins
    ):
        path.write_bytes(content[:begin] + block + content[begin:])
        code, reported, result = history(path)
        assert reason in result
        assert (code, reported) == (3, history(whole)[1])


def block_of(count: int, packed: bytes, sync: bytes) -> bytes:
    return avro_long(count) + avro_long(len(packed)) + packed + sync


def deflated(content: bytes) -> bytes:
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return deflate.compress(content) + deflate.flush()


def avro_long(number: int) -> bytes:
    rest, written = number << 1, b""
    while rest > 127:
        rest, written = rest >> 7, written + bytes([rest & 127 | 128])
    return written + bytes([rest])


def test_excessive_expansion_is_refused(whole: Path) -> None:
    path = changed(whole, lambda lines: gzip.compress(lines[0] + b"\n" + b" " * 64 * 1024 * 1024), "bomb.jsonl.gz")
    refused = run("groups", "--log", str(path))
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"{path} has more than 250 times its " in refused.stderr


def test_a_disk_that_fills_while_a_file_is_unpacked_is_noticed(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only at the beginning: other processes write, too."""
    content = gzip.compress(whole.read_bytes() + random.Random(1).randbytes(4 * 1024 * 1024))
    free = [2**40, 2**40, *[1024] * 100]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free.pop(0)))
    refused = run("groups", "--log", str(changed(whole, lambda _: content, "night.jsonl.gz")))
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "unpack it where there is room, or set TMPDIR" in refused.stderr


def test_the_fleet_tables_are_built_of_what_can_be_read(whole: Path) -> None:
    """With the same messages, and exit code 3."""
    pytest.importorskip("pyarrow")
    path = changed(whole, lambda lines: gzip.compress(b"\r\n".join([*lines[:19], lines[19][:50], *lines[20:]])))
    result = CliRunner().invoke(muster, ["fleet", "build", "--log", str(path), "--to", str(whole.parent / "fleet")])
    assert result.exit_code == 3, result.output
    assert f"the export {path}, line 20: " in result.stderr
