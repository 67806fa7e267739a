"""`muster serve`: the process from start to end, and the assembly of a standalone coordinator.

The address is bound first, so that a port in use is found before anything else is touched. Then the log is opened and
claimed, with retries while it is unavailable: /readyz and the log lines show why, and clients are answered
COORDINATOR_LOAD_IN_PROGRESS. In front of a cluster, sidecar/serve.py does the assembly.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack

import structlog

from muster.coordinator.assembly import (
    CannotServe,
    Readiness,
    collect,
    keep_certificates,
    keep_open,
    keep_trimmed,
    log_created,
    new_log,
    new_owner,
    new_service,
    new_waiting_quota,
    open_metrics_endpoint,
    snapshot_folder,
    take_over,
    watch_files,
    watch_log_settings,
    watch_loop,
    watch_unassigned,
)
from muster.coordinator.clock import SystemClock
from muster.coordinator.cluster import Cluster, new_cluster
from muster.coordinator.net.kept_sockets import KeptSockets
from muster.coordinator.observability.group_metrics import GroupMetrics
from muster.coordinator.observability.logs import configure_logs
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.observability.standby_metrics import StandbyMetrics
from muster.coordinator.observability.status import StatusParts
from muster.coordinator.offsets.open import offset_store_for
from muster.coordinator.open_files import within_open_files
from muster.coordinator.partition_sharing import PartitionSharing
from muster.coordinator.peers.ownership_group import NodeIdTaken
from muster.coordinator.runtime.ownership.takeover.ownership_end import end_unknown
from muster.coordinator.runtime.partition.waiting_limit import WaitingLimit
from muster.coordinator.runtime.runtime import Runtime
from muster.coordinator.service import Service
from muster.coordinator.settings.addresses import Address, why_not_bound
from muster.coordinator.settings.setting_sources import PROPERTY_FIELDS
from muster.coordinator.settings.settings import Settings
from muster.coordinator.standalone.missing_topics import MissingTopics
from muster.coordinator.standalone.server import Server, ServerSettings
from muster.coordinator.topics import BadTopic, DeclaredPartitions
from muster.coordinator.wire.registry import APIS, load_messages_of_members
from muster.events.kafka.addresses import KnownBrokers
from muster.events.log.base import Deposed, LogDamaged, LogError
from muster.events.records import EventsError
from muster.variables import sets_nothing

log = structlog.get_logger(__name__)

_ALONE = "the supervisor of this process ended"


class LogLost(Exception):
    """The process cannot continue: another one has the event log, its contents cannot be served, or there is a bug."""


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises CannotServe at startup, and later if its node id is taken; LogLost if it
    cannot continue.
    """
    configure_logs(settings.log_level, settings.log_format)
    kept = KeptSockets.of_environment()
    for variable, meant in sets_nothing(os.environ, Settings.model_fields.keys() - PROPERTY_FIELDS):
        hint = {} if meant is None else {"did_you_mean": meant}
        log.warning("ignoring an environment variable: no such setting", variable=variable, **hint)
    settings = within_open_files(settings)
    ended: asyncio.Future[Exception | str] = asyncio.get_running_loop().create_future()

    def end(why: Exception | str) -> None:
        if not ended.done():
            ended.set_result(why)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end, number.name)
    kept.when_alone(lambda: end(_ALONE))
    async with AsyncExitStack() as stack:
        starting = asyncio.create_task(_assembled(settings, stack, kept, lost=end), name="start")
        ended.add_done_callback(lambda _: starting.cancel())
        try:
            await starting
        except (LogError, EventsError, BadTopic, OSError) as error:
            raise CannotServe(_with_replay(error)) from error
        except asyncio.CancelledError:
            if not ended.done():
                raise
        why = await ended
        if _is_bug(why):
            log.error("stopping: this is a bug in Muster, please report it", exc_info=why)
        else:
            log.log(logging.WARNING if why == _ALONE else logging.INFO, "stopping", reason=_reason(why))
    if isinstance(why, NodeIdTaken):
        raise CannotServe(_message(why, settings)) from why
    if isinstance(why, Exception):
        raise LogLost(_message(why, settings)) from why


def _reason(why: Exception | str) -> str:
    if isinstance(why, Deposed):  # another line names it, once it is known
        return "another process has taken over the event log"
    return str(why)


def _is_bug(why: Exception | str) -> bool:
    """Return whether it is a bug of ours, whose traceback is needed, rather than an error of the event log."""
    return isinstance(why, Exception) and not isinstance(why, LogError | EventsError)


def _message(loss: Exception, settings: Settings) -> str:
    if _is_bug(loss):
        return f"ended because of a bug in Muster, please report it with the traceback above: {loss!r}"
    return f"{settings.log}: {_with_replay(loss)}"


def _with_replay(error: Exception) -> str:
    """Add a hint to use `muster replay`, which prints the same error without the hint."""
    return f"{error}; `muster replay` shows what can still be read" if isinstance(error, LogDamaged) else str(error)


async def _assembled(
    settings: Settings, stack: AsyncExitStack, kept: KeptSockets, *, lost: Callable[[Exception], None]
) -> None:
    if settings.upstream is None:
        await _start(settings, stack, lost=lost)
    else:
        from muster.coordinator.sidecar.serve import start  # noqa: PLC0415 -- a standalone process needs none of it

        await start(settings, stack, kept, lost=lost)


async def _start(settings: Settings, stack: AsyncExitStack, *, lost: Callable[[Exception], None]) -> None:
    """Start all parts; the stack stops them in reverse order."""
    known_brokers = KnownBrokers()
    event_log = new_log(settings, known_brokers)
    offsets = offset_store_for(
        event_log,
        settings.log,
        replication=settings.log_replication,
        security=settings.log_security(),
        known_brokers=known_brokers,
    )
    load_messages_of_members()
    watch = watch_loop(stack)  # after the imports, which block the event loop
    clock = SystemClock()
    cluster = _cluster(settings)
    readiness, metrics, parts = Readiness(clock), ServerMetrics(APIS), StatusParts()
    if settings.metrics is not None:
        open_metrics_endpoint(settings, (metrics,), readiness, stack, watch=watch, parts=parts)
    keep_certificates(stack, lost=lost)
    watch_files(readiness, stack, lost=lost)
    owner = new_owner(settings, event_log, offsets, clock)
    sharing = (
        PartitionSharing(settings, event_log, clock, known_brokers=known_brokers) if settings.share_partitions else None
    )
    runtime = Runtime(
        owner,
        give_up=lost,
        deposed=None if sharing is None else sharing.deposed,
        end_of=end_unknown if sharing is None else sharing.end_of,
        stands_by=settings.stands_by,
        snapshots=snapshot_folder(settings),
    )
    waiting_quota = new_waiting_quota(settings, metrics)
    service = new_service(
        WaitingLimit(runtime, waiting_quota, runtime.is_member), cluster, clock, runtime, waiting_quota
    )
    service.missing_topic = MissingTopics(service.monotonic_ms).note
    server = Server(settings=_server_settings(settings), service=service, apis=APIS, metrics=metrics)
    await _listen(server, settings)
    stack.push_async_callback(server.close)
    _advertise(service, server, settings)
    collect(GroupMetrics(runtime.figures), stack)
    parts.ownership = runtime.status
    collect(StandbyMetrics(runtime.standby_figures), stack)
    listen = f"{service.cluster.node.host}:{service.cluster.node.port}"
    log.info("listening", listen=listen, log=settings.log)
    await keep_open(event_log, settings, stack, readiness, lost=lost)
    await readiness.retry_until_available(offsets.open, settings.log, lambda: event_log.trouble)
    stack.push_async_callback(offsets.close)
    log_created(offsets.own_log)
    if sharing is None:
        readiness.reason = lambda: runtime.not_ready
        await take_over(runtime, stack)
        stack.callback(server.stop_listening)
    else:
        stop_listening = server.stop_listening
        await sharing.begin(runtime, service, stack, readiness, parts, lost=lost, stop_listening=stop_listening)
    keep_trimmed(owner, stack, lost=lost)
    watch_log_settings(settings, event_log, parts, stack, lost=lost)
    watch_unassigned(runtime, DeclaredPartitions(lambda: service.cluster.topics), clock, parts, stack, lost=lost)
    log.info("serving", listen=listen, log=settings.log)


def _cluster(settings: Settings) -> Cluster:
    for topic in settings.topic:
        if ":" not in topic:
            log.info(
                "topic declared without a number of partitions: it gets one", topic=topic, say=f"{topic}:PARTITIONS"
            )
    address = Address(settings.advertise or settings.listen)
    return new_cluster(
        cluster_id=settings.cluster_id,
        node_id=settings.node_id,
        host=address.host,
        port=address.port,
        topics=settings.topics(),
    )


def _server_settings(settings: Settings) -> ServerSettings:
    listen = Address(settings.listen)
    return ServerSettings(
        host=listen.host,
        port=listen.port,
        limits=settings.connection_limits(),
        frame_bytes_max=settings.frame_bytes_max,
    )


async def _listen(server: Server, settings: Settings) -> None:
    try:
        await server.start()
    except OSError as error:
        raise CannotServe(f"{settings.name_of('listen')} {settings.listen}: {why_not_bound(error)}") from error


def _advertise(service: Service, server: Server, settings: Settings) -> None:
    """Advertise the bound address; a port of 0 is only known now."""
    if settings.advertise is None:
        service.cluster = service.cluster.advertised_at(Address(settings.listen).host, server.port)
