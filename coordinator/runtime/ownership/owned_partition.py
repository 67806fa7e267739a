"""A partition that this process owns: its groups, its writer, the renewal of its claim, its end."""

import asyncio
from contextlib import suppress
from functools import partial

import msgspec
import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_fixed

from muster.coordinator.foreign_records import ForeignRecordsWatch
from muster.coordinator.runtime.ownership.fencing import fence, fence_record
from muster.coordinator.runtime.ownership.lease_keeper import KeptLease
from muster.coordinator.runtime.partition.answer_lease import AnswerLease
from muster.coordinator.runtime.partition.outbox import OnLost, Outbox, OutboxEnded
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.runtime.partition.partition import Partition
from muster.coordinator.tasks import on_failure
from muster.events.avro.codec import decode, records_of
from muster.events.events import AnyRecordedEvent, CoordinatorElected, CoordinatorReady, CoordinatorStopped
from muster.events.log.base import Deposed, EventLog, LogError, LogUnavailable, LogWriter
from muster.events.log.succession import check_no_other_writer
from muster.events.projector import Projector
from muster.events.records import EventsError, StoredRecord

log = structlog.get_logger(__name__)

READ_TIMEOUT_S = 5.0


async def report_successor(event_log: EventLog, writer: LogWriter, deposed: Deposed, *, shares: bool) -> None:
    """Name the successor in the error, if it can be found in time, and log it.

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
    """Return the first fence record of a newer owner from an offset onwards; None if there is none.

    Records that cannot be decoded are skipped. Raises LogUnavailable and EventsError.
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


RENEWAL_RETRY_S = 60.0
"""Pause between two attempts to renew a claim. There are hours left for a renewal to succeed."""


class WaitsFor(msgspec.Struct, frozen=True, kw_only=True):
    """The log that a pending append goes to, and the broker or file that stores it; both as text for messages."""

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
        foreign_records: ForeignRecordsWatch,
        lease: AnswerLease | None,
        lost: OnLost,
    ) -> None:
        self.partition = partition
        self._foreign_records = foreign_records
        self._owner = owner
        self._outbox = outbox
        self._writer = writer
        self._lost = lost
        self._renewing: asyncio.Task[None] | None = None
        self.kept: KeptLease | None = None
        if lease is not None:
            self.kept = KeptLease(lease, outbox, is_renewing=lambda: self.is_renewing, lost=lost)
        """The answer lease, if the log needs one."""
        self._old_leases_task = asyncio.create_task(self._wait_for_old_leases(), name=f"old-leases-{partition.number}")
        self._old_leases_task.add_done_callback(on_failure(lost))

    @property
    def waits(self) -> tuple[WaitsFor, float] | None:
        """The log that the current append waits for, and the seconds it has waited. Thread-safe."""
        waits = self._outbox.waits
        if waits is None:
            return None
        write, waited_s = waits
        own_log = self._owner.offsets.own_log if write.of_offsets else None
        event_log = own_log or self._owner.event_log
        return WaitsFor(log=event_log.location, whom=event_log.stored_by(self.partition.number)), waited_s

    @property
    def writer(self) -> LogWriter:
        """The current writer; a renewal replaces it."""
        return self._writer

    @property
    def is_renewing(self) -> bool:
        """Return whether a newer claim of this process may be on its way into the log."""
        return self._renewing is not None and not self._renewing.done()

    def renew(self) -> None:
        """Renew the claim in the background, before the log forgets it."""
        if not self.is_renewing:
            self._renewing = asyncio.create_task(self._renew_until_ended(), name=f"renew-{self.partition.number}")
            self._renewing.add_done_callback(on_failure(self._lost))

    async def durable_state(self) -> Projector | None:
        """Return the state of the partition between two writes, equal to what replaying the log up to there would give.

        Returns None if the state is not known at that time. Raises OutboxEnded if the partition is lost in the
        meantime.
        """
        state: Projector | None = None

        async def take() -> None:
            nonlocal state
            state = self._durable_state()

        await self._outbox.between_writes(take)
        return state

    async def stop(self) -> None:
        """Wait until pending writes are durable, then write CoordinatorStopped.

        It is not written while a former owner may still respond, because the next owner defers nothing after it.
        """
        await self._foreign_records.close()
        await self._end_renewal()
        self._old_leases_task.cancel()
        try:
            await self._outbox.drained()
        finally:
            await self._outbox.close()  # also if this was cancelled
        if self._old_lease_left_ms:
            return
        stopped = CoordinatorStopped(
            partition=self._writer.partition,
            owner_epoch=self._writer.epoch,
            owner=self._owner.name,
            stopped_ms=self._owner.clock.wall_ms(),
            uptime_ms=self._owner.clock.monotonic_ms(),
        )
        await self._writer.append([records_of([stopped], self._owner.event_log.format_level)])

    async def abandon(self) -> None:
        """Stop without writing anything, because this process can no longer write to the log."""
        await self._foreign_records.close()
        await self._end_renewal()
        self._old_leases_task.cancel()
        await self._outbox.close()

    async def report_successor(self, deposed: Deposed, *, shares: bool) -> None:
        """Find the process that has taken the partition over, and name it in the error and in a log line."""
        await report_successor(self._owner.event_log, self._writer, deposed, shares=shares)

    def _durable_state(self) -> Projector | None:
        next_offset = self._writer.next_offset
        if (
            next_offset is None
            or not self.partition.is_in_memory_state_complete
            or not self._foreign_records.is_up_to_date
        ):
            return None
        projector = Projector()
        for group in self.partition.groups():
            projector.resume_group(group, has_own_record=True)
        projector.next_offset = next_offset
        projector.served_by = self._owner.name
        projector.incarnation_max = self.partition.incarnation_max
        # No deletion is pending, not even of offsets. The last event says that this owner serves and has not stopped.
        projector.last_partition_event = CoordinatorReady(
            partition=self.partition.number,
            owner_epoch=self._writer.epoch,
            owner=self._owner.name,
            ready_ms=self._owner.clock.wall_ms(),
            took_ms=0,
            events_read=0,
            groups=len(projector.groups),
            members=0,
            incarnation_max=projector.incarnation_max,
        )
        return projector

    @property
    def _old_lease_left_ms(self) -> int:
        return self._owner.old_leases.left_ms(self.partition.number, self._owner.boot_ms())

    async def _wait_for_old_leases(self) -> None:
        """Wait until former owners can no longer respond; then resume writes."""
        while left_ms := self._old_lease_left_ms:  # noqa: ASYNC110 -- it is not the loop's clock
            await asyncio.sleep(left_ms / 1000)
        await self.partition.resume_writes()

    async def _end_renewal(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)

    async def _renew_until_ended(self) -> None:
        with suppress(OutboxEnded):  # the partition was lost, and the code that lost it handles the error
            await self._renew()

    async def _renew(self) -> None:
        # If another process has claimed the partition this append fails, whereas a claim would take the partition back.
        # A process that claims it between this append and the switch has written something, which is checked in the
        # switch.
        owner, number = self._owner, self.partition.number
        await self._outbox.appended(fence_record(owner, self._writer))
        writer, before = await self._claim_with_retries(), self._writer

        async def switch() -> None:
            await fence(owner, writer)
            await check_no_other_writer(owner.event_log, before, writer)
            self._outbox.switch_to(writer)
            self._writer = writer
            self.partition.epoch = writer.epoch
            owner.old_leases.served(number, writer.epoch)

        await self._outbox.between_writes(switch)
        await owner.offsets.renew(number, partial(self._outbox.between_writes, of_offsets=True))
        log.debug("claim renewed", partition=number, epoch=writer.epoch)

    async def _claim_with_retries(self) -> LogWriter:
        """Claim a newer writer, retrying while the log is unavailable; until then the current one can append."""

        def report(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            log.warning(
                "could not renew the claim of a served partition, trying again",
                partition=self.partition.number,
                error=str(error),
            )

        attempts = AsyncRetrying(
            retry=retry_if_exception_type(LogUnavailable), wait=wait_fixed(RENEWAL_RETRY_S), before_sleep=report
        )
        return await attempts(self._owner.event_log.claim, self.partition.number)
