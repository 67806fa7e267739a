"""Reading a log into histories: used, skipped and marked records."""

import msgspec
import pytest

from muster.events.avro.codec import records_of
from muster.events.events import CoordinatorElected, CoordinatorReady
from muster.events.ids import GroupId
from muster.events.log.memory import MemoryEventLog
from muster.events.records import FORMAT_LEVEL, ForeignRecords, LogTooNew, Record, StoredRecord
from muster.replay.history.items import Broken, Coordinated, Gap, Happened, Unreadable
from muster.replay.logs.reading import Reading
from muster.replay.rebalances.rebalance import Outcome
from muster.replay.results.groups import Groups, Overview, read_overview
from tests.events.test_projector import ELECTED
from tests.replay.histories import Script
from tests.replay.stories import a_night
from tests.replay.told import printed, rebalances_of
from tests.replay.whole import read_histories
from tests.replay.written import (
    BROKEN_KEY,
    broken_value,
    memory_log,
    script,
    unknown_type,
    write,
)

ORDERS = GroupId("orders")


def stored(reported: Script, *, replaced: dict[int, Record] | None = None) -> list[StoredRecord]:
    """Return the script's records, some of them replaced by offset."""
    records = reported.stored_records()
    for offset, record in (replaced or {}).items():
        records[offset] = msgspec.structs.replace(records[offset], key=record.key, value=record.value)
    return records


def orders() -> Script:
    night = a_night()
    assert night.partition == script("orders").partition
    return night


async def overview(log: MemoryEventLog) -> Groups:
    taken = Overview()
    await read_overview(Reading(log=log), taken)
    return taken.result(log.location)


async def test_a_log_gives_the_same_story_as_the_script() -> None:
    """After encoding, storing and decoding, the rebalances are those of the events."""
    night = orders()
    log = MemoryEventLog()
    await log.open()
    await write(log, [night])
    histories = await read_histories(log)
    assert list(histories) == ["orders"]
    assert [item.event for item in histories[ORDERS].items if isinstance(item, Happened)] == [
        read.event for read in night.reads if isinstance(read, Happened)
    ]
    assert rebalances_of(histories[ORDERS]) == rebalances_of(night.history())


async def test_events_of_other_groups_are_not_decoded() -> None:
    """Their broken values then do not matter, and their partitions are not read."""
    night, neighbour = orders(), script("shadow")
    records = stored(night)
    end = records[-1].offset
    broken = broken_value(neighbour.group_id)
    records.append(StoredRecord(night.partition, end + 1, 0, broken.key, broken.value))
    histories = await read_histories(await memory_log(records), group=ORDERS)
    assert list(histories) == ["orders"]
    assert not [item for item in histories[ORDERS].items if isinstance(item, Broken)]


async def test_a_broken_record_is_a_marker_within_its_group() -> None:
    """The group's events around it are used; the overview shows it as quarantined, with partition and offset."""
    night = orders()
    log = await memory_log(stored(night, replaced={20: broken_value("orders")}))
    items = (await read_histories(log, group=ORDERS))[ORDERS].items
    assert [item.position.offset for item in items if isinstance(item, Broken)] == [20]
    assert {type(item) for item in items[:20]} >= {Happened}
    assert isinstance(items[-1], Happened)
    (line,) = (await overview(log)).groups
    assert len(line.quarantined) == 1
    assert f"partition {night.partition}, offset 20" in line.quarantined[0]
    assert line.rebalances == 4


async def test_an_unknown_event_type_is_skipped_and_reported() -> None:
    """A reader continues where an owner may not."""
    log = await memory_log(stored(orders(), replaced={20: unknown_type("orders")}))
    broken = [item for item in (await read_histories(log, group=ORDERS))[ORDERS].items if isinstance(item, Broken)]
    assert [item.kind for item in broken] == [Unreadable.UNKNOWN_TYPE]


async def test_an_undecodable_key_is_noted_in_every_group_of_its_partition() -> None:
    """It may belong to any of them, so none is quarantined."""
    log = await memory_log(stored(orders(), replaced={20: BROKEN_KEY}))
    items = (await read_histories(log, group=ORDERS))[ORDERS].items
    assert [item.kind for item in items if isinstance(item, Broken)] == [Unreadable.UNDECODABLE_KEY]
    groups = await overview(log)
    assert len(groups.unreadable_keys) == 1
    assert groups.groups[0].quarantined == ()


async def test_records_skipped_by_a_repair_are_no_longer_named() -> None:
    """Neither the record nor the tombstone with its key; the history of a group that began before still has it."""
    records = stored(orders(), replaced={20: BROKEN_KEY})
    (election,) = records_of([ELECTED], FORMAT_LEVEL)
    for key, value in (
        (election.key, b"not an event"),
        (b"another broken key", b"lost too"),
        (BROKEN_KEY.key, None),
        (election.key, None),
    ):
        records.append(StoredRecord(records[0].partition, len(records), 0, key, value))
    log = await memory_log(records)
    (left,) = (await overview(log)).unreadable_keys
    assert f"offset {len(records) - 3} cannot be read" in left
    broken = [item for item in (await read_histories(log, group=ORDERS))[ORDERS].items if isinstance(item, Broken)]
    assert [item.position.offset for item in broken] == [20, len(records) - 4, len(records) - 3]


async def test_a_repair_counts_for_its_partition_alone() -> None:
    """Another partition may have a broken record with the same key."""
    (lost, tombstone) = (
        StoredRecord(5, offset, 0, BROKEN_KEY.key, value) for offset, value in ((0, b"lost"), (1, None))
    )
    elsewhere = msgspec.structs.replace(lost, partition=3)  # which is read before
    (left,) = (await overview(await memory_log([lost, elsewhere, tombstone]))).unreadable_keys
    assert "partition 3, offset 0 cannot be read" in left


async def test_a_group_that_begins_after_a_repair_knows_nothing_of_it() -> None:
    """The broken record cannot belong to it."""
    night = orders()
    before = [StoredRecord(night.partition, n, 0, BROKEN_KEY.key, value) for n, value in enumerate((b"lost", None))]
    moved = [msgspec.structs.replace(each, offset=each.offset + len(before)) for each in stored(night)]
    items = (await read_histories(await memory_log([*before, *moved]), group=ORDERS))[ORDERS].items
    assert not [item for item in items if isinstance(item, Broken)]


async def test_foreign_records_are_skipped_and_counted() -> None:
    """Whatever its key is, even one of Muster's; the first one is reported, and the histories do not change."""
    night = orders()
    owners = stored(night)
    mixed: list[StoredRecord] = []
    for record in owners:
        mixed.append(msgspec.structs.replace(record, offset=len(mixed)))
        for key in (record.key, BROKEN_KEY.key, b""):
            mixed.append(StoredRecord(night.partition, len(mixed), 0, key, None, is_foreign=True))
    alone = [record for record in mixed if not record.is_foreign]
    foreign_records = ForeignRecords()
    assert foreign_records.report("memory") is None
    assert await read_histories(
        await memory_log(mixed), group=ORDERS, foreign_records=foreign_records
    ) == await read_histories(await memory_log(alone), group=ORDERS)
    assert foreign_records.report("memory") == (
        f"memory: records that this cluster's Muster did not write were skipped ({3 * len(owners)}); the first"
        f" is in partition {night.partition} at offset 1"
    )


async def test_compacted_events_are_a_gap() -> None:
    """Offsets and seqs are missing; the rest is used."""
    records = [record for record in stored(orders()) if not 3 <= record.offset <= 16]
    log = await memory_log(records)
    items = (await read_histories(log, group=ORDERS))[ORDERS].items
    gaps = [item for item in items if isinstance(item, Gap)]
    assert len(gaps) == 1
    (line,) = (await overview(log)).groups
    assert line.missing_events == gaps[0].missing


async def test_a_count_that_compaction_makes_wrong_is_not_shown_as_right() -> None:
    """It is a minimum, and events from a newer version are counted separately."""
    records = [record for record in stored(orders(), replaced={40: unknown_type("orders")}) if record.offset > 16]
    groups = await overview(await memory_log(records))
    assert (groups.groups[0].rebalances, groups.groups[0].unknown_events) == (3, 1)
    assert " 3+ " in printed(groups)
    assert "1 events of unknown types" in printed(groups)


async def test_a_group_knows_its_coordinator_from_before_its_first_event() -> None:
    """The last coordinator before it belongs to its history, with its election; earlier ones do not."""
    story = script("orders").coordinator("a:1").wait(10).coordinator("b:2").created()
    items = (await read_histories(await memory_log(story.stored_records()), group=ORDERS))[ORDERS].items
    events = [item.event for item in items if isinstance(item, Coordinated)]
    assert [(type(each), each.owner) for each in events] == [(CoordinatorElected, "b:2"), (CoordinatorReady, "b:2")]


async def test_a_log_of_a_higher_format_level_is_refused() -> None:
    """This version may not understand its events."""
    story = script("orders").coordinator("a:1")
    (_, (elected,)) = story.transitions[0]
    assert isinstance(elected, CoordinatorElected)
    (record,) = records_of([msgspec.structs.replace(elected, format_level=99, version="9.0.0")], FORMAT_LEVEL)
    log = await memory_log([StoredRecord(0, 0, 0, record.key, record.value)])
    with pytest.raises(LogTooNew, match=r"format level 99.*Muster 9\.0\.0; use a newer Muster$"):
        await read_histories(log)


async def test_reading_is_watched_to_its_end() -> None:
    """Offsets read, out of all."""
    seen: list[tuple[int, int]] = []
    records = stored(orders())
    await read_histories(await memory_log(records), group=ORDERS, watch=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(records), len(records))


async def test_the_overview_shows_each_group_as_it_is_now() -> None:
    """State, members, the last rebalance and its outcome."""
    night, quiet = orders(), script("quiet").created()
    night.wait(50).start(night.rejoined(night.of("billing-1")))
    log = await memory_log([*stored(night), *(stored(quiet) if quiet.partition != night.partition else [])])
    orders_line, quiet_line = (await overview(log)).groups
    assert (orders_line.members, orders_line.static_members, orders_line.rebalances) == (2, 2, 5)
    assert (orders_line.state, orders_line.last_outcome) == ("PreparingRebalance", Outcome.RUNNING)
    assert (quiet_line.state, quiet_line.rebalances, quiet_line.last_cause) == ("Empty", 0, None)
