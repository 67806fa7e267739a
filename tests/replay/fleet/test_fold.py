"""The tables match `muster replay why`, cause by cause; the order of records is checked, never assumed."""

import gc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from muster.events.events import AnyEvent, MemberJoined, MemberRejoined, MemberRemoved, StaticMemberReplaced
from muster.events.ids import GroupId
from muster.events.kafka.security import NOT_SECURED
from muster.events.log.memory import MemoryStorage
from muster.events.records import StoredRecord
from muster.replay.fleet.building.build import make_build
from muster.replay.fleet.building.engine import Task, fold_batches
from muster.replay.fleet.building.fold import GroupFold, OutOfOrder, fold_group
from muster.replay.fleet.building.local import LocalEngine
from muster.replay.fleet.building.partition_reads import PartitionReads
from muster.replay.fleet.building.pieces import RECORDS
from muster.replay.fleet.tables.rows import rebalance_row
from muster.replay.fleet.tables.schemas import TABLES
from muster.replay.history.items import Broken, Gap
from muster.replay.incidents.episode.reading_acts import departure
from muster.replay.logs.opening import open_for_reading
from tests.replay.fleet.fleets import (
    CAUSES,
    GROUPS,
    INCIDENTS,
    PLANNED,
    built,
    in_order,
    judged,
    opened,
    results_of_why,
    rows_of,
)
from tests.replay.incidents.fleet import Fleet
from tests.replay.recorded import DATA, sessions
from tests.replay.whole import read_histories
from tests.replay.written import BROKEN_KEY, unknown_type

SEEDS = (*range(5, 2_000, 25), 359)


async def test_a_judged_fleet_is_reported_like_why_reports_it(tmp_path: Path) -> None:
    """A hundred cases, with outages of coordinators and missing or broken records."""
    storage = judged(SEEDS)
    await built(storage, tmp_path)
    rebalances, incidents = await results_of_why(await opened(storage))
    assert in_order(rows_of(tmp_path, "rebalances"), CAUSES) == in_order(rebalances, CAUSES)
    assert in_order(rows_of(tmp_path, "incidents"), INCIDENTS) == in_order(incidents, INCIDENTS)
    assert len({row["kind"] for row in incidents}) > 15


@pytest.mark.parametrize("name", sessions())
async def test_a_history_of_real_clients_is_reported_like_why_reports_it(name: str, tmp_path: Path) -> None:
    """All its rebalances, with their incidents."""
    log = open_for_reading(str(DATA / f"{name}.jsonl"), security=NOT_SECURED)
    await log.open()
    await make_build(log, tmp_path, lambda _bytes: LocalEngine())
    rebalances, incidents = await results_of_why(log)
    assert in_order(rows_of(tmp_path, "rebalances"), CAUSES) == in_order(rebalances, CAUSES)
    assert in_order(rows_of(tmp_path, "incidents"), INCIDENTS) == in_order(incidents, INCIDENTS)
    assert rebalances


async def test_groups_of_one_partition_share_its_coordinators(lived_log: MemoryStorage, tmp_path: Path) -> None:
    """In whatever order the groups come, each has the takeover in the middle."""
    await built(lived_log, tmp_path)
    rebalances, incidents = await results_of_why(await opened(lived_log))
    assert in_order(rows_of(tmp_path, "rebalances"), CAUSES) == in_order(rebalances, CAUSES)
    assert in_order(rows_of(tmp_path, "incidents"), INCIDENTS) == in_order(incidents, INCIDENTS)
    assert {row["group_id"] for row in rows_of(tmp_path, "coordinator_downtime")} == set(GROUPS)


async def test_the_table_lists_plans(lived_log: MemoryStorage, tmp_path: Path) -> None:
    """Their causes; and the rebalances that they avoided, but not mere announcements."""
    await built(lived_log, tmp_path)
    rows = {row["group_id"]: row for row in rows_of(tmp_path, "rebalances") if row["from_generation"]}
    assert {name: (rows[name]["trigger"], rows[name]["avoided"]) for name in PLANNED} == {
        "registered": ("registration-complete", 3),
        "retired": ("retirement-timed-out", 1),
        "stood-by": ("rebalance-requested", 5),
        "duelled": ("rebalance-requested", 8),
    }


def waited_for(fleet: Fleet) -> list[list[str]]:
    """The members that join phases waited for in vain, of each rebalance."""
    place = TABLES["rebalances"].schema.get_field_index("waited_for")
    reported = [(each, incident) for incident in fleet.told() for each in incident.rebalances]
    rows: list[tuple[Any, ...]] = [rebalance_row(each, incident, 0) for each, incident in reported]
    return [row[place] for row in rows]


def test_the_table_names_each_member_that_a_join_phase_waited_for_until_its_timeout() -> None:
    """The dynamic one is dropped then, the static one keeps its place."""
    fleet = Fleet(4, static=2, session_ms=120_000, rebalance_ms=20_000)
    dropped = fleet[3].member_id
    fleet[2].die()
    fleet[3].die()
    fleet.start(5)
    fleet.rest(30_000)
    assert waited_for(fleet) == [[dropped, "app-2"]]


def test_a_join_phase_waited_for_all_sessions_that_ended_in_it() -> None:
    """It ended with the last one, and had waited for the other one until that session ended."""
    fleet = Fleet(4, session_ms=10_000, rebalance_ms=60_000)
    both = [fleet[number].member_id for number in (2, 3)]
    fleet[2].die()
    fleet.run(3_000)
    fleet[3].die()
    fleet.start(5)
    fleet.rest(30_000)
    assert waited_for(fleet) == [both]


def test_a_session_whose_end_began_the_join_phase_did_not_delay_it() -> None:
    """All others rejoin at once."""
    fleet = Fleet(4, session_ms=10_000, rebalance_ms=60_000)
    fleet[2].die()
    fleet.rest(30_000)
    assert waited_for(fleet) == [[]]


async def test_every_stay_has_its_begin_and_its_end(tmp_path: Path) -> None:
    """According to each single event: members that joined, were removed, were replaced."""
    storage = judged(SEEDS)
    await built(storage, tmp_path)
    expected: set[tuple[object, ...]] = set()
    whole: set[str] = set()
    for group_id, history in (await read_histories(await opened(storage))).items():
        if any(isinstance(item, Gap | Broken) for item in history.items):
            continue
        whole.add(group_id)
        expected |= {(group_id, *stay) for stay in stays_of([each.event for each in history.events])}
    rows = [row for row in rows_of(tmp_path, "memberships") if row["group_id"] in whole]
    arguments = ("group_id", "member_id", "join_cause", "left_cause", "how", "rejoins")
    assert {tuple(row[name] for name in arguments) for row in rows} == expected
    assert len(rows) == len(expected) > 300
    assert {row["how"] for row in rows} >= {None, "left", "expired", "not-rejoined", "replaced", "removed"}
    for row in rows:
        assert (row["left_at"] is None) == (row["how"] is None)
        assert row["left_at"] is None or row["joined_at"] <= row["left_at"]


def stays_of(events: Iterable[AnyEvent]) -> Iterator[tuple[object, ...]]:
    """Member id, cause of the join, cause and kind of the departure, and the number of rejoins."""
    there: dict[str, list[object]] = {}
    for event in events:
        if isinstance(event, StaticMemberReplaced):
            cause, rejoins = there.pop(event.replaced_member_id)
            yield event.replaced_member_id, cause, event.why.cause, "replaced", rejoins
        if isinstance(event, MemberJoined | StaticMemberReplaced):
            there[event.member.member_id] = [event.why.cause, 0]
        elif isinstance(event, MemberRejoined):
            cause, rejoins = there[event.member.member_id]
            there[event.member.member_id] = [cause, int(str(rejoins)) + 1]
        elif isinstance(event, MemberRemoved):
            cause, rejoins = there.pop(event.member.member_id)
            yield event.member.member_id, cause, event.why.cause, departure(event), rejoins
    for member_id, (cause, rejoins) in there.items():
        yield member_id, cause, None, None, rejoins


# ---- order ----------------------------------------------------------------------------------------------------------


def records_of_a_group() -> list[StoredRecord]:
    return [record for record in judged([3]).records[0] if record.value is not None]


def folded(records: list[StoredRecord]) -> int:
    of_group = [(each.offset, each.timestamp_ms, each.value or b"") for each in records]
    return len(list(fold_group(GroupFold(GroupId("group-3"), 0, "log"), of_group, PartitionReads(()))))


def test_two_records_in_the_wrong_order_are_refused() -> None:
    """As from an engine that does not sort, or sorts by too few columns."""
    records = records_of_a_group()
    assert folded(records) > 0
    records[7], records[8] = records[8], records[7]
    with pytest.raises(OutOfOrder, match=r"group 'group-3': the record at offset \d+ of partition 0 came after offset"):
        folded(records)


def test_a_duplicate_event_is_rejected_by_its_seq() -> None:
    """Even if its copy has an offset of its own."""
    records = records_of_a_group()
    twice = msgspec.structs.replace(records[-1], offset=records[-1].offset + 1)
    with pytest.raises(OutOfOrder, match=r"came after seq (\d+), its own seq is \1"):
        folded([*records, twice])


def test_a_group_that_comes_in_several_runs_is_refused(tmp_path: Path) -> None:
    """A second fold of it would begin in the middle, and report a false gap."""
    records = records_of_a_group()
    runs = [("b", records[0]), ("a", records[0]), ("b", records[1])]
    rows = [(name, 0, each.offset, each.timestamp_ms, each.value) for name, each in runs]
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), RECORDS, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=RECORDS)
    task = Task(to=str(tmp_path), scratch=str(tmp_path), build=1, topic="log", shared={}, preludes={})
    with pytest.raises(OutOfOrder, match="came in several runs"):
        fold_batches([batch], task)


def test_the_garbage_collector_has_its_pace_back_after_a_fold(tmp_path: Path) -> None:
    """Also after one that failed."""
    before, within = gc.get_threshold(), []

    def failing() -> Iterator[pa.RecordBatch]:
        yield from ()
        within.append(gc.get_threshold())
        raise OutOfOrder("for a test")

    task = Task(to=str(tmp_path), scratch=str(tmp_path), build=1, topic="t", shared={}, preludes={})
    with pytest.raises(OutOfOrder):
        fold_batches(failing(), task)
    assert within[0] > before
    assert gc.get_threshold() == before


# ---- records that cannot be read --------------------------------------------------------------------------------


async def test_an_unreadable_record_is_quarantined_while_the_rest_continues(tmp_path: Path) -> None:
    """With log, partition, offset and reason: a broken value, an event from a newer version, an invalid key."""
    storage = judged([3, 5])
    whole = (await results_of_why(await opened(storage)))[0]
    records = storage.records[0]
    for record in (unknown_type("group-3"), BROKEN_KEY):
        records.append(StoredRecord(0, len(records), records[-1].timestamp_ms, record.key, record.value))
    damaged = records[20]
    records[20] = msgspec.structs.replace(damaged, value=(damaged.value or b"")[:-1])
    await built(storage, tmp_path)
    rows = rows_of(tmp_path, "quarantine")
    assert [(row["log_partition"], row["offset"], row["group_id"], row["kind"]) for row in rows] == [
        (0, 20, "group-3", "broken"),
        (0, len(records) - 2, "group-3", "unknown-type"),
        (0, len(records) - 1, None, "undecodable-key"),
    ]
    assert all(row["topic"] and row["reason"] for row in rows)
    reported = rows_of(tmp_path, "rebalances")
    assert [row for row in reported if row["group_id"] == "group-5"] != []
    assert in_order((row for row in reported if row["group_id"] == "group-5"), CAUSES) == in_order(
        (row for row in whole if row["group_id"] == "group-5"), CAUSES
    )


async def test_an_empty_log_makes_empty_tables(tmp_path: Path) -> None:
    """They exist, with their columns."""
    await built(MemoryStorage(partitions=3), tmp_path)
    assert rows_of(tmp_path, "rebalances") == []
