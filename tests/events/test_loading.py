"""A load has the result of a projector that is fed every record, for whole, compacted and broken logs."""

import heapq
import random
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.events.avro.codec import records_of
from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.loading import Loading
from muster.events.projector import Projector
from muster.events.records import FORMAT_LEVEL, LogTooNew, Record, StoredRecord, UndecodableKey
from tests.events.test_compaction_law import HISTORIES, Step, compacted, history
from tests.replay.histories import Script


def loaded(records: list[StoredRecord], chunk: int = 7) -> Projector:
    loading = Loading()
    for start in range(0, len(records), chunk):
        loading.read(records[start : start + chunk])
    for _ in loading.fold():
        pass
    return loading.projector


def fed(records: list[StoredRecord]) -> Projector:
    projector = Projector()
    for record in records:
        projector.feed(record)
    return projector


def numbered(records: Iterable[Record]) -> list[StoredRecord]:
    return [StoredRecord(0, offset, 0, record.key, record.value) for offset, record in enumerate(records)]


def facts(projector: Projector) -> tuple[object, ...]:
    """All that an owner asks a projector for."""
    return (
        {group_id: group for group_id, group in projector.groups.items() if group_id not in projector.quarantined},
        projector.quarantined,
        projector.incarnation_max,
        projector.events_read,
        projector.next_offset,
        projector.last_partition_event,
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    histories=st.lists(HISTORIES, min_size=1, max_size=2),
    seed=st.integers(min_value=0, max_value=2**32),
    broken=st.booleans(),
)
def test_a_load_equals_a_projection(histories: list[list[Step]], seed: int, broken: bool) -> None:
    """Including groups that were deleted and created again, compacted logs, and values of unknown types."""
    streams = [history(f"group-{n}", steps).records for n, steps in enumerate(histories)]
    merged = list(heapq.merge(*streams, key=lambda record: record.timestamp_ms))
    dice = random.Random(seed)
    some = compacted(merged, dice.randint(0, len(merged)), lambda _key: dice.random() < 0.5)
    records = [
        StoredRecord(0, number, record.timestamp_ms, record.key, record.value) for number, record in enumerate(some)
    ]
    if broken and records:
        number = dice.randrange(len(records))
        records[number] = StoredRecord(0, number, 0, records[number].key, b"\xc3\x01 of the future")
    assert facts(loaded(records)) == facts(fed(records))


def test_an_old_fence_record_reports_that_the_log_is_too_new() -> None:
    """Even though this version's newer fence record has replaced it."""
    ((_, (elected,)), *_) = Script().coordinator("a:1").transitions
    newer = msgspec.structs.replace(elected, format_level=99)
    records = [
        StoredRecord(3, offset, 0, record.key, record.value)
        for offset, record in enumerate(records_of([newer, elected], FORMAT_LEVEL))
    ]
    with pytest.raises(LogTooNew, match="99"):
        loaded(records)


def test_the_partitions_last_event_is_the_last_one() -> None:
    """Each is taken as it comes, and none waits with the members."""
    transitions = Script().coordinator("a:1").coordinator("b:1").transitions
    records = numbered(records_of([event for _, events in transitions for event in events], FORMAT_LEVEL))
    assert facts(loaded(records)) == facts(fed(records))


def test_a_record_that_was_repaired_no_longer_stops_the_load() -> None:
    """A tombstone is under the key that cannot be read, written by `muster log repair`. Damage after it does stop the
    load.
    """
    broken, repaired = (StoredRecord(3, offset, 0, b"no key", value) for offset, value in ((17, b"x"), (18, None)))
    assert loaded([broken, repaired], chunk=1).next_offset == 19
    with pytest.raises(UndecodableKey) as raised:
        loaded([broken, repaired, StoredRecord(3, 19, 0, b"no key", b"y")])
    assert raised.value.offset == 19


@pytest.mark.parametrize("what_is_broken", ["its type", "its body"])
def test_an_unreadable_member_that_has_left_is_reported(what_is_broken: str) -> None:
    """Its group is not served: which incarnation it had is not known."""
    h = history("orders", [])
    h.stable_group(h.static("a"), h.static("b"))
    h.leave_instance("b")
    gone = next(number for number, record in enumerate(h.records) if record.value is None)
    joined = max(n for n, record in enumerate(h.records[:gone]) if record.key == h.records[gone].key)
    value = h.records[joined].value
    assert value is not None
    broken = value[:-1] if what_is_broken == "its body" else b"\xc3\x01 of the future"
    records = list(h.records)
    records[joined] = msgspec.structs.replace(records[joined], value=broken)
    assert set(loaded(records).quarantined) == set(fed(records).quarantined) == {"orders"}


def test_a_key_that_cannot_be_read_is_named() -> None:
    """The error has partition and offset: not even the group is known."""
    with pytest.raises(UndecodableKey) as raised:
        loaded([StoredRecord(3, 17, 0, b"no key", b"x")])
    assert (raised.value.partition, raised.value.offset) == (3, 17)


# ---- foreign records -----------------------------------------------------------------------------


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories=st.lists(HISTORIES, min_size=1, max_size=2), seed=st.integers(min_value=0, max_value=2**32))
def test_foreign_records_change_nothing(histories: list[list[Step]], seed: int) -> None:
    """Under keys of ours, and under others; in whole logs, and in what any compaction of both left of them."""
    streams = [history(f"group-{n}", steps).records for n, steps in enumerate(histories)]
    owners = list(heapq.merge(*streams, key=lambda record: record.timestamp_ms))
    dice = random.Random(seed)
    keys = [b"", b"foreign", *{record.key for record in owners}]
    mixed: list[StoredRecord] = []
    for record in owners:
        mixed.append(record)
        if dice.random() < 0.2:
            mixed.append(StoredRecord(0, 0, 0, dice.choice(keys), None, is_foreign=True))
    mixed = [msgspec.structs.replace(record, offset=offset) for offset, record in enumerate(mixed)]
    alone = [record for record in mixed if not record.is_foreign]

    assert loaded(mixed).groups == fed(mixed).groups == fed(alone).groups
    assert facts(loaded(mixed))[:4] == facts(loaded(alone))[:4]


def test_an_entity_whose_last_record_is_foreign_is_reported() -> None:
    """Compaction keeps that one and drops ours; except what was rewritten since, what is gone, and their own
    entities.
    """
    h = history("orders", [])
    h.stable_group(h.static("a"), h.static("b"), h.static("c"))
    h.leave_instance("c")
    member = {
        instance: encode_key(RecordKey("orders", EntityKind.STATIC_MEMBER, instance)) for instance in ("a", "b", "c")
    }
    group = encode_key(RecordKey("orders", EntityKind.GROUP, ""))
    foreign_records = [
        StoredRecord(0, 0, 0, key, None, is_foreign=True)
        for key in (b"", b"foreign", member["a"], member["b"], member["c"], group)
    ]
    again = [record for record in h.records if record.key == member["b"]][-1]
    loading = Loading()
    loading.read([*h.records, *foreign_records, again])
    for _ in loading.fold():
        pass

    assert {(key.kind, key.entity_id) for key in loading.overwritten} == {
        (EntityKind.STATIC_MEMBER, "a"),
        (EntityKind.GROUP, ""),
    }
    assert (loading.foreign_records.records, loading.foreign_records.first) == (6, {0: 0})


@pytest.mark.parametrize(("keys", "steps"), [(31, 0), (32, 1), (65, 2)])
def test_remaining_records_are_folded_in_small_steps(keys: int, steps: int) -> None:
    """Some records, with others in between."""
    of_partition = [encode_key(RecordKey(f"{number}", EntityKind.GROUP, "")) for number in range(keys)]
    loading = Loading()
    loading.read(numbered(Record(key, None) for key in of_partition))
    assert len(list(loading.fold())) == steps
    assert loading.projector.groups == {}
