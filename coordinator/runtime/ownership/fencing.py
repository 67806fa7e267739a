"""The fence record: it makes a claim effective, and no former owner can append after it.

Appends records about the partition itself, not about groups.
"""

from muster.coordinator.runtime.partition.outbox import partition_record_refused
from muster.coordinator.runtime.partition.owner import Owner
from muster.events.avro.codec import records_of
from muster.events.events import CoordinatorElected
from muster.events.log.base import AppendRefused, LogWriter
from muster.events.records import Transition


def fence_record(owner: Owner, writer: LogWriter) -> Transition:
    """Create the fence record, after which no older writer can append."""
    elected = CoordinatorElected(
        partition=writer.partition,
        owner_epoch=writer.epoch,
        owner=owner.name,
        elected_ms=owner.clock.wall_ms(),
        version=owner.version,
        format_level=owner.event_log.format_level,
        settings=dict(owner.effective_settings),
    )
    return records_of([elected], owner.event_log.format_level)


async def fence(owner: Owner, writer: LogWriter) -> None:
    """Write the fence record. Raises LogError."""
    await append_one(writer, fence_record(owner, writer))


async def append_one(writer: LogWriter, transition: Transition) -> None:
    """Append a record about the partition itself."""
    (verdict,) = await writer.append([transition])
    if isinstance(verdict, AppendRefused):
        raise partition_record_refused(writer, verdict)
