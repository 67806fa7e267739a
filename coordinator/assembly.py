"""Assembly of the parts that both modes have: the event log, the runtime, the metrics endpoint.

Creates each part from the settings, and undoes it when the process stops. The listeners for clients are made elsewhere.
"""

import asyncio
import itertools
import os
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from importlib.metadata import version

import structlog
from prometheus_client.registry import Collector

from muster import DISTRIBUTION
from muster.coordinator.clock import Clock
from muster.coordinator.cluster import Cluster
from muster.coordinator.garbage import collect_in_slices, kept_from_collection
from muster.coordinator.group.retention import MINUTE_MS
from muster.coordinator.load.answer_memory import answer_memory_of
from muster.coordinator.load.slices import Slices
from muster.coordinator.log_settings_watch import LogSettingsWatch
from muster.coordinator.net.free_files import FreeFiles
from muster.coordinator.observability.group_metrics import NAMED_GROUPS
from muster.coordinator.observability.loop_watch import LoopWatch
from muster.coordinator.observability.metrics import REGISTRY, ServerMetrics
from muster.coordinator.observability.metrics_endpoint import MetricsEndpoint
from muster.coordinator.observability.process_metrics import process_collectors
from muster.coordinator.observability.status import Identity, StatusParts, StatusReport
from muster.coordinator.offsets.base import OffsetStore
from muster.coordinator.random_uuids import RandomUuids
from muster.coordinator.runtime.ownership.log_outage import LogOutage
from muster.coordinator.runtime.ownership.snapshots import SnapshotFolder
from muster.coordinator.runtime.partition.group_context import (
    AskAboutSilence,
    GenerationListener,
    ignore_generations,
    members_reachable,
)
from muster.coordinator.runtime.partition.owner import Owner, ignore_partition
from muster.coordinator.runtime.partition.refused_joins import RefusedJoins
from muster.coordinator.runtime.partition.retention_clock import RetentionClock
from muster.coordinator.runtime.partition.waiting import RequestBacklog
from muster.coordinator.runtime.partition.waiting_limit import WaitingQuota
from muster.coordinator.runtime.runtime import Runtime
from muster.coordinator.runtime.unassigned_watch import PartitionCounts, UnassignedWatch
from muster.coordinator.service import Cancel, Groups, Service
from muster.coordinator.settings.addresses import Address, why_not_bound
from muster.coordinator.settings.certificates import Certificates
from muster.coordinator.settings.file_watch import watch_file
from muster.coordinator.settings.settings import Settings
from muster.coordinator.settings.sidecar import FRONTEND
from muster.coordinator.tasks import on_failure
from muster.events.kafka.addresses import KnownBrokers
from muster.events.kafka.tls_files import contexts_of_files
from muster.events.log.base import EventLog, LogMissing, LogUnavailable, WatchedLog
from muster.events.log.kafka.log import KafkaEventLog
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.log.url import InvalidLogUrl, open_log

log = structlog.get_logger(__name__)

SLOW_OPENING_S = 10.0
"""An event log that takes longer to open is reported."""
TRIM_INTERVAL_S = 60.0
TRIM_PAUSE_S = 0.2
"""Pause between two pieces of a trim: appends wait while one is processed."""


class CannotServe(Exception):
    """A setting cannot be used; the message names it and says what to do."""


class Readiness:
    """The reason why the process is not ready, for /readyz; None if it is. The parts set `reason` in turn."""

    def __init__(self, clock: Clock) -> None:
        self.reason: Callable[[], str | None] = lambda: "starting"
        self.free_files = FreeFiles()
        self._clock = clock

    def __call__(self) -> str | None:
        return "; ".join(filter(None, (self.free_files.shortage, self.reason()))) or None

    async def retry_until_available(
        self,
        opening: Callable[[], Awaitable[None]],
        location: str,
        trouble: Callable[[], str | None],
        opened: EventLog | None = None,
    ) -> None:
        """Open the event log, or its offsets; retry and report the reason while it is unavailable.

        An attempt ends only after the log's own timeouts, so a slow one is reported before it ends.
        """
        outage = LogOutage(location, self._clock.monotonic_ms)
        began_ms = self._clock.monotonic_ms()

        def slow() -> str:
            seconds = (self._clock.monotonic_ms() - began_ms) // 1000
            failure = opened.last_failure if isinstance(opened, KafkaEventLog) else None
            for_s = f", for {seconds} s" if seconds >= SLOW_OPENING_S else ""
            return f"the event log is being opened{for_s}" + (f"; last failed request: {failure}" if failure else "")

        def report() -> None:
            if trouble() is None and outage.reason is None:
                log.warning("event log not open yet", log=location, reason=slow())

        self.reason = lambda: trouble() or outage.reason or slow()
        reporting = asyncio.get_running_loop().call_later(SLOW_OPENING_S, report)
        try:
            await outage.retry_until_available(opening)
        finally:
            reporting.cancel()


def new_log(settings: Settings, known_brokers: KnownBrokers) -> EventLog:
    """Create the event log without opening it; read-only in a process that owns no partitions. Raises CannotServe."""
    try:
        return open_log(
            settings.log,
            read_only=settings.role == FRONTEND,
            partitions=settings.log_partitions,
            replication=settings.log_replication,
            audit_window_ms=settings.audit_window_ms,
            security=settings.log_security(),
            known_brokers=known_brokers,
        )
    except InvalidLogUrl as error:
        raise CannotServe(f"{settings.name_of('log')}: {error}") from error


async def keep_open(
    event_log: EventLog,
    settings: Settings,
    stack: AsyncExitStack,
    readiness: Readiness,
    *,
    lost: Callable[[Exception], None],
) -> None:
    """Open the event log until the stack is left, retrying while it is unavailable. Raises any other error.

    A file is watched from then on; `lost` is called if it disappears.
    """
    if isinstance(event_log, SqliteEventLog):
        stack.callback(watch_file(event_log.file, lost=lost).cancel)  # opening may have to wait for the disk, too

    async def open_it() -> None:
        try:
            await event_log.open()
        except LogMissing as missing:
            if settings.role != FRONTEND:
                raise
            raise LogUnavailable(f"{missing}: an owner is waited for, which makes it") from missing

    await readiness.retry_until_available(open_it, settings.log, lambda: event_log.trouble, event_log)
    stack.push_async_callback(event_log.close)
    log_created(event_log)
    for warning in event_log.warnings:
        log.warning("event log opened with a warning", reason=warning)


def log_created(event_log: EventLog | None) -> None:
    """Log which topics were created for a log in Kafka."""
    if isinstance(event_log, KafkaEventLog) and event_log.created:
        log.info("topics created in the cluster", topics=event_log.created, log=event_log.location)


def new_waiting_quota(settings: Settings, metrics: ServerMetrics) -> WaitingQuota:
    return WaitingQuota(each_max=settings.waiting_requests_each_max, metrics=metrics)


def new_owner(
    settings: Settings,
    event_log: EventLog,
    offsets: OffsetStore,
    clock: Clock,
    *,
    on_generation: GenerationListener = ignore_generations,
    on_given_up: Callable[[int], None] = ignore_partition,
    ask_about_silence: AskAboutSilence = members_reachable,
) -> Owner:
    """Create the owner of this process's partitions."""
    group_settings = settings.group_settings()
    return Owner(
        name=f"{socket.gethostname()}:{os.getpid()}",
        version=version(DISTRIBUTION),
        event_log=event_log,
        offsets=offsets,
        settings=group_settings,
        effective_settings=settings.effective_group_settings(),
        clock=clock,
        retention_clock=RetentionClock(clock, kept_ms=settings.offsets_retention_minutes * MINUTE_MS),
        refused_joins=RefusedJoins(group_settings, clock.monotonic_ms),
        answer_lease_ms=settings.answer_lease_ms if event_log.supports_takeover else None,
        log_url=settings.log,
        bootstrap=settings.advertise or (settings.listen if Address(settings.listen).port else "ADDRESS"),
        on_generation=on_generation,
        on_given_up=on_given_up,
        ask_about_silence=ask_about_silence,
        slices=Slices(answer_memory_of(settings.queued_max_request_bytes)),
        backlog=RequestBacklog(settings.queued_max_request_bytes // 2),
    )


def snapshot_folder(settings: Settings) -> SnapshotFolder | None:
    """Return the folder of snapshots, after checking that it is writable. Raises CannotServe."""
    if settings.snapshots is None:
        return None
    snapshots = SnapshotFolder(folder=settings.snapshots, interval_ms=settings.snapshot_interval_ms)
    try:
        snapshots.prepare()
    except OSError as error:
        raise CannotServe(
            f"{settings.name_of('snapshots')} {settings.snapshots}: {error.strerror}; name a folder to write in"
        ) from error
    return snapshots


def new_service(
    groups: Groups, cluster: Cluster, clock: Clock, runtime: Runtime, waiting_quota: WaitingQuota
) -> Service:
    """Create the service for handlers, on the running event loop."""
    loop = asyncio.get_running_loop()

    def call_later(delay_ms: int, callback: Callable[[], None]) -> Cancel:
        return loop.call_later(delay_ms / 1000, callback).cancel

    return Service(
        groups=groups,
        cluster=cluster,
        monotonic_ms=clock.monotonic_ms,
        wall_ms=clock.wall_ms,
        new_uuid=RandomUuids().next,
        new_request_id=itertools.count(1).__next__,
        call_later=call_later,
        gone=waiting_quota.release,
        slices=runtime.slices,
        turns=runtime.turns,
    )


async def take_over(runtime: Runtime, stack: AsyncExitStack, assigned: Iterable[int] | None = None) -> None:
    """Serve the groups of these partitions (default: all) until the stack is left. Raises LogError, EventsError.

    Partitions whose log is unavailable are retried.
    """
    stack.push_async_callback(runtime.stop)
    with kept_from_collection():
        await runtime.start(assigned)
    collect_in_slices()
    await runtime.all_owned()


def keep_trimmed(owner: Owner, stack: AsyncExitStack, *, lost: Callable[[Exception], None]) -> None:
    """Trim a log in a file to the audit window, in small steps; for a topic the brokers do that."""
    if isinstance(owner.event_log, SqliteEventLog):
        trimming = asyncio.create_task(_trim(owner.event_log, owner.retention_clock), name="trim")
        trimming.add_done_callback(on_failure(lost))
        stack.callback(trimming.cancel)


def watch_log_settings(
    settings: Settings,
    event_log: EventLog,
    parts: StatusParts,
    stack: AsyncExitStack,
    *,
    lost: Callable[[Exception], None],
) -> None:
    """Check the settings of a served topic periodically, until the stack is left; a file has none."""
    if settings.role == FRONTEND or not isinstance(event_log, WatchedLog):
        return
    watch = LogSettingsWatch(event_log, event_log.location, event_log.warnings)
    parts.log_flaws = lambda: watch.flaws
    looking = asyncio.create_task(watch.keep_checking(), name="log-settings")
    looking.add_done_callback(on_failure(lost))
    stack.callback(looking.cancel)


def watch_unassigned(
    runtime: Runtime,
    counts: PartitionCounts,
    clock: Clock,
    parts: StatusParts,
    stack: AsyncExitStack,
    *,
    lost: Callable[[Exception], None],
) -> None:
    """Look for partitions that groups have assigned to no member, until the stack is left."""
    watch = UnassignedWatch(runtime, counts, runtime.slices, clock.monotonic_ms)
    parts.unassigned = lambda: watch.unassigned
    looking = asyncio.create_task(watch.keep_checking(), name="unassigned")
    looking.add_done_callback(on_failure(lost))
    stack.callback(looking.cancel)


def keep_certificates(stack: AsyncExitStack, *, lost: Callable[[Exception], None]) -> None:
    """Reload renewed certificates, until the stack is left."""
    looking = asyncio.create_task(Certificates(contexts_of_files).keep_checking(), name="certificates")
    looking.add_done_callback(on_failure(lost))
    stack.callback(looking.cancel)


def watch_files(readiness: Readiness, stack: AsyncExitStack, *, lost: Callable[[Exception], None]) -> None:
    """Check that file descriptors are free, for /readyz and the log, until the stack is left."""
    looking = asyncio.create_task(readiness.free_files.keep_checking(), name="files")
    looking.add_done_callback(on_failure(lost))
    stack.callback(looking.cancel)


def collect(collector: Collector, stack: AsyncExitStack) -> None:
    """Register a collector of metrics, until the stack is left."""
    REGISTRY.register(collector)
    stack.callback(REGISTRY.unregister, collector)


def watch_loop(stack: AsyncExitStack) -> LoopWatch:
    """Run the watchdog of the event loop, until the stack is left."""
    watch = LoopWatch()
    watch.start()
    stack.callback(watch.close)
    return watch


def open_metrics_endpoint(
    settings: Settings,
    collectors: Iterable[Collector],
    readiness: Readiness,
    stack: AsyncExitStack,
    *,
    watch: LoopWatch,
    parts: StatusParts,
) -> int:
    """Serve metrics, status, health and readiness until the stack is left; return the port. Raises CannotServe."""
    mode = "standalone" if settings.upstream is None else "sidecar"
    for collector in (*process_collectors(mode, is_ready=lambda: readiness() is None), *collectors, watch):
        collect(collector, stack)
    NAMED_GROUPS.match(settings.metrics_groups)
    assert settings.metrics is not None
    at = Address(settings.metrics)
    try:
        endpoint = MetricsEndpoint(
            at.host,
            at.port,
            REGISTRY,
            not_ready=readiness,
            not_well=lambda: watch.not_well,
            status=_status_report(settings, parts, readiness, watch).json,
        )
    except OSError as error:
        raise CannotServe(f"{settings.name_of('metrics')} {at}: {why_not_bound(error)}") from error
    stack.callback(endpoint.close)
    log.info("metrics", listen=f"{at.host}:{endpoint.port}")
    return endpoint.port


def _status_report(settings: Settings, parts: StatusParts, readiness: Readiness, watch: LoopWatch) -> StatusReport:
    identity = Identity(
        version=version(DISTRIBUTION),
        mode="standalone" if settings.upstream is None else "sidecar",
        node_id=settings.node_id if settings.upstream is None or settings.share_partitions else None,
        listen=str(settings.advertise or settings.listen),
        log=settings.log,
        upstream=settings.upstream,
    )
    return StatusReport(identity, parts, not_ready=readiness, not_well=lambda: watch.not_well)


async def _trim(event_log: SqliteEventLog, clock: RetentionClock) -> None:
    while True:
        await asyncio.sleep(TRIM_INTERVAL_S)
        try:
            while (trimmed := await event_log.trim(clock.observe())).more:
                log.debug("trimmed", looked_at=trimmed.looked_at, deleted=trimmed.deleted)
                await asyncio.sleep(TRIM_PAUSE_S)
        except LogUnavailable as error:
            log.warning("could not trim the event log, retrying later", error=str(error))
