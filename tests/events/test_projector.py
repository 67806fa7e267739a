"""Records folded into groups: strict and lenient errors, and their reported positions."""

import msgspec
import pytest

from muster.events.avro.codec import encode, records_of
from muster.events.events import (
    AnyRecordedEvent,
    CoordinatorElected,
    CoordinatorReady,
    CoordinatorStopped,
    GroupDeleted,
    MemberJoined,
    MemberRemoved,
)
from muster.events.ids import GroupId
from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.projector import Projector, Quarantined
from muster.events.records import FORMAT_LEVEL, BrokenRecord, LogTooNew, StoredRecord, UndecodableKey
from tests.coordinator.group.harness import Harness

UNKNOWN_TYPE = bytes.fromhex("c301 0123456789abcdef") + b"body"
ELECTED = CoordinatorElected(
    partition=3,
    owner_epoch=7,
    owner="owner-1",
    elected_ms=1,
    version="9.9",
    format_level=FORMAT_LEVEL,
    settings={"group.max.size": "5"},
)


def stored(key: RecordKey | bytes, value: bytes | None, offset: int = 0) -> StoredRecord:
    raw = key if isinstance(key, bytes) else encode_key(key)
    return StoredRecord(partition=3, offset=offset, timestamp_ms=0, key=raw, value=value)


def partition_record(event: AnyRecordedEvent) -> StoredRecord:
    (record,) = records_of([event], FORMAT_LEVEL)
    return stored(record.key, record.value)


def key(kind: EntityKind, group_id: str = "orders", entity_id: str = "") -> RecordKey:
    return RecordKey(group_id, kind, entity_id)


def projected(*records: StoredRecord) -> Projector:
    projector = Projector()
    for record in records:
        projector.feed(record)
    return projector


def history(group_id: str = "orders") -> Harness:
    h = Harness(group_id=group_id)
    h.stable_group(h.static("a"), h.dynamic("b"))
    return h


# ---- what adds up --------------------------------------------------------------------------------


def test_records_add_up_to_their_groups() -> None:
    """They are of one partition, each for itself."""
    one, other = history("one"), history("other")
    projector = projected(*one.records, *other.records)
    assert projector.groups == {"one": one.group, "other": other.group}
    assert projector.events_read == len(one.events) + len(other.events)
    assert projector.next_offset == len(other.records)
    assert projector.incarnation_max == one.live.incarnation


def test_deleted_group_is_not_there() -> None:
    """It was deleted by its last event, by its tombstone, or by both."""
    h = history()
    h.leave_instance("a")
    h.sleep(60_000)
    h.delete()
    assert isinstance(h.events[-1], GroupDeleted)
    without_event = [record for record in h.records if record.value != encode(h.events[-1], FORMAT_LEVEL)]
    for records in (h.records, h.records[:-1], without_event):
        projector = projected(*records)
        assert not projector.groups
        assert set(projector.deleted) == {"orders"}
        for record in history().records:
            projector.feed(record)
        assert projector.groups.keys() == {"orders"}
        assert not projector.deleted


def test_events_that_were_decoded_already_are_taken_too() -> None:
    """A reader that needs the events for itself decodes them."""
    h = history()
    projector = Projector()
    for event in h.events:
        projector.feed_event(event)
    assert projector.groups == {"orders": h.group}


@pytest.mark.parametrize("kind", [kind for kind in EntityKind if kind is not EntityKind.PARTITION])
def test_a_tombstone_of_a_missing_entity_is_not_an_error(kind: EntityKind) -> None:
    """L1: of an unknown group, of an unknown member of a known one."""
    assert not projected(stored(key(kind, entity_id="ghost"), None)).groups
    h = history()
    projector = projected(*h.records, stored(key(kind, "other", "ghost"), None))
    if kind is not EntityKind.GROUP:
        projector.feed(stored(key(kind, "orders", "ghost"), None))
    assert projector.groups == {"orders": h.group}


def test_tombstone_takes_a_member_out_when_its_last_event_is_gone() -> None:
    """A static one by its instance id, a dynamic one by its member id."""
    h = history()
    projector = projected(*h.records, stored(key(EntityKind.STATIC_MEMBER, entity_id="a"), None))
    assert projector.groups[GroupId("orders")].members.keys() == {"b-2"}
    projector.feed(stored(key(EntityKind.DYNAMIC_MEMBER, entity_id="b-2"), None))
    assert not projector.groups[GroupId("orders")].members


def test_tombstone_withdraws_a_registration_when_its_last_event_is_gone() -> None:
    """The other one is expected still."""
    h = history()
    h.set(members_registered="c,d")
    projector = projected(*h.records, stored(key(EntityKind.REGISTRATION, entity_id="c"), None))
    assert projector.groups[GroupId("orders")].registrations.keys() == {"d"}


def test_members_of_a_compacted_group_create_no_group() -> None:
    """A live group's own record outlives every compaction."""
    h = Harness()
    h.static("a").join()
    (joined,) = [event for event in h.events if isinstance(event, MemberJoined)]
    projector = Projector()
    projector.feed_event(joined)
    assert projector.groups.keys() == {"orders"}
    assert not projector.deleted
    (removed, *_) = h.leave_instance("a").events
    assert isinstance(removed, MemberRemoved)
    projector.feed_event(removed)
    assert (projector.groups, set(projector.deleted)) == ({}, {"orders"})
    projector.feed_event(joined)
    assert not projector.deleted
    projector.feed(stored(key(EntityKind.STATIC_MEMBER, entity_id="a"), None))
    assert (projector.groups, set(projector.deleted)) == ({}, {"orders"})
    projector.feed_event(joined)
    projector.feed(stored(key(EntityKind.GROUP), None))
    assert (projector.groups, set(projector.deleted)) == ({}, {"orders"})


# ---- the partition's own events ------------------------------------------------------------------


def test_last_event_of_the_partition_is_kept() -> None:
    """It has the owner, and since when; the highest incarnation survives the deletion of its group."""
    ready = CoordinatorReady(
        partition=3,
        owner_epoch=7,
        owner="owner-1",
        ready_ms=2,
        took_ms=1,
        events_read=0,
        groups=0,
        members=0,
        incarnation_max=4_711,
    )
    stopped = CoordinatorStopped(partition=3, owner_epoch=7, owner="owner-1", stopped_ms=3)
    begun = projected(partition_record(ELECTED), partition_record(ready))
    assert begun.last_partition_event == ready
    ended = projected(partition_record(ELECTED), partition_record(ready), partition_record(stopped))
    assert ended.last_partition_event == stopped
    assert begun.incarnation_max == ended.incarnation_max == 4_711
    assert not ended.groups


def test_log_of_a_newer_version_is_refused() -> None:
    """It may have events that are not known here; the message names the version that wrote it."""
    newer = msgspec.structs.replace(ELECTED, format_level=FORMAT_LEVEL + 1)
    with pytest.raises(LogTooNew, match=rf"format level {FORMAT_LEVEL + 1}.*knows {FORMAT_LEVEL}.*9\.9"):
        projected(partition_record(newer))


def test_broken_record_of_the_partition_itself_stops_the_reading() -> None:
    """There is no group to quarantine."""
    record = stored(key(EntityKind.PARTITION, "3", "coordinator"), b"broken", offset=17)
    with pytest.raises(BrokenRecord) as raised:
        projected(record)
    assert (raised.value.partition, raised.value.offset) == (3, 17)


# ---- what cannot be read -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "marker"),
        (b"broken", "marker"),
        (UNKNOWN_TYPE, "0123456789abcdef"),
    ],
)
def test_value_that_cannot_be_read_quarantines_its_group_alone(value: bytes, reason: str) -> None:
    """Including an unknown type, which an owner may not skip. Its position is reported."""
    h = history("healthy")
    projector = projected(
        stored(key(EntityKind.STATIC_MEMBER, "sick", "a"), value, offset=41),
        *h.records,
    )
    assert projector.groups == {"healthy": h.group}
    (quarantined,) = projector.quarantined.values()
    assert (quarantined.group_id, quarantined.partition, quarantined.offset) == ("sick", 3, 41)
    assert reason in quarantined.reason


def test_quarantine_names_the_first_broken_record() -> None:
    """Later ones add nothing; readable ones are folded, for inspection."""
    h = history()
    projector = projected(
        *h.records[:4],
        stored(key(EntityKind.GROUP), b"broken", offset=4),
        stored(key(EntityKind.GROUP), UNKNOWN_TYPE, offset=5),
        *h.records[4:],
    )
    assert projector.quarantined == {
        "orders": Quarantined(
            group_id=GroupId("orders"),
            partition=3,
            offset=4,
            reason=projector.quarantined[GroupId("orders")].reason,
        )
    }
    assert projector.groups == {"orders": h.group}


def test_every_truncation_of_a_value_quarantines() -> None:
    """A record that was cut off is no event, wherever it was cut."""
    h = history()
    record = h.records[0]
    assert record.value is not None
    for length in range(len(record.value)):
        projector = projected(msgspec.structs.replace(record, value=record.value[:length]))
        assert projector.quarantined.keys() == {"orders"}
        assert not projector.groups


def test_deletion_ends_the_quarantine() -> None:
    """With the group's tombstone nothing of it counts any more; with a member's it does."""
    broken = stored(key(EntityKind.STATIC_MEMBER, "orders", "a"), b"broken")
    assert projected(broken, stored(key(EntityKind.STATIC_MEMBER, "orders", "a"), None)).quarantined
    assert not projected(broken, stored(key(EntityKind.GROUP), None)).quarantined


@pytest.mark.parametrize("raw", [b"", b"broken", encode_key(key(EntityKind.GROUP))[:-1]])
@pytest.mark.parametrize("value", [None, b"broken"])
def test_key_that_cannot_be_read_stops_the_reading(raw: bytes, value: bytes | None) -> None:
    """Not even the group is known; the position is reported."""
    with pytest.raises(UndecodableKey) as raised:
        projected(stored(raw, value, offset=99))
    assert (raised.value.partition, raised.value.offset) == (3, 99)
    assert str(raised.value).startswith("partition 3, offset 99: ")
