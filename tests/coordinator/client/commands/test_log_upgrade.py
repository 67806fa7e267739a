"""`muster log upgrade`: its output, its refusals, and its effect on the log."""

import asyncio
import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from muster import cli
from muster.coordinator.client.commands.log_upgrade import look_at, raise_level
from muster.events.avro.codec import decode, records_of
from muster.events.events import CoordinatorElected, CoordinatorReady
from muster.events.log.base import LogMismatch
from muster.events.log.memory import MemoryStorage
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.log.url import open_log
from muster.events.projector import Projector
from muster.events.records import FORMAT_LEVEL, Record
from tests.brokers.broker import Broker
from tests.events.histories import FOLDER
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate

WIDE = {"COLUMNS": "200", "TERM": "dumb"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A level 3 file whose owner has stopped."""
    copy = tmp_path / "muster.db"
    shutil.copy(FOLDER / "level3.db", copy)
    return copy


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["log", "upgrade", "--log", url, *arguments], env=WIDE)


async def projected(path: Path) -> list[Projector]:
    log = SqliteEventLog(path, read_only=True)
    await log.open()
    projectors = []
    for number in range(log.partitions):
        projectors.append(Projector())
        async for chunk in log.read(number):
            for record in chunk:
                projectors[-1].feed(record)
    await log.close()
    return projectors


def test_a_dry_run_comes_first_and_yes_does_it(path: Path) -> None:
    """The dry run shows the change and that it cannot be undone; afterwards the old records are still readable."""
    url = f"sqlite:///{path}"
    before = asyncio.run(projected(path))
    result = run(url)
    assert result.exit_code == 0, result.output
    assert f"has format level 3; at level {FORMAT_LEVEL} its events record more" in result.stdout
    assert "there is no way back" in result.stdout
    assert result.stdout.endswith("Nothing was changed; give --yes to make the change.\n")

    done = run(url, "--yes")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(f"Done: the log has format level {FORMAT_LEVEL}; start muster serve.\n")
    after = asyncio.run(projected(path))
    assert [each.groups for each in after] == [each.groups for each in before]
    for projector in after:
        assert projector.last_partition_event is not None
        assert projector.last_partition_event.owner.endswith(" (muster log upgrade)")

    again = run(url, "--yes")
    assert (again.exit_code, again.stdout) == (1, "")
    assert f"has format level {FORMAT_LEVEL}: there is nothing to upgrade" in again.stderr


async def test_a_file_that_is_in_use_is_not_touched(path: Path) -> None:
    """The error names the process that has it open."""
    log = SqliteEventLog(path)
    await log.open()
    result = await asyncio.to_thread(run, f"sqlite:///{path}", "--yes")
    assert result.exit_code == 2
    assert "is in use by process" in result.stderr
    assert log.format_level == 3
    await log.close()


def test_a_possibly_serving_owner_is_reported() -> None:
    """An owner that was ready and has not stopped, and one that was elected and is not yet ready."""

    async def story() -> None:
        storage = MemoryStorage(2, format_level=3)
        process = await SimulatedProcess(storage).start()
        assert (await look_at(process.log)).owners == {0: "simulated:1", 1: "simulated:1"}
        await process.runtime.stop()
        assert (await look_at(process.log)).owners == {}
        values = [record for record in storage.records[0] if record.value]
        elected = next(each for each in values if isinstance(decode(each.value or b""), CoordinatorElected))
        writer = await process.log.claim(0)
        await writer.append([(Record(elected.key, elected.value),)])
        assert (await look_at(process.log)).owners == {0: "simulated:1"}

    simulate(story())


@pytest.mark.parametrize("level", [3, 4])
def test_the_next_owner_writes_at_the_new_level(level: int) -> None:
    """Starting with its fence record."""

    async def story() -> None:
        storage = MemoryStorage(1, format_level=level)
        process = await SimulatedProcess(storage).start()
        await process.runtime.stop()
        await raise_level(process.log, who="admin", version="9", wall_ms=1)
        process = await SimulatedProcess(storage).start()
        await process.runtime.stop()
        events = [decode(record.value) for record in storage.records[0] if record.value is not None]
        levels = [event.format_level for event in events if isinstance(event, CoordinatorElected)]
        assert levels == [level, FORMAT_LEVEL, FORMAT_LEVEL]
        before, after = [event for event in events if isinstance(event, CoordinatorReady)]
        assert (before.uptime_ms is None, before.owner_before) == (level == 3, None)
        assert after.uptime_ms is not None
        assert after.owner_before == before.owner, "not the command"

    simulate(story())


@pytest.mark.broker
async def test_a_topic_is_upgraded_by_the_marks_of_its_records(kafka_broker: Broker) -> None:
    """A process that opened the topic before the upgrade is refused when it claims a partition; reopening shows the
    level.
    """
    url = f"kafka://{kafka_broker.bootstrap}/events-{uuid4().hex[:8]}"
    before = open_log(url, partitions=2, replication=1, new_format_level=3)
    await before.open()
    assert before.format_level == 3
    await (await before.claim(0)).append([(Record(b"key", b"value"),)])
    assert f"has format level 3; at level {FORMAT_LEVEL}" in (await asyncio.to_thread(run, url)).stdout

    process = open_log(url)
    await process.open()
    await raise_level(process, who="admin", version="9", wall_ms=1)
    await process.close()

    with pytest.raises(
        LogMismatch, match=f"was upgraded to format level {FORMAT_LEVEL} while this process had it open at level 3"
    ):
        await before.claim(1)
    await before.close()
    result = await asyncio.to_thread(run, url, "--yes")
    assert f"has format level {FORMAT_LEVEL}: there is nothing to upgrade" in result.stderr


async def elect(path: Path) -> None:
    """Write the records of an owner that was elected and then disappears."""
    log = SqliteEventLog(path)
    await log.open()
    writer = await log.claim(0)
    elected = CoordinatorElected(
        partition=0, owner_epoch=writer.epoch, owner="a:1", elected_ms=1, version="9", format_level=3, settings={}
    )
    await writer.append([records_of([elected], 3)])
    await log.close()


def test_a_log_is_upgraded_only_after_its_owner_has_ended(path: Path) -> None:
    """The upgrade would depose it, so the user has to confirm that it crashed."""
    asyncio.run(elect(path))
    refused = run(f"sqlite:///{path}", "--yes")
    assert refused.exit_code == 1
    assert (
        "another process may be serving this log: partition 0 by a:1. An upgrade would depose that owner"
        in refused.stderr
    )
    assert "--owner-has-ended" in refused.stderr
    assert "has format level 3" in run(f"sqlite:///{path}", "--owner-has-ended").stdout
    assert run(f"sqlite:///{path}", "--yes", "--owner-has-ended").exit_code == 0
