"""A snapshot plus the later records equal a full load; and one that cannot be used reports why."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.events.avro.codec import records_of
from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.loading import Loading
from muster.events.records import FORMAT_LEVEL, ForeignRecords, Record, StoredRecord
from muster.events.snapshot import (
    FORM,
    MAGIC,
    MEMBERS_PER_PART,
    SnapshotOf,
    Unpacking,
    UnusableSnapshot,
    head_of,
    unpack_frames,
    usable_head,
    write_snapshot,
)
from tests.events.test_compaction_law import HISTORIES, Step, history
from tests.events.test_following import (
    SEEDS,
    TRIED,
    exact_state,
    kept,
    partition,
    read_first,
    read_on,
    state,
)
from tests.events.test_loading import numbered
from tests.events.test_projector import ELECTED

OF = SnapshotOf(log="cluster.topic", partition=3, partitions=8, format_level=FORMAT_LEVEL)
AT_END_MS = 1_000_000
KEPT_MS = 60_000


def saved(loading: Loading) -> bytes:
    head = head_of(loading, OF, at_end_ms=AT_END_MS)
    assert head is not None
    projector = loading.projector
    return b"".join(write_snapshot(head, projector.groups.values(), known_by_parts=projector.known_by_parts))


def resumed(data: bytes, *, of: SnapshotOf = OF, wall_ms: int = AT_END_MS, kept_ms: int = KEPT_MS) -> Loading:
    head, *groups = unpack_frames(data)
    unpacking = Unpacking(usable_head(head, of, wall_ms=wall_ms, deletions_kept_ms=kept_ms))
    for frame in groups:
        unpacking.add(frame)
    return unpacking.loading(ForeignRecords())


def counted_anew(loading: Loading) -> dict[str, object]:
    """The state, without what a reading counts for itself."""
    reported = exact_state(loading)
    del reported["events"], reported["strangers"]
    return reported


@TRIED
@given(histories=st.lists(HISTORIES, min_size=1, max_size=2), seed=SEEDS)
def test_a_snapshot_with_later_records_equals_a_load(histories: list[list[Step]], seed: int) -> None:
    """Wherever it was taken; for whole and compacted logs; it contains what was read before it."""
    dice = random.Random(seed)
    whole = partition(histories, dice)
    records = kept(whole, dice.randint(0, len(whole)), lambda _: dice.random() < 0.5)
    for _ in range(4):
        begun = read_first(records[: dice.randint(0, len(records))])
        again = resumed(saved(begun))
        assert counted_anew(again) == counted_anew(begun)
        assert counted_anew(read_on(again, records, dice)) == counted_anew(read_first(records))


@TRIED
@given(histories=st.lists(HISTORIES, min_size=1, max_size=2), seed=SEEDS)
def test_a_snapshot_equals_a_load_of_any_compaction(histories: list[list[Step]], seed: int) -> None:
    """The log may have been compacted before, and since; but deletions of late are there, as a topic keeps them."""
    dice = random.Random(seed)
    whole = partition(histories, dice)
    stands_at = dice.randint(0, len(whole))
    begun = read_first(kept(whole[:stands_at], dice.randint(0, stands_at), lambda _: dice.random() < 0.5))
    begun.nothing_before(stands_at)
    again = resumed(saved(begun))
    left = {record.offset for record in kept(whole, len(whole), lambda _: dice.random() < 0.5)}
    read_on(again, [r for r in whole[stands_at:] if r.offset in left or r.value is None], dice)
    (claim,) = records_of([msgspec.structs.replace(ELECTED, owner_epoch=len(whole) + 1)], FORMAT_LEVEL)
    claimed = StoredRecord(3, len(whole), len(whole), claim.key, claim.value)
    again.read([claimed])
    later = read_first([*kept(whole, dice.randint(0, len(whole)), lambda _: dice.random() < 0.5), claimed])
    assert state(again) == state(later)


def of_a_large_group() -> Loading:
    h = history("large", [])
    h.stable_group(*(h.static(f"i-{number}") for number in range(2 * MEMBERS_PER_PART + 1)))
    return read_first(h.records)


@pytest.mark.slow
def test_a_large_group_comes_in_parts() -> None:
    """So that no piece is much work; together they are the group."""
    loading = of_a_large_group()
    data = saved(loading)
    assert len(unpack_frames(data)) > 3
    assert resumed(data).projector.groups == loading.projector.groups


def test_a_partition_with_a_quarantined_group_is_not_saved() -> None:
    """A load would find it again; a snapshot has no place for it."""
    h = history("orders", [])
    h.stable_group(h.static("a"))
    loading = read_first(numbered([Record(h.records[0].key, b"\xc3\x01 of the future")]))
    assert loading.projector.quarantined
    assert head_of(loading, OF, at_end_ms=AT_END_MS) is None


def test_an_overwritten_entity_is_remembered() -> None:
    """It was to be rewritten, and a restart came first."""
    h = history("orders", [])
    h.stable_group(h.static("a"))
    key = encode_key(RecordKey("orders", EntityKind.STATIC_MEMBER, "a"))
    loading = read_first([*h.records, StoredRecord(3, len(h.records), 0, key, None, is_foreign=True)])
    assert resumed(saved(loading)).overwritten == loading.overwritten != []


# ---- snapshots that cannot be used ---------------------------------------------------------------


def why_not(data: bytes, **others: int | SnapshotOf) -> tuple[str, str]:
    with pytest.raises(UnusableSnapshot) as raised:
        resumed(data, **others)  # type: ignore[arg-type]
    return raised.value.kind, str(raised.value)


SAVED = saved(of_a_large_group())


@given(length=st.integers(min_value=0, max_value=len(SAVED) - 1))
def test_a_truncated_snapshot_is_damaged(length: int) -> None:
    """Wherever it ends."""
    assert why_not(SAVED[:length])[0] == "damage"


@given(at=st.integers(min_value=0, max_value=len(SAVED) - 1), bits=st.integers(min_value=1, max_value=255))
def test_one_with_a_wrong_byte_is_damaged(at: int, bits: int) -> None:
    """At any position."""
    wrong = bytearray(SAVED)
    wrong[at] ^= bits
    assert why_not(bytes(wrong))[0] == "damage"


@given(data=st.binary(max_size=200))
def test_other_bytes_are_not_a_snapshot(data: bytes) -> None:
    """Also after its first ones; and nothing may follow it."""
    for each in (data, MAGIC + data, SAVED + data + b"x"):
        assert why_not(each)[0] == "damage"


@pytest.mark.parametrize(
    ("of", "says"),
    [
        (msgspec.structs.replace(OF, log="cluster.another"), "log is cluster.topic, not cluster.another"),
        (msgspec.structs.replace(OF, partition=4), "partition is 3, not 4"),
        (msgspec.structs.replace(OF, partitions=9), "partitions is 8, not 9"),
        (msgspec.structs.replace(OF, format_level=FORMAT_LEVEL + 1), "format level is"),
    ],
)
def test_one_of_another_log_is_not_used(of: SnapshotOf, says: str) -> None:
    """For example that of a recreated topic; the message says what differs."""
    kind, reason = why_not(SAVED, of=of)
    assert (kind, says in reason) == ("log", True), reason


def test_a_snapshot_older_than_the_tombstone_retention_is_not_used() -> None:
    """One may be gone by now, its tombstone too."""
    resumed(SAVED, wall_ms=AT_END_MS + KEPT_MS - 1)
    kind, reason = why_not(SAVED, wall_ms=AT_END_MS + KEPT_MS)
    assert (kind, reason.partition(" (")[0]) == ("age", "it is 60 s old, and the log keeps deletions for 60 s")


def test_one_from_the_future_is_not_used() -> None:
    """The clock was set, so its age is unknown."""
    assert why_not(SAVED, wall_ms=AT_END_MS - 5_000) == (
        "clock",
        "by the clock of this machine it was written in 5 s from now",
    )


@pytest.mark.slow
def test_one_of_another_version_is_not_used() -> None:
    """Its groups may mean something else, though they can be read."""
    loading = of_a_large_group()
    head = head_of(loading, OF, at_end_ms=AT_END_MS)
    assert head is not None
    assert head.form == FORM
    other = msgspec.structs.replace(head, form="0.00000000")
    assert why_not(b"".join(write_snapshot(other, loading.projector.groups.values())))[0] == "form"
