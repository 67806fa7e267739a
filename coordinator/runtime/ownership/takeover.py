"""Taking a partition over: claim it, write the fence record, read up to that record, serve.

The fence record comes first because the log accepts the old owner's appends until the new owner's first one (see the
event log's contract); only a reading up to the fence record is complete. Who has followed the partition reads on from
where it is (standbys.py). While the old owner may still answer from memory, the new one answers too, and puts off
whatever would change something (`CommandProcessor`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

import structlog

from muster.coordinator.observability.metrics import TakeoverPhase
from muster.coordinator.offsets.deleted_topics import refuse_if_event_topic_deleted, refuse_if_offsets_topic_deleted
from muster.coordinator.offsets.reading import ClaimedOffsets, FollowedOffsets
from muster.coordinator.reading import Standby, read_to_fence
from muster.coordinator.runtime.ownership.fencing import append_one, fence
from muster.coordinator.runtime.ownership.hot_standbys import ReadBefore
from muster.coordinator.runtime.ownership.orphans import find_orphans, finish_deletions, recreate_groups
from muster.coordinator.runtime.ownership.owned_partition import OwnedPartition
from muster.coordinator.runtime.ownership.ownership_end import EndOf, end_of_former_owner
from muster.coordinator.runtime.ownership.partition_lines import PhaseTimer, ReadyLog
from muster.coordinator.runtime.partition.answer_lease import AnswerLease
from muster.coordinator.runtime.partition.outbox import OnLost, Outbox
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.runtime.partition.partition import Partition
from muster.coordinator.runtime.partition.quarantine import way_out
from muster.coordinator.strangers_watch import StrangersWatch, gap_between
from muster.events.avro.codec import records_of
from muster.events.damage import Damage, DamageSurvey
from muster.events.events import AnyPartitionEvent, CoordinatorReady
from muster.events.ids import GroupId
from muster.events.keys import EntityKind, RecordKey, decode_key
from muster.events.loading import Loading
from muster.events.log.base import EventLog, LogUnavailable, LogWriter
from muster.events.ownership import OwnershipEnd
from muster.events.projector import Projector
from muster.events.records import UndecodableKey

log = structlog.get_logger(__name__)

LastSignOf = Callable[[str], Awaitable[int | None]]
"""Finds the wall time (ms) of an owner's last sign of life; None: none is known."""


async def take_over(
    owner: Owner,
    number: int,
    *,
    last_sign_of: LastSignOf,
    end_of: EndOf,
    lost: OnLost,
    ready_log: ReadyLog,
    read_before: ReadBefore,
) -> OwnedPartition:
    """Take the partition over. Raises LogError, and EventsError for a history that cannot be served.

    `read_before`: by standbys, if this process has followed the partition; what is not spent then can be used again if
    this fails.
    """
    clock = owner.clock
    started_ms, phases = clock.monotonic_ms(), PhaseTimer(clock.monotonic_ms)
    lease = None if owner.answer_lease_ms is None else AnswerLease(owner.answer_lease_ms, owner.boot_ms)
    offsets_were_owned = await owner.offsets.begin_claim(number)
    writer = await owner.event_log.claim(number)
    refuse_if_event_topic_deleted(owner.event_log, owner.offsets, writer, offsets_were_owned=offsets_were_owned)
    await fence(owner, writer)
    fenced_ms = owner.boot_ms()
    phases.end(TakeoverPhase.CLAIM)
    loading, events_read = await _loaded(owner, writer, read_before.events)
    phases.end(TakeoverPhase.READ)
    projector = loading.projector
    _warn_of_former_owner(owner, number, projector.before_election)
    if not offsets_were_owned and (projector.groups or projector.quarantined):
        await refuse_if_offsets_topic_deleted(owner.event_log, owner.offsets, number)
    recreated, offsets_read = await _claim_offsets(owner, writer, projector, read_before)
    seen_ms = None if projector.served_by is None else await last_sign_of(projector.served_by)
    if lease is not None:
        owner.old_leases.taken_over(number, projector.before_election, fenced_ms=fenced_ms, lease_ms=lease.lease_ms)
    phases.end(TakeoverPhase.OFFSETS)
    ready = _ready(
        owner,
        writer,
        projector,
        events_read=events_read,
        started_ms=started_ms,
        owner_before_seen_ms=seen_ms,
        owner_before_end=end_of_former_owner(owner, number, projector, end_of),
    )
    sent_ms = owner.boot_ms()
    await append_one(writer, records_of([ready], owner.event_log.format_level))
    ready_log.note(ready, offsets_read=offsets_read)
    owner.old_leases.served(number, writer.epoch)
    if lease is not None:
        lease.proven(sent_ms)
    phases.end(TakeoverPhase.READY)
    damages = await _damages(owner.event_log, writer, projector)
    _name_quarantined(owner, projector)
    read_before.spend()
    outbox = Outbox(writer, owner.offsets, lost, lease)
    partition = Partition(
        owner,
        number,
        outbox=outbox,
        epoch=writer.epoch,
        incarnation_max=projector.incarnation_max,
        quarantined=damages,
        lost=lost,
        lease=lease,
        puts_off=owner.old_leases.left_ms(number, owner.boot_ms()) > 0,
    )
    groups = [group for group_id, group in projector.groups.items() if group_id not in projector.quarantined]
    try:
        await partition.add_loaded_groups(groups)
    except asyncio.CancelledError:
        await outbox.close()
        raise
    partition.rewrite(loading.overwritten)
    phases.end(TakeoverPhase.RESUME)
    strangers = _watch(owner, partition, outbox, lost)
    if gap := gap_between(projector.next_offset, writer.next_offset, recreated + 1):  # since the end of the reading
        strangers.notice(gap)
    return OwnedPartition(owner, partition, outbox, writer, strangers=strangers, lease=lease, lost=lost)


def _watch(owner: Owner, partition: Partition, outbox: Outbox, lost: OnLost) -> StrangersWatch:
    async def rewrite(keys: Collection[bytes]) -> None:
        partition.rewrite(filter(None, map(_entity, keys)))

    watch = StrangersWatch(owner.event_log, partition.number, owner.strangers, rewrite=rewrite, failed=lost)
    outbox.strangers_noticed = watch.notice
    return watch


def _ready(
    owner: Owner,
    writer: LogWriter,
    projector: Projector,
    *,
    events_read: int,
    started_ms: int,
    owner_before_seen_ms: int | None,
    owner_before_end: OwnershipEnd | None,
) -> CoordinatorReady:
    now_ms = owner.clock.monotonic_ms()
    return CoordinatorReady(
        partition=writer.partition,
        owner_epoch=writer.epoch,
        owner=owner.name,
        ready_ms=owner.clock.wall_ms(),
        took_ms=now_ms - started_ms,
        events_read=events_read,
        groups=len(projector.groups),
        members=sum(len(group.members) for group in projector.groups.values()),
        incarnation_max=projector.incarnation_max,
        uptime_ms=now_ms,
        owner_before=projector.served_by,
        owner_before_seen_ms=owner_before_seen_ms,
        owner_before_end=owner_before_end,
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
            way_out=way_out(broken.group_id, owner.bootstrap),
        )


async def _claim_offsets(
    owner: Owner, writer: LogWriter, projector: Projector, read_before: ReadBefore
) -> tuple[int, int]:
    """Claim the offsets of the partition, and handle those without a group.

    Returns how many groups were recreated, and how many records of offsets were read.
    """
    number, offsets = writer.partition, owner.offsets
    if isinstance(offsets, FollowedOffsets):
        claimed = await offsets.claim_by(number, read_before.offsets)
    else:
        claimed = ClaimedOffsets(groups=await offsets.claim(number), records_read=0)
    orphans = await find_orphans(claimed.groups, projector, number, owner.event_log.partitions, owner.slices)
    unknown = set[GroupId]() if offsets.own_log is None else orphans.difference(projector.deleted)
    if orphans:
        read_before.spend()  # it is changed by what is written now, which it has not read
    await finish_deletions(offsets, number, orphans - unknown)
    if offsets.own_log is not None:
        settings, clock, events = owner.settings, owner.clock, owner.event_log
        await recreate_groups(
            unknown, projector, writer, settings=settings, clock=clock, events=events, offsets=offsets.own_log
        )
    return len(unknown), claimed.records_read


async def _damages(log_: EventLog, writer: LogWriter, projector: Projector) -> dict[GroupId, Damage]:
    """Survey the damage of quarantined groups, in another reading of the log if there are any."""
    if not projector.quarantined:
        return {}
    survey = DamageSurvey(projector)
    async for chunk in log_.read(writer.partition):
        survey.read(chunk)
    return survey.damages()


def _warn_of_former_owner(owner: Owner, number: int, last_event: AnyPartitionEvent | None) -> None:
    if not owner.old_leases.is_ours(number, last_event):
        owner.former_owners.warn_unless_stopped(
            last_event, by=owner.name, location=owner.event_log.location, now_ms=owner.clock.monotonic_ms()
        )


async def _loaded(owner: Owner, writer: LogWriter, standby: Standby[Loading] | None) -> tuple[Loading, int]:
    """Load the groups up to the writer's fence record; returns how many events were read for it, too.

    Raises LogUnavailable if the reading ends before that record (L6).
    """
    before = 0 if standby is None else standby.loading.events_read
    loading = await read_to_fence(
        owner.event_log, writer, standby, lambda: Loading(owner.strangers.reading(writer.partition))
    )
    if standby is None or loading is not standby.loading:
        before = 0
    last = loading.projector.last_partition_event
    if last is None or last.owner_epoch < writer.epoch:
        raise LogUnavailable(
            f"partition {writer.partition}: the reading ended before the record that this process had written when it"
            " claimed the partition"
        )
    owner.strangers.report(loading.strangers, owner.event_log.location)
    return loading, loading.events_read - before
