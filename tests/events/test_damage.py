"""The damage of a quarantined group: what is broken, and what is left."""

from muster.events.damage import BrokenEntity, Damage, DamageSurvey
from muster.events.ids import GroupId
from muster.events.keys import EntityKind, encode_key
from muster.events.records import StoredRecord
from tests.events.test_projector import ELECTED, history, key, partition_record, projected, stored

BROKEN = key(EntityKind.STATIC_MEMBER, "3", "x")
"""The record of a group whose name is the number of the partition."""


def surveyed(*records: StoredRecord) -> dict[GroupId, Damage]:
    survey = DamageSurvey(projected(*records))
    survey.read(records)
    return survey.damages()


def test_broken_records_are_reported_with_the_remaining_state_of_the_group() -> None:
    """Its own key comes last; a partition's record belongs to no group, a healthy group has no damage."""
    h, healthy = history("3"), history("healthy")
    of_partition = partition_record(ELECTED)
    records = (of_partition, *h.records, *healthy.records, stored(BROKEN, b"broken", offset=41), of_partition)
    (damage,) = surveyed(*records).values()
    (broken,) = damage.broken
    assert broken == BrokenEntity(kind=EntityKind.STATIC_MEMBER, entity_id="x", offset=41, reason=broken.reason)
    assert (damage.group_id, damage.partition, damage.group) == ("3", 3, h.group)
    assert damage.is_image_known
    assert set(damage.keys) == {*(record.key for record in h.records), encode_key(BROKEN)}
    assert damage.keys[-1] == encode_key(key(EntityKind.GROUP, "3"))


def test_only_the_last_record_of_a_key_counts() -> None:
    """Records written again since are whole, deleted ones are gone, and so is an earlier life of the group."""
    h = history("3")
    gone = stored(key(EntityKind.STATIC_MEMBER, "3", "gone"), b"broken", offset=1)
    deleted = stored(key(EntityKind.GROUP, "3"), None, offset=2)
    (damage,) = surveyed(
        gone, deleted, *h.records, stored(BROKEN, b"broken"), stored(BROKEN, b"again", offset=9)
    ).values()
    assert [(each.entity_id, each.offset) for each in damage.broken] == [("x", 9)]
    assert len(damage.keys) == len(set(damage.keys)) == len({record.key for record in h.records}) + 1


def test_without_its_own_record_a_group_is_not_known() -> None:
    """Its members alone are no group."""
    (damage,) = surveyed(stored(key(EntityKind.GROUP, "3"), b"broken", offset=7)).values()
    assert damage.group is None
    assert not damage.is_image_known
    assert [(each.kind, each.entity_id) for each in damage.broken] == [(EntityKind.GROUP, "")]


def test_a_foreign_record_and_one_without_a_readable_key_are_not_damage() -> None:
    """They belong to no group."""
    h = history("3")
    last = stored(BROKEN, b"broken", offset=41)
    foreign = StoredRecord(3, 42, 0, encode_key(BROKEN), b"a stranger's", is_foreign=True)
    unreadable = stored(b"no key of ours", None, offset=43)
    survey = DamageSurvey(projected(*h.records, last))
    survey.read([*h.records, last, foreign, unreadable])
    (damage,) = survey.damages().values()
    assert [(each.entity_id, each.offset) for each in damage.broken] == [("x", 41)]
    assert b"no key of ours" not in damage.keys
