"""Which records of an event topic an owner wrote: the header `muster`, and from which offset on it counts.

What belongs here: the rule, and how what it rests upon is found in a partition. Pure. Who reads batches, and who
writes them, is beside it (kafka_decoding.py, kafka_batches.py).

Anybody with the right to write into the topic can append to it: a console producer, a mirror that was set up the wrong
way round, a test. Such a *stranger's* record must stop nothing. A producer id does not tell it apart: Kafka hands out
new ones, and a copy of a topic has others. So every record of an owner carries the header `muster`, with the format
level as its value, which compaction, mirrors and exports keep. The rule:

    marked, in a batch that is not transactional   an owner's
    without the mark, before owners began to mark  an owner's, of an earlier version; read as it always was
    without the mark, after that                   a stranger's: skipped
    in a transaction, after that                   a stranger's, whatever it carries: owners write none, and it may
                                                   have been aborted

Owners began to mark at the lowest marked offset. Compaction may have removed that record, and what a stranger wrote
right behind it would count as an owner's again. So each batch notes that offset in a header of its last record, the
fence record (CoordinatorElected, a batch of its own, and never compacted away without a newer one) among them. An
older version cannot go on with such a topic, since it would not mark: the format level turns it away (kafka_origin.py).

In a copy on another cluster offsets differ, so the note is not believed there: the first marked record counts.
"""

from collections.abc import Sequence

import msgspec

from events.log.kafka_batches import Stamp


class Marks(msgspec.Struct, kw_only=True):
    """From which offset on owners mark, as far as a reader knows; None: it has met no mark yet."""

    since: int | None = None

    def meet(self, offset: int) -> None:
        """A mark was met."""
        if self.since is None or offset < self.since:
            self.since = offset


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is not transactional, and its writer.

    `marked`: an owner's. `noted`: an owner's too, of a version that noted the origin, but did not mark yet.
    """

    base_offset: int
    stamp: Stamp
    marked: bool
    noted: bool


class Newest:
    """Looks for what the last owner noted, from the end of a partition backwards, past what strangers appended."""

    def __init__(self) -> None:
        self._last: Stamp | None = None  # whoever it was
        self._owner: Stamp | None = None
        self._unmarked: Stamp | None = None
        self._origin = b""
        self._marked_from: int | None = None
        self.found = False

    def look_back(self, batches: Sequence[Written]) -> None:
        """Take in the batches before those that were seen already, in offset order."""
        for batch in reversed(batches):
            if self.found:
                return
            self._last = self._last or batch.stamp
            if not batch.marked:
                # An owner's of a version that did not mark, unless there is a mark further back: a stranger's then.
                if batch.noted and self._owner is None:
                    self._unmarked = self._unmarked or batch.stamp
                continue
            self._owner = self._owner or batch.stamp
            self._origin = self._origin or batch.stamp.origin
            noted = batch.stamp.marked_from
            self._marked_from = batch.base_offset if noted is None else noted
            self.found = noted is not None

    @property
    def stamp(self) -> Stamp | None:
        """Of the last owner; of whoever wrote last where no owner can be told, as in the topics of early versions."""
        stamp = self._owner or self._unmarked or self._last
        if stamp is None:
            return None
        origin = self._origin or (self._unmarked.origin if self._unmarked and self._owner is None else b"")
        return msgspec.structs.replace(stamp, origin=origin, marked_from=self._marked_from)
