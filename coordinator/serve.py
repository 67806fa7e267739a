"""One process of the coordinator, put together: log, offsets, runtime, server, side door; started and stopped in order.

The address is bound before the log is claimed, so that a port that is taken harms nobody; while the log is read,
clients are answered as Kafka answers while it loads.
"""

import asyncio
import gc
import itertools
import os
import signal
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from importlib.metadata import version

import structlog

from coordinator.clock import SystemClock
from coordinator.cluster import BadTopic, Cluster, new_cluster
from coordinator.logs import configure_logs
from coordinator.metrics import REGISTRY, GroupMetrics, ServerMetrics
from coordinator.metrics_endpoint import MetricsEndpoint
from coordinator.offsets.open import offset_store_for
from coordinator.ownership import Owner
from coordinator.runtime import Runtime
from coordinator.server import Server, ServerSettings
from coordinator.service import Cancel, Service
from coordinator.settings import Address, Settings
from coordinator.tasks import on_failure
from coordinator.wire.registry import APIS
from events.log.base import LogError
from events.log.sqlite import SqliteEventLog
from events.log.url import open_log
from events.records import EventsError

log = structlog.get_logger(__name__)

TRIM_EVERY_S = 60.0
TRIM_PAUSE_S = 0.2
"""Between two pieces of a trim: appends wait while one is worked on."""


class CannotServe(Exception):
    """Something given cannot be used: the message names it and the way out."""


class LogLost(Exception):
    """Another process has the event log now, or what is in it cannot be served."""


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises CannotServe at the start, LogLost later."""
    configure_logs(settings.log_level, settings.log_format)
    ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def end(loss: Exception | None = None) -> None:
        if not ended.done():
            ended.set_result(loss)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)
    async with AsyncExitStack() as stack:
        starting = asyncio.create_task(_start(settings, stack, lost=end), name="start")
        ended.add_done_callback(lambda _: starting.cancel())
        try:
            await starting
        except (LogError, EventsError, BadTopic, OSError) as error:
            raise CannotServe(str(error)) from error
        except asyncio.CancelledError:
            if not ended.done():
                raise
        loss = await ended
        log.info("stopping", reason=str(loss) if loss else "asked to")
    if loss is not None:
        raise LogLost(f"{settings.log}: {loss}") from loss


async def _start(settings: Settings, stack: AsyncExitStack, *, lost: Callable[[Exception], None]) -> None:
    """Start all parts; the stack stops them the other way round."""
    clock = SystemClock()
    event_log = open_log(
        settings.log,
        partitions=settings.log_partitions,
        replication=settings.log_replication,
        audit_window_ms=settings.audit_window_ms,
    )
    cluster = _cluster(settings)
    await event_log.open()
    stack.push_async_callback(event_log.close)
    for warning in event_log.warnings:
        log.warning("the event log's guarantee is weakened", reason=warning)
    offsets = offset_store_for(event_log, settings.log, replication=settings.log_replication)
    owner = Owner(
        name=f"{socket.gethostname()}:{os.getpid()}",
        version=version("muster"),
        event_log=event_log,
        offsets=offsets,
        settings=settings.group_settings(),
        effective_settings=settings.effective_group_settings(),
        clock=clock,
    )
    runtime = Runtime(owner, give_up=lost)
    service = _service(runtime, cluster, clock)
    metrics = ServerMetrics(APIS)
    server = Server(settings=_server_settings(settings), service=service, apis=APIS, metrics=metrics)
    await _listen(server, settings)
    stack.push_async_callback(server.close)
    _advertise(service, server, settings)
    if settings.metrics is not None:
        _open_side_door(settings.metrics, metrics, runtime, stack)
    await offsets.open()
    stack.push_async_callback(offsets.close)
    stack.push_async_callback(runtime.stop)
    with _no_garbage_collection():
        await runtime.start()
    stack.callback(server.stop_listening)
    if isinstance(event_log, SqliteEventLog):
        trimming = asyncio.create_task(_trim(event_log, clock), name="trim")
        trimming.add_done_callback(on_failure(lost))
        stack.callback(trimming.cancel)
    log.info("serving", listen=f"{service.cluster.host}:{service.cluster.port}", log=settings.log)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """What is loaded stays: looking for garbage in it, now or later, finds none and takes time."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def _cluster(settings: Settings) -> Cluster:
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
        connections_max=settings.connections_max,
        connections_max_idle_ms=settings.connections_max_idle_ms,
        frame_bytes_max=settings.frame_bytes_max,
    )


def _service(runtime: Runtime, cluster: Cluster, clock: SystemClock) -> Service:
    loop = asyncio.get_running_loop()

    def call_later(delay_ms: int, callback: Callable[[], None]) -> Cancel:
        return loop.call_later(delay_ms / 1000, callback).cancel

    return Service(
        groups=runtime,
        cluster=cluster,
        monotonic_ms=clock.monotonic_ms,
        wall_ms=clock.wall_ms,
        new_uuid=lambda: str(uuid.uuid4()),
        new_request_id=itertools.count(1).__next__,
        call_later=call_later,
    )


async def _listen(server: Server, settings: Settings) -> None:
    try:
        await server.start()
    except OSError as error:
        reason = error.strerror or str(error)
        raise CannotServe(f"--listen {settings.listen}: {reason}; choose another port, 0 takes a free one") from error


def _advertise(service: Service, server: Server, settings: Settings) -> None:
    """A port of 0 is known only now."""
    if settings.advertise is None:
        service.cluster = service.cluster.advertised_at(Address(settings.listen).host, server.port)


def _open_side_door(address: str, metrics: ServerMetrics, runtime: Runtime, stack: AsyncExitStack) -> None:
    for collector in (metrics, GroupMetrics(runtime.figures)):
        REGISTRY.register(collector)
        stack.callback(REGISTRY.unregister, collector)
    at = Address(address)
    try:
        endpoint = MetricsEndpoint(at.host, at.port, REGISTRY, lambda: runtime.ready)
    except OSError as error:
        raise CannotServe(f"--metrics {address}: {error.strerror}; choose another port, 0 takes a free one") from error
    stack.callback(endpoint.close)
    log.info("metrics", listen=f"{at.host}:{endpoint.port}")


async def _trim(event_log: SqliteEventLog, clock: SystemClock) -> None:
    """Keep the file to the audit window, a little at a time."""
    while True:
        await asyncio.sleep(TRIM_EVERY_S)
        try:
            while (trimmed := await event_log.trim(clock.wall_ms())).more:
                log.debug("trimmed", looked_at=trimmed.looked_at, deleted=trimmed.deleted)
                await asyncio.sleep(TRIM_PAUSE_S)
        except LogError as error:
            log.warning("the event log could not be trimmed, trying again later", error=str(error))
