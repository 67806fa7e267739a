"""Repair of a partition that is stopped by one of our records with an unreadable key."""

import asyncio
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from typer.testing import CliRunner, Result

from muster import cli
from muster.coordinator.client.commands import log_commands
from muster.coordinator.client.commands.log_repair import UNKNOWN_OWNER, survey, write_tombstones
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.not_served import way_out
from muster.coordinator.offsets.topic import TopicOffsetStore
from muster.events.avro.codec import decode, records_of
from muster.events.events import CoordinatorElected, CoordinatorPaused, CoordinatorReady
from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.log.url import open_log
from muster.events.records import FORMAT_LEVEL, BrokenBatch, BrokenRecord, LogTooNew, Record, StoredRecord
from tests.brokers.broker import Broker
from tests.events.test_projector import ELECTED
from tests.replay import written
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate
from tests.waiting import until

WIDE = {"COLUMNS": "200", "TERM": "dumb"}
BAD_KEY = b"no key of ours"


def damage(storage: MemoryStorage) -> int:
    """Append the group's last value again under a torn key; return the offset."""
    records = storage.records[0]
    value = next(record.value for record in reversed(records) if record.value is not None)
    offset = storage.end_offset(0)
    records.append(StoredRecord(0, offset, 0, BAD_KEY, value))
    return offset


async def served(storage: MemoryStorage) -> tuple[SimulatedProcess, dict[str, JoinGroupOutcome]]:
    process = await SimulatedProcess(storage).start()
    return process, await process.stable_group("a", "b")


def test_a_buried_record_is_passed_over() -> None:
    """The rest of the partition is unchanged."""

    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        first, reported = await served(storage)
        await first.runtime.stop()
        offset = damage(storage)
        stopped = await SimulatedProcess(storage).start()
        assert not stopped.runtime.ready
        await stopped.runtime.stop()

        (found,) = await survey(stopped.log)
        (key,) = found.records
        assert (found.partition, key.key, key.offset) == (0, BAD_KEY, offset)
        assert "does not begin with the header" in key.reason
        assert key.lost == "CoordinatorStopped"
        await write_tombstones(stopped.log, found, who="me", wall_ms=1)

        assert await survey(stopped.log) == []
        process = await SimulatedProcess(storage).start()
        assert process.runtime.ready
        assert (await process.heartbeat(reported["a"])).error == 0
        await process.runtime.stop()

    simulate(story())


def test_an_owner_that_has_renewed_its_claim_may_be_serving() -> None:
    """Its last record is CoordinatorElected, for the second time."""

    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        process, _ = await served(storage)
        values = [record for record in storage.records[0] if record.value]
        elected = next(each for each in values if isinstance(decode(each.value or b""), CoordinatorElected))
        storage.records[0].append(msgspec.structs.replace(elected, offset=storage.end_offset(0)))
        damage(storage)
        (found,) = await survey(process.log)
        assert found.owner == "simulated:1"
        await process.runtime.stop()

    simulate(story())


@pytest.mark.parametrize("entity", ["coordinator", "ready", "stopped"])
def test_a_record_of_the_partition_itself_is_passed_over(entity: str) -> None:
    """It holds no group state. If it is unreadable, the current owner is reported as unknown."""

    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        first, reported = await served(storage)
        await first.runtime.stop()
        key = encode_key(RecordKey("0", EntityKind.PARTITION, entity))
        storage.records[0].append(StoredRecord(0, storage.end_offset(0), 0, key, b"no event"))
        (found,) = await survey(first.log)
        assert found.owner == UNKNOWN_OWNER
        stopped = await SimulatedProcess(storage).start()
        is_replaced = entity == "coordinator"  # replaced by the next owner's record
        assert stopped.runtime.ready is is_replaced
        await stopped.runtime.stop()

        if not is_replaced:
            (found,) = await survey(stopped.log)
            assert found.owner is None, "whoever came last was never ready"
            assert [each.lost for each in found.records] == [f"the record of '{entity}' about the partition's owner"]
            await write_tombstones(stopped.log, found, who="me", wall_ms=1)
        assert await survey(stopped.log) == []
        process = await SimulatedProcess(storage).start()
        assert process.runtime.ready
        assert (await process.heartbeat(reported["a"])).error == 0
        await process.runtime.stop()

    simulate(story())


def test_a_committed_offset_that_cannot_be_read_is_passed_over() -> None:
    """Only that offset is lost."""

    async def story() -> None:
        storage, kept = MemoryStorage(partitions=1), MemoryStorage(partitions=1)
        offsets_log = MemoryEventLog(kept)

        async def started() -> SimulatedProcess:
            process = SimulatedProcess(storage, offsets=TopicOffsetStore(lambda: offsets_log))
            await process.offsets.open()
            return await process.start()

        first = await started()
        assert (await first.commit(7)).error == 0
        assert (await first.commit(8, topic="payments")).error == 0
        broken = next(record for record in kept.records[0] if b"payments" in record.key)
        await first.runtime.stop()
        for key in (b"garbage", broken.key):
            kept.records[0].append(StoredRecord(0, kept.end_offset(0), 0, key, b"no offset"))
        stopped = await started()
        assert not stopped.runtime.ready
        assert str(stopped.runtime.not_ready).endswith(
            "otherwise stop this process, then run muster log repair --log URL --yes"
        )
        await stopped.runtime.stop()

        (found,) = await survey(stopped.log, offsets_log)
        assert (found.owner, found.records, [each.key for each in found.offsets]) == (
            None,
            (),
            [b"garbage", broken.key],
        )
        await write_tombstones(stopped.log, found, who="me", wall_ms=1, offsets=offsets_log)

        assert await survey(stopped.log, offsets_log) == []
        process = await started()
        assert process.runtime.ready
        assert process.offsets.committed(GROUP).keys() == {("orders", 0)}
        await process.runtime.stop()

    simulate(story())


def test_an_unrepairable_log_gets_advice() -> None:
    """A batch has no key to write a tombstone under."""
    assert "another replica of the topic's partition" in way_out(BrokenBatch("the checksum of the batch is wrong"))
    assert way_out(BrokenRecord("anything else"), "sqlite:///my log.db").endswith(
        "otherwise stop this process, then run muster log repair --log 'sqlite:///my log.db' --yes"
    )


def test_the_possible_owner_of_the_partition_is_named() -> None:
    """Only an owner that was ready and has not stopped may be serving."""

    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        first, _ = await served(storage)
        damage(storage)
        (serving,) = await survey(first.log)
        assert serving.owner == "simulated:1"

        await first.runtime.stop()
        (stopped,) = await survey(first.log)
        assert stopped.owner is None

        second = await SimulatedProcess(storage).start()
        (never_ready,) = await survey(second.log)
        assert never_ready.owner is None

    simulate(story())


def test_an_owner_that_has_paused_may_be_serving_the_partition() -> None:
    """It records the pause when its machine stalls, and continues to serve."""

    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        first, _ = await served(storage)
        damage(storage)
        asyncio.get_running_loop().advance(60)  # type: ignore[attr-defined]
        await until(lambda: _last_event(storage) is CoordinatorPaused, "the pause is recorded")
        (serving,) = await survey(first.log)
        assert serving.owner == "simulated:1"
        await first.runtime.stop()

    simulate(story())


def _last_event(storage: MemoryStorage) -> type:
    value = storage.records[0][-1].value
    assert value is not None
    return type(decode(value))


def test_a_log_of_a_newer_version_is_not_examined() -> None:
    """Its keys may be valid in that version."""

    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        process, _ = await served(storage)
        damage(storage)
        newer = msgspec.structs.replace(ELECTED, partition=0, format_level=FORMAT_LEVEL + 1)
        (record,) = records_of([newer], FORMAT_LEVEL)
        storage.records[0].append(StoredRecord(0, storage.end_offset(0), 0, record.key, record.value))
        with pytest.raises(LogTooNew, match=f"format level {FORMAT_LEVEL + 1}, this version of Muster knows"):
            await survey(process.log)
        await process.runtime.stop()

    simulate(story())


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A log whose owner has stopped, with a group followed by a record with an unreadable key."""
    return asyncio.run(_written(tmp_path / "muster.db"))


async def _written(path: Path) -> str:
    reported = written.script(GROUP).created()
    url = await written.sqlite_log(path, reported)
    log = SqliteEventLog(path)
    await log.open()
    writer = await log.claim(reported.partition)
    (value,) = (record.value for record in reported.stored_transitions()[-1][-1:])
    await writer.append([(Record(BAD_KEY, value),)])
    await log.close()
    return url


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["log", "repair", "--log", url, *arguments], env=WIDE)


def test_a_dry_run_comes_first_and_yes_does_it(url: str) -> None:
    """The dry run shows where, why and what the value says; after the repair there is nothing left to do."""
    partition = written.script(GROUP).partition
    result = run(url)
    assert result.exit_code == 0, result.output
    assert f"partition {partition}, offset " in result.stdout
    assert f"what is lost with it: GroupCreated of group {GROUP}, seq 1" in result.stdout
    assert result.stdout.endswith("Nothing was changed; give --yes to make the change.\n")

    done = run(url, "--yes")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("Done: restart muster serve, which reads the partition again.\n")

    again = run(url, "--yes")
    assert (again.exit_code, again.stdout) == (1, "")
    assert "stops its partition: there is nothing to repair" in again.stderr


def test_a_log_that_another_process_has_in_memory_cannot_be_repaired() -> None:
    """A memory log ends with the process that has it."""
    result = run("memory:", "--yes")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "memory: is inside the muster serve process" in result.stderr


async def test_a_file_that_is_in_use_is_not_touched(url: str, tmp_path: Path) -> None:
    """The error names the process that has it open."""
    log = SqliteEventLog(tmp_path / "muster.db")
    await log.open()
    result = await asyncio.to_thread(run, url, "--yes")
    assert result.exit_code == 2
    assert "is in use by process" in result.stderr
    assert "stop that one first (to run a second `muster serve`, give it another --log)" in result.stderr
    await log.close()


def test_a_committed_offset_is_buried_in_the_topic_of_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets topic beside the event topic, which is not damaged."""
    events, offsets = MemoryStorage(partitions=1), MemoryStorage(partitions=1)
    offsets.records[0].append(StoredRecord(0, 0, 0, BAD_KEY, b"no offset"))
    of_url = {"kafka://broker/events": events, "kafka://broker/events_offsets": offsets}
    monkeypatch.setattr(log_commands, "open_log", lambda url, **_: MemoryEventLog(of_url[url]))
    done = run("kafka://broker/events", "--yes")
    assert done.exit_code == 0, done.output
    assert (offsets.records[0][-1].key, offsets.records[0][-1].value) == (BAD_KEY, None)
    assert BAD_KEY not in {record.key for record in events.records[0]}


@pytest.mark.broker
def test_a_topic_is_repaired_when_its_owner_has_ended(kafka_broker: Broker) -> None:
    """A topic has no lock: an owner that was ready and has not stopped is named, and nothing is claimed."""
    url = f"kafka://{kafka_broker.bootstrap}/events-{uuid4().hex[:8]}"
    asyncio.run(_serve_and_crash(url))

    refused = run(url, "--yes")
    assert refused.exit_code == 1
    assert "another process may be serving this log: partition 0 by me:1." in refused.stderr

    done = run(url, "--yes", "--owner-has-ended")
    assert done.exit_code == 0, done.output
    assert run(url).exit_code == 1  # there is nothing left to repair


async def _serve_and_crash(url: str) -> None:
    log = open_log(url, partitions=1, replication=1)
    await log.open()
    writer = await log.claim(0)
    ready = CoordinatorReady(
        partition=0,
        owner_epoch=writer.epoch,
        owner="me:1",
        ready_ms=1,
        took_ms=1,
        events_read=0,
        groups=0,
        members=0,
        incarnation_max=0,
    )
    await writer.append([records_of([ready], FORMAT_LEVEL), (Record(BAD_KEY, b"value"),)])
    await log.close()
