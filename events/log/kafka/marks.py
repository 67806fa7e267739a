"""Distinguishes owners' records from foreign ones by the header `muster` and where it became mandatory.

Contains the rule, and searches a partition for the facts that it needs. Does no I/O. Batches are read in decoding.py,
and written in batches.py.

Any client with write access to the topic can append to it: a console producer, a mirror in the wrong direction, a test.
Such a *foreign* record must not stop a reader. The producer id alone does not reveal it: Kafka hands out new ones, and
a copy of a topic has others. So every record of an owner carries the header `muster`, which compaction, mirrors and
exports preserve. Its value is the format level, the cluster that the record was written on, since a mirror may bring in
records of owners elsewhere, and the producer id, since our own records may be replayed: a restored export, or a mirror
there and back. A record is *native* if its batch has the producer id that its mark names. Brokers never hand out an id
twice, hand out an owner's id only to the partition's owner, and keep it in the batch during compaction; a tool that
copies records writes them with another one. The rule:

    marked on another cluster                      foreign: skipped
    marked and native, or before native records    an owner's, unless its batch is transactional
    marked and not native, after the first such    foreign: a replayed record of an owner
    unmarked, before owners began to mark          an owner's, of an earlier version; read as always
    unmarked, after that                           foreign
    in a transaction, after that                   foreign in any case: owners write none, and it may have been aborted

Owners began to mark at the lowest marked offset. If compaction removed that record, foreign records right after it
would count as an owner's again. So each batch notes that offset in a header of its last record; this includes the fence
record (CoordinatorElected, in a batch of its own), which is never compacted away without a newer one. An older version
would append records without a mark, so the format level prevents it from continuing such a topic (origin.py). The
offset from which records must be native is noted in the same way. Records before it are from a restored topic, or from
a version whose marks named no producer.

A topic in which nothing was marked on its own cluster is a copy of another cluster's, and is read as such. Offsets and
producers differ there, so the notes are not used: the first marked record counts, and none is native.
"""

from collections.abc import Sequence

import msgspec

from muster.events.keys import KEY_HEADER
from muster.events.log.kafka.batches import MARK, ORIGIN, Stamp, mark_of
from muster.events.records import FORMAT_LEVEL

Headers = Sequence[tuple[str, bytes | None]]

KEY_PREFIXES = (KEY_HEADER, b'{"version":1,"group":"', b'{"version":1,"owner":')
"""The prefixes of keys in the event topic and the offsets topic, by which records without headers are recognized."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a record. `cluster_id`: Kafka's; empty if the brokers report none."""

    cluster_id: str
    format_level: int

    def encode(self) -> bytes:
        """Return `LEVEL CLUSTER`, in ASCII."""
        return f"{self.format_level} {self.cluster_id}".encode()

    def is_elsewhere(self, cluster_id: str | None) -> bool:
        """Return whether it is another cluster than this one, as far as both are known."""
        return bool(self.cluster_id and cluster_id and self.cluster_id != cluster_id)


def origin_of(cluster_id: str | None, format_level: int = FORMAT_LEVEL) -> Origin:
    """Return the origin of our own records on that cluster, in a log of that level."""
    return Origin(cluster_id=cluster_id or "", format_level=format_level)


def decode_origin(noted: bytes) -> Origin | None:
    """Decode an origin; None if we cannot have written it."""
    level, space, rest = noted.decode(errors="replace").partition(" ")
    cluster_id = rest.partition(" ")[0]
    if not space or not (level.isascii() and level.isdecimal()):
        return None
    return Origin(cluster_id=cluster_id, format_level=int(level))


def noted_origin(headers: Headers) -> bytes:
    """Return the origin in a record's headers; empty if there is none."""
    found = dict(headers)
    mark = found.get(MARK) or b""
    return b" ".join(mark.split(b" ")[:2]) if b" " in mark else found.get(ORIGIN) or b""


def is_native(headers: Headers, producer_id: int) -> bool:
    """Return whether the record is in the batch that its owner wrote: one with the producer id of its mark."""
    origin = noted_origin(headers)
    return bool(origin) and dict(headers).get(MARK) == mark_of(origin, producer_id)


def is_elsewhere(noted: bytes, cluster_id: str | None) -> bool:
    """Return whether a record with this origin is known to have been written on another cluster."""
    origin = decode_origin(noted)
    return origin is not None and origin.is_elsewhere(cluster_id)


class Marks(msgspec.Struct, kw_only=True):
    """A reader's knowledge of the marks in a partition. `since`: the offset of the first mark found; None: none yet.

    `native_from`: the offset from which marked records must be native; None if they need not be. `home`: the cluster of
    the owners; None if it is unknown: then every mark counts as an owner's.
    """

    since: int | None = None
    native_from: int | None = None
    home: str | None = None

    def meet(self, offset: int) -> None:
        """Note a mark at this offset."""
        if self.since is None or offset < self.since:
            self.since = offset


def is_foreign(offset: int, headers: Headers, marks: Marks, *, producer_id: int | None, transactional: bool) -> bool:
    """Return whether the record is foreign, by the rule above; updates `marks` when it finds a mark.

    `producer_id`: None if the batch is unknown: then every mark counts as native.
    """
    is_foreign = is_elsewhere(noted_origin(headers), marks.home)
    is_marked = not is_foreign and not transactional and any(name == MARK for name, _ in headers)
    must_be_native = marks.native_from is not None and offset >= marks.native_from and producer_id is not None
    is_played_again = is_marked and must_be_native and not is_native(headers, producer_id or 0)
    if is_marked and not is_played_again:
        marks.meet(offset)
        return False
    return is_foreign or is_played_again or (marks.since is not None and offset >= marks.since)


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is not transactional, and its writer.

    `marked`: an owner's, perhaps replayed unless it is `native`. `by_unmarked_owner`: written by an owner whose version
    did not mark yet, but noted the origin, or is recognized by its keys.
    """

    base_offset: int
    stamp: Stamp
    marked: bool
    native: bool
    by_unmarked_owner: bool


class LastOwnerSearch:
    """Searches for the last owner's notes, backwards from the end of a partition, past foreign records.

    Batches that are marked but not native count only if none is native, or if `asks_native` is False.
    """

    def __init__(self, *, asks_native: bool = True) -> None:
        self._asks_native = asks_native
        self._is_native = False
        self._owner: Stamp | None = None
        self._unmarked: Stamp | None = None
        self._origin = b""
        self._marked_from: int | None = None
        self._native_from: int | None = None
        self._partitions: int | None = None
        self._is_noted = False
        self.found = False

    def look_back(self, batches: Sequence[Written]) -> None:
        """Process the batches before those that were already seen, in offset order."""
        for batch in reversed(batches):
            if self.found:
                return
            if not batch.marked:
                # By an owner whose version did not mark yet, or foreign if there is a mark further back.
                if batch.by_unmarked_owner and self._owner is None:
                    self._unmarked = self._unmarked or batch.stamp
                continue
            if self._asks_native and batch.native:
                self._check_native(batch)
            if not self._is_native or batch.native:
                self._check_owners(batch)
            self.found = self._is_noted and (self._is_native or not self._asks_native)

    def _check_native(self, batch: Written) -> None:
        if not self._is_native:  # the batches after it were replayed
            self._is_native, self._is_noted = True, False
            self._owner, self._origin, self._partitions = None, b"", None
        noted = batch.stamp.native_from
        self._native_from = batch.base_offset if noted is None else noted

    def _check_owners(self, batch: Written) -> None:
        self._owner = self._owner or batch.stamp
        self._origin = self._origin or batch.stamp.origin
        self._partitions = self._partitions or batch.stamp.partitions
        if not self._is_noted:
            noted = batch.stamp.marked_from
            self._marked_from = batch.base_offset if noted is None else noted
            self._is_noted = noted is not None

    @property
    def stamp(self) -> Stamp | None:
        """The stamp of the last owner; None if no owner was found."""
        stamp = self._owner or self._unmarked
        if stamp is None:
            return None
        origin = self._origin or (self._unmarked.origin if self._unmarked and self._owner is None else b"")
        return msgspec.structs.replace(
            stamp,
            origin=origin,
            marked_from=self._marked_from,
            native_from=self._native_from,
            partitions=self._partitions,
        )
