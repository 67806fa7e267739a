"""Builds that continue earlier ones, and what they refuse."""

import errno
import fcntl
import os
import re
import shutil
from collections import Counter
from pathlib import Path

import duckdb
import msgspec
import pyarrow.parquet as pq
import pytest

from muster.events.causes import Cause
from muster.events.keys import EntityKind, decode_key
from muster.events.log.memory import MemoryStorage
from muster.events.records import StoredRecord
from muster.replay.archive import files
from muster.replay.fleet.building import joining, open_items
from muster.replay.fleet.building.open_items import NotCarriedOver
from muster.replay.fleet.questions.queries import AskedRows, top
from muster.replay.fleet.tables import builds, parts
from muster.replay.fleet.tables.builds import CannotBuild, NoTables, current, last_build, locked
from muster.replay.fleet.tables.parts import read_parquet
from muster.replay.fleet.tables.schemas import RULES_VERSION
from tests.replay.fleet.fleets import all_tables, built, judged, rows_of, up_to
from tests.replay.written import BROKEN_KEY

DOCS = Path(__file__).parents[3] / "docs" / "fleet-sql.md"
SEEDS = range(0, 1_000, 40)


@pytest.mark.parametrize("shares", [(0.5,), (0.02, 0.4, 0.41, 0.97)])
async def test_a_build_in_steps_is_a_full_build(shares: tuple[float, ...], tmp_path: Path) -> None:
    """Wherever the steps end: within rebalances, incidents, memberships and transitions."""
    storage = judged(SEEDS)
    for share in (*shares, 1.0):
        await built(up_to(storage, share), tmp_path / "steps")
    await built(storage, tmp_path / "full")
    assert all_tables(tmp_path / "steps") == all_tables(tmp_path / "full")


async def test_coordinators_added_between_the_steps_are_reported(lived_log: MemoryStorage, tmp_path: Path) -> None:
    """Both for existing groups and for later ones."""
    for share in (0.3, 0.6, 0.8, 1.0):
        await built(up_to(lived_log, share), tmp_path / "steps")
    await built(lived_log, tmp_path / "full")
    assert all_tables(tmp_path / "steps") == all_tables(tmp_path / "full")


async def test_a_group_that_comes_later_knows_how_its_partition_stood(tmp_path: Path) -> None:
    """An unreadable record before its first one may be its own, even if builds have ended since."""
    storage = judged([3, 5])
    group, others = (
        [record for record in records if decode_key(record.key).kind is not EntityKind.PARTITION]
        for records in storage.records
    )
    before = StoredRecord(0, 0, group[0].timestamp_ms, BROKEN_KEY.key, BROKEN_KEY.value)
    storage.records = [
        [
            msgspec.structs.replace(each, partition=0, offset=offset)
            for offset, each in enumerate([before, others[0], *group])
        ]
    ]
    first = 1 / len(storage.records[0])
    for share in (first, first, 2 * first, 1.0):
        await built(up_to(storage, share), tmp_path / "steps")
    await built(storage, tmp_path / "full")
    assert all_tables(tmp_path / "steps") == all_tables(tmp_path / "full")
    assert any(row["notes"] for row in rows_of(tmp_path / "full", "incidents") if row["group_id"] == "group-3")


async def test_groups_to_which_nothing_happened_are_carried_over_as_they_are(tmp_path: Path) -> None:
    """Their folds are not even read; the result is a full build's nevertheless."""
    storage = judged(SEEDS)
    first = MemoryStorage(partitions=len(storage.records))
    first.identity = storage.identity
    first.records[::2] = storage.records[::2]
    await built(first, tmp_path / "steps")
    second = await built(storage, tmp_path / "steps")
    carried = [part for part in second.build.of(parts.STATES) if "carried" in part.path]
    assert sum(part.rows for part in carried) == len(storage.records[::2])
    await built(storage, tmp_path / "full")
    assert all_tables(tmp_path / "steps") == all_tables(tmp_path / "full")


async def test_a_second_build_reads_only_what_is_new(tmp_path: Path) -> None:
    """And its manifest lists the first build's closed rows as they are."""
    storage = judged(SEEDS)
    first = await built(up_to(storage, 0.9), tmp_path)
    second = await built(storage, tmp_path)
    whole = await built(storage, tmp_path / "whole")
    assert 0 < second.events == whole.events - first.events
    closed = [part for part in first.build.parts if part.role is parts.Role.CLOSED]
    assert closed
    assert set(closed) <= set(second.build.parts)
    third = await built(storage, tmp_path)
    assert (third.is_new, third.events) == (False, 0)
    assert last_build(tmp_path) == second.build


async def test_many_builds_leave_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table has fewer than AT_ONCE files of each size, and full ones are left alone; the result is a full build's."""
    monkeypatch.setattr(joining, "FULL_ROWS", 27)
    monkeypatch.setattr(joining, "AT_ONCE", 3)
    storage, steps = judged(SEEDS), 20
    for step in range(1, steps + 1):
        before = last_build(tmp_path / "steps")
        await built(up_to(storage, step / steps), tmp_path / "steps")
        assert all((tmp_path / "steps" / part.path).exists() for part in (before.parts if before else ()))
    build = current(tmp_path / "steps")
    for table in {part.table for part in build.closed}:
        of_table = [part for part in build.closed if part.table == table]
        sizes = Counter(joining._size(part.rows) for part in of_table if part.rows < 27)
        assert max(sizes.values(), default=0) < 3
        assert {pq.read_metadata(tmp_path / "steps" / part.path).num_rows for part in of_table} == {
            part.rows for part in of_table
        }
    assert any("joined" in part.path and part.rows >= 27 for part in build.closed)
    await built(storage, tmp_path / "full")
    assert all_tables(tmp_path / "steps") == all_tables(tmp_path / "full")


async def test_a_join_that_ends_early_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build does not exist then; the next one joins again."""
    monkeypatch.setattr(joining, "AT_ONCE", 2)
    storage = judged(range(0, 2_000, 25))  # so many that the second build has files to join
    await built(up_to(storage, 0.5), tmp_path / "steps")
    before, files = all_tables(tmp_path / "steps"), set((tmp_path / "steps").rglob("*.parquet"))
    with monkeypatch.context() as patch:
        patch.setattr(joining, "BATCH_ROWS", -1)
        with pytest.raises(Exception):  # noqa: B017, PT011 -- whatever it is
            await built(storage, tmp_path / "steps")
    assert all_tables(tmp_path / "steps") == before
    assert set((tmp_path / "steps").rglob("*.parquet")) == files
    second = await built(storage, tmp_path / "steps")
    assert any("joined" in part.path for part in second.build.closed)
    await built(storage, tmp_path / "full")
    assert all_tables(tmp_path / "steps") == all_tables(tmp_path / "full")


# ---- readers and other builds ------------------------------------------------------------------------------------


async def test_tables_that_another_build_is_writing_are_read_as_the_last_one_left_them(tmp_path: Path) -> None:
    """New files do not count until a manifest lists them; the old ones stay for a while."""
    storage = judged(SEEDS)
    await built(up_to(storage, 0.5), tmp_path)
    before, reported = top(tmp_path, AskedRows()), current(tmp_path)
    (tmp_path / "rebalances" / "000002-0123456789abcdef0123456789abcdef-closed.parquet").write_bytes(
        b"PAR1 and not much more"
    )
    assert top(tmp_path, AskedRows()) == before
    await built(storage, tmp_path)
    assert all((tmp_path / part.path).exists() for part in reported.parts), "somebody reads through the build before"
    assert not (tmp_path / "rebalances" / "000002-0123456789abcdef0123456789abcdef-closed.parquet").exists(), (
        "a leftover stays for ever"
    )
    assert top(tmp_path, AskedRows()) != before
    await built(storage, tmp_path, rebuild=True, grace_ms=0)
    assert not all((tmp_path / part.path).exists() for part in reported.parts)


async def test_readers_of_the_tables_have_an_hour_however_many_builds_are_made(tmp_path: Path) -> None:
    """DuckDB opens the files of a view when rows are requested; Spark does, too."""
    storage = judged(SEEDS[:20])
    await built(up_to(storage, 0.4), tmp_path)
    reported = current(tmp_path)
    files_of = read_parquet(tmp_path / part.path for part in reported.of("rebalances"))
    reader = duckdb.connect()
    reader.execute(f"create view rebalances as from {files_of}")
    for share in (0.6, 0.8, 1.0):
        await built(up_to(storage, share), tmp_path)
    counted = reader.execute("select count(*) from rebalances").fetchone()
    assert counted is not None
    assert counted[0] == reported.rows("rebalances")
    next_one = tmp_path / "_builds" / "000002.json"
    manifest = msgspec.json.decode(next_one.read_bytes())
    manifest["made_ms"] -= builds.GRACE_MS
    next_one.write_bytes(msgspec.json.encode(manifest))
    await built(storage, tmp_path)
    assert not (tmp_path / "_builds" / "000001.json").exists()
    assert next_one.exists(), "the build after it was made later than an hour ago"
    assert not all((tmp_path / part.path).exists() for part in reported.of("rebalances"))


async def test_a_clock_that_was_ahead_keeps_no_build_for_longer(tmp_path: Path) -> None:
    """A build has ended when a later one was made, whatever the time of the next one is."""
    storage = judged([3])
    for _ in range(5):
        await built(storage, tmp_path, rebuild=True)
    for number, hours in ((2, 9_000), (3, -2)):
        path = tmp_path / "_builds" / f"{number:06d}.json"
        manifest = msgspec.json.decode(path.read_bytes())
        manifest["made_ms"] += hours * 3_600_000
        path.write_bytes(msgspec.json.encode(manifest))
    await built(storage, tmp_path)
    assert sorted(path.stem for path in (tmp_path / "_builds").glob("*.json")) == ["000003", "000004", "000005"]


async def test_the_pages_sql_reads_the_table_as_the_last_build_left_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not read the earlier build's files, which are still there."""
    storage = judged(SEEDS)
    for share in (0.5, 1.0):
        await built(up_to(storage, share), tmp_path / "fleet")
    monkeypatch.chdir(tmp_path)
    opening, *queries = re.findall(r"```sql\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    (query,) = (each for each in queries if each.startswith("select trigger, count(*) as rebalances"))
    found = duckdb.connect().execute(opening).execute(query).fetchall()
    rows = rows_of(tmp_path / "fleet", "rebalances")
    assert {trigger: count for trigger, count, *_ in found} == Counter(row["trigger"] for row in rows)
    there = len(list((tmp_path / "fleet" / "rebalances").glob("*.parquet")))
    assert there > len(current(tmp_path / "fleet").of("rebalances"))


async def test_a_reader_whose_files_are_gone_reads_the_later_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two builds ended between its reading of the manifest and of the files."""
    storage = judged(SEEDS[:20])
    await built(up_to(storage, 0.5), tmp_path)
    old = current(tmp_path)
    for share in (0.8, 1.0):
        await built(up_to(storage, share), tmp_path, grace_ms=0)
    seen = [old]
    monkeypatch.setattr(
        "muster.replay.fleet.questions.queries.current", lambda folder: seen.pop() if seen else current(folder)
    )
    assert top(tmp_path, AskedRows(limit=1_000)).rows
    assert seen == []


async def test_one_build_at_a_time(tmp_path: Path) -> None:
    """The second one reports the first, and changes nothing."""
    with locked(tmp_path), pytest.raises(CannotBuild, match=r"another build of .* is running \(.*:\d+\)"):
        await built(judged([3]), tmp_path)
    assert last_build(tmp_path) is None


async def test_a_file_system_without_locks_has_builds_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with some network file systems: the manifest's name keeps two builds apart."""

    def none(_descriptor: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    await built(judged([3]), tmp_path)
    assert current(tmp_path).number == 1


async def test_a_number_that_another_build_has_taken_is_refused(tmp_path: Path) -> None:
    """If the file system does not keep a lock, the manifest's name does."""
    first = await built(judged([3]), tmp_path)
    with pytest.raises(CannotBuild, match="another build has made"):
        builds.commit(tmp_path, first.build)


async def test_a_build_syncs_what_it_has_written_before_it_is_there_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year's tables have many files, of which a day's build has made few."""
    storage = judged(SEEDS[:4])
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_path", synced.append)
    first = await built(up_to(storage, 0.9), tmp_path)
    before = {tmp_path / part.path for part in first.build.parts}
    assert before < set(synced)
    synced.clear()
    second = await built(storage, tmp_path)
    new = {tmp_path / part.path for part in second.build.parts} - before
    assert new
    assert {path for path in synced if path.suffix == ".parquet"} == new


async def test_tables_with_an_unreadable_last_build_are_rebuilt(tmp_path: Path) -> None:
    """Only with `--rebuild`: the starting point would not be known."""
    await built(judged([3]), tmp_path)
    (tmp_path / "_builds" / "000001.json").write_text("{")
    with pytest.raises(CannotBuild, match=r"000001\.json cannot be read"):
        await built(judged([3]), tmp_path)
    await built(judged([3]), tmp_path, rebuild=True)
    assert current(tmp_path).number == 2


async def test_a_folder_that_is_named_like_a_column_changes_no_row(tmp_path: Path) -> None:
    """As with `env=prod/day=1`: DuckDB would add columns from the path, in place of the tables' own."""
    storage = judged([3, 5])
    for share in (0.6, 1.0):
        await built(up_to(storage, share), tmp_path / "group_id=x" / "day=1")
    await built(storage, tmp_path / "plain")
    assert all_tables(tmp_path / "group_id=x" / "day=1") == all_tables(tmp_path / "plain")
    groups = {row[0] for row in top(tmp_path / "group_id=x" / "day=1", AskedRows()).rows}
    assert groups == {"group-3", "group-5"}


async def test_a_folder_that_reads_as_a_pattern_is_itself_alone(tmp_path: Path) -> None:
    """DuckDB treats paths as patterns: `st*r` would match its neighbour's files, too."""
    storage = judged([3, 5])
    await built(storage, tmp_path / "plain")
    reported = top(tmp_path / "plain", AskedRows())
    for name in ("st*r", "[st]tar"):
        for share in (0.6, 1.0):
            await built(up_to(storage, share), tmp_path / name)
            shutil.copytree(tmp_path / name, tmp_path / "star", dirs_exist_ok=True)
        assert all_tables(tmp_path / name) == all_tables(tmp_path / "plain"), name
        assert top(tmp_path / name, AskedRows()) == reported, name


@pytest.mark.parametrize(
    ("table", "content"),
    [
        ("rebalances", b""),
        ("rebalances", b"PAR1 is no table PAR1"),
        ("memberships", None),
        ("_open", b""),
        ("_open", None),
    ],
)
async def test_a_file_of_the_tables_that_was_altered_is_named(
    table: str, content: bytes | None, tmp_path: Path
) -> None:
    """In one line, both when building and when querying; `--rebuild` makes all tables again.

    None: the file is another table's.
    """
    storage = judged([3])
    first = await built(up_to(storage, 0.6), tmp_path)
    other = tmp_path / first.build.of("incidents")[0].path
    altered = [part for part in first.build.of(table) if part.role is parts.Role.OPEN]
    assert altered
    for part in altered:
        (tmp_path / part.path).write_bytes(other.read_bytes() if content is None else content)
    with pytest.raises(CannotBuild, match=r"cannot be brought up to date: [^\n]*--rebuild, or another --to$"):
        await built(storage, tmp_path)
    if table == "rebalances":
        with pytest.raises(NoTables, match=r"cannot be read: [^\n]*--rebuild --to "):
            top(tmp_path, AskedRows())
    await built(storage, tmp_path, rebuild=True)
    assert top(tmp_path, AskedRows()).rows


async def test_a_join_of_other_rows_than_the_manifest_names_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost rows would be gone for good, as only the joined file stays."""
    monkeypatch.setattr(joining, "AT_ONCE", 2)
    part, *_ = (await built(judged([3]), tmp_path)).build.closed
    lying = msgspec.structs.replace(part, rows=part.rows + 1)
    with pytest.raises(CannotBuild, match=r"have \d+ rows, and the last build names \d+: say --rebuild"):
        joining.joined(tmp_path, [lying, lying], 2, tmp_path)


async def test_other_files_beside_the_manifests_are_ignored(tmp_path: Path) -> None:
    """Whatever its name is: even one that is a number to Python, but not a manifest's."""
    await built(judged([3]), tmp_path)
    for name in ("²²²²²²", "7", "notes"):
        (tmp_path / builds.FOLDER / f"{name}.json").write_text("{}")
    assert current(tmp_path).number == 1


async def test_tables_of_another_log_are_refused(tmp_path: Path) -> None:
    """The error names both logs; `--rebuild` makes the tables again."""
    await built(judged([3]), tmp_path)
    other = judged([5])
    with pytest.raises(CannotBuild, match=r"are those of .* not of .* --rebuild"):
        await built(other, tmp_path)
    await built(other, tmp_path, rebuild=True)
    assert {row["group_id"] for row in rows_of(tmp_path, "rebalances")} == {"group-5"}


async def test_a_log_that_has_lost_records_is_refused(tmp_path: Path) -> None:
    """It is an older copy, or was truncated: later records would not continue the tables."""
    storage = judged([3])
    await built(storage, tmp_path)
    with pytest.raises(CannotBuild, match=r"ends at offset \d+ of partition 0, but the tables .* have read up to"):
        await built(up_to(storage, 0.5), tmp_path)


async def test_leftovers_of_a_killed_build_are_removed_by_the_next_one(tmp_path: Path) -> None:
    """Its scratch folder, and the parts that it had written."""
    left = [
        tmp_path / "_building-abc" / "staged-000000.parquet",
        tmp_path / "incidents" / "000001-0123456789abcdef0123456789abcdef-closed.parquet",
    ]
    for path in left:
        path.parent.mkdir()
        path.write_bytes(b"")
    await built(judged([3]), tmp_path)
    assert not any(path.exists() for path in left)
    assert not left[0].parent.exists()


async def test_tables_of_other_rules_ask_for_a_rebuild(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both to continue and to query them."""
    storage = judged([3])
    await built(storage, tmp_path)
    for place in ("muster.replay.fleet.building.build", "muster.replay.fleet.tables.builds"):
        monkeypatch.setattr(f"{place}.RULES_VERSION", RULES_VERSION + 1)
    with pytest.raises(CannotBuild, match="--rebuild"):
        await built(storage, tmp_path)
    with pytest.raises(NoTables, match="--rebuild"):
        top(tmp_path, AskedRows())
    await built(storage, tmp_path, rebuild=True)
    assert top(tmp_path, AskedRows()).rows


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", "os.system is no part of"),
        (
            b"cbuiltins\ngetattr\n(cbuiltins\nobject\nS'__subclasses__'\ntR.",
            "getattr of <class 'object'> is no part of",
        ),
        (b"cmuster.replay.fleet.building.open_items\nload\n(tR.", "load is no class"),
        (
            b"\x80\x04\x8c\x1amuster.replay.fleet.choice\x8c\x10subprocess.Popen\x93.",
            "Popen is no class of that module",
        ),
        (b"F\n.", "cannot be read"),
        (b"garbage", "cannot be read"),
    ],
)
def test_carried_over_state_gives_the_same_fold(state: bytes, reason: str) -> None:
    """A pickled state with a function, or another library's class, is refused before it is called."""
    with pytest.raises(NotCarriedOver, match=reason):
        open_items.load(state)


def test_an_enums_member_is_carried_over_as_early_releases_of_python_3_11_pickle_it() -> None:
    """Python 3.11.2, of Debian 12, does so with `getattr`; a second build there could not read the first state."""
    state = b"cbuiltins\ngetattr\n(cmuster.events.causes\nCause\nS'%s'\ntR." % next(iter(Cause)).name.encode()
    assert open_items.load(state) is next(iter(Cause))
