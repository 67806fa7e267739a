"""Taking a partition over: claim it, write the fence record, read up to that record, serve.

The fence record comes first because until the new owner's first append the log still takes the old owner's (see the
event log's contract); only what was read up to the fence record is complete.
"""

import structlog

from coordinator.clock import Clock
from coordinator.group.settings import GroupSettings
from coordinator.offsets.base import OffsetStore
from coordinator.outbox import Lost, Outbox
from coordinator.partition import Partition
from events.codec import records_of
from events.events import CoordinatorElected, CoordinatorReady, CoordinatorStopped
from events.log.base import AppendRefused, EventLog, LogUnavailable, LogWriter
from events.projector import FORMAT_LEVEL, Projector

log = structlog.get_logger(__name__)


class Ownership:
    """One partition, owned: its writer, its groups, and how it was given up."""

    def __init__(self, partition: Partition, outbox: Outbox, writer: LogWriter, owner: str, clock: Clock) -> None:
        self.partition = partition
        self._outbox = outbox
        self._writer = writer
        self._owner = owner
        self._clock = clock

    async def stop(self) -> None:
        """Let what is under way become durable, and say goodbye in the log."""
        await self._outbox.drained()
        await self._outbox.close()
        stopped = CoordinatorStopped(
            partition=self._writer.partition,
            owner_epoch=self._writer.epoch,
            owner=self._owner,
            stopped_ms=self._clock.wall_ms(),
        )
        await self._writer.append([records_of([stopped])])

    async def abandon(self) -> None:
        """End it without a word: the log is lost to us."""
        await self._outbox.close()


async def take_over(
    log_: EventLog,
    number: int,
    *,
    offsets: OffsetStore,
    settings: GroupSettings,
    effective_settings: dict[str, str],
    owner: str,
    version: str,
    clock: Clock,
    lost: Lost,
) -> Ownership:
    """Own the partition. Raises LogError, and EventsError for a history that cannot be served."""
    started_ms = clock.monotonic_ms()
    writer = await log_.claim(number)
    elected = CoordinatorElected(
        partition=number,
        owner_epoch=writer.epoch,
        owner=owner,
        elected_ms=clock.wall_ms(),
        version=version,
        format_level=FORMAT_LEVEL,
        settings=effective_settings,
    )
    await append_one(writer, elected)
    projector = await _project(log_, number)
    took_ms = clock.monotonic_ms() - started_ms
    members = sum(len(group.members) for group in projector.groups.values())
    ready = CoordinatorReady(
        partition=number,
        owner_epoch=writer.epoch,
        owner=owner,
        ready_ms=clock.wall_ms(),
        took_ms=took_ms,
        events_read=projector.events_read,
        groups=len(projector.groups),
        members=members,
        incarnation_max=projector.incarnation_max,
    )
    await append_one(writer, ready)
    log.info(
        "partition ready",
        partition=number,
        epoch=writer.epoch,
        took_ms=took_ms,
        events=projector.events_read,
        groups=len(projector.groups),
        members=members,
    )
    outbox = Outbox(writer, offsets, lost)
    partition = Partition(
        number,
        outbox=outbox,
        epoch=writer.epoch,
        owner=owner,
        settings=settings,
        clock=clock,
        incarnation_max=projector.incarnation_max,
        quarantined=projector.quarantined,
    )
    for broken in projector.quarantined.values():
        log.error(
            "group quarantined: a record of it cannot be read",
            group_id=broken.group_id,
            log=log_.location,
            partition=broken.partition,
            offset=broken.offset,
            reason=broken.reason,
        )
    partition.adopt(group for group_id, group in projector.groups.items() if group_id not in projector.quarantined)
    return Ownership(partition, outbox, writer, owner, clock)


async def append_one(writer: LogWriter, event: CoordinatorElected | CoordinatorReady) -> None:
    """Append one event of the partition itself."""
    (verdict,) = await writer.append([records_of([event])])
    if isinstance(verdict, AppendRefused):
        raise LogUnavailable(
            f"partition {writer.partition}: {type(event).__name__} of {verdict.size_bytes} bytes was refused, "
            f"the limit is {verdict.limit_bytes} bytes"
        )


async def _project(log_: EventLog, number: int) -> Projector:
    projector = Projector()
    async for chunk in log_.read(number):
        for record in chunk:
            projector.feed(record)
    return projector
