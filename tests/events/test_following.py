"""A reading that continues has the result of one full load, wherever it was interrupted, over every legal
compaction.
"""

import heapq
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.events.avro.codec import records_of
from muster.events.events import AnyPartitionEvent, CoordinatorReady, CoordinatorStopped
from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.loading import DELETED_MAX, Loading, MustReadAnew
from muster.events.projector import Projector
from muster.events.records import FORMAT_LEVEL, BrokenRecord, LogTooNew, Record, StoredRecord, UndecodableKey
from tests.events.test_compaction_law import HISTORIES, Step, compacted, history
from tests.events.test_loading import numbered
from tests.events.test_projector import ELECTED

BROKEN = (b"\xc3\x01 of the future", b"")


def reign(dice: random.Random, epoch: int) -> list[Record]:
    """The records that an owner writes about the partition itself."""
    of_partition: dict[str, Any] = {"partition": 3, "owner_epoch": epoch, "owner": f"owner-{epoch}"}
    ready = CoordinatorReady(
        **of_partition, ready_ms=1, took_ms=1, events_read=1, groups=1, members=1, incarnation_max=dice.randrange(10)
    )
    elected = msgspec.structs.replace(ELECTED, owner_epoch=epoch, owner=of_partition["owner"])
    events: list[AnyPartitionEvent] = [elected, ready, CoordinatorStopped(**of_partition, stopped_ms=2)]
    return list(records_of(events[: dice.randint(1, 3)], FORMAT_LEVEL))


def partition(histories: Sequence[Sequence[Step]], dice: random.Random) -> list[StoredRecord]:
    """The records of a partition: several groups, several owners, foreign records under our keys and under others."""
    streams = [history(f"group-{number}", steps).records for number, steps in enumerate(histories)]
    owners = list(heapq.merge(*streams, key=lambda record: record.timestamp_ms))
    keys = [b"", b"foreign", *{record.key for record in owners}]
    records: list[StoredRecord] = []

    def append(record: Record | StoredRecord, *, is_foreign: bool = False) -> None:
        records.append(StoredRecord(3, len(records), len(records), record.key, record.value, is_foreign))

    for epoch, record in enumerate(owners, start=1):
        if dice.random() < 0.05:
            for each in reign(dice, epoch):
                append(each)
        append(record)
        if dice.random() < 0.1:
            append(Record(dice.choice(keys), None), is_foreign=True)
    return records


def kept(records: Sequence[StoredRecord], before: int, drops: Callable[[bytes], bool]) -> list[StoredRecord]:
    """The owners' records that compaction leaves before an offset; foreign ones are left where they are."""
    of_owners = compacted([record for record in records if not record.is_foreign], before, drops)
    return sorted([*of_owners, *(record for record in records if record.is_foreign)], key=lambda record: record.offset)


def state(loading: Loading) -> dict[str, object]:
    """All that a takeover uses."""
    projector = loading.projector
    return {
        "groups": projector.groups,
        "seqs": {group_id: group.seq for group_id, group in projector.groups.items()},
        "quarantined": projector.quarantined,
        "last event": projector.last_partition_event,
        "before the election": projector.before_election,
        "served by": projector.served_by,
        "next offset": projector.next_offset,
        "overwritten": {(key.group_id, key.kind, key.entity_id) for key in loading.overwritten},
    }


def exact_state(loading: Loading) -> dict[str, object]:
    """The same, and what may differ if more or less was compacted."""
    projector = loading.projector
    return {
        **state(loading),
        "incarnations": projector.incarnation_max,
        "deleted": set(projector.deleted),
        "events": loading.events_read,
        "strangers": (
            loading.foreign_records.records,
            loading.foreign_records.first,
            loading.foreign_records.next_offset,
        ),
        "last": loading.last,
    }


def fold(loading: Loading) -> Loading:
    for _ in loading.fold():
        pass
    return loading


def read_first(records: Sequence[StoredRecord]) -> Loading:
    loading = Loading()
    loading.read(records)
    return fold(loading)


def read_on(loading: Loading, records: Sequence[StoredRecord], dice: random.Random) -> Loading:
    """In pieces, from where it is."""
    left = [record for record in records if record.offset >= loading.next_offset]
    while left:
        size = dice.randint(1, len(left))
        loading.read(left[:size])
        left = left[size:]
    return loading


TRIED = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
SEEDS = st.integers(min_value=0, max_value=2**32)


@TRIED
@given(histories=st.lists(HISTORIES, min_size=1, max_size=2), seed=SEEDS)
def test_a_continued_read_equals_a_load(histories: list[list[Step]], seed: int) -> None:
    """Whole logs and compacted ones, including owners, foreign records, overwritten entities and deletions."""
    dice = random.Random(seed)
    whole = partition(histories, dice)
    records = kept(whole, dice.randint(0, len(whole)), lambda _: dice.random() < 0.5)
    for _ in range(4):
        begun = read_first(records[: dice.randint(0, len(records))])
        assert exact_state(read_on(begun, records, dice)) == exact_state(read_first(records))


@TRIED
@given(histories=st.lists(HISTORIES, min_size=1, max_size=2), seed=SEEDS)
def test_a_continued_read_equals_a_load_of_any_compaction(histories: list[list[Step]], seed: int) -> None:
    """The log may be compacted before, during and after the read; but recent tombstones remain, as in a topic. Then a
    new owner claims the partition, and takes over from either of them.
    """
    dice = random.Random(seed)
    whole = partition(histories, dice)
    stands_at = dice.randint(0, len(whole))
    begun = read_first(kept(whole[:stands_at], dice.randint(0, stands_at), lambda _: dice.random() < 0.5))
    begun.nothing_before(stands_at)
    left = {record.offset for record in kept(whole, len(whole), lambda _: dice.random() < 0.5)}
    of_late = [r for r in whole[stands_at:] if r.offset in left or r.value is None]
    read_on(begun, of_late, dice)
    (claim,) = records_of([msgspec.structs.replace(ELECTED, owner_epoch=len(whole) + 1)], FORMAT_LEVEL)
    claimed = StoredRecord(3, len(whole), len(whole), claim.key, claim.value)
    begun.read([claimed])
    later = read_first([*kept(whole, dice.randint(0, len(whole)), lambda _: dice.random() < 0.5), claimed])
    assert state(begun) == state(later)
    assert begun.projector.incarnation_max >= later.projector.incarnation_max


@TRIED
@given(histories=st.lists(HISTORIES, min_size=1, max_size=2), seed=SEEDS)
def test_after_an_unreadable_record_it_is_equal_or_must_be_restarted(histories: list[list[Step]], seed: int) -> None:
    """Values of unknown types, and truncated ones, of groups and of the partition; and unknown keys."""
    dice = random.Random(seed)
    records = partition(histories, dice)
    for _ in range(dice.randint(1, 2) if records else 0):
        at = dice.randrange(len(records))
        record = records[at]
        value = dice.choice((*BROKEN, (record.value or b"x")[:-1]))
        key = dice.choice((record.key, record.key, b"no key"))
        records[at] = msgspec.structs.replace(record, key=key, value=value, is_foreign=False)
    try:
        whole = exact_state(read_first(records))
    except BrokenRecord:
        whole = {}
    for _ in range(4):
        try:
            loading = read_on(read_first(records[: dice.randint(0, len(records))]), records, dice)
        except (MustReadAnew, BrokenRecord):
            continue
        assert exact_state(loading) == whole


@TRIED
@given(histories=st.lists(HISTORIES, min_size=1, max_size=1), seed=SEEDS)
def test_a_fold_can_be_left_and_taken_up_again(histories: list[list[Step]], seed: int) -> None:
    """For example if a takeover comes while a standby folds what it has read."""
    dice = random.Random(seed)
    records = partition(histories * 3, dice)
    some = records[: dice.randint(0, len(records))]
    loading = Loading()
    loading.read(some)
    for _ in loading.fold():
        if dice.random() < 0.5:
            break
    assert loading.is_folded or loading.is_being_folded
    assert exact_state(read_on(fold(loading), records, dice)) == exact_state(read_first(records))


def test_a_quarantined_group_is_read_again_when_an_event_of_it_arrives() -> None:
    """It may be its repair. Until then the standby has the result of a load."""
    h = history("orders", [])
    h.stable_group(h.static("a"))
    of_group = [Record(record.key, record.value) for record in h.records]
    records = numbered([*of_group, Record(h.records[0].key, b"\xc3\x01 of the future"), *of_group])
    begun = read_first(records[: len(h.records) + 1])
    assert set(begun.projector.quarantined) == {"orders"}
    with pytest.raises(MustReadAnew, match="quarantined"):
        begun.read(records[len(h.records) + 1 :])


def test_a_log_that_becomes_too_new_is_reported() -> None:
    """As for a reader of the whole log."""
    newer = msgspec.structs.replace(ELECTED, format_level=FORMAT_LEVEL + 1)
    with pytest.raises(LogTooNew):
        read_first([]).read(numbered(records_of([newer], FORMAT_LEVEL)))


def test_a_key_that_cannot_be_read_is_named_unless_it_was_repaired() -> None:
    """`muster log repair` writes a tombstone under it."""
    loading = read_first([])
    loading.read([StoredRecord(3, 17, 0, b"no key", None)])
    with pytest.raises(UndecodableKey) as raised:
        loading.read([StoredRecord(3, 18, 0, b"no key", b"x")])
    assert raised.value.offset == 18


def test_of_the_deleted_groups_the_last_are_remembered() -> None:
    """A service that makes and deletes groups for years does not grow by it."""
    keys = [encode_key(RecordKey(f"{number}", EntityKind.GROUP, "")) for number in range(DELETED_MAX + 10)]
    loading = read_first([])
    loading.read(numbered(Record(key, None) for key in keys))
    assert list(loading.projector.deleted) == [f"{number}" for number in range(10, DELETED_MAX + 10)]


def test_an_end_without_a_record_is_passed() -> None:
    """Compaction may have removed the last ones; a reader that continues begins after them."""
    for loading in (Loading(), fold(Loading())):
        loading.nothing_before(7)
        assert fold(loading).projector.next_offset == loading.next_offset == 7


def test_the_record_that_was_read_last_is_known_again() -> None:
    """Its time and its key are compared; if it was compacted, the next one proves nothing."""
    loading = Loading()
    first = StoredRecord(3, 5, 10, b"a", None)
    loading.read([first])
    assert loading.last is not None
    assert loading.last.is_at(first)
    assert loading.last.is_at(msgspec.structs.replace(first, offset=6, key=b"b"))
    assert not loading.last.is_at(msgspec.structs.replace(first, timestamp_ms=11))
    assert not loading.last.is_at(msgspec.structs.replace(first, key=b"b"))


def test_a_projector_lists_its_entities() -> None:
    """Each kind by its own record; a group with only members left has none."""
    h = history("orders", [])
    h.stable_group(h.static("a"), h.dynamic("x"))
    loading = read_first(h.records)
    dynamic = next(each for each in loading.projector.groups["orders"].members.values() if not each.group_instance_id)  # type: ignore[index]
    assert [
        loading.projector.has(RecordKey(group_id, kind, name))
        for group_id, kind, name in (
            ("orders", EntityKind.GROUP, ""),
            ("orders", EntityKind.STATIC_MEMBER, "a"),
            ("orders", EntityKind.DYNAMIC_MEMBER, dynamic.member_id),
            ("other", EntityKind.GROUP, ""),
            ("orders", EntityKind.STATIC_MEMBER, "b"),
            ("orders", EntityKind.REGISTRATION, "a"),
            ("orders", EntityKind.GROUP_CONFIG, ""),
            ("3", EntityKind.PARTITION, "ready"),
        )
    ] == [True, True, True, False, False, False, False, False]
    parts = Projector()
    parts.feed(
        next(
            r for r in h.records if r.value and r.key == encode_key(RecordKey("orders", EntityKind.STATIC_MEMBER, "a"))
        )
    )
    assert not parts.has(RecordKey("orders", EntityKind.GROUP, ""))
