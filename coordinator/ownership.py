"""Taking a partition over: claim it, write the fence record, read up to that record, serve.

The fence record comes first because until the new owner's first append the log still takes the old owner's (see the
event log's contract); only what was read up to the fence record is complete.
"""

import asyncio
from collections.abc import Mapping

import msgspec
import structlog

from coordinator.clock import Clock
from coordinator.group.offsets import OffsetsChange
from coordinator.group.settings import GroupSettings
from coordinator.offsets.base import OffsetStore
from coordinator.outbox import Lost, Outbox
from coordinator.partition import Partition
from coordinator.slot import Watch, nobody_watches
from events.codec import decode, records_of
from events.events import CoordinatorElected, CoordinatorReady, CoordinatorStopped
from events.loading import Loading
from events.log.base import AppendRefused, EventLog, LogUnavailable, LogWriter
from events.partitioner import partition_for
from events.projector import FORMAT_LEVEL, Projector

log = structlog.get_logger(__name__)


class Owner(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Who takes partitions over, and what for: the same for all partitions of a process."""

    name: str
    """`host:pid`, as it stands in the log."""
    version: str
    event_log: EventLog
    offsets: OffsetStore
    settings: GroupSettings
    effective_settings: Mapping[str, str]
    """By Kafka's names, for the fence record."""
    clock: Clock
    watch: Watch = nobody_watches


class Ownership:
    """One partition, owned: its writer, its groups, and how it was given up."""

    def __init__(self, owner: Owner, partition: Partition, outbox: Outbox, writer: LogWriter) -> None:
        self.partition = partition
        self._owner = owner
        self._outbox = outbox
        self._writer = writer

    def renew(self) -> None:
        """Claim the partition again, lest the log forget this claim. Nobody is kept waiting for longer than that."""
        self._outbox.renew(self._claim_again)

    async def stop(self) -> None:
        """Let what is under way become durable, and say goodbye in the log."""
        await self._outbox.drained()
        await self._outbox.close()
        stopped = CoordinatorStopped(
            partition=self._writer.partition,
            owner_epoch=self._writer.epoch,
            owner=self._owner.name,
            stopped_ms=self._owner.clock.wall_ms(),
        )
        await self._writer.append([records_of([stopped])])

    async def abandon(self) -> None:
        """End it without a word: the log is lost to us."""
        await self._outbox.close()

    async def _claim_again(self) -> LogWriter:
        # Whoever has claimed it since deposes this owner for good: an append tells, where a claim would take it back.
        # Who claims it between this append and the next one has written something, which is not known here.
        owner, number = self._owner, self._writer.partition
        start = await owner.event_log.end_offset(number)
        await fence(owner, self._writer)
        self._writer = await claim_and_fence(owner, number)
        await check_nobody_else_wrote(owner, number, start)
        await owner.offsets.claim(number)
        self.partition.epoch = self._writer.epoch
        log.debug("claim renewed", partition=self._writer.partition, epoch=self._writer.epoch)
        return self._writer


async def take_over(owner: Owner, number: int, *, lost: Lost) -> Ownership:
    """Own the partition. Raises LogError, and EventsError for a history that cannot be served."""
    clock = owner.clock
    started_ms = clock.monotonic_ms()
    writer = await claim_and_fence(owner, number)
    projector = await _project(owner.event_log, writer)
    await owner.offsets.claim(number)
    await _finish_deletions(owner, number, projector)
    took_ms = clock.monotonic_ms() - started_ms
    members = sum(len(group.members) for group in projector.groups.values())
    ready = CoordinatorReady(
        partition=number,
        owner_epoch=writer.epoch,
        owner=owner.name,
        ready_ms=clock.wall_ms(),
        took_ms=took_ms,
        events_read=projector.events_read,
        groups=len(projector.groups),
        members=members,
        incarnation_max=projector.incarnation_max,
    )
    await _append_one(writer, ready)
    log.info(
        "partition ready",
        partition=number,
        epoch=writer.epoch,
        took_ms=took_ms,
        events=projector.events_read,
        groups=len(projector.groups),
        members=members,
    )
    for broken in projector.quarantined.values():
        log.error(
            "group quarantined: a record of it cannot be read",
            group_id=broken.group_id,
            log=owner.event_log.location,
            partition=broken.partition,
            offset=broken.offset,
            reason=broken.reason,
        )
    outbox = Outbox(writer, owner.offsets, lost)
    partition = Partition(
        number,
        outbox=outbox,
        epoch=writer.epoch,
        owner=owner.name,
        settings=owner.settings,
        clock=clock,
        incarnation_max=projector.incarnation_max,
        quarantined=projector.quarantined,
        committed=owner.offsets.committed,
        watch=owner.watch,
    )
    partition.adopt(group for group_id, group in projector.groups.items() if group_id not in projector.quarantined)
    return Ownership(owner, partition, outbox, writer)


async def claim_and_fence(owner: Owner, number: int) -> LogWriter:
    """A writer that alone may append. Raises LogError."""
    writer = await owner.event_log.claim(number)
    await fence(owner, writer)
    return writer


async def check_nobody_else_wrote(owner: Owner, number: int, start: int) -> None:
    """Raises LogUnavailable when the log has more from `start` on than this owner's fence records: read it again."""
    async for chunk in owner.event_log.read(number, start=start):
        for record in chunk:
            event = None if record.value is None else decode(record.value)
            if not isinstance(event, CoordinatorElected) or event.owner != owner.name:
                raise LogUnavailable(f"partition {number}: somebody else wrote while the claim was renewed")


async def fence(owner: Owner, writer: LogWriter) -> None:
    """Write the fence record: from here on no older writer appends. Raises LogError."""
    elected = CoordinatorElected(
        partition=writer.partition,
        owner_epoch=writer.epoch,
        owner=owner.name,
        elected_ms=owner.clock.wall_ms(),
        version=owner.version,
        format_level=FORMAT_LEVEL,
        settings=dict(owner.effective_settings),
    )
    await _append_one(writer, elected)


async def _append_one(writer: LogWriter, event: CoordinatorElected | CoordinatorReady) -> None:
    """Append one event of the partition itself."""
    (verdict,) = await writer.append([records_of([event])])
    if isinstance(verdict, AppendRefused):
        raise LogUnavailable(
            f"partition {writer.partition}: {type(event).__name__} of {verdict.size_bytes} bytes was refused, "
            f"the limit is {verdict.limit_bytes} bytes"
        )


async def _finish_deletions(owner: Owner, number: int, projector: Projector) -> None:
    """Offsets are written after the events of their group: a deletion may have been cut short between the two."""
    orphans = [
        group_id
        for group_id in owner.offsets.group_ids()
        if partition_for(group_id, owner.event_log.partitions) == number
        and group_id not in projector.groups
        and group_id not in projector.quarantined
    ]
    if orphans:
        log.info("removing offsets of deleted groups", partition=number, groups=len(orphans))
        await owner.offsets.write([OffsetsChange(group_id=group_id, all_deleted=True) for group_id in orphans])


async def _project(log_: EventLog, writer: LogWriter) -> Projector:
    """The groups up to the writer's fence record. Raises LogUnavailable when the reading ends before it (L6)."""
    loading = Loading()
    async for chunk in log_.read(writer.partition):
        loading.read(chunk)
    for _ in loading.fold():
        await asyncio.sleep(0)
    last = loading.projector.last_partition_event
    if last is None or last.owner_epoch < writer.epoch:
        raise LogUnavailable(f"partition {writer.partition}: the reading ended before the owner's own fence record")
    return loading.projector
