"""Taking a partition over: claim it, write the fence record, read up to that record, serve.

The fence record comes first because the log accepts the old owner's appends until the new owner's first one (see the
event log's contract); only a reading up to the fence record is complete.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Collection
from functools import partial

import msgspec
import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_fixed

from muster.coordinator.offsets.deleted_topics import refuse_if_event_topic_deleted, refuse_if_offsets_topic_deleted
from muster.coordinator.runtime.orphans import find_orphans, finish_deletions, recreate_groups
from muster.coordinator.runtime.outbox import OnLost, Outbox, partition_record_refused
from muster.coordinator.runtime.owner import Owner
from muster.coordinator.runtime.partition import Partition
from muster.coordinator.runtime.successor import report_successor
from muster.coordinator.strangers import StrangersWatch, gap_between
from muster.coordinator.tasks import on_failure
from muster.events.avro.codec import records_of
from muster.events.damage import Damage, DamageSurvey
from muster.events.events import CoordinatorElected, CoordinatorReady, CoordinatorStopped
from muster.events.ids import GroupId
from muster.events.keys import EntityKind, RecordKey, decode_key
from muster.events.loading import Loading
from muster.events.log.base import AppendRefused, Deposed, EventLog, LogUnavailable, LogWriter
from muster.events.log.succession import check_nobody_else_wrote
from muster.events.projector import Projector
from muster.events.records import Transition, UndecodableKey

log = structlog.get_logger(__name__)

RENEWAL_RETRY_S = 60.0
"""The pause between two attempts to renew a claim; there are hours for it."""


class WaitsFor(msgspec.Struct, frozen=True, kw_only=True):
    """The log that an append waits for, and who has to store it there (a broker or a file), for people."""

    log: str
    whom: str


class OwnedPartition:
    """A partition that this process owns: its groups, its writer, the renewal of its claim."""

    def __init__(
        self,
        owner: Owner,
        partition: Partition,
        outbox: Outbox,
        writer: LogWriter,
        *,
        strangers: StrangersWatch,
        lost: OnLost,
    ) -> None:
        self.partition = partition
        self._strangers = strangers
        self._owner = owner
        self._outbox = outbox
        self._writer = writer
        self._lost = lost
        self._renewing: asyncio.Task[None] | None = None

    @property
    def waits(self) -> tuple[WaitsFor, float] | None:
        """The wait of the present append, and for how many seconds. Thread-safe."""
        waits = self._outbox.waits
        if waits is None:
            return None
        write, waited_s = waits
        own_log = self._owner.offsets.own_log if write.of_offsets else None
        event_log = own_log or self._owner.event_log
        return WaitsFor(log=event_log.location, whom=event_log.stored_by(self.partition.number)), waited_s

    @property
    def writer(self) -> LogWriter:
        """The writer of this process; a renewal replaces it."""
        return self._writer

    @property
    def is_renewing(self) -> bool:
        """Whether a newer claim of this process's may be on its way into the log."""
        return self._renewing is not None and not self._renewing.done()

    def renew(self) -> None:
        """Renew the claim in the background, before the log forgets it; nothing waits for it."""
        if not self.is_renewing:
            self._renewing = asyncio.create_task(self._renew(), name=f"renew-{self.partition.number}")
            self._renewing.add_done_callback(on_failure(self._lost))

    async def stop(self) -> None:
        """Let what is under way become durable, and write CoordinatorStopped."""
        await self._strangers.close()
        await self._end_renewal()
        await self._outbox.drained()
        await self._outbox.close()
        stopped = CoordinatorStopped(
            partition=self._writer.partition,
            owner_epoch=self._writer.epoch,
            owner=self._owner.name,
            stopped_ms=self._owner.clock.wall_ms(),
            uptime_ms=self._owner.clock.monotonic_ms(),
        )
        await self._writer.append([records_of([stopped], self._owner.event_log.format_level)])

    async def abandon(self) -> None:
        """Stop without writing anything, since the log is lost to us."""
        await self._strangers.close()
        await self._end_renewal()
        await self._outbox.close()

    async def report_successor(self, deposed: Deposed) -> None:
        """Find out who has taken the partition over, and say so in the error and in the log."""
        await report_successor(self._owner.event_log, self._writer, deposed)

    async def _end_renewal(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)

    async def _renew(self) -> None:
        # If another process has claimed the partition an append fails, where a claim would take the partition back.
        # A process that claims it between this append and the switch has written something, which is checked there.
        owner, number = self._owner, self.partition.number
        await self._outbox.appended(fence_record(owner, self._writer))
        writer, before = await self._claim_patiently(), self._writer

        async def switch() -> None:
            await fence(owner, writer)
            await check_nobody_else_wrote(owner.event_log, before, writer)
            self._outbox.go_on_with(writer)
            self._writer = writer
            self.partition.epoch = writer.epoch

        await self._outbox.between_writes(switch)
        await owner.offsets.renew(number, partial(self._outbox.between_writes, of_offsets=True))
        log.debug("claim renewed", partition=number, epoch=writer.epoch)

    async def _claim_patiently(self) -> LogWriter:
        """Claim a newer writer, retrying while the log is unavailable; the former one can append until it does."""

        def report(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            log.warning(
                "the claim of a partition that is served could not be renewed yet, trying again",
                partition=self.partition.number,
                error=str(error),
            )

        attempts = AsyncRetrying(
            retry=retry_if_exception_type(LogUnavailable), wait=wait_fixed(RENEWAL_RETRY_S), before_sleep=report
        )
        return await attempts(self._owner.event_log.claim, self.partition.number)


LastSignOf = Callable[[str], Awaitable[int | None]]
"""Finds the wall time (ms) of an owner's last sign of life; None: none is known."""


async def take_over(owner: Owner, number: int, *, last_sign_of: LastSignOf, lost: OnLost) -> OwnedPartition:
    """Take the partition over. Raises LogError, and EventsError for a history that cannot be served."""
    clock = owner.clock
    started_ms = clock.monotonic_ms()
    await refuse_if_event_topic_deleted(owner.event_log, owner.offsets, number)
    writer = await claim_and_fence(owner, number)
    loading = await _load(owner, writer)
    projector = loading.projector
    owner.former_owners.warn_unless_stopped(projector.before_election, by=owner.name, location=owner.event_log.location)
    if projector.groups or projector.quarantined:
        await refuse_if_offsets_topic_deleted(owner.event_log, owner.offsets, number)
    recreated = await _claim_offsets(owner, writer, projector)
    seen_ms = None if projector.served_by is None else await last_sign_of(projector.served_by)
    ready = _ready(owner, writer, projector, started_ms=started_ms, owner_before_seen_ms=seen_ms)
    await _append_ready(owner, writer, ready)
    damages = await _damages(owner.event_log, writer, projector)
    _name_quarantined(owner, projector)
    outbox = Outbox(writer, owner.offsets, lost)
    partition = Partition(
        owner,
        number,
        outbox=outbox,
        epoch=writer.epoch,
        incarnation_max=projector.incarnation_max,
        quarantined=damages,
        lost=lost,
    )
    groups = [group for group_id, group in projector.groups.items() if group_id not in projector.quarantined]
    try:
        await partition.add_loaded_groups(groups)
    except asyncio.CancelledError:
        await outbox.close()
        raise
    partition.rewrite(loading.overwritten)

    async def rewrite(keys: Collection[bytes]) -> None:
        partition.rewrite(filter(None, map(_entity, keys)))

    strangers = StrangersWatch(owner.event_log, number, owner.strangers, rewrite=rewrite, failed=lost)
    outbox.strangers_noticed = strangers.notice
    if gap := gap_between(projector.next_offset, writer.next_offset, recreated + 1):  # since the end of the reading
        strangers.notice(gap)
    return OwnedPartition(owner, partition, outbox, writer, strangers=strangers, lost=lost)


def _ready(
    owner: Owner,
    writer: LogWriter,
    projector: Projector,
    *,
    started_ms: int,
    owner_before_seen_ms: int | None,
) -> CoordinatorReady:
    now_ms = owner.clock.monotonic_ms()
    return CoordinatorReady(
        partition=writer.partition,
        owner_epoch=writer.epoch,
        owner=owner.name,
        ready_ms=owner.clock.wall_ms(),
        took_ms=now_ms - started_ms,
        events_read=projector.events_read,
        groups=len(projector.groups),
        members=sum(len(group.members) for group in projector.groups.values()),
        incarnation_max=projector.incarnation_max,
        uptime_ms=now_ms,
        owner_before=projector.served_by,
        owner_before_seen_ms=owner_before_seen_ms,
    )


async def _append_ready(owner: Owner, writer: LogWriter, ready: CoordinatorReady) -> None:
    """Write, and say, that the partition is served from here on."""
    await _append_one(writer, records_of([ready], owner.event_log.format_level))
    log.info(
        "partition ready",
        partition=ready.partition,
        epoch=ready.owner_epoch,
        took_ms=ready.took_ms,
        events=ready.events_read,
        groups=ready.groups,
        members=ready.members,
    )


def _entity(key: bytes) -> RecordKey | None:
    """Decode the key of a group's entity; None for any other key."""
    try:
        entity = decode_key(key)
    except UndecodableKey:
        return None
    return None if entity.kind is EntityKind.PARTITION else entity


def _name_quarantined(owner: Owner, projector: Projector) -> None:
    for broken in projector.quarantined.values():
        log.error(
            "group quarantined: a record of it cannot be read",
            group_id=broken.group_id,
            log=owner.event_log.location,
            partition=broken.partition,
            offset=broken.offset,
            reason=broken.reason,
            way_out=f"muster groups repair {shlex.quote(broken.group_id)} --bootstrap {owner.bootstrap}",
        )


async def claim_and_fence(owner: Owner, number: int) -> LogWriter:
    """Claim a partition, and write the fence record; returns the only writer. Raises LogError."""
    writer = await owner.event_log.claim(number)
    await fence(owner, writer)
    return writer


def fence_record(owner: Owner, writer: LogWriter) -> Transition:
    """Make the fence record, after which no older writer can append."""
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
    await _append_one(writer, fence_record(owner, writer))


async def _append_one(writer: LogWriter, transition: Transition) -> None:
    """Append a record about the partition itself."""
    (verdict,) = await writer.append([transition])
    if isinstance(verdict, AppendRefused):
        raise partition_record_refused(writer, verdict)


async def _claim_offsets(owner: Owner, writer: LogWriter, projector: Projector) -> int:
    """Claim the offsets of the partition, and handle those without a group; returns how many groups were recreated."""
    number, offsets = writer.partition, owner.offsets
    with_offsets = await offsets.claim(number)
    orphans = await find_orphans(with_offsets, projector, number, owner.event_log.partitions, owner.slices)
    unknown = set[GroupId]() if offsets.own_log is None else orphans - projector.deleted
    await finish_deletions(offsets, number, orphans - unknown)
    if offsets.own_log is not None:
        settings, clock, events = owner.settings, owner.clock, owner.event_log
        await recreate_groups(
            unknown, projector, writer, settings=settings, clock=clock, events=events, offsets=offsets.own_log
        )
    return len(unknown)


async def _damages(log_: EventLog, writer: LogWriter, projector: Projector) -> dict[GroupId, Damage]:
    """Survey the damage of quarantined groups, in another reading of the log if there are any."""
    if not projector.quarantined:
        return {}
    survey = DamageSurvey(projector)
    async for chunk in log_.read(writer.partition):
        survey.read(chunk)
    return survey.damages()


async def _load(owner: Owner, writer: LogWriter) -> Loading:
    """Load the groups up to the writer's fence record. Raises LogUnavailable if the reading ends before it (L6)."""
    loading = Loading(owner.strangers.reading(writer.partition))
    async for chunk in owner.event_log.read(writer.partition):
        loading.read(chunk)
    for _ in loading.fold():
        await asyncio.sleep(0)
    last = loading.projector.last_partition_event
    if last is None or last.owner_epoch < writer.epoch:
        raise LogUnavailable(
            f"partition {writer.partition}: the reading ended before the record that this process had written when it"
            " claimed the partition"
        )
    owner.strangers.report(loading.strangers, owner.event_log.location)
    return loading
