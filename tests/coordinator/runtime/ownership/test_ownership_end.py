"""CoordinatorReady records why the former owner lost the partition, from the log or from the other processes."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from muster import schemas
from muster.coordinator.runtime.ownership.takeover.ownership_end import EndOf, end_of_former_owner, end_unknown
from muster.coordinator.runtime.partition.former_owners import OldLeases
from muster.events.avro.codec import HEADER_BYTES, decode, header_of
from muster.events.events import CoordinatorElected, CoordinatorReady
from muster.events.log.memory import MemoryStorage
from muster.events.ownership import OwnershipEnd, OwnershipEndCause
from muster.events.partitioner import partition_for
from muster.events.projector import Projector
from muster.events.records import FORMAT_LEVEL
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate

GONE = OwnershipEnd(cause=OwnershipEndCause.GONE, removed_by="c:3", link_lost_ms=1, refused_ms=2)


def ends(storage: MemoryStorage, partition: int = 0) -> list[OwnershipEnd | None]:
    """The ends recorded in each CoordinatorReady of the partition."""
    events = [decode(record.value) for record in storage.records[partition] if record.value is not None]
    return [event.owner_before_end for event in events if isinstance(event, CoordinatorReady)]


def end(cause: str) -> OwnershipEnd:
    return OwnershipEnd(cause=OwnershipEndCause(cause))


def lived(storage: MemoryStorage, *, stops: bool = False, end_of: EndOf = end_unknown) -> None:
    """Have a process serve the log for a second, and stop."""

    async def life() -> None:
        process = await SimulatedProcess(storage, end_of=end_of).start()
        await asyncio.sleep(1)
        if stops:
            await process.runtime.stop()

    simulate(life())  # everything else ends with the loop


def test_an_owner_that_stopped_cleanly() -> None:
    """The log has the record, so no process is asked; the first owner has no predecessor."""

    def requested(number: int, owner_before: str) -> OwnershipEnd | None:
        pytest.fail(f"{number}, {owner_before}")

    storage = MemoryStorage(1)
    lived(storage, stops=True, end_of=requested)
    lived(storage, end_of=requested)
    assert ends(storage) == [None, end("stopped")]


def test_an_owner_without_a_stop_record_is_queried() -> None:
    """A lone process cannot know the reason."""
    requests = []

    def end_of(number: int, owner_before: str) -> OwnershipEnd | None:
        requests.append((number, owner_before))
        return GONE if number else None

    storage = MemoryStorage(2)
    lived(storage)
    lived(storage, end_of=end_of)
    lived(storage)
    assert sorted(requests) == [(0, "simulated:1"), (1, "simulated:1")]
    assert (ends(storage, 0), ends(storage, 1)) == ([None, None, None], [None, GONE, None])


def test_an_owner_that_takes_its_partition_back() -> None:
    """It had lost the log; the number of retries since does not matter."""

    async def story() -> None:
        storage = MemoryStorage(8)
        process = await SimulatedProcess(storage).start()
        process.log.fail_next_append()
        process.join("a")
        await asyncio.sleep(1)
        await process.runtime.all_owned()
        assert ends(storage, partition_for(GROUP, 8)) == [None, end("taken-back")]
        await process.runtime.stop()

    simulate(story())


def test_an_owner_that_gets_its_partition_back_from_one_that_was_never_ready() -> None:
    """It was deposed, so it had not lost the log; by now it may be another member, so no process is asked."""
    leases, projector = OldLeases(), Projector()
    leases.served(0, 1)
    projector.served_by = "own:1"
    projector.before_election = CoordinatorElected(
        partition=0, owner="other:2", owner_epoch=2, version="1", elected_ms=1, format_level=FORMAT_LEVEL, settings={}
    )
    owner: Any = SimpleNamespace(name="own:1", old_leases=leases)
    assert end_of_former_owner(owner, 0, projector, lambda _number, _owner: end("replaced")) is None
    another: Any = SimpleNamespace(name="own:1", old_leases=OldLeases())
    assert end_of_former_owner(another, 0, projector, lambda _number, _owner: end("replaced")) == end("replaced")


def test_the_log_line_names_the_end_of_each_former_owner() -> None:
    """If it is known."""
    storage = MemoryStorage(2)
    with capture_logs() as logged:
        lived(storage)
        lived(storage, end_of=lambda _number, _owner: GONE)
    first, second = [each for each in logged if each["event"] == "partitions ready"]
    assert "former_owners" not in first
    assert second["former_owners"] == {"simulated:1": "gone"}


def test_the_log_line_names_all_ends_of_a_former_owner() -> None:
    """It may have released one partition and lost another."""
    storage = MemoryStorage(2)
    lived(storage)
    with capture_logs() as logged:
        lived(storage, end_of=lambda number, _owner: GONE if number else end("replaced"))
    (line,) = [each for each in logged if each["event"] == "partitions ready"]
    assert line["former_owners"] == {"simulated:1": "gone and replaced"}


@pytest.mark.parametrize("level", [3, 4])
def test_a_log_of_an_older_level_is_gone_on_with_at_its_own(level: int) -> None:
    """A process that knows no higher level can read all of it."""
    storage = MemoryStorage(1, format_level=level)
    lived(storage)
    lived(storage, end_of=lambda _number, _owner: GONE)
    known = {header_of(schema) for each in range(1, level + 1) for schema in _schemas_of(each)}
    written = {record.value[:HEADER_BYTES] for record in storage.records[0] if record.value is not None}
    assert written <= known
    assert ends(storage) == [None, None]
    assert level < FORMAT_LEVEL


def _schemas_of(level: int) -> list[schemas.Schema]:
    return list(schemas.event_schemas(level)) if level in schemas.levels() else []
