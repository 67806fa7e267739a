"""Checks that no other owner appended between two claims of one owner, so that nothing has to be read again.

Used when a claim is renewed, for events and for offsets. An owner that slept between two appends may have been deposed
by another owner that has stopped since, and whose records it does not know.
"""

from muster.events.log.base import EventLog, LogUnavailable, LogWriter
from muster.events.records import ForeignRecords


async def check_no_other_writer(log: EventLog, before: LogWriter, writer: LogWriter) -> None:
    """Check that no other owner wrote between the last record of `before` and the first of `writer`, its fence record.

    Foreign records do not matter. Raises LogUnavailable.
    """
    number, start, end = writer.partition, before.next_offset, writer.next_offset
    if start is None or end is None:
        raise LogUnavailable(f"{log.location}, partition {number}: it is not known where the last append ended")
    if start >= end - 1:
        return  # nothing between the two
    foreign_records = ForeignRecords()
    async for chunk in log.read(number, start=start, end=end - 1):
        for record in foreign_records.without(chunk):
            raise LogUnavailable(
                f"{log.location}, partition {number}: another muster serve wrote at offset {record.offset} while this"
                " one claimed the partition again"
            )
