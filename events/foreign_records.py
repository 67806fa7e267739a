"""Foreign records, which no owner wrote: readers skip and count them, and note the first of each partition.

What belongs here: what all readers do with them. The log decides which records are foreign (`StoredRecord.is_foreign`).
Pure: callers report them.
"""

from collections.abc import Iterable, Iterator

from muster.events.records import StoredRecord


class ForeignRecords:
    """The foreign records of one reading, from an offset on that was not counted before.

    `records`: how many; `first`: by partition, the offset of the first of them; `next_offset`: one past the last.
    """

    def __init__(self, *, counted_to: int = 0) -> None:
        self.records = 0
        self.first: dict[int, int] = {}
        self.next_offset = counted_to
        self._counted_to = counted_to

    def without(self, chunk: Iterable[StoredRecord]) -> Iterator[StoredRecord]:
        """Yield the owners' records, and note the others."""
        for record in chunk:
            if record.is_foreign:
                self.note(record)
            else:
                yield record

    def note(self, record: StoredRecord) -> None:
        """Count a foreign record."""
        if record.offset >= self._counted_to:
            self.records += 1
            self.next_offset = record.offset + 1
            self.first.setdefault(record.partition, record.offset)

    def report(self, location: str) -> str | None:
        """Return a sentence for people; None without any."""
        if not self.records:
            return None
        partition, offset = min(self.first.items())
        return (
            f"{location}: records that this cluster's Muster did not write were skipped ({self.records}); the first"
            f" stands in partition {partition} at offset {offset}"
        )
