"""Groups get their partition's unreadable records in a compact form, with the same results as one by one."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import Random

import msgspec

from muster.events.events import CoordinatorReady
from muster.events.ids import GroupId
from muster.events.log.memory import MemoryStorage
from muster.events.records import StoredRecord
from muster.replay.fleet.building.fold import GroupFold, OwnRecord, RowOf, fold_group
from muster.replay.fleet.building.partition_reads import PartitionReads
from muster.replay.history.items import (
    UNREADABLE_NAMED,
    Broken,
    Coordinated,
    LogPosition,
    PassedOver,
    Prelude,
    Read,
    Told,
    Unreadable,
)
from muster.replay.incidents.windows import QUIET_MS
from tests.replay.fleet.fleets import CAUSES, INCIDENTS, built, in_order, judged, opened, results_of_why, rows_of, up_to
from tests.replay.written import BROKEN_KEY

GROUPS = 50
MANY = 100_000


class OneByOne(PartitionReads):
    """The same without the compact form."""

    def __init__(self, reads: list[Read], prelude: Prelude | None = None) -> None:
        super().__init__(reads, prelude)
        self._all, self._prelude = reads, prelude

    def told(self, start: int, stop: int | None = None) -> Iterator[Told]:
        return iter([read for read in self._all if not isinstance(read, PassedOver)][start:stop])

    def before(self, offset: int) -> Iterator[Told]:
        prelude = Prelude()
        for read in chain(self._prelude.reads if self._prelude else (), self._all):
            if read.position.offset < offset:
                prelude.note(read)
        return iter(prelude.reads)


def test_records_in_a_row_are_reported_like_separate_ones() -> None:
    """Between a group's records, before its first one and in a continued build; repaired, and hours apart."""
    for seed in range(10):
        chance = Random(seed)
        own, reads = a_partition(chance)
        cut = chance.randrange(own[-1][0])
        before = [read for read in reads if read.position.offset < cut]
        after = [read for read in reads if read.position.offset >= cut]
        prelude = Prelude()
        for read in before:
            prelude.note(read)
        for some, records, earlier in (
            (reads, own, None),
            (after, [each for each in own if each[0] >= cut], prelude),
        ):
            whole = OneByOne(some, earlier)
            assert rows(records, PartitionReads(some, earlier)) == rows(records, whole), seed
            for offset in range(0, own[-1][0], 97):
                assert fed(PartitionReads(some, earlier).before(offset)) == fed(whole.before(offset)), (seed, offset)


def a_partition(chance: Random) -> tuple[list[OwnRecord], list[Read]]:
    """Return a group's records among others that concern all groups, in runs of all lengths."""
    storage = judged([chance.randrange(5, 400)])
    own: list[OwnRecord] = []
    reads: list[Read] = []
    offset = 0
    at_ms = storage.records[0][0].timestamp_ms
    keys: list[bytes] = []
    for record in storage.records[0]:
        if chance.random() < 0.15:
            for _ in range(chance.choice([1, 2, UNREADABLE_NAMED - 1, UNREADABLE_NAMED, UNREADABLE_NAMED + 1, 70])):
                at_ms += chance.choice([0, 0, 1_000, -500]) if chance.random() < 0.98 else QUIET_MS + 1
                position = LogPosition(partition=0, offset=offset, timestamp_ms=at_ms)
                reads.append(a_read(chance, position, keys))
                offset += 1
        if record.value is not None and b"group-" in record.key:
            own.append((offset, record.timestamp_ms, record.value))
        offset += 1
        at_ms = max(at_ms, record.timestamp_ms)
    return own, reads


def a_read(chance: Random, position: LogPosition, keys: list[bytes]) -> Read:
    if keys and chance.random() < 0.02:
        return PassedOver(position=position, key=chance.choice(keys))
    if chance.random() < 0.02:
        ready = CoordinatorReady(
            partition=0, owner="host:1", owner_epoch=1, ready_ms=position.timestamp_ms, took_ms=1, groups=1, members=1,
            events_read=1, incarnation_max=1,
        )  # fmt: skip
        return Coordinated(position=position, event=ready)
    kind = chance.choice([Unreadable.UNDECODABLE_KEY] * 5 + [Unreadable.COORDINATOR])
    keys.append(f"key-{chance.randrange(50)}".encode())
    return Broken(position=position, kind=kind, reason="for a test", key=keys[-1])


def rows(records: list[OwnRecord], shared: PartitionReads) -> list[RowOf]:
    fold = GroupFold(GroupId("group"), 0, "log")
    return [*fold_group(fold, records, shared), *fold.open_rows()]


def fed(reads: Iterator[Told]) -> list[RowOf]:
    fold = GroupFold(GroupId("group"), 0, "log")
    return [*fold.begin(reads), *fold.open_rows()]


async def test_tables_report_many_unreadable_keys_like_why(tmp_path: Path) -> None:
    """Also in two builds: a run of them that is cut by the end of a build is one."""
    storage = with_unreadable(judged([4, 5]), 0, at=30, count=100)
    with_unreadable(storage, 0, at=3, count=UNREADABLE_NAMED + 5)
    for share in (0.5, 1.0):
        await built(up_to(storage, share), tmp_path / "steps")
    await built(storage, tmp_path / "whole")
    rebalances, incidents = await results_of_why(await opened(storage))
    for tables in (tmp_path / "steps", tmp_path / "whole"):
        assert in_order(rows_of(tables, "rebalances"), CAUSES) == in_order(rebalances, CAUSES)
        assert in_order(rows_of(tables, "incidents"), INCIDENTS) == in_order(incidents, INCIDENTS)
    assert sum(row["group_id"] is None for row in rows_of(tmp_path / "whole", "quarantine")) == 125
    noted = [note for row in rows_of(tmp_path / "whole", "incidents") for note in row["notes"]]
    assert any("nor can 80 more that follow it, up to offset 154" in note for note in noted)


def with_unreadable(storage: MemoryStorage, partition: int, *, at: int, count: int) -> MemoryStorage:
    """Return the same log with this many owner's records with unreadable keys."""
    before = storage.records[partition]
    at_ms = before[at].timestamp_ms
    broken = [StoredRecord(partition, 0, at_ms, BROKEN_KEY.key, BROKEN_KEY.value) for _ in range(count)]
    records = [*before[:at], *broken, *before[at:]]
    storage.records[partition] = [
        msgspec.structs.replace(record, offset=offset) for offset, record in enumerate(records)
    ]
    return storage


def test_the_notes_of_a_group_do_not_grow_with_the_unreadable_records() -> None:
    """With a hundred thousand of them in fifty groups, each group gets some twenty, and has no more notes than that."""
    broken: list[Read] = [
        Broken(
            position=LogPosition(partition=0, offset=offset, timestamp_ms=offset),
            kind=Unreadable.UNDECODABLE_KEY,
            reason="for a test",
            key=b"key-%d" % offset,
        )
        for offset in range(1, MANY + 1)
    ]
    shared = PartitionReads(broken)
    for group in range(GROUPS):
        offset = group * MANY // GROUPS + 1
        reported = [*shared.before(offset), *shared.told(shared.index(offset))]
        assert len(reported) <= 2 * UNREADABLE_NAMED
        assert sum(1 + each.more for each in reported if isinstance(each, Broken)) == MANY
        for _, row in fed(iter(reported)):
            notes = row[-1]
            assert isinstance(notes, list)
            assert len(notes) <= 2 * UNREADABLE_NAMED
            assert f"up to offset {MANY}" in notes[-1]
