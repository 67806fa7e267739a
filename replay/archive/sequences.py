"""Checks the sequence numbers of groups, in a partition's offset order, for gaps and duplicates.

Each event of a group has its incarnation and a sequence number `seq` within it, one more than the previous event.
Nothing else of an event is decoded. If offsets are missing, too, a gap is due to compaction before the archiver read
the topic (or to expired days). If none are, events were lost: the offsets are consecutive, but the group's numbers are
not.
"""

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from muster.events.avro.codec import decode_numbers
from muster.events.keys import EntityKind, decode_key
from muster.events.records import BrokenRecord, UndecodableKey

FINDINGS_MAX = 20
"""How many findings of a kind are named; all are counted."""
KEYS_MAX = 100_000
"""How many keys are cached, so that each is decoded only once."""


class MissingOffsets(msgspec.Struct, frozen=True):
    """Offsets from `start` up to `end` (exclusive) without a record."""

    start: int
    end: int


class _Last(msgspec.Struct):
    """The last event of a group, and the number of unreadable records since."""

    incarnation: int = -1
    seq: int = 0
    offset: int = -1
    unreadable: int = 0


class Sequences:
    """Checks the records of one partition in order. `holes` is the caller's list, to which it adds meanwhile.

    `deleted`: offsets that were deleted rather than compacted.
    """

    def __init__(self, partition: int, holes: Sequence[MissingOffsets], deleted: Sequence[MissingOffsets] = ()) -> None:
        self._partition, self._holes, self._deleted_holes = partition, holes, deleted
        self._groups: dict[str, _Last] = {}
        self._keys: dict[bytes, str | None] = {}
        """The group of each recent key; None: the partition's own."""
        self.compacted = self.deleted = self.lost = self.repeated = self.unreadable = 0
        """Counts. `compacted`: missing events whose offsets are missing too; `deleted`: those whose offsets were
        deleted; `lost`: missing events without missing offsets; `repeated`: duplicates; `unreadable`: unreadable
        records.
        """
        self.findings: list[str] = []

    def take(self, offset: int, key: bytes, value: bytes) -> None:
        """Check the next record of an owner that is not a tombstone."""
        try:
            group_id = self._keys[key] if key in self._keys else self._group_of(key)
        except UndecodableKey:
            self.unreadable += 1
            return
        if group_id is None:
            return
        last = self._groups.get(group_id)
        if last is None:
            last = self._groups[group_id] = _Last()
        try:
            incarnation, seq = decode_numbers(value)
        except BrokenRecord:
            self.unreadable += 1
            last.unreadable += 1
            return
        if seq == last.seq + 1 and incarnation == last.incarnation:
            last.seq, last.offset, last.unreadable = seq, offset, 0
        else:
            self._compare(group_id, last, offset, incarnation, seq)

    def _group_of(self, encoded: bytes) -> str | None:
        key = decode_key(encoded)
        if len(self._keys) >= KEYS_MAX:
            self._keys.clear()
        found = self._keys[encoded] = None if key.kind is EntityKind.PARTITION else key.group_id
        return found

    def _compare(self, group_id: str, last: _Last, offset: int, incarnation: int, seq: int) -> None:
        if (incarnation, seq) <= (last.incarnation, last.seq):
            self.repeated += 1
            self._tell(f"group {group_id!r}: its event {seq} comes again, or too late, at offset {offset}")
            return
        begin = last.seq if incarnation == last.incarnation else 0
        missing = seq - begin - 1
        if missing > last.unreadable:
            if _has_hole(self._deleted_holes, last.offset + 1, offset):
                self.deleted += missing
            elif _has_hole(self._holes, last.offset + 1, offset):
                self.compacted += missing
            else:
                self.lost += missing
                self._tell(
                    f"group {group_id!r}: its events {begin + 1} to {seq - 1} are missing before offset {offset}"
                )
        last.incarnation, last.seq, last.offset, last.unreadable = incarnation, seq, offset, 0

    def _tell(self, finding: str) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(f"partition {self._partition}: {finding}")


def _has_hole(holes: Sequence[MissingOffsets], start: int, end: int) -> bool:
    at = bisect_left(holes, start, key=lambda hole: hole.end - 1)
    return at < len(holes) and holes[at].start < end
