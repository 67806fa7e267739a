"""A group with an unreadable record, and how it can be served again; in virtual time."""

import asyncio
from collections.abc import Callable

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.group.commands import AlterGroupConfig, ConfigChange, ConfigOperation, DescribeGroupConfig
from muster.coordinator.group.configs import EXPANSION_DELAY, REGISTERED, REPAIR
from muster.coordinator.group.outcomes import AlterGroupConfigOutcome, DescribeGroupConfigOutcome, GroupDamage
from muster.events.avro.codec import decode
from muster.events.causes import Cause
from muster.events.events import AnyRecordedEvent, Event, GroupCreated
from muster.events.ids import GroupInstanceId
from muster.events.keys import EntityKind, decode_key
from muster.events.log.memory import MemoryStorage
from muster.events.records import BrokenRecord, StoredRecord
from muster.events.state import GroupState
from muster.replay.logs.reading import Reading
from muster.replay.results.groups import Overview, read_overview
from tests.events.test_compaction_law import compacted
from tests.events.test_loading import fed, loaded
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate
from tests.waiting import until

UNKNOWN_TYPE = b"\xc3\x01" + bytes(8) + b"\x00"


def cut_short(value: bytes) -> bytes:
    """A truncated value of a known type."""
    return value[:-1]


def of_the_future(_value: bytes) -> bytes:
    """A value of an unknown type."""
    return UNKNOWN_TYPE


Break = Callable[[bytes], bytes]


def break_last(storage: MemoryStorage, kind: EntityKind, how: Break) -> int:
    """Make the last value of an entity of this kind unreadable; return its offset."""
    records = storage.records[0]
    index = max(
        index
        for index, record in enumerate(records)
        if record.value is not None and decode_key(record.key).kind is kind and decode_key(record.key).group_id == GROUP
    )
    record = records[index]
    assert record.value is not None
    records[index] = StoredRecord(0, record.offset, record.timestamp_ms, record.key, how(record.value))
    return record.offset


async def alter(
    process: SimulatedProcess, name: str, value: str, *, append: bool = False, validate_only: bool = False
) -> AlterGroupConfigOutcome:
    operation = ConfigOperation.APPEND if append else ConfigOperation.SET
    outcome = await process.submit(
        AlterGroupConfig(
            caller=process.caller(client_id="admin", api_key=44, api_version=1),
            group_id=GROUP,
            changes=(ConfigChange(name=name, operation=operation, value=value),),
            validate_only=validate_only,
        )
    )
    assert isinstance(outcome, AlterGroupConfigOutcome)
    return outcome


async def damage_of(process: SimulatedProcess) -> GroupDamage | None:
    command = DescribeGroupConfig(caller=process.caller(api_key=32, api_version=4), group_id=GROUP)
    outcome = await process.submit(command)
    assert isinstance(outcome, DescribeGroupConfigOutcome)
    return outcome.damage


async def quarantined(kind: EntityKind, how: Break) -> tuple[SimulatedProcess, MemoryStorage, int]:
    """A process that does not serve the group, which had two members, offsets, a setting and a registration."""
    storage = MemoryStorage(partitions=1)
    first = await SimulatedProcess(storage).start()
    joined = await first.stable_group("a", "b")
    assert (await first.commit(7, joined["a"])).error is ErrorCode.none
    assert (await alter(first, EXPANSION_DELAY, "5")).error is ErrorCode.none
    assert (await alter(first, REGISTERED, "c", append=True)).error is ErrorCode.none
    await first.runtime.stop()
    offset = break_last(storage, kind, how)
    process = await SimulatedProcess(storage, offsets=first.offsets).start()
    assert (await process.describe()).error is ErrorCode.coordinator_load_in_progress
    return process, storage, offset


KINDS = [EntityKind.GROUP, EntityKind.STATIC_MEMBER, EntityKind.REGISTRATION, EntityKind.GROUP_CONFIG]


@pytest.mark.parametrize("how", [cut_short, of_the_future])
@pytest.mark.parametrize("kind", KINDS)
def test_a_repaired_group_is_served_with_what_could_be_read(kind: EntityKind, how: Break) -> None:
    """Empty, in the next generation if that is known; its offsets stay, its members rejoin, and the repair lasts."""

    async def story() -> None:
        process, storage, _ = await quarantined(kind, how)
        assert (await alter(process, REPAIR, "anew")).error is ErrorCode.none

        described = await process.describe()
        assert described.state is GroupState.EMPTY
        assert process.offsets.committed(GROUP)["orders", 0].offset == 7
        await assert_kept(process, kind)
        assert process.runtime.figures().quarantined == 0

        first_generation = (await join_both(process))[0]
        assert first_generation == (1 if kind is EntityKind.GROUP else 3)
        await process.runtime.stop()
        successor = await SimulatedProcess(storage, offsets=process.offsets).start()
        assert (await successor.describe()).error is ErrorCode.none
        await assert_kept(successor, kind)
        assert successor.offsets.committed(GROUP)["orders", 0].offset == 7
        await successor.runtime.stop()

    simulate(story())


async def join_both(process: SimulatedProcess) -> list[int]:
    """Return their generations, once they have joined."""
    joins = [process.join(instance) for instance in ("a", "b")]
    return [(await join).generation_id for join in joins]


async def assert_kept(process: SimulatedProcess, broken: EntityKind) -> None:
    config = process.runtime.config_of(GROUP)
    assert config.expansion_delay_ms == (None if broken is EntityKind.GROUP_CONFIG else 5)
    (group,) = (group for group in process.runtime._owned[0].partition.groups() if group.group_id == GROUP)
    expected = [] if broken is EntityKind.REGISTRATION else [GroupInstanceId("c")]
    assert list(group.registrations) == expected


@pytest.mark.parametrize("how", [cut_short, of_the_future])
@pytest.mark.parametrize("kind", KINDS)
def test_a_log_that_is_compacted_stays_repaired(kind: EntityKind, how: Break) -> None:
    """At any position of the cleaner, which processes a log from its start."""

    async def story() -> None:
        process, storage, _ = await quarantined(kind, how)
        await alter(process, REPAIR, "anew")
        await join_both(process)
        await process.runtime.stop()
        records = storage.records[0]
        for before in range(len(records) + 1):
            left = compacted(records, before, lambda _key: True)
            for projector in (fed(left), loaded(left)):
                assert not projector.quarantined
                assert projector.groups[GROUP].incarnation == max(each.incarnation for each in incarnated(storage))

    simulate(story())


def incarnated(storage: MemoryStorage) -> list[Event]:
    return [event for event in events_in(storage) if isinstance(event, Event)]


def test_losses_are_shown_before_the_repair() -> None:
    """Each record with its entity, offset and error; and what is kept. The dry run changes nothing."""

    async def story() -> None:
        process, storage, offset = await quarantined(EntityKind.STATIC_MEMBER, cut_short)
        before = len(storage.records[0])

        damage = await damage_of(process)
        assert (await alter(process, REPAIR, "anew", validate_only=True)).error is ErrorCode.none

        assert damage is not None
        (record,) = damage.unreadable
        assert (record.kind, record.entity_id, record.offset) == ("StaticMember", "b", offset)
        assert "ends too early" in record.reason
        assert (damage.partition, damage.generation_id, damage.members) == (0, 1, 1)
        assert (damage.registered, damage.configs) == (("c",), {EXPANSION_DELAY: "5"})
        assert len(storage.records[0]) == before
        assert await damage_of(process) == damage
        await process.runtime.stop()

    simulate(story())


def test_the_log_records_the_requester_of_the_repair() -> None:
    """`muster replay` no longer reports the group as quarantined."""

    async def story() -> None:
        process, storage, _ = await quarantined(EntityKind.GROUP, of_the_future)
        assert await is_called_quarantined(process)
        await alter(process, REPAIR, "anew")

        (repaired,) = (event for event in events_in(storage) if isinstance(event, GroupCreated) and is_repair(event))
        assert (repaired.why.client_id, repaired.why.principal) == ("admin", "User:ANONYMOUS")
        assert not await is_called_quarantined(process)
        await process.runtime.stop()

    simulate(story())


def is_repair(event: GroupCreated) -> bool:
    return event.why.cause is Cause.GROUP_REPAIRED


def events_in(storage: MemoryStorage) -> list[AnyRecordedEvent]:
    found = []
    for record in storage.records[0]:
        try:
            found += [] if record.value is None else [decode(record.value)]
        except BrokenRecord:
            continue
    return found


async def is_called_quarantined(process: SimulatedProcess) -> bool:
    overview = Overview()
    await read_overview(Reading(log=process.log), overview)
    (line,) = overview.result("memory").groups
    return bool(line.quarantined)


def test_invalid_repair_requests_are_refused() -> None:
    """A quarantined group refuses everything but its repair, and a healthy one refuses the repair."""

    async def story() -> None:
        process, _, _ = await quarantined(EntityKind.GROUP_CONFIG, cut_short)
        wrong = await alter(process, REPAIR, "please")
        assert (wrong.error, wrong.message) == (
            ErrorCode.invalid_config,
            "members.repair: should be set to 'anew'",
        )
        assert (await alter(process, EXPANSION_DELAY, "1")).error is ErrorCode.coordinator_load_in_progress
        assert (await alter(process, REPAIR, "anew")).error is ErrorCode.none

        again = await alter(process, REPAIR, "anew")
        assert again.error is ErrorCode.invalid_request
        assert again.message == "members.repair: group 'orders' is not quarantined, there is nothing to repair"
        assert await damage_of(process) is None
        await process.runtime.stop()

    simulate(story())


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_repair_whose_append_fails_is_done_or_not(is_stored: bool) -> None:
    """No client is told that it is done; the next owner finds out, and it can be requested again if it is not."""

    async def story() -> None:
        process, _, _ = await quarantined(EntityKind.STATIC_MEMBER, cut_short)
        (process.log.lose_next_acknowledgement if is_stored else process.log.fail_next_append)()
        assert (await alter(process, REPAIR, "anew")).error is ErrorCode.not_coordinator
        await until(lambda: process.runtime.ready, "the partition is served again")
        assert (await damage_of(process) is None) is is_stored
        assert process.runtime.has_group(GROUP) is is_stored
        await process.runtime.stop()

    simulate(story())


def test_a_second_repair_at_once_is_refused_for_now() -> None:
    """There is only one repair."""

    async def story() -> None:
        process, storage, _ = await quarantined(EntityKind.STATIC_MEMBER, cut_short)
        release = process.log.hold_acknowledgements()
        first = asyncio.ensure_future(alter(process, REPAIR, "anew"))
        await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            assert (await alter(process, REPAIR, "anew")).error is ErrorCode.coordinator_load_in_progress
        release.set()
        assert (await first).error is ErrorCode.none
        assert sum(isinstance(event, GroupCreated) and is_repair(event) for event in events_in(storage)) == 1
        await process.runtime.stop()

    simulate(story())


def test_a_repair_stored_after_the_partition_was_released_has_no_effect_here() -> None:
    """The next owner finds it in the log; here no response is sent, and the group is not served."""

    async def story() -> None:
        process, _, _ = await quarantined(EntityKind.GROUP, cut_short)
        (ownership,) = process.runtime._owned.values()
        release = process.log.hold_acknowledgements()
        repair = asyncio.create_task(alter(process, REPAIR, "anew"))
        await asyncio.sleep(1.0)
        ownership.partition.close(ErrorCode.not_coordinator)
        release.set()
        with capture_logs() as lines:
            await asyncio.sleep(1.0)
        assert "group repaired" not in {line["event"] for line in lines}
        assert GROUP not in ownership.partition._contexts
        repair.cancel()
        await asyncio.gather(repair, return_exceptions=True)
        await process.runtime.stop()

    simulate(story())
