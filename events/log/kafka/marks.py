"""Tells owners' records from foreign ones: the header `muster`, and the offset from which it counts.

What belongs here: the rule, and finding its facts in a partition. Pure. Batches are read in decoding.py, and written in
batches.py.

Anybody with the right to write into the topic can append to it: a console producer, a mirror that was set up the wrong
way round, a test. Such a *stranger's* record must stop nothing. A producer id does not tell it apart: Kafka hands out
new ones, and a copy of a topic has others. So every record of an owner carries the header `muster`, which
compaction, mirrors and exports keep. Its value is the format level, the cluster that the record was written on, since
a mirror may also bring in what owners elsewhere wrote, and the producer id, since what we wrote ourselves may be played
again: an export that is restored, a mirror there and back. A record is *native* if its batch has the producer id that
its mark names. The broker hands out an id once, that of an owner to the partition's owner alone, and compaction keeps
it in the batch; a tool that copies records writes them with another one. The rule:

    marked on another cluster                      a stranger's: skipped
    marked and native, or before native records    an owner's, unless its batch is transactional
    marked and not native, after the first such    a stranger's: an owner's that was played again
    without the mark, before owners began to mark  an owner's, of an earlier version; read as it always was
    without the mark, after that                   a stranger's
    in a transaction, after that                   a stranger's, whatever it carries: owners write none, and it may
                                                   have been aborted

Owners began to mark at the lowest marked offset. Compaction may have removed that record, and what a stranger wrote
right behind it would count as an owner's again. So each batch notes that offset in a header of its last record, the
fence record (CoordinatorElected, a batch of its own, and never compacted away without a newer one) among them. An
older version cannot go on with such a topic, since it would not mark: the format level turns it away (origin.py).
From which offset on records must be native is noted likewise. What stands before that is a topic that was restored, or
is of a version whose marks named no producer.

A topic in which nothing was marked on its own cluster is a copy of another one's, and is read as that one's.
Offsets and producers differ there, so the notes are not believed: the first marked record counts, and none is native.
"""

from collections.abc import Sequence

import msgspec

from muster.events.keys import KEY_HEADER
from muster.events.log.kafka.batches import MARK, ORIGIN, Stamp, mark_of
from muster.events.records import FORMAT_LEVEL

Headers = Sequence[tuple[str, bytes | None]]

KEY_PREFIXES = (KEY_HEADER, b'{"version":1,"group":"', b'{"version":1,"owner":')
"""The beginnings of keys in the event topic and the offsets topic, by which records without headers are known."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a record. `cluster_id`: as Kafka has it; empty when the brokers tell none."""

    cluster_id: str
    format_level: int

    def encode(self) -> bytes:
        """`LEVEL CLUSTER`, in ASCII letters."""
        return f"{self.format_level} {self.cluster_id}".encode()

    def is_elsewhere(self, cluster_id: str | None) -> bool:
        """Whether it is another cluster than that, as far as both are known."""
        return bool(self.cluster_id and cluster_id and self.cluster_id != cluster_id)


def origin_of(cluster_id: str | None, format_level: int = FORMAT_LEVEL) -> Origin:
    """Make the origin of our own records on that cluster, in a log of that level."""
    return Origin(cluster_id=cluster_id or "", format_level=format_level)


def decode_origin(noted: bytes) -> Origin | None:
    """Decode an origin; None if we have not written it."""
    level, space, rest = noted.decode(errors="replace").partition(" ")
    cluster_id = rest.partition(" ")[0]
    if not space or not (level.isascii() and level.isdecimal()):
        return None
    return Origin(cluster_id=cluster_id, format_level=int(level))


def noted_origin(headers: Headers) -> bytes:
    """Return the origin in a record's headers; empty where there is none."""
    found = dict(headers)
    mark = found.get(MARK) or b""
    return b" ".join(mark.split(b" ")[:2]) if b" " in mark else found.get(ORIGIN) or b""


def is_native(headers: Headers, producer_id: int) -> bool:
    """Whether the record stands where an owner wrote it, in a batch of that producer."""
    origin = noted_origin(headers)
    return bool(origin) and dict(headers).get(MARK) == mark_of(origin, producer_id)


def is_elsewhere(noted: bytes, cluster_id: str | None) -> bool:
    """Whether a record with this origin was written on another cluster, as far as both are known."""
    origin = decode_origin(noted)
    return origin is not None and origin.is_elsewhere(cluster_id)


class Marks(msgspec.Struct, kw_only=True):
    """The offset from which on owners mark, as far as a reader knows; None: it has met no mark yet.

    `native_from`: from which one on what is marked must be native; None: nowhere. `home`: the cluster whose owners they
    are; None: not known, so that every mark is an owner's.
    """

    since: int | None = None
    native_from: int | None = None
    home: str | None = None

    def meet(self, offset: int) -> None:
        """Note a mark at this offset."""
        if self.since is None or offset < self.since:
            self.since = offset


def is_strangers(offset: int, headers: Headers, marks: Marks, *, producer_id: int | None, transactional: bool) -> bool:
    """Whether the record is a stranger's, by the rule above; writes `marks` when it meets a mark.

    `producer_id`: None where the batch is not known: then every mark counts as native.
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

    `marked`: an owner's, perhaps played again, unless it is `native`. `by_unmarked_owner`: as an owner wrote it whose
    version did not mark yet, but noted the origin, or is known by its keys.
    """

    base_offset: int
    stamp: Stamp
    marked: bool
    native: bool
    by_unmarked_owner: bool


class LastOwnerSearch:
    """The search for the last owner's notes, from the end of a partition backwards, past strangers' records.

    Batches that are marked and not native count only where none is native, or if that is not asked for.
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
        """Take in the batches before those that were seen already, in offset order."""
        for batch in reversed(batches):
            if self.found:
                return
            if not batch.marked:
                # An owner's of a version that did not mark, unless there is a mark further back: a stranger's then.
                if batch.by_unmarked_owner and self._owner is None:
                    self._unmarked = self._unmarked or batch.stamp
                continue
            if self._asks_native and batch.native:
                self._look_at_native(batch)
            if not self._is_native or batch.native:
                self._look_at_owners(batch)
            self.found = self._is_noted and (self._is_native or not self._asks_native)

    def _look_at_native(self, batch: Written) -> None:
        if not self._is_native:  # what stands behind it was played again
            self._is_native, self._is_noted = True, False
            self._owner, self._origin, self._partitions = None, b"", None
        noted = batch.stamp.native_from
        self._native_from = batch.base_offset if noted is None else noted

    def _look_at_owners(self, batch: Written) -> None:
        self._owner = self._owner or batch.stamp
        self._origin = self._origin or batch.stamp.origin
        self._partitions = self._partitions or batch.stamp.partitions
        if not self._is_noted:
            noted = batch.stamp.marked_from
            self._marked_from = batch.base_offset if noted is None else noted
            self._is_noted = noted is not None

    @property
    def stamp(self) -> Stamp | None:
        """The stamp of the last owner; None: no writer was one."""
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
