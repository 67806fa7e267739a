"""Snapshots of partitions: the state that reading a partition has built so far, as bytes.

This module defines the format, and decides which snapshots can be used. It is pure; the coordinator's
`runtime/ownership/snapshots.py` handles the files.

A snapshot only saves time and is never a second source of truth: one that is damaged, too old, of another log or in
another format is ignored, and the log is read instead. So its format is that of the typed state itself (msgspec), which
is read and written ten times faster than events are. A version of Muster in which a group has other fields, or in which
MEANING differs, ignores it. A partition with quarantined groups is not saved, since their state alone does not describe
them.

    MAGIC, then frames: length (4 bytes), CRC-32 of everything so far (4 bytes), zstd. The first one is the head, the
    others are groups or parts of large ones, the last one is empty.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

import cramjam
import msgspec

from muster.events.avro.codec import decode, encode
from muster.events.events import AnyPartitionEvent, PartitionEvent
from muster.events.ids import GroupId
from muster.events.keys import RecordKey
from muster.events.loading import LastRead, Loading
from muster.events.projector import Projector
from muster.events.records import FORMAT_LEVEL, BrokenRecord, ForeignRecords
from muster.events.state import Group, GroupConfig, GroupImage, Member, Registration
from muster.events.tables import Table

MEANING: Final = 1
"""Increase this when the projector or `evolve` produces a different result from the same records."""

MAGIC: Final = b"muster snapshot\n"
MEMBERS_PER_PART: Final = 100
"""About 0.2 ms of work; larger groups are split into parts."""
_FRAME = struct.Struct(">II")
_LEVEL: Final = 1
"""The compression level of zstd: a third of the size, 1 GB in two seconds."""


class UnusableSnapshot(Exception):
    """The snapshot cannot be used. `kind` is the reason in one word, the same for all partitions."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class SnapshotOf(msgspec.Struct, frozen=True, kw_only=True):
    """The partition of a log that a snapshot was made of. `log`: the log's identity (its cluster and topic)."""

    log: str
    partition: int
    partitions: int
    format_level: int


class SnapshotHead(msgspec.Struct, frozen=True, kw_only=True):
    """Everything in a snapshot but its groups. `at_end_ms`: when it was known to be complete (wall clock)."""

    form: str
    of: SnapshotOf
    owner_epoch: int
    next_offset: int
    last: LastRead | None
    at_end_ms: int
    incarnation_max: int
    served_by: str | None
    last_event: bytes | None
    before_election: bytes | None
    deleted: list[GroupId]
    overwritten: list[RecordKey]


class SavedGroup(msgspec.Struct, frozen=True, array_like=True):
    """A group or a part of one; parts differ only in their members. `has_own_record`: False if the log had no record of
    the group itself, only of its members etc.
    """

    group_id: GroupId
    incarnation: int
    seq: int
    image: GroupImage
    config: GroupConfig
    registrations: list[Registration]
    has_own_record: bool
    members: list[Member]


_ENCODER = msgspec.msgpack.Encoder()
_HEAD = msgspec.msgpack.Decoder(SnapshotHead)
_PARTS = msgspec.msgpack.Decoder(list[SavedGroup])
FORM: Final = (
    f"{MEANING}.{zlib.crc32(msgspec.json.encode(msgspec.json.schema_components([SnapshotHead, SavedGroup]))):08x}"
)


# ---- writing -----------------------------------------------------------------------------------------


def head_of(loading: Loading, of: SnapshotOf, *, at_end_ms: int) -> SnapshotHead | None:
    """Build the head for a folded reading; None if it cannot be saved."""
    projector = loading.projector
    if projector.quarantined:
        return None
    last_event = projector.last_partition_event
    return SnapshotHead(
        form=FORM,
        of=of,
        owner_epoch=0 if last_event is None else last_event.owner_epoch,
        next_offset=loading.next_offset,
        last=loading.last,
        at_end_ms=at_end_ms,
        incarnation_max=projector.incarnation_max,
        served_by=projector.served_by,
        last_event=_encoded(last_event),
        before_election=_encoded(projector.before_election),
        deleted=list(projector.deleted),
        overwritten=loading.overwritten,
    )


def write_snapshot(
    head: SnapshotHead, groups: Iterable[Group], *, known_by_parts: Iterable[GroupId] = ()
) -> Iterator[bytes]:
    """Write a snapshot in small pieces. `known_by_parts`: the groups without a record of their own."""
    yield MAGIC
    checksum = 0
    for content in _contents(head, groups, frozenset(known_by_parts)):
        compressed = bytes(cramjam.zstd.compress(content, level=_LEVEL))
        checksum = zlib.crc32(compressed, checksum)
        yield _FRAME.pack(len(compressed), checksum) + compressed
    yield _FRAME.pack(0, checksum)


def _contents(head: SnapshotHead, groups: Iterable[Group], known_by_parts: frozenset[GroupId]) -> Iterator[bytes]:
    yield _ENCODER.encode(head)
    parts: list[SavedGroup] = []
    size = 0
    for group in groups:
        for part in _parts(group, has_own_record=group.group_id not in known_by_parts):
            parts.append(part)
            size += 1 + len(part.members)
            if size >= MEMBERS_PER_PART:
                yield _ENCODER.encode(parts)
                parts, size = [], 0
    yield _ENCODER.encode(parts)


def _parts(group: Group, *, has_own_record: bool) -> Iterator[SavedGroup]:
    members = list(group.members.values())
    for first in range(0, max(1, len(members)), MEMBERS_PER_PART):
        yield SavedGroup(
            group.group_id,
            group.incarnation,
            group.seq,
            group.image,
            group.config,
            [] if first else list(group.registrations.values()),
            has_own_record,
            members[first : first + MEMBERS_PER_PART],
        )


def _encoded(event: AnyPartitionEvent | None) -> bytes | None:
    return None if event is None else encode(event, FORMAT_LEVEL)


# ---- reading -----------------------------------------------------------------------------------------


def unpack_frames(data: bytes) -> list[bytes]:
    """Verify the bytes of a snapshot, and return its frames: the head and the groups. Raises UnusableSnapshot."""
    if not data.startswith(MAGIC):
        raise _damaged("it does not start like a snapshot")
    frames, position, checksum = [], len(MAGIC), 0
    while True:
        if len(data) < position + _FRAME.size:
            raise _damaged("its end is missing")
        size, noted = _FRAME.unpack_from(data, position)
        position += _FRAME.size
        compressed = data[position : position + size]
        checksum = zlib.crc32(compressed, checksum)
        if len(compressed) != size or checksum != noted:
            raise _damaged("a checksum is wrong")
        if not size:
            break
        frames.append(_decompressed(compressed))
        position += size
    if not frames or position != len(data):
        raise _damaged("it does not end where it says")
    return frames


def _decompressed(compressed: bytes) -> bytes:
    try:
        return bytes(cramjam.zstd.decompress(compressed))
    except cramjam.DecompressionError as error:
        raise _damaged(str(error)) from error


def usable_head(frame: bytes, of: SnapshotOf, *, wall_ms: int, deletions_kept_ms: int) -> SnapshotHead:
    """Decode the head, and check that the snapshot is of this partition and recent enough. Raises UnusableSnapshot."""
    try:
        head = _HEAD.decode(frame)
    except msgspec.MsgspecError as error:
        raise UnusableSnapshot("form", f"it was written by another version of Muster: {error}") from error
    if head.form != FORM:
        raise UnusableSnapshot(
            "form", f"it was written by another version of Muster: its form is {head.form}, not {FORM}"
        )
    for name, is_, should_be in _differences(head.of, of):
        raise UnusableSnapshot(
            "log", f"it is of another log, or of this one before it was recreated: {name} is {is_}, not {should_be}"
        )
    age_ms = wall_ms - head.at_end_ms
    if age_ms < 0:
        raise UnusableSnapshot("clock", f"by the clock of this machine it was written in {-age_ms // 1000} s from now")
    if age_ms >= deletions_kept_ms:
        raise UnusableSnapshot(
            "age",
            f"it is {age_ms // 1000} s old, and the log keeps deletions for {deletions_kept_ms // 1000} s"
            " (min.compaction.lag.ms, delete.retention.ms): some may have been removed by now",
        )
    return head


def _differences(is_: SnapshotOf, should_be: SnapshotOf) -> Iterator[tuple[str, object, object]]:
    for name in SnapshotOf.__struct_fields__:
        if (found := getattr(is_, name)) != (wanted := getattr(should_be, name)):
            yield name.replace("_", " "), found, wanted


class Unpacking:
    """Turns a snapshot into a reading that can continue: `add` each frame after the head, then call `loading`."""

    def __init__(self, head: SnapshotHead) -> None:
        self._head = head
        self._projector = Projector()

    def add(self, frame: bytes) -> None:
        """Add the groups of a frame. Raises UnusableSnapshot."""
        try:
            parts = _PARTS.decode(frame)
        except msgspec.MsgspecError as error:
            raise _damaged(str(error)) from error
        for part in parts:
            group = self._projector.groups.get(part.group_id)
            if group is None:
                group = self._new_group(part)
            for member in part.members:
                group.members[member.member_id] = member
                if member.group_instance_id is not None:
                    group.instances[member.group_instance_id] = member.member_id

    def _new_group(self, part: SavedGroup) -> Group:
        group = Group(
            group_id=part.group_id,
            incarnation=part.incarnation,
            seq=part.seq,
            image=part.image,
            registrations=Table((each.group_instance_id, each) for each in part.registrations),
            config=part.config,
        )
        self._projector.resume_group(group, has_own_record=part.has_own_record)
        return group

    def loading(self, foreign_records: ForeignRecords) -> Loading:
        """Return a reading that continues after the snapshot. Raises UnusableSnapshot."""
        head, projector = self._head, self._projector
        projector.last_partition_event = _event(head.last_event)
        projector.before_election = _event(head.before_election)
        projector.served_by = head.served_by
        projector.incarnation_max = head.incarnation_max
        projector.deleted = dict.fromkeys(head.deleted)
        projector.next_offset = head.next_offset
        return Loading.going_on(
            projector, last=head.last, overwritten=head.overwritten, foreign_records=foreign_records
        )


def _event(value: bytes | None) -> AnyPartitionEvent | None:
    if value is None:
        return None
    try:
        event = decode(value)
    except BrokenRecord as broken:
        raise _damaged(broken.reason) from broken
    if not isinstance(event, PartitionEvent):
        raise _damaged("an event of a group is among those of the partition")
    return event


def _damaged(reason: str) -> UnusableSnapshot:
    return UnusableSnapshot("damage", f"it is damaged: {reason}")
