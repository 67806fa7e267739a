"""Records that no owner wrote, sorted out of what a log gives: skipped, counted, and the first of each partition named.

What belongs here: what every reader does with them, so that all do the same. Which records they are says the log
(`StoredRecord.stranger`). Pure: who tells people is the caller.
"""

from collections.abc import Iterable, Iterator

from muster.events.records import StoredRecord


class Strangers:
    """What one reading has met, from an offset on that was not counted before.

    `records`: how many; `first`: by partition, the offset of the first of them; `next_offset`: one past the last.
    """

    def __init__(self, *, counted_to: int = 0) -> None:
        self.records = 0
        self.first: dict[int, int] = {}
        self.next_offset = counted_to
        self._counted_to = counted_to

    def without(self, chunk: Iterable[StoredRecord]) -> Iterator[StoredRecord]:
        """The owners' records alone."""
        for record in chunk:
            if record.stranger:
                self.note(record)
            else:
                yield record

    def note(self, record: StoredRecord) -> None:
        """Count one."""
        if record.offset >= self._counted_to:
            self.records += 1
            self.next_offset = record.offset + 1
            self.first.setdefault(record.partition, record.offset)

    def told(self, location: str) -> str | None:
        """A sentence for people; None when there are none."""
        if not self.records:
            return None
        partition, offset = min(self.first.items())
        return (
            f"{location}: records that this cluster's Muster did not write were skipped ({self.records}); the first"
            f" stands in partition {partition} at offset {offset}"
        )
