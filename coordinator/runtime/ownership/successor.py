"""The process that has taken a partition over from this one, as its fence record names it.

What belongs here: finding that record, which stands behind our last append. What it must not know: what is done then.
"""

import asyncio
from contextlib import suppress

import structlog

from muster.events.avro.codec import decode
from muster.events.events import AnyRecordedEvent, CoordinatorElected
from muster.events.log.base import Deposed, EventLog, LogError, LogWriter
from muster.events.records import EventsError, StoredRecord

log = structlog.get_logger(__name__)

READ_TIMEOUT_S = 5.0


async def report_successor(event_log: EventLog, writer: LogWriter, deposed: Deposed, *, shares: bool) -> None:
    """Name the successor in the error, if it can be found soon, and write the log line about it.

    `shares`: this process shares the log with others.
    """
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            start = writer.next_offset
            elected = None if start is None else await first_elected(event_log, writer, start=start)
    except (TimeoutError, LogError, EventsError) as error:
        log.warning("cannot tell which process took the log over", log=event_log.location, error=str(error))
    else:
        if elected is not None:
            deposed.name_successor(elected.owner, elected.elected_ms, shares=shares)
    log.error("partition lost", partition=deposed.partition, error=str(deposed))


async def first_elected(event_log: EventLog, writer: LogWriter, *, start: int) -> CoordinatorElected | None:
    """Return the first fence record of a newer owner from an offset on; None if there is none.

    What cannot be decoded is no fence record. Raises LogUnavailable and EventsError.
    """
    async for chunk in event_log.read(writer.partition, start=start):
        for record in chunk:
            event = _decoded(record)
            if isinstance(event, CoordinatorElected) and event.owner_epoch > writer.epoch:
                return event
    return None


def _decoded(record: StoredRecord) -> AnyRecordedEvent | None:
    if record.is_foreign or record.value is None:
        return None
    with suppress(EventsError):
        return decode(record.value)
    return None
